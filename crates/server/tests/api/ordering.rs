//! The ordering mode of an environment, from its setting to the catalogs of its nodes.

use bunraku_compile::compiles::PuppetOptions;
use bunraku_model::{Catalog, OrderingMode};
use bunraku_wire::api::{EnvironmentChange, EnvironmentChanged, EnvironmentDetail};
use serde_json::json;

use crate::puppet_code::{catalog, compiled, deployed};
use crate::repository::{
    Repository, add, compile, external, facts, repository_of, site_repository,
};
use crate::support::TestServer;

async fn set_order(server: &TestServer, change: EnvironmentChange) -> Option<OrderingMode> {
    let changed = server.operator.put("/v1/environments/production", &change);
    let changed: EnvironmentChanged = changed.await.expect("changed");
    changed.environment.order
}

async fn newest_catalog(server: &TestServer) -> Catalog {
    catalog(server, &compiled(server, "web-1").await).await
}

async fn every_mode_reaches_the_catalog(compiler: &str, repository: Repository) {
    let puppet = std::sync::Arc::new(PuppetOptions::default());
    let mut server =
        TestServer::start_with(|options| options.services.compiles.puppet = puppet).await;
    let client = server.node("web-1").await;
    facts(&client, "web-1", &json!({"kernel": "Linux"})).await;
    add(&server, "production", &repository.url()).await;
    deployed(&server, "production").await;
    let shown = server.operator.get("/v1/environments/production");
    let shown: EnvironmentDetail = shown.await.expect("an environment");
    let used = shown.summary.deployed.expect("code").compiler;
    assert_eq!((used.as_str(), shown.summary.order), (compiler, None));
    let without = newest_catalog(&server).await;
    assert_eq!(without.ordering, None);
    for mode in OrderingMode::ALL {
        let change = EnvironmentChange {
            order: Some(mode),
            ..EnvironmentChange::default()
        };
        assert_eq!(set_order(&server, change).await, Some(mode));
        // A change of something else keeps it.
        let other = set_order(&server, EnvironmentChange::default()).await;
        assert_eq!(other, Some(mode));
        compile(&server, "web-1").await;
        let with = newest_catalog(&server).await;
        assert_eq!(with.ordering, Some(mode), "{compiler}");
        assert_ne!(with.id(), without.id());
    }
    let change = EnvironmentChange {
        default_order: true,
        ..EnvironmentChange::default()
    };
    assert_eq!(set_order(&server, change).await, None);
    compile(&server, "web-1").await;
    let again = newest_catalog(&server).await;
    assert_eq!((again.ordering, again.id()), (None, without.id()));
    server.shutdown().await;
}

#[tokio::test]
async fn static_catalogs_have_the_order_of_their_environment() {
    every_mode_reaches_the_catalog("static", site_repository("hello")).await;
}

#[tokio::test]
async fn states_have_the_order_of_their_environment() {
    let repository = Repository::new(&[
        ("top.sls", "base:\n  '*':\n    - motd\n"),
        (
            "motd.sls",
            "/etc/motd:\n  file.managed:\n    - contents: hello\n",
        ),
    ]);
    every_mode_reaches_the_catalog("states", repository).await;
}

#[tokio::test]
async fn puppet_code_has_the_order_of_its_environment() {
    let site = "node default { file { '/etc/motd': content => 'hello' } }\n";
    every_mode_reaches_the_catalog("puppet", Repository::new(&[("manifests/site.pp", site)])).await;
}

#[tokio::test]
async fn external_compilers_have_the_order_of_their_environment() {
    let body = "def compile(request):\n    return [{'type': 'Notify', 'title': 'hello'}]\n";
    every_mode_reaches_the_catalog("external", repository_of(&external(body, ""))).await;
}
