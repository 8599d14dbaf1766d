//! Languages: YAML, states with templates and facts, queries, Puppet, site files.

use std::sync::{Arc, OnceLock};

use bunraku_model::{Catalog, NodeName};
use bunraku_plan::{Inventory, PlanOptions, plan_site};
use bunraku_puppet::{NoModules, Sources};
use bunraku_query::{Index, Limits, Query};
use bunraku_states::{
    FactTrust, Function, Input, Lookup, Target, Tree, World, WorldError, compile,
};
use serde_json::{Map, Value, json};

use crate::text;

/// YAML with anchors and aliases, as state and configuration files have it.
pub fn yaml(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(node) = bunraku_states::read_document("fuzz.yaml", text) {
        let copy = node.clone();
        assert_eq!(copy.to_json(), node.to_json());
    }
    let _ = bunraku_states::read_data("fuzz.yaml", text);
}

/// A world that knows some state functions, and one pillar file.
struct FuzzWorld {
    pillar: String,
}

impl World for FuzzWorld {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        Ok(match (tree, path) {
            (Tree::Pillar, "top.sls") => Some("base: {'*': [data]}".to_owned()),
            (Tree::Pillar, "data.sls") => Some(self.pillar.clone()),
            (Tree::States, "map.jinja") => Some("{% set port = 80 %}".to_owned()),
            (Tree::States, "other.sls") => Some("other: {test.nop: []}".to_owned()),
            _ => None,
        })
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        let name = match tree {
            Tree::States => "other.sls",
            Tree::Pillar => "data.sls",
        };
        Ok(vec![name.to_owned()])
    }

    fn function(&self, name: &str) -> Lookup {
        let (module, function) = name.split_once('.').unwrap_or((name, ""));
        match (module, function) {
            ("test" | "file" | "cmd" | "pkg", "") => Lookup::UnknownFunction,
            ("test" | "file" | "cmd" | "pkg", _) => Lookup::Known(Function {
                type_name: module.to_owned(),
                name_parameter: "name".to_owned(),
                parameters: ["name", "content", "mode", "source"]
                    .map(str::to_owned)
                    .to_vec(),
                ..Function::default()
            }),
            _ => Lookup::UnknownModule,
        }
    }
}

fn compile_states(source: &str, pillar: &str, facts: Map<String, Value>) {
    let world: Arc<dyn World> = Arc::new(FuzzWorld {
        pillar: pillar.to_owned(),
    });
    let input = Input {
        node: "web-1.example.com".to_owned(),
        facts,
        target: Target::Text {
            name: "fuzz".to_owned(),
            source: source.to_owned(),
        },
        fact_trust: FactTrust::Sent { may_target: true },
        ..Input::default()
    };
    match compile(&world, &input) {
        Ok(compiled) => {
            compiled.catalog.id();
        }
        Err(error) => drop(error.to_string()),
    }
}

/// A state file with templates. What comes before a NUL byte is a fact of the node.
pub fn states(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (fact, source) = text.split_once('\0').unwrap_or(("web-1", text));
    let facts = json!({
        "networking": {"fqdn": fact, "ip": "10.0.0.1"},
        "os": {"family": "Debian", "name": "Debian", "release": {"full": "12.5", "major": "12"}},
    });
    let Value::Object(facts) = facts else { return };
    compile_states(source, "port: 80", facts);
}

/// A pillar file: templates whose result is merged with other data.
pub fn pillar(data: &[u8]) {
    let Some(text) = text(data) else { return };
    compile_states("{{ pillar | json }}: {test.nop: []}", text, Map::new());
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut index = Index::new();
        for number in 0..4 {
            let node = NodeName::new(format!("web-{number}")).expect("a name");
            let facts = json!({
                "os": {"family": "Debian", "release": {"major": number}},
                "disks": [{"name": "sda", "size": 1 << number}],
                "is_virtual": number % 2 == 0,
            });
            index.set_facts(&node, facts.as_object().expect("an object"));
            let catalog = json!({
                "name": node.as_str(), "classes": ["nginx"],
                "resources": [{"type": "File", "title": "/etc/motd", "parameters": {"mode": "0644"}}],
            });
            let catalog = Catalog::from_json(catalog.to_string().as_bytes());
            index.set_catalog(&node, &catalog.expect("a catalog"));
        }
        index
    })
}

/// A query, answered from a small index.
pub fn query(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Query::parse(text) {
        Ok(query) => {
            let limits = Limits {
                steps: 100_000,
                ..Limits::default()
            };
            let _ = index().answer(&query, &limits);
        }
        Err(error) => drop(error.to_string()),
    }
    let _ = Query::parse_target(text);
}

/// Puppet's lexer and parser.
pub fn puppet_parser(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut sources = Sources::default();
    let file = sources.add("site.pp", text);
    let _ = bunraku_puppet::parse(&sources, file, &bunraku_puppet::Limits::default());
}

/// A manifest with applications and a site, evaluated.
pub fn puppet_evaluator(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let files = [("site.pp".to_owned(), text.to_owned())];
    let limits = bunraku_puppet::Limits::default();
    if let Err(error) = bunraku_puppet::evaluate_site(&files, &NoModules, &limits) {
        drop(error.to_string());
    }
}

/// A site file, and the plan of its applications.
pub fn site_file(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match bunraku_plan::site_file("site.yaml", text, &Inventory::default()) {
        Ok(site) => {
            if let Err(error) = plan_site(&site, &PlanOptions::default()) {
                drop(error.to_string());
            }
        }
        Err(error) => drop(error.to_string()),
    }
}
