//! Harmful input: bombs, infinite loops, incomplete templates, size.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::support::{Memory, compiled, compiled_text, facts, refused, run};
use bunraku_states::{Input, OtherNodePolicy, Target, World, compile};

#[test]
fn filters_that_make_text_longer_each_time_end_with_a_clear_error() {
    for filter in ["tojson", "yaml_dquote", "replace('a', 'aaaaaaaaaaaaaaaa')"] {
        let chain = format!("| {filter} ").repeat(60);
        let template = format!("x: {{{{ '\\\\a' {chain} }}}}");
        let error = refused(&template);
        assert!(error.contains("too long"), "{filter}: {error}");
    }
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..14 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{items}]");
    }
    assert!(refused(&text).contains("too many nodes"));
}

#[test]
fn loops_that_would_not_end_in_a_lifetime_are_refused() {
    let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
    assert!(
        refused(nested).contains("exceeds its limit of steps"),
        "{}",
        refused(nested)
    );
    let recursive = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(!refused(recursive).is_empty());
    let doubling = "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    assert!(
        refused(doubling).contains("too long"),
        "{}",
        refused(doubling)
    );
    let lists =
        "{% set x = [1, 2, 3, 4] %}{% for i in range(60) %}{% do x.extend(x) %}{% endfor %}";
    assert!(refused(lists).contains("too long"), "{}", refused(lists));
    let output = "{% set x = 'a' * 1000000 %}{% for i in range(9999) %}{{ x }}{% endfor %}";
    assert!(refused(output).contains("too large"), "{}", refused(output));
}

#[test]
fn a_file_that_includes_itself_and_a_circle_of_files_are_read_once() {
    let world: Arc<dyn World> = Arc::new(Memory::new(
        &[
            ("case.sls", "include:\n  - case\n  - other\na: test.nop\n"),
            ("other.sls", "include:\n  - case\nb: test.nop\n"),
        ],
        &[],
    ));
    assert_eq!(compiled(&world, "case").expect("it compiles").low.len(), 2);
}

#[test]
fn templates_that_import_each_other_are_refused() {
    let world: Arc<dyn World> = Arc::new(Memory::new(
        &[
            ("case.sls", "{% import 'a.jinja' as a %}\nx: test.nop\n"),
            ("a.jinja", "{% import 'b.jinja' as b %}"),
            ("b.jinja", "{% import 'a.jinja' as a %}"),
        ],
        &[],
    ));
    assert!(compiled(&world, "case").is_err());
}

#[test]
fn a_template_that_fails_half_way_applies_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let witness = directory.path().join("witness");
    let text = format!(
        "touch:\n  cmd.run:\n    - name: touch {}\n{{{{ raise('half way') }}}}\n",
        witness.display()
    );
    let error = refused(&text);
    assert!(
        error.contains("half way") && error.contains("case.sls:4:"),
        "{error}"
    );
    assert!(!witness.exists());
}

#[test]
fn unicode_is_kept_in_ids_names_and_references() {
    let compiled = compiled_text("größe:\n  test.nop:\n    - name: 日本\n🎭:\n  test.nop:\n    - require:\n      - test: 日本\n").expect("it compiles");
    assert_eq!(compiled.low[0].name, "日本");
    assert_eq!(
        compiled.low[1].requisites,
        vec![("require".to_owned(), vec![0])]
    );
}

#[test]
fn ten_thousand_states_with_fifty_thousand_requisites_are_ordered_and_run() {
    let mut text = String::new();
    for number in 0..10_000_u64 {
        let _ = write!(text, "state {number}:\n  test.nop");
        if number >= 5 {
            text.push_str(":\n    - require:\n");
            for back in 1..=5 {
                let target = number - 1 - (number * 7919 * back) % number.min(50);
                let _ = writeln!(text, "      - test: state {target}");
            }
        } else {
            text.push('\n');
        }
    }
    let compiled = compiled_text(&text).expect("it compiles");
    assert_eq!(compiled.low.len(), 10_000);
    for low in &compiled.low {
        assert!(
            low.requisites
                .iter()
                .flat_map(|(_, targets)| targets)
                .all(|target| *target < low.position)
        );
    }
    let directory = tempfile::tempdir().expect("a directory");
    let summary = run(&compiled, directory.path(), None);
    assert_eq!(summary.finished.len(), 10_000);
    assert!(summary.succeeded());
}

