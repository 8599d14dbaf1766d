//! Facts that a node sends: content of state files, never structure, and no way to other files.

use std::path::Path;
use std::sync::Arc;

use bunraku_states::{CompileError, CompiledStates, FactTrust, Input, Target, World, compile};
use serde_json::{Map, Value, json};

use crate::support::{Memory, facts};

fn sent(may_target: bool) -> FactTrust {
    FactTrust::Sent { may_target }
}

fn with_facts(more: &Value) -> Map<String, Value> {
    let mut facts = facts();
    facts.extend(more.as_object().cloned().expect("a map"));
    facts
}

fn compiled_with(
    memory: Memory,
    target: Target,
    more: &Value,
    fact_trust: FactTrust,
) -> Result<CompiledStates, CompileError> {
    let world: Arc<dyn World> = Arc::new(memory);
    let input = Input {
        node: "web1.example.net".to_owned(),
        facts: with_facts(more),
        target,
        fact_trust,
        ..Input::default()
    };
    compile(&world, &input)
}

/// Compiles one file with the fact `x`.
fn with_x(text: &str, x: &Value) -> Result<CompiledStates, CompileError> {
    let memory = Memory::new(&[("case.sls", text)], &[]);
    let target = Target::Files(vec!["case".to_owned()]);
    compiled_with(memory, target, &json!({ "x": x }), sent(false))
}

fn message(outcome: Result<CompiledStates, CompileError>) -> String {
    match outcome {
        Ok(_) => panic!("it was compiled"),
        Err(error) => error.to_string(),
    }
}

fn resources(compiled: &CompiledStates) -> Value {
    serde_json::to_value(&compiled.catalog).expect("plain data")
}

#[test]
fn a_line_break_in_a_fact_adds_no_state_and_its_place_is_named() {
    let text = "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: {{ grains['x'] }}\n";
    let attack = "hello\nstolen:\n  file.managed:\n    - name: /tmp/key\n    - source: salt://db/private.key";
    let printed = message(with_x(text, &json!(attack)));
    assert!(
        printed.contains("a fact contains a control character (line break)"),
        "{printed}"
    );
    assert!(printed.contains("case.sls:4"), "{printed}");
    // The same through every way to reach a fact.
    for expression in [
        "facts.x",
        "salt['grains.get']('x')",
        "salt.grains.get('x')",
        "grains.get('x')",
        "grains['x'] | indent(4)",
        "grains['x'] | lower",
        "grains['x'] ~ 'y'",
        "'%s' | format(grains['x'])",
        "grains['x'] | replace('hello', 'bye')",
        "[grains['x']] | join(',')",
        "(grains['x'] | json | load_json)",
        "(grains['x'] | base64_encode | base64_decode)",
        "salt['config.get']('x')",
    ] {
        let text = text.replace("grains['x']", expression);
        let outcome = with_x(&text, &json!(attack));
        assert!(outcome.is_err(), "{expression}");
    }
    // And in the names of facts.
    let text = "{% for key in grains['x'] %}\na-{{ key }}:\n  test.nop: []\n{% endfor %}\n";
    let printed = message(with_x(text, &json!({ attack: 1 })));
    assert!(printed.contains("control character"), "{printed}");
}

/// Returns the data with `plain` wherever it has the attack as text.
fn hidden(data: &Value, attack: &str) -> Value {
    match data {
        Value::String(text) => text.replace(attack, "plain").into(),
        Value::Array(items) => items.iter().map(|item| hidden(item, attack)).collect(),
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| (key.clone(), hidden(value, attack)));
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}

