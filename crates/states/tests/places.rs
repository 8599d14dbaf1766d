//! The errors for an invalid tree: what, where, why, and what to do.

use std::sync::Arc;

use crate::support::{Memory, compiled, facts, refused};
use bunraku_states::{Input, Target, World, compile};
use expect_test::{Expect, expect};

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&refused(text));
}

fn check_tree(files: &[(&str, &str)], expected: Expect) {
    let world: Arc<dyn World> = Arc::new(Memory::new(files, &[]));
    match compiled(&world, "case") {
        Ok(_) => panic!("it was compiled"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

#[test]
fn a_key_given_twice_names_both_places() {
    check(
        "one: test.nop\ntwo: test.nop\none: test.nop\n",
        expect![[r#"
            the key `one` is set twice
              --> case.sls:3:1
              ::: case.sls:1:1 first defined here"#]],
    );
}

#[test]
fn an_id_declared_in_two_files_names_both_places() {
    check_tree(
        &[
            ("case.sls", "include:\n  - other\nsame: test.nop\n"),
            ("other.sls", "first: test.nop\nsame: test.nop\n"),
        ],
        expect![[r#"
            the id `same` is declared twice
              --> other.sls:2:1
              ::: case.sls:3:1 first declared here
              hint: ids must be unique across all files: change one of them and set its `name`"#]],
    );
}

#[test]
fn a_missing_reference_suggests_near_names() {
    check(
        "web server: test.nop\nafter:\n  test.nop:\n    - require:\n      - test: web servr\n",
        expect![[r#"
            `require` refers to `test: web servr`, which does not exist
              --> case.sls:5:15
              hint: did you mean `web server`?"#]],
    );
    check(
        "one: test.nop\nafter:\n  test.nop:\n    - require:\n      - file: one\n",
        expect![[r#"
            `require` refers to `file: one`, which does not exist
              --> case.sls:5:15
              hint: did you mean `test: one`?"#]],
    );
}

#[test]
fn a_cycle_shows_the_whole_path_with_places() {
    check(
        "a:\n  test.nop:\n    - require:\n      - test: b\nb:\n  test.nop:\n    - watch:\n      - test: c\nc:\n  test.nop:\n    - onchanges:\n      - test: a\nfree: test.nop\n",
        expect![[r#"
            dependency cycle of states, starting with `test: a`
              --> case.sls:2:3
              ::: case.sls:2:3 `test: a` waits for `test: b` (require)
              ::: case.sls:6:3 `test: b` waits for `test: c` (watch)
              ::: case.sls:10:3 `test: c` waits for `test: a` (onchanges)
              hint: remove one of these requisites"#]],
    );
}

#[test]
fn an_undefined_variable_has_its_line_and_column() {
    check(
        "one: test.nop\ntwo:\n  test.nop:\n    - name: {{ nothing }}\n",
        expect![[r#"
            undefined value: `nothing` is undefined
              --> case.sls:4:16"#]],
    );
}

#[test]
fn an_error_in_an_imported_file_is_placed_there() {
    check_tree(
        &[
            (
                "case.sls",
                "{% from 'lib.jinja' import x %}\none: test.nop\n",
            ),
            ("lib.jinja", "{% set x = 1 %}\n{% set y = nothing.here %}\n"),
        ],
        expect![[r#"
            undefined value: `nothing` is undefined
              --> lib.jinja:2:12
              ::: case.sls:1:4 while rendering this"#]],
    );
}

#[test]
fn yaml_errors_behind_a_loop_lead_back_to_the_templates_line() {
    check(
        "{% for name in ['a', 'b'] %}\n{{ name }}:\n  test.nop:\n    - require: x\n{% endfor %}\n",
        expect![[r#"
            `require` must be a list, not text
              --> case.sls:4:7
              hint: write `- module: id` below it

            `require` must be a list, not text
              --> case.sls:4:7
              hint: write `- module: id` below it"#]],
    );
}

#[test]
fn a_line_that_rendering_changed_is_shown_as_it_came_out() {
    check(
        "{% set bad = 'x: y: z' %}\none:\n  test.nop:\n    - name: {{ bad }}\n",
        expect![[r#"
            mapping values are not allowed in this context
              --> case.sls:4:5
                  rendered line 4:     - name: x: y: z"#]],
    );
}

#[test]
fn what_macros_make_is_placed_where_they_are_called() {
    check(
        "{% macro bad(id) %}\n{{ id }}:\n  test.nop:\n    - require:\n      - test: nowhere\n{% endmacro %}\nfine: test.nop\n{{ bad('x') }}\n",
        expect![[r#"
            `require` refers to `test: nowhere`, which does not exist
              --> case.sls:8:1
                  rendered line 7:       - test: nowhere"#]],
    );
}

#[test]
fn python_as_a_renderer_is_refused_clearly() {
    check(
        "#!py\ndef run(): return {}\n",
        expect![[r#"
            the renderer `py` is not supported
              --> case.sls:1:1
              hint: write the file in YAML with Jinja (`#!jinja|yaml`), or plain YAML (`#!yaml`)"#]],
    );
}

#[test]
fn an_argument_that_a_function_does_not_have_is_refused_with_near_names() {
    check(
        "run:\n  cmd.run:\n    - name: 'true'\n    - runnas: nobody\n",
        expect![[r#"
            `cmd.run` of `run` has no argument `runnas`
              --> case.sls:2:3
              hint: did you mean `runas`?"#]],
    );
    check(
        "run:\n  cmd.run:\n    - name: 'true'\n    - requir:\n      - test: one\n",
        expect![[r#"
            `cmd.run` of `run` has no argument `requir`
              --> case.sls:2:3
              hint: did you mean `require` or `require_in` or `require_any`?"#]],
    );
}

#[test]
fn an_unregistered_output_is_refused() {
    check(
        "source:\n  cmd.run:\n    - name: echo x\n    - register: token\nuse:\n  cmd.run:\n    - name: 'echo ${ tokn.stdout }'\n",
        expect![[r#"
            `${ tokn… }` is used, but no state registers `tokn`
              --> case.sls:6:3
              hint: did you mean `token`?"#]],
    );
}

#[test]
fn a_missing_file_suggests_near_names_and_an_include_above_the_top_is_refused() {
    check_tree(
        &[
            ("case.sls", "include:\n  - web.ngnix\n  - ...above\n"),
            ("web/nginx.sls", "a: test.nop\n"),
        ],
        expect![[r#"
            no state file `web.ngnix`
              --> case.sls:2:5
              hint: did you mean `web.nginx`?

            the include `...above` goes above the top of the tree
              --> case.sls:3:5"#]],
    );
}

#[test]
fn a_top_file_that_has_nothing_for_the_node_says_so() {
    let world: Arc<dyn World> = Arc::new(Memory::new(
        &[("top.sls", "base:\n  'db*':\n    - x\n")],
        &[],
    ));
    let input = Input {
        node: "web1".to_owned(),
        facts: facts(),
        target: Target::Highstate,
        ..Input::default()
    };
    let error = compile(&world, &input).err().expect("nothing matches");
    expect![[r#"
        the top file has nothing for `web1`
          --> top.sls
          hint: add a target that matches, such as `'*'`"#]]
    .assert_eq(&error.to_string());
}
