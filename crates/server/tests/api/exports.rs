//! Exported resources and queries in Puppet code, across nodes.

use std::time::Duration;

use bunraku_compile::compiles::PuppetOptions;
use bunraku_model::Catalog;
use bunraku_wire::api::{
    CompileOutcome, LastCompile, PuppetComparison, PuppetComparisonRequest, RevokeRequest,
};
use bunraku_wire::endpoints::CompareWithPuppet;
use serde_json::{Value, json};

use crate::puppet_code::{catalog, compiled, deployed};
use crate::repository::{Repository, add, compile, facts};
use crate::support::{TestServer, appears, name};

/// Time limit: Puppet loads slowly, and more so on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// Starts a server whose environment `production` has this site, and these nodes.
async fn server_with(site: &str, nodes: &[&str]) -> (TestServer, Repository) {
    server_with_quiet(site, nodes, QUIET).await
}

async fn server_with_quiet(
    site: &str,
    nodes: &[&str],
    quiet: Duration,
) -> (TestServer, Repository) {
    server_with_files(&[("manifests/site.pp", site)], nodes, quiet).await
}

/// Starts a server whose environment `production` has these files, and these nodes.
pub(crate) async fn server_with_files(
    files: &[(&str, &str)],
    nodes: &[&str],
    quiet: Duration,
) -> (TestServer, Repository) {
    let server = TestServer::start_with(|options| {
        options.services.compiles.puppet = std::sync::Arc::new(PuppetOptions {
            base_modules: Vec::new(),
            ..PuppetOptions::default()
        });
        options.services.compiles.answer_quiet = quiet;
    })
    .await;
    for node in nodes {
        let client = server.node(node).await;
        facts(&client, node, &json!({"role": "web", "port": 80})).await;
    }
    let repository = Repository::new(files);
    add(&server, "production", &repository.url()).await;
    deployed(&server, "production").await;
    (server, repository)
}

/// Returns the references of a node's resources besides Puppet's own, sorted.
pub(crate) fn references(catalog: &Catalog) -> Vec<String> {
    let all = catalog.resources.iter().map(|one| one.reference());
    let own = all.filter(|one| !matches!(one.type_name(), "Stage" | "Class" | "Node"));
    let mut texts: Vec<String> = own.map(|one| one.to_string()).collect();
    texts.sort();
    texts
}

/// Waits until the node's newest compile is as expected.
pub(crate) async fn until(
    server: &TestServer,
    node: &str,
    mut holds: impl AsyncFnMut(&LastCompile) -> Result<(), String>,
) -> LastCompile {
    let mut shown = String::new();
    // Every outcome changes the queue.
    let mut changes = server.environments_and_compiles().1.changes();
    let waiting = async {
        loop {
            changes.borrow_and_update();
            let last = compiled(server, node).await;
            match holds(&last).await {
                Ok(()) => return last,
                Err(why) => shown = why,
            }
            changes.changed().await.expect("the server runs");
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, waiting).await;
    outcome.unwrap_or_else(|_| panic!("{node}: {shown}"))
}

pub(crate) fn expect(holds: bool, found: &impl std::fmt::Debug) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{found:?}"))
    }
}

/// Waits until a node's catalog has exactly these resources.
pub(crate) async fn until_resources(server: &TestServer, node: &str, expected: &[&str]) -> Catalog {
    let last = until(server, node, async |last| match &last.outcome {
        CompileOutcome::Compiled { .. } => {
            let found = references(&catalog(server, last).await);
            expect(found == expected, &found)
        }
        other => Err(format!("{other:?}")),
    })
    .await;
    catalog(server, &last).await
}

async fn assert_equal_to_puppet(server: &TestServer, node: &str) {
    let request = PuppetComparisonRequest { node: name(node) };
    let compared = server.operator.call_with(CompareWithPuppet, &request).await;
    let compared: PuppetComparison = compared.expect("compared");
    assert!(compared.is_equal(), "{node}: {compared:?}");
}

pub(crate) fn parameters(catalog: &Catalog, reference: &str) -> Value {
    let mut all = catalog.resources.iter();
    let found = all.find(|one| one.reference().to_string() == reference);
    let found = found.unwrap_or_else(|| panic!("no {reference}"));
    Value::Object(found.parameters.clone())
}

pub(crate) async fn remove(server: &TestServer, node: &str) {
    let revoke = RevokeRequest {
        reason: "gone".to_owned(),
        serial: None,
    };
    let path = format!("/v1/certificates/{node}/revoke");
    (server.operator.post::<_, ()>(&path, &revoke).await).expect("revoked");
}