/// What is read with a fact is what would be read if the fact were plain text.
#[test]
fn no_fact_is_more_than_one_value() {
    let attacks = [
        "a: b",
        "a:",
        "{a: b}",
        "[a, b]",
        "a, b: c",
        "x} , {y: z",
        "x]",
        "# comment",
        "a # comment",
        "'quoted'",
        "\"quoted\"",
        "it's",
        "- item",
        "? key",
        "*alias",
        "&anchor x",
        "!tag x",
        "| x",
        "> x",
        "%x",
        "@x",
        "`x",
        "\\",
        "x\\\"y",
        "x\", source: \"salt://db/private.key",
        "x', source: 'salt://db/private.key",
        "both ' and \" quotes, {a: b}",
        "tab\there",
        "\u{85}next",
        "\u{1b}[31m",
    ];
    let places = [
        "a:\n  test.configurable_test_state:\n    - name: {{ grains['x'] }}\n",
        "a:\n  test.configurable_test_state:\n    - name: \"{{ grains['x'] }}\"\n",
        "a:\n  test.configurable_test_state:\n    - name: '{{ grains['x'] }}'\n",
        "a:\n  test.configurable_test_state:\n    - name: pre {{ grains['x'] }} post\n",
        "a:\n  test.configurable_test_state: [{name: {{ grains['x'] }}}]\n",
        "a:\n  test.configurable_test_state:\n    - {{ grains['x'] }}\n",
        "{{ grains['x'] }}:\n  test.nop: []\n",
        "a:\n  test.configurable_test_state:\n    - name: {{ [grains['x'], 'y'] }}\n",
        "a:\n  test.configurable_test_state:\n    - name: |\n        {{ grains['x'] }}\n",
    ];
    let (mut refused, mut taken) = (0, 0);
    for place in places {
        let plain = with_x(place, &json!("plain")).ok();
        for attack in attacks {
            let Ok(compiled) = with_x(place, &json!(attack)) else {
                refused += 1;
                continue;
            };
            taken += 1;
            let plain = plain
                .as_ref()
                .map(resources)
                .expect("a plain value compiles");
            let shown = hidden(&resources(&compiled), attack);
            assert_eq!(shown, plain, "{place}{attack:?}");
        }
    }
    assert!(
        refused > 100 && taken > 20,
        "{refused} refused, {taken} taken"
    );
}

#[test]
fn facts_that_are_quoted_by_a_filter_may_contain_anything() {
    for filter in ["json", "tojson", "yaml_encode", "yaml_dquote", "yaml"] {
        let text = format!(
            "a:\n  test.configurable_test_state:\n    - name: {{{{ grains['x'] | {filter} }}}}\n"
        );
        for value in ["a\nb: c", "it's \"x\"", "{a: b}", "# x", "tab\t", "\\n"] {
            let compiled = with_x(&text, &json!(value));
            let compiled = compiled.unwrap_or_else(|error| panic!("{filter} {value:?}: {error}"));
            assert_eq!(compiled.low[0].name, value, "{filter}");
        }
    }
}

#[test]
fn ordinary_uses_of_facts_and_of_structured_data_go_on() {
    let states = "\
{% set roles = grains['roles'].split(',') %}
{% for role in roles %}
role-{{ role }}:
  test.nop: []
{% endfor %}
{% if ':' in grains['address'] %}
six:
  test.nop:
    - name: '[{{ grains['address'] }}]'
{% endif %}
{{ grains['mac'] | replace(':', '-') }}:
  test.nop: []
list:
  test.configurable_test_state:
    - name: {{ pillar['list'] }}
text:
  test.configurable_test_state:
    - name: |
        {{ pillar['text'] | indent(8) }}
map:
  test.configurable_test_state: {{ pillar['arguments'] | yaml }}
{{ pillar['fragment'] }}
cpu {{ grains['cpu'] | sha256 }}:
  test.nop: []
";
    let pillar = "\
list: [a, b]
text: \"one\\ntwo: three\"
arguments: [{name: x}]
fragment: \"more:\\n  test.nop: []\"
";
    let memory = Memory::new(
        &[("case.sls", states)],
        &[("top.sls", "base: {'*': [data]}\n"), ("data.sls", pillar)],
    );
    let target = Target::Files(vec!["case".to_owned()]);
    let more = json!({
        "roles": "web,db", "address": "fe80::1", "mac": "aa:bb:cc:dd:ee:ff",
        "cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz, 4 cores", "cmdline": "a='b' c=\"d\" {e}",
    });
    let compiled = compiled_with(memory, target, &more, sent(false)).expect("ordinary");
    let names: Vec<&str> = compiled.low.iter().map(|state| state.id.as_str()).collect();
    assert_eq!(names.len(), 9, "{names:?}");
    assert!(
        names.contains(&"role-db") && names.contains(&"more"),
        "{names:?}"
    );
    assert!(names.contains(&"aa-bb-cc-dd-ee-ff"), "{names:?}");
}

