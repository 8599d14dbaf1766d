//! Branches of a control repository as environments.

use std::sync::Arc;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_wire::api::repositories::{BranchState, RepositoryChanged, RepositorySummary};
use bunraku_wire::api::{AssignRequest, EnvironmentDetail, EnvironmentSummary};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hooks::{deliver_to, gitlab};
use crate::repository::{Repository, add, ask, finished, node, site_repository};
use crate::support::{TestServer, appears, eventually, name, options, status};

async fn register(server: &TestServer, url: &str, rules: &Value) -> RepositoryChanged {
    let mut new = json!({"name": "control", "url": url});
    new.as_object_mut()
        .expect("an object")
        .extend(rules.as_object().cloned().unwrap_or_default());
    let added = server.operator.post("/v1/repositories", &new).await;
    added.expect("registered")
}

async fn show(server: &TestServer) -> RepositorySummary {
    let shown = server.operator.get("/v1/repositories/control").await;
    shown.expect("a repository")
}

/// Returns what the last synchronization found, when none is pending.
async fn synced(server: &TestServer) -> RepositorySummary {
    appears(async || Some(show(server).await).filter(|shown| !shown.waiting)).await
}

async fn sync(server: &TestServer) -> RepositorySummary {
    let asked: Result<Value, _> = server
        .operator
        .post("/v1/repositories/control/sync", &json!({}))
        .await;
    asked.expect("requested");
    synced(server).await
}

fn branch<'a>(repository: &'a RepositorySummary, name: &str) -> &'a BranchState {
    let mut branches = repository.last.iter().flat_map(|last| &last.branches);
    let found = branches.find(|branch| branch.branch == name);
    found.unwrap_or_else(|| panic!("{name} is not in {:?}", repository.last))
}

async fn environments(server: &TestServer) -> Vec<String> {
    let all: Vec<EnvironmentSummary> = server
        .operator
        .get("/v1/environments")
        .await
        .expect("a list");
    all.iter().map(|one| one.name.to_string()).collect()
}

async fn deployed(server: &TestServer, environment: &str) -> Option<String> {
    let path = format!("/v1/environments/{environment}");
    let detail: EnvironmentDetail = server.operator.get(&path).await.ok()?;
    detail.summary.deployed.map(|deployed| deployed.code_id.0)
}

/// Waits until an environment has the code of a commit.
async fn has(server: &TestServer, environment: &str, commit: &str) {
    eventually(async || deployed(server, environment).await.as_deref() == Some(commit)).await;
}