const BACKENDS: &str = r#"
define backend(String $address, Integer $port = 0) {
  file { "/etc/backends/${title}": content => "${address}:${port}" }
}
node /^web-/ {
  @@backend { $trusted['certname']: address => $facts['role'], port => $facts['port'], tag => ['Pool', $trusted['certname']] }
  @@file { "/etc/keys/${trusted['certname']}": content => Sensitive('secret'), mode => '0600' }
  @@notify { "later ${trusted['certname']}": message => Deferred('sprintf', ['x']) }
}
node 'balancer' {
  @@backend { 'own': address => 'local', tag => 'pool' }
  @@backend { 'unused': address => 'local' }
  @backend { 'virtual': address => 'local', tag => 'pool' }
  Backend <<| tag == 'pool' and title != 'web-3' |>> { port => 8080 }
}
node 'keys' { File <<| |>> }
node 'later' { Notify <<| title == 'later web-1' or title == 'later web-2' |>> }
node 'nothing' { Backend <<| address == 'nowhere' |>> }
"#;

#[tokio::test]
async fn exported_resources_reach_collectors_in_whatever_order_nodes_are_compiled() {
    // The balancer is compiled first, when nobody has exported anything.
    let nodes = ["balancer", "nothing", "keys", "later"];
    let (mut server, _repository) = server_with(BACKENDS, &nodes).await;
    until_resources(
        &server,
        "balancer",
        &["Backend[own]", "File[/etc/backends/own]"],
    )
    .await;
    for node in ["web-1", "web-2", "web-3"] {
        let client = server.node(node).await;
        facts(&client, node, &json!({"role": "web", "port": 80})).await;
    }
    let balancer = until_resources(
        &server,
        "balancer",
        &[
            "Backend[own]",
            "Backend[web-1]",
            "Backend[web-2]",
            "File[/etc/backends/own]",
            "File[/etc/backends/web-1]",
            "File[/etc/backends/web-2]",
        ],
    )
    .await;
    assert_eq!(
        parameters(&balancer, "File[/etc/backends/web-1]")["content"],
        "web:8080"
    );
    // Secrets stay with the node that has them, and it is told.
    let keys = until_resources(
        &server,
        "keys",
        &[
            "File[/etc/keys/web-1]",
            "File[/etc/keys/web-2]",
            "File[/etc/keys/web-3]",
        ],
    )
    .await;
    assert_eq!(
        parameters(&keys, "File[/etc/keys/web-1]"),
        json!({"mode": "0600"})
    );
    let web = compiled(&server, "web-1").await;
    let notes: Vec<&str> = web.notes.iter().map(|note| note.message.as_str()).collect();
    assert_eq!(
        notes,
        ["the secret parameter `content` of the exported File[/etc/keys/web-1] is not exported"]
    );
    let web = catalog(&server, &web).await;
    assert_eq!(references(&web), Vec::<String>::new());
    assert_eq!(web.exports.len(), 3);
    // Rich values are what they were.
    let later = until_resources(
        &server,
        "later",
        &["Notify[later web-1]", "Notify[later web-2]"],
    )
    .await;
    let message = &parameters(&later, "Notify[later web-1]")["message"];
    assert_eq!(message["__ptype"], "Deferred");
    for node in ["balancer", "keys", "later", "nothing", "web-1"] {
        assert_equal_to_puppet(&server, node).await;
    }
    // People see them, too.
    let request =
        json!({"query": "resources[certname, title] { exported = true and type = 'Backend' }"});
    let answer: Value = server
        .operator
        .post("/v1/query", &request)
        .await
        .expect("an answer");
    let rows = answer["rows"].as_array().expect("rows").iter();
    let titles: Vec<&str> = rows.filter_map(|row| row["title"].as_str()).collect();
    assert_eq!(titles, ["own", "unused", "web-1", "web-2", "web-3"]);
    server.shutdown().await;
}

#[tokio::test]
async fn exports_of_a_revoked_or_removed_node_disappear_from_collectors() {
    let site =
        "node /^web/ { @@notify { $trusted['certname']: } }\nnode 'all' { Notify <<| |>> }\n";
    let (mut server, _repository) = server_with(site, &["web-1", "web-2", "web-3", "all"]).await;
    until_resources(
        &server,
        "all",
        &["Notify[web-1]", "Notify[web-2]", "Notify[web-3]"],
    )
    .await;
    remove(&server, "web-2").await;
    until_resources(&server, "all", &["Notify[web-1]", "Notify[web-3]"]).await;
    remove(&server, "web-1").await;
    (server.operator.delete::<()>("/v1/nodes/web-1").await).expect("removed");
    until_resources(&server, "all", &["Notify[web-3]"]).await;
    server.shutdown().await;
}

