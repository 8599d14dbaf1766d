//! Order and values between components: dependencies, and the values of capabilities.

use std::collections::HashMap;

use bunraku_puppet::{Limits, Site, World, WorldError, evaluate_site};
use expect_test::{Expect, expect};
use serde_json::{Map, Value, json};

/// A world in memory.
#[derive(Default)]
struct Given {
    files: HashMap<&'static str, &'static str>,
    facts: HashMap<&'static str, Value>,
    types: HashMap<&'static str, Vec<&'static str>>,
    data: HashMap<&'static str, Value>,
}

impl World for Given {
    fn autoload(&self, name: &str) -> Result<Option<(String, String)>, WorldError> {
        let text = self.files.get(name);
        Ok(text.map(|text| (format!("{name}.pp"), (*text).to_owned())))
    }

    fn facts(&self, node: &str) -> Option<Map<String, Value>> {
        self.facts.get(node).and_then(Value::as_object).cloned()
    }

    fn type_parameters(&self, type_name: &str) -> Option<Vec<String>> {
        let names = self.types.get(type_name)?;
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn data_file(&self, path: &str) -> Result<Option<Value>, WorldError> {
        Ok(self.data.get(path).cloned())
    }
}

/// Formats each component with its nodes, its dependencies and its parameters.
fn describe(site: &Site) -> String {
    let mut text = String::new();
    let components = site.applications.iter().flat_map(|one| &one.components);
    for component in components {
        let nodes: Vec<&str> = component
            .nodes
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let nodes = if nodes.is_empty() {
            "nowhere".to_owned()
        } else {
            nodes.join(", ")
        };
        text.push_str(&format!("{} on {nodes}\n", component.reference));
        for required in &component.requires {
            text.push_str(&format!("  requires {}\n", required.name));
        }
        for first in &component.waits_for {
            text.push_str(&format!("  waits for {}\n", first.name));
        }
        for (name, value) in &component.parameters {
            let value = match value {
                bunraku_puppet::Value::Undef => "undef".to_owned(),
                value => value.to_string(),
            };
            text.push_str(&format!("  {name} = {value}\n"));
        }
    }
    for note in &site.notes {
        let line = note.lines().next().unwrap_or_default();
        text.push_str(&format!("note: {line}\n"));
    }
    text
}

fn check_in(world: &Given, site: &str, expected: Expect) {
    let files = [("site.pp".to_owned(), site.to_owned())];
    let outcome = match evaluate_site(&files, world, &Limits::default()) {
        Ok(site) => describe(&site),
        Err(error) => format!("error: {error}\n"),
    };
    expected.assert_eq(&outcome);
}

fn check(site: &str, expected: Expect) {
    check_in(&Given::default(), site, expected);
}

/// Three kinds of components without parameters, and the capabilities that they export.
const KINDS: &str = "
define db() { }
define web() { }
define lb($members = []) { }
Db produces Sql { }
Web produces Http { }
Web consumes Sql { }
";

#[test]
fn a_required_capability_comes_first_and_passes_no_parameters() {
    check(
        &format!(
            "{KINDS}
            application shop() {{
              $webs = ['w1', 'w2'].map |$title| {{
                web {{ $title: export => Http[$title] }}
                Http[$title]
              }}
              lb {{ 'lb': members => $webs, require => $webs }}
            }}
            site {{ shop {{ 's': nodes => {{
              Node['n1'] => [Web['w1'], Web['w2']], Node['n2'] => Lb['lb'] }} }} }}"
        ),
        expect![[r#"
            Web[w1] on n1
            Web[w2] on n1
            Lb[lb] on n2
              requires Http[w1]
              requires Http[w2]
              members = [Http[w1], Http[w2]]
        "#]],
    );
}

#[test]
fn every_relationship_and_arrow_sets_the_same_order() {
    for order in [
        "db { 'd': } web { 'w': require => Db['d'] }",
        "db { 'd': } web { 'w': subscribe => Db['d'] }",
        "db { 'd': before => Web['w'] } web { 'w': }",
        "db { 'd': notify => Web['w'] } web { 'w': }",
        "db { 'd': } -> web { 'w': }",
        "db { 'd': } web { 'w': } Db['d'] ~> Web['w']",
        "db { 'd': } web { 'w': } Web['w'] <- Db['d']",
        "db { 'd': } web { 'w': } Web['w'] <~ Db['d']",
    ] {
        check(
            &format!(
                "{KINDS} application shop() {{ {order} }}
                 site {{ shop {{ 's': nodes => {{ Node['n1'] => Db['d'], Node['n2'] => Web['w'] }} }} }}"
            ),
            expect![[r#"
                Db[d] on n1
                Web[w] on n2
                  waits for Db[d]
            "#]],
        );
    }
}

#[test]
fn a_chain_orders_neighbours_and_a_capability_represents_its_producer() {
    check(
        &format!(
            "{KINDS} application shop() {{
               db {{ 'd': export => Sql['d'] }} web {{ 'w': }} lb {{ 'l': }}
               Lb['l'] -> Sql['d'] -> Web['w']
             }}
             site {{ shop {{ 's': nodes => {{
               Node['n1'] => Db['d'], Node['n2'] => Web['w'], Node['n3'] => Lb['l'] }} }} }}"
        ),
        expect![[r#"
            Db[d] on n1
              waits for Lb[l]
            Web[w] on n2
              requires Sql[d]
            Lb[l] on n3
              members = []
        "#]],
    );
}

#[test]
fn a_whole_application_can_wait_for_another_one() {
    check(
        &format!(
            "{KINDS} application shop() {{ db {{ $name: }} web {{ $name: }} }}
             site {{
               shop {{ 'a': nodes => {{ Node['n1'] => [Db['a'], Web['a']] }} }}
               shop {{ 'b': require => Shop['a'],
                 nodes => {{ Node['n2'] => [Db['b'], Web['b']] }} }}
             }}"
        ),
        expect![[r#"
            Db[a] on n1
            Web[a] on n1
            Db[b] on n2
              waits for Db[a]
              waits for Web[a]
            Web[b] on n2
              waits for Db[a]
              waits for Web[a]
        "#]],
    );
}

#[test]
fn nothing_can_come_before_what_the_site_does_not_declare() {
    check(
        &format!(
            "{KINDS} application shop() {{ db {{ 'd': before => Web['v'] }} web {{ 'w': }} }}
             site {{ shop {{ 's': }} }}"
        ),
        expect![[r#"
            error: the site neither declares nor exports `Web[v]`
             --> site.pp:8:43
            8 |  application shop() { db { 'd': before => Web['v'] } web { 'w': } }
              |                                           ^^^^^^^^

            hint: did you mean `Web[w]`?
        "#]],
    );
}

#[test]
fn equal_names_belong_together_where_a_mapping_is_empty() {
    check(
        "define db($user, $database = $name) { }
         define web($user, $database, $port = 80) { }
         Db produces Sql { }
         Web consumes Sql { }
         application shop() { db { 'd': user => 'u', export => Sql['s'] } web { 'w': consume => Sql['s'] } }
         site { shop { 's': nodes => { Node['n1'] => Db['d'], Node['n2'] => Web['w'] } } }",
        expect![[r#"
            Db[d] on n1
              user = u
              database = d
            Web[w] on n2
              user = u
              database = d
              port = 80
        "#]],
    );
}

#[test]
fn a_capability_carries_only_the_parameters_of_its_type() {
    let world = Given {
        types: HashMap::from([("sql", vec!["name", "user"])]),
        ..Given::default()
    };
    check_in(
        &world,
        "define db($user = 'u', $port = 5432) { }
         define web($user = undef, $port = 80) { }
         Db produces Sql { }
         Web consumes Sql { unknown => $user }
         application shop() { db { 'd': export => Sql['s'] } web { 'w': consume => Sql['s'] } }
         site { shop { 's': nodes => { Node['n1'] => Db['d'], Node['n2'] => Web['w'] } } }",
        expect![[r#"
            Db[d] on n1
              user = u
              port = 5432
            Web[w] on n2
              user = u
              port = 80
        "#]],
    );
}

const FACTS: &str = "
define db(String $host = $::fqdn) { }
define web(String $db_host, String $ip = $facts['networking']['ip'], $me = $trusted['certname']) { }
Db produces Sql { host => $host, address => $::networking['ip'] }
Web consumes Sql { db_host => $host }
application shop() { db { 'd': export => Sql['s'] } web { 'w': consume => Sql['s'] } }
site { shop { 's': nodes => { Node['n1'] => Db['d'], Node['n2'] => Web['w'] } } }
";

#[test]
fn facts_of_the_mapped_node_are_available() {
    let facts = |node: &str, ip: &str| json!({ "fqdn": node, "networking": { "ip": ip } });
    let world = Given {
        facts: HashMap::from([
            ("n1", facts("n1.example.com", "10.0.0.1")),
            ("n2", facts("n2.example.com", "10.0.0.2")),
        ]),
        ..Given::default()
    };
    check_in(
        &world,
        FACTS,
        expect![[r#"
            Db[d] on n1
              host = n1.example.com
            Web[w] on n2
              db_host = n1.example.com
              ip = 10.0.0.2
              me = n2
        "#]],
    );
}

#[test]
fn without_facts_values_are_undefined_and_nothing_fails() {
    check(
        FACTS,
        expect![[r#"
            Db[d] on n1
              host = undef
            Web[w] on n2
              db_host = undef
              ip = undef
              me = n2
            note: no facts for n1, n2: values that depend on them are undefined
        "#]],
    );
}

#[test]
fn a_missing_parameter_is_an_error_without_facts_too() {
    check(
        "define db() { }
         define web($docroot) { }
         Db produces Sql { host => $::fqdn }
         Web consumes Sql { }
         application shop() { db { 'd': export => Sql['s'] } web { 'w': consume => Sql['s'] } }
         site { shop { 's': nodes => { Node['n1'] => Db['d'], Node['n2'] => Web['w'] } } }",
        expect![[r#"
            error: `Web[w]` needs a value for `docroot`
             --> site.pp:5:62
            5 |          application shop() { db { 'd': export => Sql['s'] } web { 'w': consume => Sql['s'] } }
              |                                                              ^^^^^^^^^
             ::: site.pp:2:21
            2 |          define web($docroot) { }
              |                     -------- it has no default
        "#]],
    );
}

#[test]
fn definitions_and_mappings_are_found_in_the_files_of_their_parents() {
    let world = Given {
        files: HashMap::from([(
            "shop",
            "application shop::small() { shop::db { 'd': export => Sql['s'] } shop::web { 'w': consume => Sql['s'] } }
             define shop::db($user = 'u') { }
             define shop::web($user) { }
             Shop::Db produces Sql { user => $user }
             Shop::Web consumes Sql { }",
        )]),
        ..Given::default()
    };
    check_in(
        &world,
        "site { shop::small { 's': nodes => {
           Node['n1'] => Shop::Db['d'], Node['n2'] => Shop::Web['w'] } } }",
        expect![[r#"
            Shop::Db[d] on n1
              user = u
            Shop::Web[w] on n2
              user = u
        "#]],
    );
}

#[test]
fn classes_produce_and_mappings_may_stand_in_the_site() {
    check(
        "class producer($host = 'h') { }
         define web($host) { }
         Class[producer] produces Cap { }
         application shop() { class { 'producer': export => Cap['c'] } web { 'w': consume => Cap['c'] } }
         site {
           Web consumes Cap { }
           shop { 's': nodes => { Node['n1'] => Class['Producer'], Node['n2'] => WEB['w'] } }
         }",
        expect![[r#"
            Class[producer] on n1
              host = h
            Web[w] on n2
              host = h
        "#]],
    );
}

#[test]
fn components_can_be_declared_from_the_nodes_they_are_mapped_to() {
    check(
        &format!(
            "{KINDS} application shop() {{
               collect_component_titles($nodes, Web).each |$title| {{ web {{ $title: }} }}
               $all = collect_component_nodes($nodes, Web)
               lb {{ $name: members => $all }}
             }}
             site {{
               shop {{ 'a': nodes => {{
                 Node['n1'] => [Web['w1'], Lb['a']], Node['n2'] => Web['w2'] }} }}
               create_component_app('shop', 'b', {{ 'components' => {{ 'Web' => ['n3'], 'Lb' => [] }} }})
             }}"
        ),
        expect![[r#"
            Web[w1] on n1
            Web[w2] on n2
            Lb[a] on n1
              members = [n1, n2]
            Web[b-n3] on n3
            Lb[b] on nowhere
              members = [n3]
        "#]],
    );
}

#[test]
fn sites_read_data_files_of_their_environment() {
    let world = Given {
        data: HashMap::from([("/applications.yaml", json!({ "a": "n1", "b": "n2" }))]),
        ..Given::default()
    };
    check_in(
        &world,
        &format!(
            "{KINDS} application shop() {{ db {{ $name: }} }}
             site {{
               loadyaml('/applications.yaml').each |$title, $node| {{
                 shop {{ $title: nodes => {{ Node[$node] => Db[$title] }} }}
               }}
             }}"
        ),
        expect![[r#"
            Db[a] on n1
            Db[b] on n2
        "#]],
    );
}

#[test]
fn functions_in_ruby_leave_values_undefined_but_not_the_order() {
    check(
        "define db($hash = mysql_password('x'), $user = hiera('db::user')) { }
         define web(String $hash) { }
         Db produces Sql { hash => $hash }
         Web consumes Sql { }
         application shop() { db { 'd': export => Sql['s'] } web { 'w': consume => Sql['s'] } }
         site { shop { 's': nodes => { Node['n1'] => Db['d'], Node['n2'] => Web['w'] } } }",
        expect![[r#"
            Db[d] on n1
              hash = undef
              user = undef
            Web[w] on n2
              hash = undef
            note: the function `mysql_password` is not available here
            note: `hiera` of `db::user` is undefined
        "#]],
    );
}