fn top(memory: Memory, role: &str, fact_trust: FactTrust) -> Result<CompiledStates, CompileError> {
    compiled_with(
        memory,
        Target::Highstate,
        &json!({ "role": role }),
        fact_trust,
    )
}

#[test]
fn facts_select_states_only_if_an_operator_says_so() {
    let memory = |top: &str| {
        let (db, web) = ("secret:\n  test.nop: []\n", "page:\n  test.nop: []\n");
        Memory::new(&[("top.sls", top), ("db.sls", db), ("web.sls", web)], &[])
    };
    for by_fact in [
        "base: {'*': [web], 'G@role:db': [db]}\n",
        "base: {'*': [web], 'role:db': [{match: grain}, db]}\n",
        "base:\n  '*':\n    - web\n{% if grains.get('role') == 'db' %}\n    - db\n{% endif %}\n",
        "base:\n  '*':\n    - {{ grains['role'] }}\n",
    ] {
        let printed = message(top(memory(by_fact), "db", sent(false)));
        assert!(
            printed.contains("--fact-targeting on"),
            "{by_fact}: {printed}"
        );
        let compiled = top(memory(by_fact), "db", sent(true)).expect("an operator said so");
        assert!(compiled.files.contains(&"db".to_owned()), "{by_fact}");
    }
    // Nothing changes for a node whose facts decide nothing.
    let by_fact = "base: {'*': [web], 'G@role:db': [db]}\n";
    let compiled = top(memory(by_fact), "web", sent(false)).expect("not selected by facts");
    assert_eq!(compiled.files, ["web"]);
    let by_name = "base: {'web1*': [web], 'E@web\\d.*': [db]}\n";
    let compiled = top(memory(by_name), "x", sent(false)).expect("selected by name");
    assert_eq!(compiled.files, ["web", "db"]);
}

#[test]
fn facts_select_data_only_if_an_operator_says_so() {
    let memory = |top: &str, data: &str| {
        let states = [
            ("top.sls", "base: {'*': [web]}\n"),
            (
                "web.sls",
                "a:\n  test.nop:\n    - name: {{ pillar.get('password', 'none') }}\n",
            ),
        ];
        Memory::new(&states, &[("top.sls", top), ("data.sls", data)])
    };
    let all = "base: {'*': [data]}\n";
    for (top_file, data) in [
        ("base: {'G@role:db': [data]}\n", "password: secret\n"),
        (
            all,
            "{% if grains.get('role') == 'db' %}\npassword: secret\n{% endif %}\n",
        ),
        (
            all,
            "password: {{ {'db': 'secret'}.get(grains['role'], 'none') }}\n",
        ),
        (all, "password: {{ salt['grains.get']('role') }}\n"),
    ] {
        let printed = message(top(memory(top_file, data), "db", sent(false)));
        assert!(
            printed.contains("the data (pillar) of `web1.example.net` depends on its facts"),
            "{printed}"
        );
        top(memory(top_file, data), "db", sent(true)).expect("an operator said so");
    }
    let by_name = "{% if grains['id'].startswith('web1') %}\npassword: x\n{% endif %}\n";
    top(memory(all, by_name), "db", sent(false)).expect("the name is the certificate's");
}

#[test]
fn facts_fill_a_step_of_a_path_and_add_none() {
    let text = "a:\n  file.managed:\n    - name: /etc/ntp.conf\n    - source: salt://ntp/{{ grains['x'] }}/ntp.conf\n";
    let memory = || {
        let files = [
            ("case.sls", text),
            ("ntp/Debian/ntp.conf", "x"),
            ("db/private.key", "key"),
        ];
        Memory::new(&files, &[])
    };
    let compile = |x: &str, may_target: bool| {
        let target = Target::Files(vec!["case".to_owned()]);
        compiled_with(memory(), target, &json!({ "x": x }), sent(may_target))
    };
    compile("Debian", false).expect("one step");
    for steps in ["..", "../db", "Debian/../../db", "/"] {
        let printed = message(compile(steps, false));
        assert!(
            printed.contains("a fact adds steps to this path"),
            "{steps}: {printed}"
        );
    }
    compile("a/b", true).expect("an operator said so");
}

