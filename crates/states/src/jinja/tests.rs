//! Tests of the dialect by its output.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{Renderer, Scope};
use crate::world::{Lookup, Tree, World, WorldError};

struct Library;

impl World for Library {
    fn source(&self, _tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        Ok(match path {
            "lib/map.jinja" => {
                Some("{% set value = grains.os ~ '!' %}{% set here = tpldir %}".to_owned())
            }
            "lib/data.yml" => Some("a: {{ grains.os }}\nb: [1, 2]\n".to_owned()),
            "lib/part.jinja" => Some("part of {{ tplfile }}".to_owned()),
            _ => None,
        })
    }

    fn state_files(&self, _tree: Tree) -> Result<Vec<String>, WorldError> {
        Ok(Vec::new())
    }

    fn function(&self, _name: &str) -> Lookup {
        Lookup::UnknownModule
    }

    fn call(
        &self,
        function: &str,
        positional: &[Json],
        _named: &Map<String, Json>,
    ) -> Result<Json, WorldError> {
        Ok(json!(format!("{function} of {}", positional[0])))
    }
}

fn rendered(source: &str) -> Result<String, String> {
    let map = |value: Json| value.as_object().cloned().unwrap_or_default();
    let grains = map(json!({"os": "Debian", "os_family": "Debian", "roles": ["web"]}));
    let pillar = map(json!({"web": {"port": 80, "names": ["a", "b"]}, "ports": {"80": "http"}}));
    let scope = Arc::new(Scope::new(Arc::new(Library), "web1", grains, pillar));
    let renderer = Renderer::new(Tree::States, scope);
    let text = renderer.render_source("dir/case.sls", source, &Map::new());
    text.map(|text| text.text)
        .map_err(|problem| problem.to_string())
}

fn check(source: &str, expected: &str) {
    assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
}

#[test]
fn lists_and_maps_change_in_place_and_names_share_them() {
    check(
        "{% set x = [] %}{% do x.append(1) %}{% set y = x %}{% do y.extend([2, 3]) %}{{ x }}",
        "[1, 2, 3]",
    );
    check(
        "{% set x = {'a': []} %}{% do x.a.append('b') %}{% do x.update({'c': 1}, d=2) %}{{ x }}",
        "{'a': ['b'], 'c': 1, 'd': 2}",
    );
    check(
        "{% set x = [3, 1, 2] %}{% do x.sort() %}{{ x.pop() }}{{ x.pop(0) }}{{ x }}",
        "31[2]",
    );
    check(
        "{% set x = {'a': 1} %}{% do x.pop('a') %}{{ x.setdefault('b', []) }}{{ x.get('z', 'none') }}",
        "[]none",
    );
    check(
        "{% do pillar.web.update({'extra': 1}) %}{{ pillar.web.extra }}",
        "1",
    );
    check(
        "{% set x = [1] %}{% set x = x + [2] %}{% do x.append(3) %}{{ x }}",
        "[1, 2, 3]",
    );
    check(
        "{% set x = [1, 2] %}{{ x == [1, 2] }} {{ 2 in x }} {{ x[-1] }} {{ x | length }}",
        "True True 2 2",
    );
}

#[test]
fn values_print_as_in_python() {
    check(
        "{{ True }} {{ None }} {{ 1.0 }} {{ 'a' }}",
        "True None 1.0 a",
    );
    check(
        "{{ [True, None, 'a', \"it's\"] }}",
        "[True, None, 'a', \"it's\"]",
    );
    check("{{ {'a': {'b': 1.5}} }}", "{'a': {'b': 1.5}}");
}

#[test]
fn salts_functions_answer_from_data() {
    check(
        "{{ salt['pillar.get']('web:port') }} {{ salt.pillar.get('web:none', 'd') }}",
        "80 d",
    );
    check(
        "{{ salt['grains.get']('roles:0') }} {{ salt['config.get']('os') }}",
        "web Debian",
    );
    check(
        "{{ pillar.ports[80] }} {{ pillar['ports']['80'] }}",
        "http http",
    );
    check(
        "{{ salt['pillar.get']('web', {'port': 1, 'more': 2}, merge=True) }}",
        "{'port': 80, 'more': 2, 'names': ['a', 'b']}",
    );
    check(
        "{{ salt['grains.filter_by']({'Debian': {'p': 'x'}, 'default': {'p': 'y', 'q': 'z'}}, base='default') }}",
        "{'p': 'x', 'q': 'z'}",
    );
    check(
        "{{ salt['match.compound']('G@os:Debian and web*') }}",
        "True",
    );
    check("{{ salt['cmd.run']('id') }}", "cmd.run of \"id\"");
}

