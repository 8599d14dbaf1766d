//! Plans from every kind of source: text in, text out.

use std::collections::BTreeSet;

use bunraku_model::NodeName;
use bunraku_plan::{
    Filter, Inventory, NodePattern, PlanOptions, RunPlan, Site, environment_graph, plan_svg,
    site_file, site_manifest, site_queries,
};
use bunraku_puppet::NoModules;
use expect_test::{Expect, expect};

fn describe(plan: &RunPlan) -> String {
    let mut text = String::new();
    for (number, group) in (1..).zip(&plan.groups) {
        text.push_str(&format!("group {number}: {} nodes\n", group.len()));
        for step in plan.steps.iter().filter(|step| step.group == number) {
            let pass = if step.tags.is_empty() {
                String::new()
            } else {
                format!(" pass {} of {}", step.pass, step.tags.join(", "))
            };
            text.push_str(&format!("  {}{pass}\n", step.node));
            for component in &step.components {
                text.push_str(&format!(
                    "    {} -> {}\n",
                    component.application, component.component
                ));
            }
            for wait in &step.waits_for {
                let reasons: Vec<String> = wait.reasons.iter().map(ToString::to_string).collect();
                text.push_str(&format!(
                    "    waits for {}: {}\n",
                    wait.node,
                    reasons.join("; ")
                ));
            }
        }
    }
    for warning in &plan.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

fn planned(site: &Site, options: &PlanOptions) -> String {
    match bunraku_plan::plan_site(site, options) {
        Ok(plan) => describe(&plan),
        Err(error) => format!("error: {error}\n"),
    }
}

fn yaml(text: &str) -> Site {
    site_file("site.yaml", text, &Inventory::default()).expect("a site file")
}

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&planned(&yaml(text), &PlanOptions::default()));
}

const GRAPH: &str = r#"{"environment":"production","applications":{
  "Lamp[app2]":{
    "Lamp::Mysql[app2]":{"produces":["Sql[app2]"],"consumes":[],"node":"dev1.devco.net"},
    "Lamp::Webapp[app2-1]":{"produces":[],"consumes":["Sql[app2]"],"node":"dev2.devco.net"},
    "Lamp::Webapp[app2-2]":{"produces":[],"consumes":["Sql[app2]"],"node":"dev3.devco.net"},
    "Lamp::Webapp[app2-3]":{"produces":[],"consumes":["Sql[app2]"],"node":"dev4.devco.net"}},
  "Lamp[app1]":{
    "Lamp::Mysql[app1]":{"produces":["Sql[app1]"],"consumes":[],"node":"dev1.devco.net"},
    "Lamp::Webapp[app1-1]":{"produces":[],"consumes":["Sql[app1]"],"node":"dev2.devco.net"},
    "Lamp::Webapp[app1-2]":{"produces":[],"consumes":["Sql[app1]"],"node":"dev3.devco.net"},
    "Lamp::Webapp[app1-3]":{"produces":[],"consumes":["Sql[app1]"],"node":"dev4.devco.net"}}},
  "code_id":null}"#;

fn manifest() -> Site {
    let text = concat!(
        include_str!("../../../examples/site/modules/lamp/manifests/init.pp"),
        include_str!("../../../examples/site/modules/lamp/manifests/mysql.pp"),
        include_str!("../../../examples/site/modules/lamp/manifests/webapp.pp"),
        include_str!("../../../examples/site/manifests/site.pp")
    );
    let files = [("site.pp".to_owned(), text.to_owned())];
    site_manifest(&files, &NoModules, "production").expect("a site")
}