fn branched() -> Repository {
    let repository = site_repository("one");
    repository.git(&["checkout", "--quiet", "-b", "feature/New-thing"]);
    repository.commit(&[("README", "feature")]);
    repository.git(&["checkout", "--quiet", "-b", "wip/x", "main"]);
    repository.git(&["checkout", "--quiet", "main"]);
    repository
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_become_environments_and_go_with_them_unless_nodes_are_there() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let repository = branched();
    let rules = json!({"exclude": ["wip/*"], "prefix": "site"});
    let added = register(&server, &repository.url(), &rules).await;
    let secret = added.hook_secret.expect("shown once");
    let found = synced(&server).await;
    assert_eq!(
        environments(&server).await,
        ["site_feature_new_thing", "site_main"]
    );
    let feature = repository.git(&["rev-parse", "feature/New-thing"]);
    assert_eq!(
        branch(&found, "feature/New-thing").head.as_ref(),
        Some(&feature)
    );
    has(&server, "site_feature_new_thing", &feature).await;
    has(
        &server,
        "site_main",
        &repository.git(&["rev-parse", "main"]),
    )
    .await;

    // A push to one branch deploys that branch, and no other.
    let pushed = repository.commit(&[("README", "pushed")]);
    let body = json!({"ref": "refs/heads/main"}).to_string();
    let path = "/v1/repositories/control/hook";
    let (refused, _) = deliver_to(&server, path, &body, &gitlab("wrong"));
    assert_eq!(refused, 401);
    let (accepted, reply) = deliver_to(&server, path, &body, &gitlab(&secret));
    assert_eq!(accepted, 200, "{reply}");
    has(&server, "site_main", &pushed).await;
    let detail: EnvironmentDetail = server
        .operator
        .get("/v1/environments/site_feature_new_thing")
        .await
        .expect("an environment");
    assert_eq!(detail.deploys.len(), 1, "{:?}", detail.deploys);

    // A branch is deleted while a node is in its environment.
    let assign = AssignRequest {
        environment: "site_feature_new_thing".parse().expect("a name"),
    };
    let assigned: Result<(), _> = server
        .operator
        .put("/v1/nodes/web-1/environment", &assign)
        .await;
    assigned.expect("assigned");
    repository.git(&["branch", "--quiet", "-D", "feature/New-thing"]);
    let found = sync(&server).await;
    let kept = branch(&found, "feature/New-thing");
    assert_eq!(kept.head, None);
    let note = kept.note.clone().unwrap_or_default();
    assert!(note.contains("1 node") && note.contains("web-1"), "{note}");
    assert_eq!(
        environments(&server).await,
        ["site_feature_new_thing", "site_main"]
    );

    let assign = AssignRequest {
        environment: "site_main".parse().expect("a name"),
    };
    let assigned: Result<(), _> = server
        .operator
        .put("/v1/nodes/web-1/environment", &assign)
        .await;
    assigned.expect("assigned");
    sync(&server).await;
    assert_eq!(environments(&server).await, ["site_main"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_repository_that_is_gone_or_empty_removes_nothing() {
    let mut server = TestServer::start().await;
    let repository = branched();
    register(&server, &repository.url(), &json!({})).await;
    synced(&server).await;
    let before = environments(&server).await;
    assert_eq!(before, ["feature_new_thing", "main", "wip_x"]);
    let empty = TempDir::new().expect("a directory");
    let made = std::process::Command::new("git")
        .args(["init", "--quiet", "--bare"])
        .current_dir(empty.path())
        .status();
    assert!(made.expect("git runs").success());
    for (url, expected) in [
        (
            format!("file://{}", empty.path().display()),
            "has no branches",
        ),
        ("file:///nonexistent".to_owned(), "git failed"),
    ] {
        let changed: Result<Value, _> = server
            .operator
            .put("/v1/repositories/control", &json!({"url": url}))
            .await;
        changed.expect("changed");
        let found = synced(&server).await;
        let problem = found.last.and_then(|last| last.problem).unwrap_or_default();
        assert!(problem.contains(expected), "{problem}");
        assert_eq!(environments(&server).await, before);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn names_that_meet_and_environments_of_others_are_reported_and_left_alone() {
    let mut server = TestServer::start().await;
    let repository = branched();
    repository.git(&["branch", "feature_new_thing", "main"]);
    repository.git(&["branch", "v1.0", "main"]);
    add(&server, "main", &repository.url()).await;
    register(&server, &repository.url(), &json!({})).await;
    let found = synced(&server).await;
    let note = |name: &str| branch(&found, name).note.clone().unwrap_or_default();
    assert!(
        note("main").contains("exists already, of its own"),
        "{}",
        note("main")
    );
    assert!(
        note("feature_new_thing").contains("the branch `feature/New-thing` is environment"),
        "{}",
        note("feature_new_thing")
    );
    assert_eq!(
        environments(&server).await,
        ["feature_new_thing", "main", "v1_0", "wip_x"]
    );
    // A pinned environment stays where it is.
    let first = repository.git(&["rev-parse", "main"]);
    let number = ask(&server, "wip_x", Some(&first)).await;
    finished(&server, "wip_x", number).await;
    repository.git(&["checkout", "--quiet", "wip/x"]);
    repository.commit(&[("README", "newer")]);
    let found = sync(&server).await;
    let pinned = branch(&found, "wip/x").note.clone().unwrap_or_default();
    assert!(pinned.contains("pinned to"), "{pinned}");
    let strict = json!({"rules": {"invalid_names": "error", "purge": false}});
    let changed: Result<Value, _> = server
        .operator
        .put("/v1/repositories/control", &strict)
        .await;
    changed.expect("changed");
    let found = synced(&server).await;
    let last = found.last.expect("synchronized");
    let release: Vec<_> = last
        .branches
        .iter()
        .filter(|one| one.branch == "v1.0")
        .collect();
    assert!(release.iter().any(|one| one.environment.is_none()));
    let kept = Some("the branch is not selected; kept");
    assert!(release.iter().any(|one| one.note.as_deref() == kept));
    let refused: Result<Value, _> = server
        .operator
        .put(
            "/v1/repositories/control",
            &json!({"rules": {"poll_seconds": 1}}),
        )
        .await;
    assert_eq!(status(refused), 400);
    server.shutdown().await;
}

#[tokio::test]
async fn polling_finds_new_commits_branches_and_deletions_without_a_webhook() {
    let mut server = TestServer::start().await;
    let repository = branched();
    register(&server, &repository.url(), &json!({"poll_seconds": 10})).await;
    synced(&server).await;
    let single = site_repository("single");
    let new = json!({"name": "single", "url": single.url(), "poll_seconds": 10});
    let added: Result<Value, _> = server.operator.post("/v1/environments", &new).await;
    added.expect("added");
    let first = single.git(&["rev-parse", "HEAD"]);
    has(&server, "single", &first).await;
    let pushed = repository.commit(&[("README", "pushed")]);
    repository.git(&["branch", "--quiet", "-D", "wip/x"]);
    repository.git(&["branch", "--quiet", "new"]);
    let next = single.commit(&[("README", "pushed")]);
    has(&server, "main", &pushed).await;
    has(&server, "new", &pushed).await;
    has(&server, "single", &next).await;
    eventually(async || !environments(&server).await.contains(&"wip_x".to_owned())).await;
    server.shutdown().await;
}

#[tokio::test]
async fn two_servers_deploy_the_same_branches_once_and_one_goes_on_after_the_other() {
    let etcd = EtcdCluster::start(1).await;
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let mut servers = Vec::new();
    for number in 0..2 {
        let store = EtcdStore::connect(etcd.options("/branches/")).await;
        let store = Arc::new(store.expect("connected"));
        let mut options = options(&directory.path().join(number.to_string()));
        options.name = name(&format!("server-{number}.test"));
        servers.push(TestServer::on_shared_store(Arc::clone(&directory), options, store).await);
    }
    let mut second = servers.pop().expect("two");
    let mut first = servers.pop().expect("two");
    let module = Repository::new(&[("files/x", "x")]);
    let repository = branched();
    let puppetfile = format!("mod 'x', git: '{}'\n", module.url());
    repository.commit(&[("Puppetfile", &puppetfile)]);
    register(&first, &repository.url(), &json!({})).await;
    synced(&second).await;
    for environment in ["main", "feature_new_thing", "wip_x"] {
        eventually(async || deployed(&second, environment).await.is_some()).await;
    }
    // The other server goes on alone.
    first.shutdown().await;
    let pushed = repository.commit(&[("README", "pushed")]);
    sync(&second).await;
    eventually(async || {
        let code = deployed(&second, "main").await;
        code.is_some_and(|code| code.starts_with(&pushed))
    })
    .await;
    let detail: EnvironmentDetail = second
        .operator
        .get("/v1/environments/main")
        .await
        .expect("an environment");
    assert_eq!(detail.deploys.len(), 2, "{:?}", detail.deploys);
    second.shutdown().await;
    drop(etcd);
}
