//! States with `export`: for other nodes, and not for this one.

use std::sync::Arc;

use crate::support::{Memory, facts};
use bunraku_states::{CompiledStates, Input, Target, World, compile};
use serde_json::{Value, json};

fn compiled(source: &str) -> Result<CompiledStates, String> {
    let world: Arc<dyn World> = Arc::new(Memory::new(&[], &[]));
    let input = Input {
        node: "web1".to_owned(),
        facts: facts(),
        target: Target::Text {
            name: "web".to_owned(),
            source: source.to_owned(),
        },
        ..Input::default()
    };
    compile(&world, &input).map_err(|error| error.to_string())
}

#[test]
fn an_exported_state_is_not_applied_and_keeps_its_arguments() {
    let source = "here: test.nop\n\
                  there:\n  file.managed:\n    - name: /etc/there\n    - contents: x\n    - mode: 600\n    - export: [a, b]\n\
                  also: {file.managed: [{name: /etc/also}, {export: True}]}\n\
                  not: {file.managed: [{name: /etc/not}, {export: False}]}\n";
    let catalog = compiled(source)
        .unwrap_or_else(|error| panic!("{error}"))
        .catalog;
    let applied: Vec<_> = catalog
        .resources
        .iter()
        .map(|one| one.title.as_str())
        .collect();
    assert_eq!(applied, ["here", "not"]);
    let shown = |at: usize| {
        let export = &catalog.exports[at];
        let arguments: &Value = &export.other["arguments"];
        json!([
            export.reference().to_string(),
            export.tags,
            export.exported,
            arguments
        ])
    };
    assert_eq!(
        shown(0),
        json!(["File[there]", ["web", "a", "b"], true, {"contents": "x", "mode": 600}])
    );
    assert_eq!(shown(1), json!(["File[also]", ["web"], true, {}]));
    assert_eq!(catalog.exports.len(), 2);
}

#[test]
fn an_exported_state_stands_alone() {
    let check = |source: &str, expected: &str| {
        let said = compiled(source).err().unwrap_or_default();
        assert!(said.contains(expected), "{said}");
    };
    check(
        "a: test.nop\nb: {test.nop: [{export: True}, {require: [{test: a}]}]}\n",
        "`b` is exported and cannot have requisites",
    );
    check(
        "a: {test.nop: [{export: True}]}\nb: {test.nop: [{require: [{test: a}]}]}\n",
        "`b` needs `a`, which is exported and not applied here",
    );
    check(
        "a: {test.nop: [{export: {x: 1}}]}\n",
        "`export` of `a` is not true, a tag, or a list of tags",
    );
}