/// Every file of the corpus compiles as before when its facts come from a node.
#[test]
fn the_corpus_compiles_the_same_with_sent_facts() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let memory = || Memory::read(&tests.join("corpus"), &tests.join("corpus_pillar"));
    let names: Vec<String> = memory()
        .states
        .keys()
        .filter(|path| path.ends_with(".sls") && !path.contains('/') && *path != "top.sls")
        .map(|path| path.trim_end_matches(".sls").to_owned())
        .collect();
    assert!(names.len() > 100);
    // Facts of an ordinary machine, with the characters that they have.
    let more = json!({
        "cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet \"x y\"", "path": "/usr/bin:/bin",
        "mounts": {"/": {"options": ["rw", "relatime"]}}, "cpu": "Xeon(R) @ 2.20GHz, 4 cores",
        "description": "Debian GNU/Linux 12 (bookworm)", "address": "fe80::", "dmi": "To be filled: #1",
    });
    for name in names {
        let run = |trust| {
            let target = Target::Files(vec![name.clone()]);
            match compiled_with(memory(), target, &more, trust) {
                Ok(compiled) => resources(&compiled).to_string(),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(run(FactTrust::Own), run(sent(true)), "{name}");
    }
}

/// Compares a directory of formulas that are not part of the project. Each file compiles the same,
/// or fails the same, with facts that a node sent:
/// `BUNRAKU_FORMULAS=DIR cargo nextest run -E 'test(formulas_compile)' --run-ignored only`.
#[test]
#[ignore = "needs other people's formulas, which are not part of the project: CI has none"]
fn formulas_compile_the_same_with_sent_facts() {
    let root = std::env::var("BUNRAKU_FORMULAS").expect("a directory of formulas");
    let more = json!({
        "cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet \"x y\"", "path": "/usr/bin:/bin",
        "mounts": {"/": {"options": ["rw", "relatime"]}}, "cpu": "Xeon(R) @ 2.20GHz, 4 cores",
        "description": "Debian GNU/Linux 12 (bookworm)", "address": "fe80::", "roles": "web,db",
        "init": "systemd", "systemd": {"version": "252"}, "virtual": "kvm",
    });
    let no_pillar = tempfile::tempdir().expect("a directory");
    let (mut good, mut bad, mut different) = (0, 0, Vec::new());
    for entry in std::fs::read_dir(root).expect("a directory") {
        let formula = entry.expect("an entry").path();
        let read = || Memory::read(&formula, no_pillar.path());
        if !formula.is_dir() {
            continue;
        }
        let example = std::fs::read_to_string(formula.join("pillar.example")).unwrap_or_default();
        let names: Vec<String> = read()
            .states
            .keys()
            .filter(|path| path.ends_with(".sls") && !path.starts_with("test/"))
            .map(|path| {
                path.trim_end_matches(".sls")
                    .trim_end_matches("/init")
                    .replace('/', ".")
            })
            .collect();
        for name in names {
            let run = |trust| {
                let mut memory = read();
                memory.pillar = [
                    ("top.sls".to_owned(), "base: {'*': [data]}\n".to_owned()),
                    ("data.sls".to_owned(), example.clone()),
                ]
                .into();
                let target = Target::Files(vec![name.clone()]);
                match compiled_with(memory, target, &more, trust) {
                    Ok(compiled) => (true, resources(&compiled).to_string()),
                    Err(error) => (false, error.to_string()),
                }
            };
            let (own, other) = (run(FactTrust::Own), run(sent(true)));
            if own.0 {
                good += 1;
            } else {
                bad += 1;
            }
            if own != other {
                different.push(format!("{} {name}: {}", formula.display(), other.1));
            }
        }
    }
    println!(
        "{good} compiled, {bad} refused, {} different",
        different.len()
    );
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(good > 0, "nothing was compiled");
}