#[test]
fn files_are_imported_with_their_context_and_know_where_they_stand() {
    check(
        "{% from 'lib/map.jinja' import value, here with context %}{{ value }} {{ here }} {{ tpldir }}",
        "Debian! lib dir",
    );
    check(
        "{% import_yaml 'lib/data.yml' as data %}{{ data.a }}{{ data.b }}",
        "Debian[1, 2]",
    );
    check(
        "{% import 'lib/map.jinja' as lib %}{{ lib.value }}",
        "Debian!",
    );
    check(
        "{% include 'lib/part.jinja' %} in {{ tplfile }}",
        "part of lib/part.jinja in dir/case.sls",
    );
    check(
        "{% load_yaml as x %}\na: [1, {b: yes}]\n{% endload %}{{ x.a }}",
        "[1, {'b': True}]",
    );
    check(
        "{% load_json as x %}{\"a\": null}{% endload %}{{ x }}",
        "{'a': None}",
    );
}

#[test]
fn the_filters_that_people_use_are_there() {
    check(
        "{{ {'a': [1, 'x y', 'yes', none]} | yaml }}",
        "{a: [1, x y, 'yes', null]}",
    );
    check(
        "{{ {'a': [1], 'b': {'c': 2}} | yaml(False) }}",
        "a:\n- 1\nb:\n  c: 2",
    );
    check(
        "{{ {'a': [1, true]} | json }} {{ 'a: b' | yaml_dquote }} {{ \"it's\" | yaml_squote }}",
        "{\"a\": [1, true]} \"a: b\" 'it''s'",
    );
    check(
        "{{ 'yes' | to_bool }} {{ 'no' | to_bool }} {{ \"a b\" | quote }}",
        "True False 'a b'",
    );
    check(
        "{{ 'ab12' | regex_search('([a-z]+)([0-9]+)') }} {{ 'ab' | regex_search('x') }}",
        "['ab', '12'] None",
    );
    check(
        "{{ 'a-b' | regex_replace('(.)-(.)', '\\\\2-\\\\1') }} {{ 'AB' | regex_match('(a)b', ignorecase=True) }}",
        "b-a ['A']",
    );
    check(
        "{{ ('x' | sha256)[:8] }} {{ 'x' | base64_encode | base64_decode }}",
        "2d711642 x",
    );
    check(
        "{{ [1, [2, [3]]] | flatten }} {{ [1, 2] | union([2, 3]) }} {{ [1, 2] | difference([2]) }}",
        "[1, 2, 3] [1, 2, 3] [1]",
    );
    check(
        "{{ 'web1' is match('web[0-9]') }} {{ [1] is list }}",
        "True True",
    );
    check(
        "{{ 'www.example.com' | uuid }}",
        "2ed6657d-e927-568b-95e1-2665a8aea6a2",
    );
}

#[test]
fn what_is_undefined_is_an_error_also_one_level_down() {
    for source in [
        "{{ nothing }}",
        "{{ pillar.nothing }}",
        "{{ pillar.web.nothing.more }}",
        "{% if nothing %}{% endif %}",
    ] {
        assert!(rendered(source).is_err(), "{source}");
    }
    check(
        "{{ nothing | default('d') }} {{ nothing is defined }}",
        "d False",
    );
}

fn refusal(source: &str) -> String {
    rendered(source).expect_err("the template is refused")
}

#[test]
fn nesting_that_grows_with_each_turn_of_a_loop_is_refused() {
    for step in [
        "{% set ns.x = [ns.x] %}",
        "{% set ns.x = {'a': ns.x} %}",
        "{% set ns.x = dict(a=ns.x) %}",
        "{% set ns.x = [[ns.x]] %}",
        "{% do ns.l.append(ns.l.copy()) %}{% set ns.l = [ns.l] %}",
    ] {
        let source = format!(
            "{{% set ns = namespace(x=[], l=[1]) %}}{{% for i in range(100000) %}}{step}{{% endfor %}}"
        );
        let text = refusal(&source);
        assert!(text.contains("deeper than 128 levels"), "{step}: {text}");
    }
}

#[test]
fn a_long_chain_that_was_linked_from_its_end_is_compared_printed_and_dropped() {
    // Each list is added to the previous one while it is still empty, so none looks deep.
    let chain = |name: &str| {
        format!(
            "{{% set {name} = [] %}}{{% set ns = namespace(last={name}) %}}\
             {{% for i in range(100000) %}}{{% set next = [] %}}{{% do ns.last.append(next) %}}\
             {{% set ns.last = next %}}{{% endfor %}}"
        )
    };
    let source = format!(
        "{}{}{{{{ a == b }}}} {{{{ a == a }}}} {{{{ (a | json | length) > 100 }}}}",
        chain("a"),
        chain("b")
    );
    check(&source, "False True True");
}

#[test]
fn a_list_in_a_namespace_changes_in_place() {
    check(
        "{% set ns = namespace(names=[]) %}{% for n in 'ab' %}{% do ns.names.append(n) %}{% endfor %}{{ ns.names }}",
        "['a', 'b']",
    );
}

#[test]
fn maps_are_equal_in_any_order() {
    check(
        "{% set a = {'x': 1, 'y': [2]} %}{% set b = {'y': [2], 'x': 1} %}{{ a == b }}{{ a == {'x': 1} }}",
        "TrueFalse",
    );
}
