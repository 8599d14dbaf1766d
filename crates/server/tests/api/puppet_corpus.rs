//! Compares catalogs with those of plain Puppet: over a hundred nodes with Debian's modules,
//! compiled by a server and by a bare Ruby process side by side.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bunraku_compile::compiles::PuppetOptions;
use bunraku_wire::api::CompileOutcome;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::puppet_code::{catalog, compiled, deployed};
use crate::repository::{Repository, add, facts};
use crate::support::TestServer;

const NODES: &str = include_str!("../puppet_corpus/nodes.pp");
const CONFIGURATION: &str = "modulepath = modules:$basemodulepath\n";
const MODULES: &str = "/usr/share/puppet/modules";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/puppet_corpus")
}

/// Returns each node with its facts. The fact sets alternate.
fn nodes() -> Vec<(String, Value)> {
    let sets: Vec<Value> = ["debian", "ubuntu", "redhat"]
        .iter()
        .map(|name| {
            let path = corpus().join(format!("facts/{name}.json"));
            let text = std::fs::read_to_string(path).expect("a fact set");
            serde_json::from_str(&text).expect("facts")
        })
        .collect();
    let names = NODES.lines().filter_map(|line| {
        let rest = line.strip_prefix("node '")?;
        Some(rest.split_once('\'')?.0.to_owned())
    });
    names
        .enumerate()
        .map(|(number, name)| (name, sets[number % sets.len()].clone()))
        .collect()
}

/// Returns the catalogs that plain Puppet compiles for all nodes.
fn plain_puppet(nodes: &[(String, Value)]) -> BTreeMap<String, Value> {
    let directory = TempDir::new().expect("a directory");
    let environment = directory.path().join("environments/production");
    std::fs::create_dir_all(environment.join("manifests")).expect("a directory");
    std::fs::write(environment.join("manifests/site.pp"), NODES).expect("a file");
    std::fs::write(environment.join("environment.conf"), CONFIGURATION).expect("a file");
    let mut oracle = Command::new("ruby")
        .arg(corpus().join("oracle.rb"))
        .arg(directory.path().join("environments"))
        .args(["production", MODULES])
        .arg(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ruby runs; scripts/setup installs it");
    let mut input = oracle.stdin.take().expect("piped");
    let lines: String = nodes
        .iter()
        .map(|(node, facts)| {
            let mut facts = facts.clone();
            facts["clientcert"] = json!(node);
            facts["clientnoop"] = json!(false);
            format!("{}\n", json!({"node": node, "facts": facts}))
        })
        .collect();
    let feeding = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = oracle.wait_with_output().expect("it ends");
    feeding.join().expect("no panic").expect("fed");
    let text = String::from_utf8(output.stdout).expect("text");
    let answers = text.lines().map(|line| {
        let answer: Value = serde_json::from_str(line).expect("JSON");
        (answer["node"].as_str().expect("a node").to_owned(), answer)
    });
    answers.collect()
}

/// Removes the time and place of its compile from a catalog.
fn comparable(mut catalog: Value, root: Option<&str>) -> Value {
    let members = catalog.as_object_mut().expect("an object");
    for name in ["version", "catalog_uuid", "code_id", "sources"] {
        members.remove(name);
    }
    let lists = ["resources", "exports"].into_iter();
    let mut lists: Vec<Value> = lists.filter_map(|name| members.remove(name)).collect();
    let resources = lists.iter_mut().filter_map(Value::as_array_mut).flatten();
    for resource in resources {
        let resource = resource.as_object_mut().expect("a resource");
        if let (Some(root), Some(Value::String(file))) = (root, resource.get_mut("file")) {
            *file = file.rsplit(root).next().unwrap_or(file).to_owned();
        }
    }
    members.insert("lists".to_owned(), Value::Array(lists));
    catalog
}

/// Rewrites an error so that paths start at the environment's root.
fn from_root(error: &str) -> String {
    let root = "environments/production/";
    let places = error.split("(file: ").map(|part| {
        let below = part.split_once(root).map(|(_, below)| below);
        below.unwrap_or(part)
    });
    places.collect::<Vec<_>>().join("(file: ")
}

#[tokio::test]
async fn over_a_hundred_nodes_get_the_catalogs_of_plain_puppet() {
    let nodes = nodes();
    let all = nodes.clone();
    let plain = tokio::task::spawn_blocking(move || plain_puppet(&all));
    let puppet = PuppetOptions {
        base_modules: vec![MODULES.into()],
        ..PuppetOptions::default()
    };
    let mut server = TestServer::start_with(|options| {
        options.services.compiles.puppet = std::sync::Arc::new(puppet);
        options.services.compiles.concurrency = 2;
    })
    .await;
    for (node, known) in &nodes {
        let client = server.node(node).await;
        facts(&client, node, known).await;
    }
    let repository = Repository::new(&[
        ("manifests/site.pp", NODES),
        ("environment.conf", CONFIGURATION),
    ]);
    add(&server, "production", &repository.url()).await;
    deployed(&server, "production").await;
    let plain = plain.await.expect("no panic");
    assert_eq!(plain.len(), nodes.len());

    let mut equal = 0;
    for (node, _) in &nodes {
        let last = compiled(&server, node).await;
        let expected = &plain[node];
        if let Some(error) = expected["error"].as_str() {
            let CompileOutcome::Failed { problems, .. } = &last.outcome else {
                panic!("{node} must fail as with plain Puppet: {error}");
            };
            let message = problems[0].message.lines().next().expect("a line");
            let error = from_root(error);
            assert!(error.contains(message), "{node}: {message}\n{error}");
            continue;
        }
        let ours = serde_json::to_value(catalog(&server, &last).await).expect("JSON");
        let ours = comparable(ours, None);
        let expected = comparable(
            expected["catalog"].clone(),
            Some("environments/production/"),
        );
        assert!(
            ours == expected,
            "{node}:\n{ours:#}\n\nplain Puppet:\n{expected:#}"
        );
        equal += 1;
    }
    assert!(equal > 100, "{equal} catalogs are equal");
    server.shutdown().await;
}
