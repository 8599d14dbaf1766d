//! Applications in Puppet code: components on their nodes, and the values that
//! capabilities carry from one node's catalog to another's.

use bunraku_wire::api::{CompileOutcome, CompileProblem};
use serde_json::json;

use crate::exports::{
    QUIET, expect, parameters, references, remove, server_with_files, until, until_resources,
};
use crate::puppet_code::{catalog, compiled};
use crate::repository::facts;
use crate::support::TestServer;

const SQL: (&str, &str) = (
    "modules/shop/lib/puppet/type/sql.rb",
    "Puppet::Type.newtype(:sql, is_capability: true) do
  newparam(:name, namevar: true)
  %i[host port user password].each { |one| newparam(one) }
end
",
);
const HTTP: (&str, &str) = (
    "modules/shop/lib/puppet/type/http.rb",
    "Puppet::Type.newtype :http, :is_capability => true do
  newparam :name, :is_namevar => true
  newparam :host
  newparam :port
end
",
);

/// Three kinds of components. The load balancer reads capabilities by their references.
const SHOP: (&str, &str) = (
    "modules/shop/manifests/init.pp",
    r#"# Applications, sites and what produces or consumes something: words in comments do not count.
application shop(
  Array[String] $webs = ['one', 'two'],
) {
  shop::db { $name: user => 'shopper', export => Sql["db-${name}"] }
  $https = $webs.map |$web| {
    shop::web { "${name}-${web}": consume => Sql["db-${name}"], export => Http["${name}-${web}"] }
    Http["${name}-${web}"]
  }
  shop::lb { $name: members => $https, require => $https }
  Shop::Db[$name] -> Shop::Web["${name}-one"]
}
"#,
);
const DB: (&str, &str) = (
    "modules/shop/manifests/db.pp",
    r#"define shop::db($user, $port = $facts['port']) {
  file { "/etc/db-${name}": content => $user }
}
Shop::Db produces Sql {
  host => $trusted['certname'],
  port => $port,
}
"#,
);
const WEB: (&str, &str) = (
    "modules/shop/manifests/web.pp",
    r#"define shop::web(String $db, Integer $port, $user = 'nobody') {
  file { "/etc/web-${name}": content => "${user}@${db}:${port}" }
}
Shop::Web consumes Sql { db => "${host}.${name}", }
Shop::Web produces Http { host => $trusted['certname'], port => 8000 + $port }
"#,
);
const LB: (&str, &str) = (
    "modules/shop/manifests/lb.pp",
    r#"define shop::lb($members) {
  file { "/etc/lb-${name}": content => $members.map |$one| { "${one['host']}:${one['port']}" }.join(',') }
}
"#,
);
const SITE: &str = r#"
site {
  shop { 'main':
    nodes => {
      Node['db-1'] => Shop::Db['main'],
      Node['web-1'] => [Shop::Web['main-one'], Shop::Web['main-two']],
      Node['lb-1'] => Shop::Lb['main'],
    }
  }
  notify { 'for no node': }
}
notify { 'for every node': }
"#;

/// The resources of every node in the test of wrong applications.
const OF_ALL: [&str; 2] = ["Notify[my site of me]", "Site[my site]"];

async fn shop(site: &str, nodes: &[&str]) -> (TestServer, crate::repository::Repository) {
    let files = [("manifests/site.pp", site), SQL, HTTP, SHOP, DB, WEB, LB];
    server_with_files(&files, nodes, QUIET).await
}

