//! Top files and data: the selection of nodes, and the precedence of data.

use std::sync::Arc;

use crate::support::{Memory, facts};
use bunraku_states::{CompiledStates, Input, Target, World, compile};
use serde_json::{Value, json};

fn highstate(states: &[(&str, &str)], pillar: &[(&str, &str)], over: Value) -> CompiledStates {
    let world: Arc<dyn World> = Arc::new(Memory::new(states, pillar));
    let input = Input {
        node: "web1.example.net".to_owned(),
        facts: facts(),
        pillar: over.as_object().cloned().unwrap_or_default(),
        target: Target::Highstate,
        ..Input::default()
    };
    compile(&world, &input).unwrap_or_else(|error| panic!("{error}"))
}

fn ids(compiled: &CompiledStates) -> Vec<&str> {
    compiled.low.iter().map(|low| low.id.as_str()).collect()
}

#[test]
fn a_top_file_matches_by_glob_list_grain_pillar_and_compound() {
    let top = "base:\n  'web*':\n    - a\n  'db*':\n    - never\n  'web1.example.net,other':\n    - match: list\n    - b\n  'os:Debian':\n    - match: grain\n    - c\n  'tier:gold':\n    - match: pillar\n    - d\n  'G@kernel:Linux and not db*':\n    - e\n    - a\n  'web\\d+':\n    - match: pcre\n    - f\nother:\n  '*':\n    - never\n";
    let files: Vec<(String, String)> = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|name| (format!("{name}.sls"), format!("state {name}: test.nop\n")))
        .collect();
    let mut states: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .collect();
    states.push(("top.sls", top));
    let compiled = highstate(&states, &[], json!({"tier": "gold"}));
    assert_eq!(
        ids(&compiled),
        [
            "state a", "state b", "state c", "state d", "state e", "state f"
        ]
    );
}

#[test]
fn wildcards_choose_files_and_a_missing_one_may_be_allowed() {
    let compiled = highstate(
        &[
            (
                "top.sls",
                "base:\n  '*':\n    - 'web.*'\n    - ignore_missing: True\n    - not.there\n",
            ),
            ("web/a.sls", "one: test.nop\n"),
            ("web/b/init.sls", "two: test.nop\n"),
        ],
        &[],
        json!({}),
    );
    assert_eq!(ids(&compiled), ["one", "two"]);
}

#[test]
fn data_merges_map_by_map_and_what_is_given_by_hand_wins() {
    let compiled = highstate(
        &[
            ("top.sls", "base:\n  '*':\n    - a\n"),
            (
                "a.sls",
                "{{ pillar.web.port }} {{ data.web.list }}: test.nop\n",
            ),
        ],
        &[
            (
                "top.sls",
                "base:\n  '*':\n    - first\n  'web*':\n    - second\n",
            ),
            ("first.sls", "web:\n  port: 1\n  host: h\n  list: [1, 2]\n"),
            (
                "second.sls",
                "include:\n  - third\n  - nested: {key: 'deep:er'}\nweb:\n  port: 2\n  list: [3]\n",
            ),
            ("third.sls", "web:\n  port: 3\n  third: {{ grains.os }}\n"),
            ("nested.sls", "x: 1\n"),
        ],
        json!({"web": {"port": 9}}),
    );
    assert_eq!(
        json!(compiled.pillar),
        json!({"web": {"port": 9, "host": "h", "list": [3], "third": "Debian"}, "deep": {"er": {"x": 1}}})
    );
    assert_eq!(ids(&compiled), ["9 [3]"]);
}

#[test]
fn a_template_of_a_file_is_rendered_with_its_context_and_data() {
    let compiled = highstate(
        &[
            ("top.sls", "base:\n  '*':\n    - web\n"),
            (
                "web/init.sls",
                "conf:\n  file.managed:\n    - name: /etc/x\n    - source: salt://web/x.jinja\n    - template: jinja\n    - mode: 0640\n    - defaults:\n        a: default\n        b: default\n    - context:\n        b: given\n",
            ),
            (
                "web/x.jinja",
                "{{ a }} {{ b }} {{ pillar.p }} {{ grains['id'] }}\n",
            ),
        ],
        &[],
        json!({"p": "data"}),
    );
    let parameters = &compiled.catalog.resources[0].parameters;
    assert_eq!(
        parameters["content"],
        "default given data web1.example.net\n"
    );
    assert_eq!(parameters["mode"], "0640");
    assert!(!parameters.contains_key("source") && !parameters.contains_key("template"));
}