#[tokio::test]
async fn the_same_resource_from_two_nodes_is_puppets_error_until_one_of_them_is_gone() {
    let site = "node /^web/ { @@notify { 'the same': } }\nnode 'all' { Notify <<| |>> }\n";
    let (mut server, _repository) = server_with(site, &["web-1", "web-2", "all"]).await;
    until(&server, "all", async |last| match &last.outcome {
        CompileOutcome::Failed { problems, .. }
            if problems[0].message.contains(
                "A duplicate resource was found while collecting exported resources, with the type \
                 and title Notify[the same]",
            ) =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    })
    .await;
    remove(&server, "web-1").await;
    until_resources(&server, "all", &["Notify[the same]"]).await;
    server.shutdown().await;
}

const QUERIES: &str = r#"
node 'asks' {
  $text = puppetdb_query('nodes[certname] { facts.role = "web" order by certname }').map |$n| { $n['certname'] }
  $list = puppetdb_query(['from', 'facts', ['extract', ['certname', 'value'],
    ['and', ['=', 'name', 'port'], ['in', 'certname', ['extract', 'certname', ['select_resources',
      ['and', ['=', 'type', 'Notify'], ['=', 'exported', true]]]]]]]])
  $count = puppetdb_query('inventory[count()] { facts.port = 80 }')
  $inventory = puppetdb_query('inventory { certname = "web-1" }')
  notify { 'text': message => $text.join(',') }
  notify { 'list': message => $list.map |$row| { "${row['certname']}=${row['value']}" }.join(',') }
  notify { 'count': message => String($count[0]['count']) }
  notify { 'inventory': message => String($inventory[0]['facts']['port']) }
}
node 'wrong' { $x = puppetdb_query('nodes { certnam = "x" }') }
node 'worse' { $x = puppetdb_query(['nodes']) }
node default { @@notify { "exported by ${trusted['certname']}": } }
"#;

#[tokio::test]
async fn queries_in_code_are_answered_and_a_new_answer_is_a_new_catalog() {
    let nodes = ["web-1", "web-2", "asks", "wrong", "worse"];
    let (mut server, _repository) = server_with(QUERIES, &nodes).await;
    let messages = async |expected: [&str; 4]| {
        until(&server, "asks", async |last| {
            let found = catalog(&server, last).await;
            let names = ["text", "list", "count", "inventory"];
            let found = names.map(|one| {
                let message = &parameters(&found, &format!("Notify[{one}]"))["message"];
                message.as_str().unwrap_or_default().to_owned()
            });
            expect(found == expected, &found)
        })
        .await
    };
    messages([
        "asks,web-1,web-2,worse,wrong",
        "web-1=80,web-2=80",
        "5",
        "80",
    ])
    .await;
    assert_equal_to_puppet(&server, "asks").await;
    let client = server.node("web-3").await;
    facts(&client, "web-3", &json!({"role": "web", "port": 81})).await;
    messages([
        "asks,web-1,web-2,web-3,worse,wrong",
        "web-1=80,web-2=80,web-3=81",
        "5",
        "80",
    ])
    .await;
    let wrong = |last: &LastCompile| match &last.outcome {
        CompileOutcome::Failed { problems, .. } => problems[0].message.clone(),
        other => panic!("{other:?}"),
    };
    let said = wrong(&compiled(&server, "wrong").await);
    assert!(said.contains("`nodes` have no field `certnam`"), "{said}");
    assert!(said.contains("did you mean `certname`?"), "{said}");
    let said = wrong(&compiled(&server, "worse").await);
    assert!(
        said.contains("a query must begin with [\"from\", ENTITY, …]"),
        "{said}"
    );
    server.shutdown().await;
}

