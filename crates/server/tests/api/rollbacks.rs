//! Rollbacks with real code: what nodes get that joined before and after.

use std::collections::BTreeMap;

use bunraku_wire::api::{ReleaseDetail, ReleaseReply, ReleaseTo, RollbackRequest, RunMode, Target};
use serde_json::{Value, json};

use crate::fleet::{release, try_release_all};
use crate::repository::{Repository, add, deploy, node, site, site_repository};
use crate::support::{TestServer, eventually};

async fn quick_server() -> TestServer {
    let quiet = std::time::Duration::from_millis(100);
    TestServer::start_with(|options| options.services.releases.quiet = quiet).await
}

/// Commits and deploys this content, and returns the commit.
async fn deploy_content(server: &TestServer, repository: &Repository, content: &str) -> String {
    let files = site(content);
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let commit = repository.commit(&files);
    let status = deploy(server, "production").await;
    assert_eq!(status.progress.failed, 0, "{status:?}");
    commit
}

/// Returns the code of a node's target.
async fn code_of(server: &TestServer, node: &str) -> Option<String> {
    let path = format!("/v1/nodes/{node}/target");
    let target: Target = server.operator.get(&path).await.ok()?;
    target.code_id.map(|code| code.0)
}

/// Joins a node, waits until it has a target, and returns its code.
async fn join(server: &TestServer, name: &str) -> String {
    node(server, name).await;
    eventually(async || code_of(server, name).await.is_some()).await;
    code_of(server, name).await.expect("a target")
}

async fn codes(server: &TestServer, nodes: usize) -> BTreeMap<String, usize> {
    let mut codes = BTreeMap::new();
    for number in 1..=nodes {
        let code = code_of(server, &format!("web-{number}")).await;
        *codes.entry(code.unwrap_or_default()).or_default() += 1;
    }
    codes
}

async fn roll_back(server: &TestServer, to: u64) -> ReleaseDetail {
    let request = RollbackRequest {
        parent: None,
        release: Some(bunraku_model::ReleaseNumber(to)),
        reason: Some("it broke".to_owned()),
    };
    let path = "/v1/releases/production/rollback";
    let made: ReleaseReply = server.operator.post(path, &request).await.expect("made");
    assert!(made.hold.is_some(), "{made:?}");
    let path = "/v1/releases/production/current?wait_seconds=50&complete=true";
    let shown: ReleaseDetail = server.operator.get(path).await.expect("shown");
    assert!(shown.is_complete, "{shown:?}");
    shown
}

async fn resume(server: &TestServer) {
    let resumed = server.operator.delete("/v1/releases/production/hold").await;
    let _: () = resumed.expect("resumed");
}

#[tokio::test]
async fn no_node_gets_rolled_back_code_whenever_it_joins() {
    let mut server = quick_server().await;
    let repository = site_repository("one");
    add(&server, "production", &repository.url()).await;
    for number in 1..=3 {
        node(&server, &format!("web-{number}")).await;
    }
    let first = deploy_content(&server, &repository, "one").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let second = deploy_content(&server, &repository, "two").await;
    let half = ReleaseTo::Percentage { percent: 50.0 };
    release(&server, half, RunMode::Enforce)
        .await
        .expect("released");
    // A node outside the percentage gets the previous release.
    for number in 4..=6 {
        let code = join(&server, &format!("web-{number}")).await;
        assert!(code == first || code == second, "{code}");
    }
    let before = codes(&server, 6).await;
    assert!(before[&second] >= 2, "{before:?}");
    let shown = roll_back(&server, 1).await;
    assert_eq!(codes(&server, 6).await, [(first.clone(), 6)].into());
    let groups = shown.groups();
    assert_eq!((groups.len(), groups[0].nodes.len()), (1, 6));
    assert_eq!(shown.without_catalog, Vec::new());
    assert_eq!(shown.rolled_back[0].0, second);
    assert_eq!(shown.join_rules[0].code_id.0, first);
    // A hold keeps code from changing. Nodes that join get what is released.
    assert_eq!(join(&server, "web-7").await, first);
    resume(&server).await;
    assert_eq!(join(&server, "web-8").await, first);
    assert_eq!(codes(&server, 8).await, [(first, 8)].into());
    // Until someone releases it again.
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    assert_eq!(codes(&server, 8).await, [(second.clone(), 8)].into());
    let shown: Value = server
        .operator
        .get("/v1/releases/production/current")
        .await
        .expect("shown");
    assert_eq!(shown.get("rolled_back"), None, "{shown}");
    server.shutdown().await;
}

#[tokio::test]
async fn with_the_policy_auto_rolled_back_code_waits_for_newer_code_or_a_release() {
    let mut server = quick_server().await;
    let repository = site_repository("one");
    add(&server, "production", &repository.url()).await;
    let change = json!({"policy": "auto"});
    let path = "/v1/environments/production";
    let changed: Result<Value, _> = server.operator.put(path, &change).await;
    changed.expect("changed");
    node(&server, "web-1").await;
    let is_on = async |name: &str, code: &str| {
        eventually(async || code_of(&server, name).await.as_deref() == Some(code)).await;
    };
    let first = deploy_content(&server, &repository, "one").await;
    is_on("web-1", &first).await;
    let second = deploy_content(&server, &repository, "two").await;
    is_on("web-1", &second).await;
    let listed: Value = server
        .operator
        .get("/v1/releases/production")
        .await
        .expect("a list");
    let releases = listed["releases"].as_array().expect("releases");
    let of_first = |release: &&Value| release["code_id"] == json!(first);
    let number = releases.iter().find(of_first).expect("a release")["number"].clone();
    roll_back(&server, number.as_u64().expect("a number")).await;
    is_on("web-1", &first).await;
    resume(&server).await;
    // The policy applies again, and this node comes after that.
    assert_eq!(join(&server, "web-2").await, first);
    assert_eq!(code_of(&server, "web-1").await, Some(first));
    let third = deploy_content(&server, &repository, "three").await;
    is_on("web-1", &third).await;
    is_on("web-2", &third).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_that_cannot_be_compiled_from_the_old_code_has_no_target_and_is_named() {
    let mut server = quick_server().await;
    let only_first = "groups:\n  first:\n    nodes: web-1\n    resources: all.yaml\n  \
                      rest:\n    nodes: web-2\n    resources: broken.yaml\n";
    let repository = Repository::new(&[
        ("site.yaml", only_first),
        ("all.yaml", "resources:\n  Notify[one]: {}\n"),
        ("broken.yaml", "resources:\n  Broken: {}\n"),
    ]);
    add(&server, "production", &repository.url()).await;
    node(&server, "web-1").await;
    deploy(&server, "production").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let second = deploy_content(&server, &repository, "two").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    assert_eq!(join(&server, "web-2").await, second);
    let shown = roll_back(&server, 1).await;
    assert_eq!(code_of(&server, "web-2").await, None);
    let [without] = &shown.without_catalog[..] else {
        panic!("one node was expected: {shown:?}");
    };
    assert_eq!(without.node.as_str(), "web-2");
    assert!(without.reason.contains("Broken"), "{}", without.reason);
    // It gets a catalog with the next release that covers it.
    let made = try_release_all(&server, None).await;
    made.expect("released");
    eventually(async || code_of(&server, "web-2").await == Some(second.clone())).await;
    server.shutdown().await;
}