async fn problem(server: &TestServer, node: &str) -> CompileProblem {
    let last = until(server, node, async |last| {
        let has_failed = matches!(last.outcome, CompileOutcome::Failed { .. });
        expect(has_failed, &last.outcome)
    })
    .await;
    match last.outcome {
        CompileOutcome::Failed { mut problems, .. } => problems.remove(0),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_consumer_gets_the_values_of_its_producer_in_its_own_catalog() {
    // The consumers are compiled first, when nothing is produced.
    let (mut server, _repository) = shop(SITE, &["lb-1", "web-1", "other"]).await;
    let missing = problem(&server, "web-1").await;
    assert!(
        missing
            .message
            .contains("Shop::Web[main-one] consumes Sql[db-main], but no compiled catalog"),
        "{missing:?}"
    );
    assert!(
        missing
            .file
            .expect("a file")
            .ends_with("modules/shop/manifests/init.pp")
    );
    assert_eq!(missing.line, Some(7));
    let client = server.node("db-1").await;
    facts(&client, "db-1", &json!({"port": 3306})).await;
    let web = until_resources(
        &server,
        "web-1",
        &[
            "File[/etc/web-main-one]",
            "File[/etc/web-main-two]",
            "Notify[for every node]",
            "Shop::Web[main-one]",
            "Shop::Web[main-two]",
            "Shop[main]",
        ],
    )
    .await;
    assert_eq!(
        parameters(&web, "File[/etc/web-main-one]")["content"],
        "shopper@db-1.db-main:3306"
    );
    assert_eq!(
        parameters(&web, "Shop::Web[main-two]"),
        json!({"db": "db-1.db-main", "port": 3306, "user": "shopper"})
    );
    assert_eq!(
        parameters(&web, "Shop[main]"),
        json!({"webs": ["one", "two"]})
    );
    let balancer = until_resources(
        &server,
        "lb-1",
        &[
            "File[/etc/lb-main]",
            "Notify[for every node]",
            "Shop::Lb[main]",
            "Shop[main]",
        ],
    )
    .await;
    assert_eq!(
        parameters(&balancer, "File[/etc/lb-main]")["content"],
        "web-1:11306,web-1:11306"
    );
    assert!(
        parameters(&balancer, "Shop::Lb[main]")
            .get("require")
            .is_none()
    );
    // A node without components has none.
    let other = compiled(&server, "other").await;
    let other = catalog(&server, &other).await;
    assert_eq!(references(&other), ["Notify[for every node]"]);
    // A changed value arrives at all who read it, through the nodes between.
    facts(&client, "db-1", &json!({"port": 5432})).await;
    until(&server, "lb-1", async |last| {
        let found = catalog(&server, last).await;
        let content = parameters(&found, "File[/etc/lb-main]")["content"].clone();
        expect(content == "web-1:13432,web-1:13432", &content)
    })
    .await;
    // The producer is gone: its consumers say so, and keep their last catalog.
    remove(&server, "db-1").await;
    let missing = problem(&server, "web-1").await;
    assert!(
        missing.message.contains("no compiled catalog"),
        "{missing:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn components_on_one_node_pass_values_within_its_catalog() {
    let site = "site {
  shop { 'all': webs => ['one'], nodes => { Node['all'] => [Shop::Lb['all'], Shop::Web['all-one'], Shop::Db['all']] } }
}
";
    let (mut server, _repository) = shop(site, &["all"]).await;
    let found = until(&server, "all", async |last| {
        let is_compiled = matches!(last.outcome, CompileOutcome::Compiled { .. });
        expect(is_compiled, &last.outcome)
    })
    .await;
    let found = catalog(&server, &found).await;
    assert_eq!(
        parameters(&found, "File[/etc/web-all-one]")["content"],
        "shopper@all.db-all:80"
    );
    assert_eq!(
        parameters(&found, "File[/etc/lb-all]")["content"],
        "all:8080"
    );
    // The capability stands for the component that produces it.
    assert_eq!(
        parameters(&found, "Shop::Lb[all]")["require"],
        json!(["Shop::Web[all-one]"])
    );
    assert_eq!(
        parameters(&found, "Shop::Db[all]")["before"],
        json!(["Shop::Web[all-one]"])
    );
    assert_eq!(found.exports.len(), 2);
    server.shutdown().await;
}

#[tokio::test]
async fn wrong_applications_are_errors_with_their_place() {
    let site = r#"node 'outside' { shop { 'x': } }
node 'unmapped' { shop::lb { 'y': members => [], consume => Sql['x'] } }
node /^twice/ { shop::db { $trusted['certname']: user => 'u', export => Sql['same'] } }
node 'reader' { shop::web { 'r': consume => Sql['same'] } }
node 'secret' { shop::db { 's': user => Sensitive('u'), export => Sql['secret'] } }
node default { }
site { 'my site': owner => 'me' }
define site($owner) { notify { "${name} of ${owner}": } }
"#;
    let nodes = [
        "outside", "unmapped", "twice-1", "twice-2", "secret", "type",
    ];
    let (mut server, _repository) = shop(site, &nodes).await;
    let found = problem(&server, "outside").await;
    assert!(
        found
            .message
            .contains("Shop[x] is an application and can only be declared in a site"),
        "{found:?}"
    );
    assert_eq!(found.line, Some(1));
    let found = problem(&server, "unmapped").await;
    assert!(
        found
            .message
            .contains("there is no 'Shop::Lb consumes Sql'"),
        "{found:?}"
    );
    // Resources of a type that is called `site` are what they were.
    until_resources(&server, "type", &OF_ALL).await;
    // Secrets are not exported, and the node is told.
    let secret = until(&server, "secret", async |last| {
        expect(!last.notes.is_empty(), &last.outcome)
    })
    .await;
    assert_eq!(
        secret.notes[0].message,
        "the secret parameter `user` of the exported Sql[secret] is not exported"
    );
    for node in ["twice-1", "twice-2"] {
        let file = format!("File[/etc/db-{node}]");
        let component = format!("Shop::Db[{node}]");
        until_resources(&server, node, &[&file, OF_ALL[0], &component, OF_ALL[1]]).await;
    }
    let client = server.node("reader").await;
    facts(&client, "reader", &json!({"port": 1})).await;
    let found = problem(&server, "reader").await;
    assert!(
        found
            .message
            .contains("Sql[same] is produced on several nodes: twice-1, twice-2"),
        "{found:?}"
    );
    // One of them goes: now it is clear.
    remove(&server, "twice-1").await;
    let expected = ["File[/etc/web-r]", OF_ALL[0], "Shop::Web[r]", OF_ALL[1]];
    until_resources(&server, "reader", &expected).await;
    server.shutdown().await;
}