#[test]
fn puppets_environment_graph_gives_the_seeds_plan() {
    let site = environment_graph("graph.json", GRAPH).expect("a graph");
    expect![[r#"
        group 1: 1 nodes
          dev1.devco.net
            Lamp[app1] -> Lamp::Mysql[app1]
            Lamp[app2] -> Lamp::Mysql[app2]
        group 2: 3 nodes
          dev2.devco.net
            Lamp[app1] -> Lamp::Webapp[app1-1]
            Lamp[app2] -> Lamp::Webapp[app2-1]
            waits for dev1.devco.net: Lamp::Webapp[app1-1] needs Sql[app1] from Lamp::Mysql[app1]; Lamp::Webapp[app2-1] needs Sql[app2] from Lamp::Mysql[app2]
          dev3.devco.net
            Lamp[app1] -> Lamp::Webapp[app1-2]
            Lamp[app2] -> Lamp::Webapp[app2-2]
            waits for dev1.devco.net: Lamp::Webapp[app1-2] needs Sql[app1] from Lamp::Mysql[app1]; Lamp::Webapp[app2-2] needs Sql[app2] from Lamp::Mysql[app2]
          dev4.devco.net
            Lamp[app1] -> Lamp::Webapp[app1-3]
            Lamp[app2] -> Lamp::Webapp[app2-3]
            waits for dev1.devco.net: Lamp::Webapp[app1-3] needs Sql[app1] from Lamp::Mysql[app1]; Lamp::Webapp[app2-3] needs Sql[app2] from Lamp::Mysql[app2]
    "#]].assert_eq(&planned(&site, &PlanOptions::default()));
}

#[test]
fn graph_and_manifest_of_one_site_give_one_plan() {
    let graph = environment_graph("graph.json", GRAPH).expect("a graph");
    let one = bunraku_plan::plan_site(&graph, &PlanOptions::default()).expect("a plan");
    let other = bunraku_plan::plan_site(&manifest(), &PlanOptions::default()).expect("a plan");
    assert_eq!(describe(&one), describe(&other));
    // Only the manifest has the values of parameters.
    let differences = bunraku_plan::plan_differences(&one, &other);
    assert!(
        differences
            .iter()
            .all(|difference| difference.change.ends_with("has another value")),
        "{differences:?}"
    );
}

#[test]
fn the_environment_may_be_an_object_with_a_name() {
    let text = GRAPH.replacen("\"production\"", "{\"name\":\"qa\",\"x\":1}", 1);
    let site = environment_graph("graph.json", &text).expect("a graph");
    assert_eq!(site.environment, "qa");
}

#[test]
fn an_invalid_graph_is_refused_with_the_reason() {
    for (text, why) in [
        ("[]", "it has no `applications`"),
        ("{\"applications\":[]}", "`applications` is not an object"),
        ("{\"applications\":{\"A\":1}}", "`A` is not an object"),
        (
            "{\"applications\":{\"A\":{\"b\":[]}}}",
            "`b` of `A` is not an object",
        ),
        (
            "{\"applications\":{\"A\":{\"b\":{\"node\":1}}}}",
            "`node` of `b` is not a name",
        ),
        (
            "{\"applications\":{\"A\":{\"b\":{\"produces\":[1]}}}}",
            "is not a name",
        ),
        (
            "{\"environment\":1,\"applications\":{}}",
            "neither a name nor an object",
        ),
        ("{", "EOF"),
    ] {
        let error = environment_graph("graph.json", text)
            .expect_err(text)
            .to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn our_own_file_orders_by_capabilities_and_by_plain_waits() {
    check(
        "
applications:
  shop:
    components:
      db: {node: db-1, produces: [sql]}
      cache: {node: cache-1, waits_for: [db]}
      web: {nodes: [web-1, web-2], consumes: [sql], waits_for: [cache]}
  stats:
    components:
      reader: {node: stats-1, consumes: [shop/sql]}
",
        expect![[r#"
            group 1: 1 nodes
              db-1
                shop -> shop/db
            group 2: 2 nodes
              cache-1
                shop -> shop/cache
                waits for db-1: shop/cache comes after shop/db
              stats-1
                stats -> stats/reader
                waits for db-1: stats/reader needs shop/sql from shop/db
            group 3: 2 nodes
              web-1
                shop -> shop/web
                waits for db-1: shop/web needs shop/sql from shop/db
                waits for cache-1: shop/web comes after shop/cache
              web-2
                shop -> shop/web
                waits for db-1: shop/web needs shop/sql from shop/db
                waits for cache-1: shop/web comes after shop/cache
        "#]],
    );
}

#[test]
fn a_query_is_answered_from_the_inventory() {
    let text = "applications: {a: {components: {web: {query: 'web-*'}}}}";
    let error = site_file("site.yaml", text, &Inventory::default()).expect_err("nobody knows");
    expect!["site.yaml: `web-*` needs the nodes from a server"].assert_eq(&error.to_string());
    let nodes = ["db-1", "web-1", "web-2"].map(|name| NodeName::new(name).expect("a name"));
    let site = site_file("site.yaml", text, &Inventory::of(nodes.to_vec())).expect("a site");
    expect![[r#"
        group 1: 2 nodes
          web-1
            a -> a/web
          web-2
            a -> a/web
    "#]]
    .assert_eq(&planned(&site, &PlanOptions::default()));
    let error = site_file("site.yaml", text, &Inventory::of(Vec::new())).expect_err("nobody");
    expect!["site.yaml: no node matches `web-*` of a/web"].assert_eq(&error.to_string());
}

#[test]
fn a_query_in_the_query_language_is_asked_for_first_and_its_answer_used() {
    const QUERY: &str = r#"nodes { facts.role = "web" }"#;
    let text = format!(
        "applications: {{a: {{components: {{db: {{node: db-1, produces: [sql]}},
         web: {{query: '{QUERY}', consumes: [sql]}}, all: {{query: '*'}}}}}}}}"
    );
    let asked = site_queries("site.yaml", &text).expect("readable");
    assert_eq!(
        asked.iter().collect::<Vec<_>>(),
        [QUERY],
        "patterns are none"
    );
    let nodes = ["db-1", "web-1"].map(|name| NodeName::new(name).expect("a name"));
    let mut inventory = Inventory::of(nodes.to_vec());
    let error = site_file("site.yaml", &text, &inventory).expect_err("not answered");
    expect![[r#"site.yaml: `nodes { facts.role = "web" }` needs the nodes from a server"#]]
        .assert_eq(&error.to_string());
    let web = NodeName::new("web-1").expect("a name");
    inventory.answers.insert(QUERY.to_owned(), vec![web]);
    let site = site_file("site.yaml", &text, &inventory).expect("a site");
    expect![[r#"
        group 1: 1 nodes
          db-1
            a -> a/all
            a -> a/db
        group 2: 1 nodes
          web-1
            a -> a/all
            a -> a/web
            waits for db-1: a/web needs a/sql from a/db
    "#]]
    .assert_eq(&planned(&site, &PlanOptions::default()));
}

#[test]
fn a_query_as_a_filter_warns_of_what_it_leaves_out() {
    let site = yaml(
        "applications: {a: {components: {
          db: {node: n1, produces: [sql]},
          web: {nodes: [n2, n3], consumes: [sql]}}}}",
    );
    let found = ["n1", "n2", "elsewhere"].map(|name| NodeName::new(name).expect("a name"));
    let mut options = PlanOptions::default();
    options.filter.only = Some(found.into());
    expect![[r#"
        group 1: 1 nodes
          n1
            a -> a/db
        group 2: 1 nodes
          n2
            a -> a/web
            waits for n1: a/web needs a/sql from a/db
        warning: a is only partly planned; not included: a/web on n3
    "#]]
    .assert_eq(&planned(&site, &options));
}

#[test]
fn a_node_that_consumes_what_it_produces_itself_is_fine() {
    check(
        "applications: {a: {components: {
          all: {node: n1, produces: [x], consumes: [x]},
          one: {node: n2, produces: [y]}, two: {node: n2, consumes: [y]}}}}",
        expect![[r#"
            group 1: 2 nodes
              n1
                a -> a/all
              n2
                a -> a/one
                a -> a/two
        "#]],
    );
}

#[test]
fn a_capability_without_a_producer_is_named() {
    check(
        "applications: {a: {components: {db: {node: n1, produces: [sql]}, web: {node: n2, consumes: [sqll]}}}}",
        expect![[r#"
            error: `a/web` consumes `a/sqll`, which no component produces
              hint: did you mean `a/sql`?
        "#]],
    );
}

#[test]
fn a_capability_that_is_produced_twice_names_both() {
    check(
        "applications: {a: {components: {x: {node: n1, produces: [sql]}, y: {node: n2, produces: [sql]}}}}",
        expect![[r#"
            error: `a/sql` is produced twice: by `a/x` and by `a/y`
        "#]],
    );
}

#[test]
fn components_on_no_node_or_on_two_are_named_together() {
    let text = GRAPH
        .replacen(",\"node\":\"dev2.devco.net\"", "", 1)
        .replacen(
            "\"dev3.devco.net\"",
            "[\"dev3.devco.net\",\"dev5.devco.net\"]",
            1,
        );
    let site = environment_graph("graph.json", &text).expect("a graph");
    expect![[r#"
        error: `Lamp::Webapp[app2-1]` is not mapped to a node
          hint: every component needs a node to run on

        `Lamp::Webapp[app2-2]` is mapped to 2 nodes: `dev3.devco.net`, `dev5.devco.net`
          hint: a component runs on one node: declare one component for each
    "#]]
    .assert_eq(&planned(&site, &PlanOptions::default()));
}

#[test]
fn problems_of_a_manifest_point_into_it() {
    let text = "application a() {
  one { 'x': export => Sql['s'] }
  two { 'x': consume => Sql['other'] }
}
site { a { 'i': nodes => { Node['n1'] => One['x'] } } }";
    let files = [("site.pp".to_owned(), text.to_owned())];
    let site = site_manifest(&files, &NoModules, "production").expect("a site");
    expect![[r#"
        error: `Two[x]` is not mapped to a node
         --> site.pp:3:3
        3 |   two { 'x': consume => Sql['other'] }
          |   ^^^^^^^^^ declared here
          hint: every component needs a node to run on

        `Two[x]` consumes `Sql[other]`, which no component produces
         --> site.pp:3:25
        3 |   two { 'x': consume => Sql['other'] }
          |                         ^^^^^^^^^^^^ consumed here
          hint: add a component that produces it
    "#]]
    .assert_eq(&planned(&site, &PlanOptions::default()));
}

#[test]
fn a_circle_of_components_is_shown_whole() {
    check(
        "applications: {a: {components: {
          x: {node: n1, produces: [p], consumes: [r]},
          y: {node: n2, produces: [q], consumes: [p]},
          z: {node: n3, produces: [r], consumes: [q]},
          w: {node: n4, consumes: [r]}}}}",
        expect![[r#"
            error: dependency cycle of components
              a/z on n3 needs a/q from a/y
              a/y on n2 needs a/p from a/x
              a/x on n1 needs a/r from a/z
              hint: remove one of these dependencies
        "#]],
    );
}

const CROSSED: &str = "applications: {a: {components: {
  db: {node: n1, produces: [sql]},
  web: {node: n2, consumes: [sql], produces: [http]},
  check: {node: n1, consumes: [http]},
  end: {node: n3, waits_for: [check]},
  also: {node: n2}}}}";

#[test]
fn a_circle_of_nodes_alone_offers_passes() {
    check(
        CROSSED,
        expect![[r#"
        error: dependency cycle of nodes (but not of their components)
          n1 waits for n2: a/check needs a/http from a/web
          n2 waits for n1: a/web needs a/sql from a/db
          hint: pass `--passes` to run such nodes more than once, with a part of their components each time
    "#]],
    );
}

#[test]
fn passes_run_only_the_components_concerned() {
    let options = PlanOptions {
        passes: true,
        ..PlanOptions::default()
    };
    expect![[r#"
        group 1: 1 nodes
          n1 pass 1 of db
            a -> a/db
        group 2: 1 nodes
          n2
            a -> a/also
            a -> a/web
            waits for n1: a/web needs a/sql from a/db
        group 3: 1 nodes
          n1 pass 2 of check
            a -> a/check
            waits for n1: 
            waits for n2: a/check needs a/http from a/web
        group 4: 1 nodes
          n3
            a -> a/end
            waits for n1: a/end comes after a/check
    "#]]
    .assert_eq(&planned(&yaml(CROSSED), &options));
}

#[test]
fn a_filter_warns_of_what_it_leaves_out_and_keeps_the_order_across_it() {
    let site = yaml(
        "applications: {a: {components: {
          db: {node: n1, produces: [sql]},
          mid: {node: n2, consumes: [sql], produces: [api]},
          web: {node: n3, consumes: [api]}}}}",
    );
    let mut options = PlanOptions::default();
    options.filter.nodes = vec![NodePattern::new("n1"), NodePattern::new("n3")];
    expect![[r#"
        group 1: 1 nodes
          n1
            a -> a/db
        group 2: 1 nodes
          n3
            a -> a/web
            waits for n1: a/web comes after a/db (through a/mid, not included)
        warning: a is only partly planned; not included: a/mid on n2
    "#]]
    .assert_eq(&planned(&site, &options));
}

#[test]
fn a_filter_that_fits_nothing_is_refused() {
    let graph = environment_graph("graph.json", GRAPH).expect("a graph");
    let options = |filter| PlanOptions {
        filter,
        passes: false,
    };
    let unknown = options(Filter {
        instances: vec!["Lamp[app3]".to_owned()],
        nodes: vec![NodePattern::new("dev9.devco.net")],
        only: None,
    });
    expect![[r#"
        error: no application `Lamp[app3]`
          hint: did you mean `Lamp[app1]`?

        no node of the site matches `dev9.devco.net`
          hint: did you mean `dev1.devco.net`?
    "#]]
    .assert_eq(&planned(&graph, &unknown));
    let nothing = options(Filter {
        only: Some(BTreeSet::new()),
        ..Filter::default()
    });
    expect![[r#"
        error: the filter matches nothing
    "#]]
    .assert_eq(&planned(&graph, &nothing));
}

#[test]
fn an_instance_alone_is_planned_without_a_warning() {
    let graph = environment_graph("graph.json", GRAPH).expect("a graph");
    let mut options = PlanOptions::default();
    options.filter.instances = vec!["Lamp[app1]".to_owned()];
    expect![[r#"
        group 1: 1 nodes
          dev1.devco.net
            Lamp[app1] -> Lamp::Mysql[app1]
        group 2: 3 nodes
          dev2.devco.net
            Lamp[app1] -> Lamp::Webapp[app1-1]
            waits for dev1.devco.net: Lamp::Webapp[app1-1] needs Sql[app1] from Lamp::Mysql[app1]
          dev3.devco.net
            Lamp[app1] -> Lamp::Webapp[app1-2]
            waits for dev1.devco.net: Lamp::Webapp[app1-2] needs Sql[app1] from Lamp::Mysql[app1]
          dev4.devco.net
            Lamp[app1] -> Lamp::Webapp[app1-3]
            waits for dev1.devco.net: Lamp::Webapp[app1-3] needs Sql[app1] from Lamp::Mysql[app1]
    "#]]
    .assert_eq(&planned(&graph, &options));
}

#[test]
fn the_id_changes_with_what_would_be_done_and_with_nothing_else() {
    let id = |text: &str| {
        bunraku_plan::plan_site(&yaml(text), &PlanOptions::default())
            .expect("a plan")
            .id
    };
    let base =
        id("applications: {a: {components: {x: {node: n1}, y: {node: n2, waits_for: [x]}}}}");
    let same = id(
        "applications:\n  a:\n    components:\n      y: {waits_for: [x], node: n2}\n      x: {node: n1}\n",
    );
    assert_eq!(base, same);
    for other in [
        "applications: {a: {components: {x: {node: n1}, y: {node: n2}}}}",
        "applications: {a: {components: {x: {node: n1}, y: {node: n3, waits_for: [x]}}}}",
        "applications: {b: {components: {x: {node: n1}, y: {node: n2, waits_for: [x]}}}}",
        "environment: qa\napplications: {a: {components: {x: {node: n1}, y: {node: n2, waits_for: [x]}}}}",
    ] {
        assert_ne!(base, id(other), "{other}");
    }
}

#[test]
fn site_files_say_what_they_do_not_understand() {
    for text in [
        "applications: {a: {components: {x: {nod: n1}}}}",
        "a: [",
        "applications: 1",
    ] {
        let error = site_file("site.yaml", text, &Inventory::default()).expect_err(text);
        assert!(
            error
                .to_string()
                .starts_with("site.yaml is not a site file: "),
            "{error}"
        );
    }
}

#[test]
fn pictures_escape_what_they_show() {
    let text = GRAPH.replace("app1", "a<b>&\\\"c");
    let site = environment_graph("graph.json", &text).expect("a graph");
    let plan = bunraku_plan::plan_site(&site, &PlanOptions::default()).expect("a plan");
    let svg = plan_svg(&plan);
    assert!(svg.contains("Lamp::Mysql[a&lt;b&gt;&amp;&quot;c]"), "{svg}");
    assert!(!svg.contains("a<b>"));
    assert!(bunraku_plan::dot(&plan).contains("Lamp::Mysql[a<b>&\\\"c]"));
}

fn reading(reads: &[(&str, &str, &str)]) -> Site {
    let text = "applications:\n  a:\n    components:\n      db: {node: db1}\n      web: {nodes: [web1, web2]}\n";
    let mut site = yaml(text);
    site.reads = reads
        .iter()
        .map(|(reader, source, name)| bunraku_plan::NodeRead {
            reader: (*reader).to_owned(),
            source: (*source).to_owned(),
            name: (*name).to_owned(),
        })
        .collect();
    site
}

#[test]
fn a_node_that_reads_an_output_of_another_waits_for_it() {
    let site = reading(&[
        ("web1", "db1", "token"),
        ("web1", "web1", "own"),
        ("web2", "away", "token"),
        ("elsewhere", "db1", "token"),
    ]);
    let expected = expect![[r#"
        group 1: 2 nodes
          db1
            a -> a/db
          web2
            a -> a/web
        group 2: 1 nodes
          web1
            a -> a/web
            waits for db1: a/web needs output `token` from a/db
        warning: web2 reads the output `token` of away, which is not in this plan: the last registered value is used
    "#]];
    expected.assert_eq(&planned(&site, &PlanOptions::default()));
}

#[test]
fn nodes_that_read_each_other_are_a_circle_and_named() {
    let site = reading(&[("web1", "db1", "token"), ("db1", "web1", "address")]);
    let shown = planned(&site, &PlanOptions::default());
    assert!(shown.contains("dependency cycle"), "{shown}");
    assert!(shown.contains("output `address`"), "{shown}");
}

fn planned_manifest(text: &str) -> String {
    let files = [("site.pp".to_owned(), text.to_owned())];
    let site = site_manifest(&files, &NoModules, "production").expect("a site");
    planned(&site, &PlanOptions::default())
}

const BALANCED: &str = "
define db() { }
define web() { }
define lb($members) { }
Db produces Sql { }
Web consumes Sql { }
Web produces Http { }
application webapp($webs) {
  db { $name: export => Sql[$name] }
  $members = $webs.map |$web| {
    web { $web: consume => Sql[$name], export => Http[$web] }
    Http[$web]
  }
  lb { $name: members => $members, require => $members }
}
";

#[test]
fn a_load_balancer_runs_after_the_web_servers_that_it_requires() {
    let plan = planned_manifest(&format!(
        "{BALANCED} site {{ webapp {{ pao: webs => ['w1', 'w2'], nodes => {{
           Node[agent1] => Db[pao], Node[agent2] => [Web[w1], Web[w2]], Node[agent3] => Lb[pao] }} }} }}"
    ));
    expect![[r#"
        group 1: 1 nodes
          agent1
            Webapp[pao] -> Db[pao]
        group 2: 1 nodes
          agent2
            Webapp[pao] -> Web[w1]
            Webapp[pao] -> Web[w2]
            waits for agent1: Web[w1] needs Sql[pao] from Db[pao]; Web[w2] needs Sql[pao] from Db[pao]
        group 3: 1 nodes
          agent3
            Webapp[pao] -> Lb[pao]
            waits for agent2: Lb[pao] needs Http[w1] from Web[w1]; Lb[pao] needs Http[w2] from Web[w2]
    "#]]
    .assert_eq(&plan);
}

#[test]
fn a_required_capability_without_an_exporter_is_refused() {
    let plan = planned_manifest(
        "define web() { } Web produces Http { }
         application shop() { web { 'a': export => Http['a'] } web { 'b': require => Http['c'] } }
         site { shop { 's': nodes => { Node['n1'] => [Web['a'], Web['b']] } } }",
    );
    expect![[r#"
        error: `Web[b]` requires `Http[c]`, which no component exports
         --> site.pp:2:86
        2 |          application shop() { web { 'a': export => Http['a'] } web { 'b': require => Http['c'] } }
          |                                                                                      ^^^^^^^^^ required here
          hint: did you mean `Http[a]`?
    "#]]
    .assert_eq(&plan);
}

/// Two applications; the first consumes from the second, which has a cycle and other problems.
const TWO: &str = "applications:
  a:
    components:
      web: {node: n1, consumes: [b/sql]}
  b:
    components:
      db: {node: n2, produces: [sql]}
      x: {node: n3, produces: [one], consumes: [two]}
      y: {node: n4, produces: [two], consumes: [one]}
      z: {node: n5, consumes: [nothing]}
      lost: {produces: [three]}
";

#[test]
fn all_problems_are_reported_at_once() {
    check(
        TWO,
        expect![[r#"
            error: `b/lost` is not mapped to a node
              hint: every component needs a node to run on

            `b/z` consumes `b/nothing`, which no component produces
              hint: add a component that produces it

            dependency cycle of components
              b/x on n3 needs b/two from b/y
              b/y on n4 needs b/one from b/x
              hint: remove one of these dependencies
        "#]],
    );
}

#[test]
fn problems_of_what_is_left_out_are_warnings_and_so_are_missing_producers() {
    let mut options = PlanOptions::default();
    options.filter.instances = vec!["a".to_owned()];
    expect![[r#"
        group 1: 1 nodes
          n1
            a -> a/web
        warning: in a part that is not included: `b/lost` is not mapped to a node
        warning: in a part that is not included: `b/z` consumes `b/nothing`, which no component produces
        warning: in a part that is not included: dependency cycle of components
          b/x on n3 needs b/two from b/y
          b/y on n4 needs b/one from b/x
        warning: a/web needs b/sql from b/db of b on n2, which is not in this plan: it must already be in place
    "#]]
    .assert_eq(&planned(&yaml(TWO), &options));

    // The same problems prevent the plan of the part that has them.
    options.filter.instances = vec!["b".to_owned()];
    let error = planned(&yaml(TWO), &options);
    for part in [
        "error: ",
        "dependency cycle",
        "not mapped to a node",
        "no component produces",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    options.filter = Filter {
        nodes: vec![NodePattern::new("n2")],
        ..Filter::default()
    };
    let part = planned(&yaml(TWO), &options);
    assert!(part.starts_with("group 1: 1 nodes\n  n2\n"), "{part}");
}

#[test]
fn an_empty_site_is_an_empty_plan() {
    for text in [
        "",
        "# nothing yet\n",
        "applications:\n",
        "applications: {}\n",
    ] {
        let plan = bunraku_plan::plan_site(&yaml(text), &PlanOptions::default());
        let plan = plan.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(plan.steps.is_empty() && plan.groups.is_empty(), "{text:?}");
    }
}

#[test]
fn a_plan_covers_its_options_its_parameters_and_the_work_of_its_nodes() {
    use bunraku_model::{CatalogId, ContentId, EnvironmentName, ReleaseNumber};
    use bunraku_plan::{PlannedCatalog, PlannedWork, plan_differences, unchanged_steps};
    use bunraku_wire::api::RunMode;

    let site = yaml(
        "applications: {a: {components: {x: {node: n1, produces: [c]}, y: {node: n2, consumes: [c]}, z: {node: n3}}}}",
    );
    let plan =
        |site: &Site| bunraku_plan::plan_site(site, &PlanOptions::default()).expect("a plan");
    let catalog = |text: &str, release| {
        PlannedWork::Catalog(PlannedCatalog {
            catalog: CatalogId(ContentId::of(text.as_bytes())),
            environment: EnvironmentName::new("production").expect("a name"),
            release: ReleaseNumber(release),
            code_id: None,
            mode: RunMode::Enforce,
        })
    };
    let bound = |mut plan: RunPlan, catalogs: [(&str, u64); 3]| {
        for (step, (text, release)) in plan.steps.iter_mut().zip(catalogs) {
            step.work = Some(catalog(text, release));
        }
        plan.id = plan.identity();
        plan
    };
    // In the order of the steps: n1, n3, n2.
    let before = bound(plan(&site), [("one", 1), ("three", 1), ("two", 1)]);
    let again = bound(plan(&site), [("one", 2), ("three", 2), ("two", 2)]);
    assert_eq!(before.id, again.id, "the same catalogs in another release");
    let changed = bound(plan(&site), [("other", 2), ("three", 1), ("two", 1)]);
    assert_ne!(before.id, changed.id);

    let mut valued = site.clone();
    let parameters = &mut valued.applications[0].components[2].parameters;
    parameters.insert("port".to_owned(), 80.into());
    let with_port = plan(&valued);
    valued.applications[0].components[2]
        .parameters
        .insert("port".to_owned(), 81.into());
    let other_port = plan(&valued);
    assert_ne!(with_port.id, other_port.id);
    let text = |one: &RunPlan, other: &RunPlan| {
        let differences = plan_differences(one, other);
        let lines = differences.iter().map(|one| format!("{one}\n"));
        lines.collect::<String>()
    };
    assert_eq!(
        text(&with_port, &other_port),
        "n3: a/z: `port` has another value\n"
    );
    assert!(
        !serde_json::to_string(&with_port)
            .expect("JSON")
            .contains("80"),
        "no values"
    );

    let options = bunraku_plan::run::RunOptions {
        noop: true,
        ..Default::default()
    };
    let noop = before.clone().with_options(options, before.subject.clone());
    assert_ne!(before.id, noop.id);
    assert_eq!(text(&before, &noop), "option noop: false -> true\n");
    let difference = text(&before, &changed);
    assert!(difference.starts_with("n1: catalog"), "{difference}");
    assert_eq!(text(&before, &again), "");

    // What waits for a changed node runs again, and so does what did not succeed.
    let all = |_| true;
    let names = |plan: &RunPlan, steps: Vec<bunraku_plan::StepIndex>| -> Vec<String> {
        let steps = steps.into_iter();
        steps
            .map(|step| plan.steps[step.at()].node.to_string())
            .collect()
    };
    assert_eq!(
        names(&again, unchanged_steps(&before, &again, all)),
        ["n1", "n3", "n2"]
    );
    assert_eq!(
        names(&changed, unchanged_steps(&before, &changed, all)),
        ["n3"]
    );
    assert_eq!(names(&noop, unchanged_steps(&before, &noop, all)), [""; 0]);
    let first = |step: bunraku_plan::StepIndex| step.at() == 0;
    assert_eq!(
        names(&again, unchanged_steps(&before, &again, first)),
        ["n1"]
    );
}