/// Each node exports the number of its own resources, which grows with each collected one.
const CIRCLE: &str = r#"
node /^ring/ {
  $seen = puppetdb_query("resources[title] { type = 'Notify' and exported = true and certname != '${trusted['certname']}' }")
  $longest = $seen.reduce('') |$memo, $row| { if length($row['title']) > length($memo) { $row['title'] } else { $memo } }
  @@notify { "${longest}x": tag => $trusted['certname'] }
  $other = $trusted['certname'] ? { 'ring-1' => 'ring-2', default => 'ring-1' }
  Notify <<| tag == $other |>>
}
node /^pair/ {
  @@notify { $trusted['certname']: tag => 'pair' }
  Notify <<| tag == 'pair' |>>
}
"#;

#[tokio::test]
async fn nodes_that_feed_each_other_in_a_circle_stop_and_are_named() {
    let nodes = ["ring-1", "ring-2", "pair-1", "pair-2"];
    let (mut server, _repository) = server_with(CIRCLE, &nodes).await;
    // Two nodes that export to each other settle.
    for node in ["pair-1", "pair-2"] {
        until_resources(&server, node, &["Notify[pair-1]", "Notify[pair-2]"]).await;
    }
    let note = appears(async || {
        for node in ["ring-1", "ring-2"] {
            let last = compiled(&server, node).await;
            let mut notes = last.notes.into_iter().map(|note| note.message);
            let found = notes.find(|note| note.contains("compiled 10 times in a row"));
            if found.is_some() {
                return found;
            }
        }
        None
    })
    .await;
    let circles = ["ring-1 -> ring-2 -> ring-1", "ring-2 -> ring-1 -> ring-2"];
    assert!(circles.iter().any(|circle| note.contains(circle)), "{note}");
    // Other nodes are compiled because of answers, and these two no longer.
    let mut pairs = vec!["Notify[pair-1]".to_owned(), "Notify[pair-2]".to_owned()];
    let mut stopped = Vec::new();
    for node in ["pair-3", "pair-4", "pair-5"] {
        let client = server.node(node).await;
        facts(&client, node, &json!({"role": "web", "port": 80})).await;
        pairs.push(format!("Notify[{node}]"));
        let expected: Vec<&str> = pairs.iter().map(String::as_str).collect();
        until_resources(&server, "pair-1", &expected).await;
        let first = compiled(&server, "ring-1").await.at;
        stopped.push((first, compiled(&server, "ring-2").await.at));
    }
    assert_eq!(stopped[1], stopped[2]);
    // Another cause compiles them again.
    let before = compiled(&server, "ring-1").await;
    compile(&server, "ring-1").await;
    until(&server, "ring-1", async |last| {
        expect(last.at > before.at, &last.at)
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_change_that_was_stored_before_the_server_died_is_noticed_by_the_next_one() {
    let site = "node 'web' { @@notify { $facts['role']: } }\nnode 'all' { Notify <<| |>> }\n";
    let forever = Duration::from_secs(1_000_000);
    let (mut server, _repository) = server_with_quiet(site, &["all"], forever).await;
    let client = server.node("web").await;
    facts(&client, "web", &json!({"role": "web", "port": 80})).await;
    compiled(&server, "web").await;
    compile(&server, "all").await;
    // The index may not have known the exporter yet.
    let waiting = async {
        while references(&catalog(&server, &compiled(&server, "all").await).await).is_empty() {
            compile(&server, "all").await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("collected");
    // The exporter has a new catalog, and the collector is not in the queue yet.
    facts(&client, "web", &json!({"role": "changed", "port": 80})).await;
    until(&server, "web", async |last| {
        let found = catalog(&server, last).await;
        let title = &found.exports[0].title;
        expect(title == "changed", title)
    })
    .await;
    until_resources(&server, "all", &["Notify[web]"]).await;
    let directory = server.directory();
    let mut options = server.options();
    server.shutdown().await;
    options.services.compiles.answer_quiet = QUIET;
    let mut server = TestServer::open(directory, options).await;
    until_resources(&server, "all", &["Notify[changed]"]).await;
    server.shutdown().await;
}

/// Modules of Debian that collect what their users export: balancer members, and host keys.
const MODULES: &str = r#"
node /^web/ {
  class { 'ssh': storeconfigs_enabled => true }
  @@haproxy::balancermember { $trusted['certname']:
    listening_service => 'web',
    ports             => '80',
    server_names      => $trusted['certname'],
    ipaddresses       => $facts['networking']['ip'],
  }
  @@concat::fragment { "motd of ${trusted['certname']}": target => '/etc/motd', content => $trusted['certname'], tag => 'motd' }
}
node 'lb' {
  class { 'ssh': storeconfigs_enabled => true }
  include haproxy
  haproxy::listen { 'web': collect_exported => true, ipaddress => '*', ports => '80' }
  concat { '/etc/motd': }
  Concat::Fragment <<| tag == 'motd' |>>
}
"#;

#[tokio::test]
async fn published_modules_collect_as_with_plain_puppet() {
    let server =
        TestServer::start_with(|options| options.services.compiles.answer_quiet = QUIET).await;
    let known = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/puppet_corpus/facts/debian.json"
    );
    let known = std::fs::read_to_string(known).expect("facts");
    let known: Value = serde_json::from_str(&known).expect("facts");
    for node in ["lb", "web-1", "web-2"] {
        let client = server.node(node).await;
        let mut own = known.clone();
        own["hostname"] = json!(node);
        own["fqdn"] = json!(format!("{node}.example.com"));
        own["networking"]["hostname"] = json!(node);
        own["networking"]["fqdn"] = json!(format!("{node}.example.com"));
        own["ssh"] = json!({"rsa": {"key": format!("AAAA{node}"), "type": "ssh-rsa"}});
        own["sshrsakey"] = json!(format!("AAAA{node}"));
        facts(&client, node, &own).await;
    }
    let repository = Repository::new(&[("manifests/site.pp", MODULES)]);
    add(&server, "production", &repository.url()).await;
    deployed(&server, "production").await;
    until(&server, "lb", async |last| {
        if let CompileOutcome::Failed { problems, .. } = &last.outcome {
            return Err(format!("{problems:?}"));
        }
        let found = references(&catalog(&server, last).await);
        let wanted = [
            "Haproxy::Balancermember[web-1]",
            "Haproxy::Balancermember[web-2]",
            "Concat::Fragment[motd of web-1]",
            "Concat::Fragment[motd of web-2]",
            "Sshkey[web-1.example.com_rsa]",
            "Sshkey[web-2.example.com_rsa]",
        ];
        let has_all = wanted
            .iter()
            .all(|one| found.iter().any(|known| known == one));
        expect(has_all, &found)
    })
    .await;
    for node in ["lb", "web-1"] {
        assert_equal_to_puppet(&server, node).await;
    }
    let mut server = server;
    server.shutdown().await;
}

/// `BUNRAKU_EXPORTERS=1000` measures a large fleet.
#[tokio::test]
async fn one_collector_finds_what_many_nodes_export() {
    let exporters = std::env::var("BUNRAKU_EXPORTERS").ok();
    let exporters: usize = exporters.and_then(|text| text.parse().ok()).unwrap_or(10);
    let site = "node 'all' { File <<| tag == 'many' |>> { mode => '0600' } }
node default {
  range(0, 9).each |$n| {
    @@file { \"/etc/many/${trusted['certname']}-${n}\": content => $facts['role'], tag => 'many' }
  }
}
function range(Integer $from, Integer $to) { Integer[$from, $to].map |$n| { $n } }
";
    let (mut server, _repository) = server_with(site, &["all"]).await;
    let started = std::time::Instant::now();
    let names: Vec<String> = (0..exporters)
        .map(|number| format!("node-{number:04}"))
        .collect();
    for node in &names {
        let client = server.node(node).await;
        facts(&client, node, &json!({"role": "web", "port": 80})).await;
    }
    let joined = started.elapsed();
    let expected = exporters * 10;
    let last = until(&server, "all", async |last| {
        let found = catalog(&server, last).await;
        let count = references(&found).len();
        expect(count == expected, &count)
    })
    .await;
    let all = started.elapsed();
    // One more export changes one resource.
    let client = server.node("node-last").await;
    facts(&client, "node-last", &json!({"role": "web", "port": 80})).await;
    let started = std::time::Instant::now();
    let spent = own_cpu_seconds();
    let newest = until(&server, "all", async |last| {
        let found = catalog(&server, last).await;
        let count = references(&found).len();
        expect(count == expected + 10, &count)
    })
    .await;
    eprintln!(
        "{exporters} exporters: joined in {joined:.1?}, all collected after {all:.1?}; \
         the collector's compile took {} ms; one more exporter: {:.1?}, of which its compile took \
         {} ms; CPU of this process without Puppet: {:.1} s",
        last.took_ms,
        started.elapsed(),
        newest.took_ms,
        own_cpu_seconds() - spent
    );
    server.shutdown().await;
}

/// Returns the CPU time of this process, without that of its children.
fn own_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    (ticks(12).unwrap_or_default() + ticks(13).unwrap_or_default()) / 100.0
}