#[test]
fn outputs_flow_into_later_states_and_imply_the_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("seen");
    let text = format!(
        "use:\n  file.managed:\n    - name: {}\n    - contents: 'rc ${{ token.rc }}: ${{ token.stdout }}'\nsource:\n  cmd.run:\n    - name: printf secret-42\n    - register: token\n",
        file.display()
    );
    let compiled = compiled_text(&text).expect("it compiles");
    assert_eq!(compiled.low[0].id, "source");
    let summary = run(&compiled, &directory.path().join("state"), None);
    assert!(summary.succeeded(), "{summary:?}");
    assert_eq!(
        std::fs::read_to_string(file).expect("written"),
        "rc 0: secret-42\n"
    );
}

#[test]
fn an_output_of_a_failed_state_is_a_clear_error() {
    let text = "source:\n  cmd.run:\n    - name: 'false'\n    - register: token\nuse:\n  cmd.run:\n    - name: 'echo ${ token.stdout }'\n";
    let directory = tempfile::tempdir().expect("a directory");
    let summary = run(
        &compiled_text(text).expect("it compiles"),
        directory.path(),
        None,
    );
    assert_eq!(summary.finished[1].outcome.result(), Some(false));
    assert!(!summary.finished[1].outcome.ran());
}

#[test]
fn an_output_of_another_node_needs_a_run_and_the_catalog_says_so() {
    let text = "use:\n  cmd.run:\n    - name: 'echo ${ node(\"db1\").token.stdout }'\n";
    let alone = compiled_text(text).expect("it compiles");
    let directory = tempfile::tempdir().expect("a directory");
    let summary = run(&alone, directory.path(), None);
    let outcome = &summary.finished[0].outcome;
    assert_eq!(outcome.result(), Some(false));
    assert!(
        outcome
            .message
            .as_deref()
            .is_some_and(|message| message.contains("`db1`") && message.contains("needs a run"))
    );

    let world: Arc<dyn World> = Arc::new(Memory::new(&[("case.sls", text)], &[]));
    let input = Input {
        node: "web1".to_owned(),
        facts: facts(),
        target: Target::Files(vec!["case".to_owned()]),
        other_nodes: OtherNodePolicy::Keep,
        ..Input::default()
    };
    let kept = compile(&world, &input).expect("it compiles");
    let resource = &kept.catalog.resources[0];
    assert_eq!(
        resource.other["reads_from_nodes"],
        serde_json::json!([{"node": "db1", "register": "token"}])
    );
    assert_eq!(resource.type_name, "Exec");
}

#[test]
fn the_same_tree_gives_the_same_catalog_id() {
    let text = "{% for n in range(50) %}\ns{{ n }}:\n  test.nop:\n    - require_in:\n      - test: last\n{% endfor %}\nlast: test.nop\n";
    let first = compiled_text(text).expect("it compiles").catalog.id();
    let again = compiled_text(text).expect("it compiles").catalog.id();
    let moved = compiled_text(&format!("# a comment\n{text}"))
        .expect("it compiles")
        .catalog
        .id();
    assert_eq!(first, again);
    assert_eq!(first, moved);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]
    #[test]
    fn no_text_makes_it_panic(text in "([a-c]: ?|test\\.nop|\n|  |- |\\{% (set x = |if |endif|for a in |endfor|load_yaml as y|endload)|%\\}|\\{\\{ ?|\\}\\}|require|\\[|\\]|'|&a|\\*a){0,40}") {
        let _ = compiled_text(&text);
    }
}
