//! Code from git: which code is deployed, and which never is.

use bunraku_compile::compiles::CompiledCatalog;
use bunraku_control::keys;
use bunraku_store::Store;
use bunraku_wire::Client;
use bunraku_wire::api::{
    AssignRequest, CompileOutcome, CompileReason, CompileSelection, DeployState, EnvironmentChange,
    EnvironmentDetail, EnvironmentSummary, NewEnvironment, NodeSummary, QueuedCompile,
};
use serde_json::{Value, json};

use crate::repository::{
    Repository, add, ask, compile, deploy, facts, finished, is_deployed, node, settled, site,
    site_repository,
};
use crate::support::{TestServer, eventually, metrics, name, status};

async fn compiled(server: &TestServer, node: &str) -> Option<(CompiledCatalog, u64)> {
    let key = keys::compiled(&name(node));
    let entry = server.store().get(&key).await.expect("readable")?;
    let compiled = serde_json::from_slice(&entry.value).expect("a document");
    Some((compiled, entry.modified.0))
}

fn failure(state: &DeployState) -> String {
    match state {
        DeployState::Failed { problem, .. } => problem.message.clone(),
        other => panic!("a failed deploy was expected, not {other:?}"),
    }
}

fn write(repository: &Repository, content: &str) -> String {
    let files = site(content);
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    repository.commit(&files)
}

/// A server with an environment `production` and these nodes in it. Nothing is deployed yet.
async fn production_of(names: &[&str]) -> (TestServer, Vec<Client>, Repository) {
    let server = TestServer::start().await;
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(node(&server, name).await);
    }
    let repository = site_repository("one");
    add(&server, "production", &repository.url()).await;
    (server, nodes, repository)
}

fn new_production(url: &str, branch: Option<&str>, check_repository: bool) -> NewEnvironment {
    NewEnvironment {
        name: "production".parse().expect("a name"),
        url: url.to_owned(),
        branch: branch.map(str::to_owned),
        policy: Default::default(),
        volatile: None,
        order: None,
        poll_seconds: None,
        allow_external_compiler: false,
        fact_targeting: false,
        check_repository,
    }
}

#[tokio::test]
async fn a_deploy_compiles_every_node_and_holds_what_it_gives() {
    let (mut server, _nodes, repository) = production_of(&["web-1", "web-2"]).await;
    let status = deploy(&server, "production").await;
    assert_eq!((status.progress.nodes, status.progress.compiled), (2, 2));
    let (first, revision) = compiled(&server, "web-1").await.expect("compiled");
    assert_eq!(first.code_id.0, repository.git(&["rev-parse", "HEAD"]));
    assert_eq!(first.config_version, first.catalog.to_string()[..16]);
    assert_eq!(first.resources, 1);

    // A commit that changes nothing for the node leaves the node's data unchanged.
    repository.commit(&[("README", "new")]);
    assert_eq!(deploy(&server, "production").await.progress.compiled, 2);
    let (same, unmoved) = compiled(&server, "web-1").await.expect("compiled");
    assert_eq!((same, unmoved), (first.clone(), revision));

    write(&repository, "two");
    deploy(&server, "production").await;
    let (second, _) = compiled(&server, "web-1").await.expect("compiled");
    assert_ne!(second.catalog, first.catalog);
    let holds = keys::catalog_holds(second.catalog);
    let held = server.store().get(&format!("{holds}compiled/web-1")).await;
    assert!(held.expect("readable").is_some(), "the new one is held");
    let holds = keys::catalog_holds(first.catalog);
    let held = server.store().get(&format!("{holds}compiled/web-1")).await;
    assert!(held.expect("readable").is_none(), "the old one is let go");
    server.shutdown().await;
}

#[tokio::test]
async fn code_that_does_not_compile_leaves_what_was_there_and_names_place_and_nodes() {
    let (mut server, _nodes, repository) = production_of(&["web-1", "web-2"]).await;
    deploy(&server, "production").await;
    let (good, _) = compiled(&server, "web-1").await.expect("compiled");
    repository.commit(&[("all.yaml", "resources:\n  File[/a]: {}\n  Broken: {}\n")]);
    let status = deploy(&server, "production").await;
    assert_eq!((status.progress.failed, status.failures.len()), (2, 1));
    let group = &status.failures[0];
    assert_eq!(group.nodes, vec![name("web-1"), name("web-2")]);
    let problem = &group.problems[0];
    assert_eq!(
        (problem.file.as_deref(), problem.line),
        (Some("all.yaml"), Some(3))
    );
    assert_eq!(compiled(&server, "web-1").await.expect("kept").0, good);
    let detail: EnvironmentDetail = server
        .operator
        .get("/v1/environments/production")
        .await
        .expect("an environment");
    assert_eq!(detail.failures, status.failures);
    let key = keys::compile_error(&name("web-1"));
    assert!(server.store().get(&key).await.expect("readable").is_some());

    write(&repository, "two");
    assert_eq!(deploy(&server, "production").await.progress.compiled, 2);
    assert!(server.store().get(&key).await.expect("readable").is_none());
    server.shutdown().await;
}

#[tokio::test]
async fn a_commit_that_cannot_be_compiled_is_not_deployed() {
    let (mut server, _nodes, repository) = production_of(&["web-1"]).await;
    let good = deploy(&server, "production").await;
    repository.commit(&[("bunraku.yaml", "compiler: static\nsiet: x\n")]);
    let status = deploy(&server, "production").await;
    let DeployState::Failed { problem, .. } = &status.deploy.state else {
        panic!(
            "a failed deploy was expected, not {:?}",
            status.deploy.state
        );
    };
    assert_eq!(problem.file.as_deref(), Some("bunraku.yaml"));
    assert_eq!(problem.line, Some(2));
    let summaries: Vec<EnvironmentSummary> = server
        .operator
        .get("/v1/environments")
        .await
        .expect("a list");
    let deployed = summaries[0].deployed.as_ref().expect("the one before");
    assert_eq!(deployed.number, good.deploy.number);
    // The node is still compiled with the previous code.
    compile(&server, "web-1").await;
    let outcome = settled(&server, "web-1").await;
    assert!(
        matches!(outcome, CompileOutcome::Compiled { changed: false, .. }),
        "{outcome:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn history_that_was_rewritten_is_followed_and_what_is_gone_changes_nothing() {
    let (mut server, nodes, repository) = production_of(&["web-1"]).await;
    let first = repository.git(&["rev-parse", "HEAD"]);
    write(&repository, "two");
    deploy(&server, "production").await;

    // As after `git push --force`: the branch points elsewhere.
    repository.git(&["reset", "--quiet", "--hard", &first]);
    let rewritten = write(&repository, "three");
    let status = deploy(&server, "production").await;
    let DeployState::Deployed { code_id, .. } = &status.deploy.state else {
        panic!("a deploy was expected, not {:?}", status.deploy.state);
    };
    assert_eq!(code_id.0, rewritten);
    let (held, _) = compiled(&server, "web-1").await.expect("compiled");

    repository.git(&["checkout", "--quiet", "-b", "other"]);
    repository.git(&["branch", "--quiet", "-D", "main"]);
    let said = failure(&deploy(&server, "production").await.deploy.state);
    assert!(said.contains("has no branch `main`"), "{said}");

    let number = ask(&server, "production", Some(&"0".repeat(40))).await;
    let said = failure(&finished(&server, "production", number).await.deploy.state);
    assert!(said.contains("is not in"), "{said}");

    drop(repository);
    let said = failure(&deploy(&server, "production").await.deploy.state);
    assert!(said.contains("git failed"), "{said}");
    assert_eq!(compiled(&server, "web-1").await.expect("kept").0, held);
    // New facts are compiled with the code that is still deployed.
    facts(&nodes[0], "web-1", &json!({"role": "db"})).await;
    compile(&server, "web-1").await;
    let outcome = settled(&server, "web-1").await;
    assert!(
        matches!(outcome, CompileOutcome::Compiled { .. }),
        "{outcome:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_commit_by_name_is_deployed_and_can_be_gone_back_to() {
    let (mut server, _nodes, repository) = production_of(&["web-1"]).await;
    let first = repository.git(&["rev-parse", "HEAD"]);
    deploy(&server, "production").await;
    let (one, _) = compiled(&server, "web-1").await.expect("compiled");
    write(&repository, "two");
    deploy(&server, "production").await;
    let number = ask(&server, "production", Some(&first)).await;
    finished(&server, "production", number).await;
    let (again, _) = compiled(&server, "web-1").await.expect("compiled");
    assert_eq!(again.catalog, one.catalog);
    server.shutdown().await;
}

#[tokio::test]
async fn trees_that_reach_out_of_themselves_are_refused() {
    use std::os::unix::fs::symlink;
    let (mut server, _nodes, repository) = production_of(&["web-1"]).await;
    symlink("all.yaml", repository.path().join("inside")).expect("a link");
    repository.commit(&[]);
    let status = deploy(&server, "production").await;
    assert_eq!(status.progress.compiled, 1, "a link inside is fine");

    symlink("/etc/passwd", repository.path().join("out")).expect("a link");
    repository.commit(&[]);
    let said = failure(&deploy(&server, "production").await.deploy.state);
    assert!(
        said.contains("the link `out` points outside the repository"),
        "{said}"
    );

    // Each link is harmless on its own; together they leave the repository.
    std::fs::remove_file(repository.path().join("out")).expect("removed");
    symlink(".", repository.path().join("here")).expect("a link");
    symlink("here/..", repository.path().join("up")).expect("a link");
    repository.commit(&[]);
    let said = failure(&deploy(&server, "production").await.deploy.state);
    assert!(
        said.contains("the link `up` points outside the repository"),
        "{said}"
    );

    server.shutdown().await;
}

#[tokio::test]
async fn deploys_at_once_end_with_the_newest_and_keep_their_order() {
    let (mut server, _nodes, repository) = production_of(&["web-1"]).await;
    let commits: Vec<String> = (1..=6)
        .map(|n| write(&repository, &n.to_string()))
        .collect();
    let mut numbers = Vec::new();
    for commit in &commits {
        numbers.push(ask(&server, "production", Some(commit)).await);
    }
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    let mut last = 0;
    for number in &numbers {
        match finished(&server, "production", *number).await.deploy.state {
            DeployState::Deployed { .. } => last = *number,
            DeployState::Superseded { by } => assert!(by > *number),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(Some(&last), numbers.last(), "the newest is deployed");
    let (held, _) = compiled(&server, "web-1").await.expect("compiled");
    assert_eq!(Some(&held.code_id.0), commits.last());
    server.shutdown().await;
}

#[tokio::test]
async fn addresses_that_are_flags_or_programs_are_refused() {
    let mut server = TestServer::start().await;
    for (url, branch) in [
        ("--upload-pack=touch /tmp/x", None),
        ("ext::sh -c id", None),
        ("file:///srv/code", Some("--force")),
    ] {
        let new = new_production(url, branch, false);
        let refused = server
            .operator
            .post::<_, Value>("/v1/environments", &new)
            .await;
        assert_eq!(status(refused), 400, "{url}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_repository_that_does_not_exist_is_refused_if_asked() {
    let mut server = TestServer::start().await;
    let repository = site_repository("one");
    let new = |url: &str, branch| new_production(url, branch, true);
    let (here, nowhere) = (repository.url(), "file:///no/such/repository");
    for (asked, expected) in [
        (new(nowhere, None), "cannot read the repository"),
        (new(&here, Some("gone")), "has no branch `gone`"),
    ] {
        let refused = server
            .operator
            .post::<_, Value>("/v1/environments", &asked)
            .await;
        let error = refused.expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.hint().is_some(), "{error}");
    }
    let added = server
        .operator
        .post::<_, Value>("/v1/environments", &new(&here, Some("main")))
        .await;
    added.expect("a repository that exists");
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_moves_between_environments_and_old_records_are_in_production() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    // As written by a server from before environments existed.
    let key = keys::node_record(&name("web-1"));
    let entry = server
        .store()
        .get(&key)
        .await
        .expect("readable")
        .expect("there");
    let mut record: Value = serde_json::from_slice(&entry.value).expect("JSON");
    record
        .as_object_mut()
        .expect("an object")
        .remove("environment");
    let old = bunraku_store::Transaction::new().put(key, record.to_string());
    server.store().commit(old).await.expect("written");
    let shown: NodeSummary = server
        .operator
        .get("/v1/nodes/web-1")
        .await
        .expect("a node");
    assert_eq!(shown.environment.as_str(), "production");

    let (one, two) = (site_repository("one"), site_repository("two"));
    add(&server, "production", &one.url()).await;
    add(&server, "staging", &two.url()).await;
    deploy(&server, "production").await;
    deploy(&server, "staging").await;
    let assign = AssignRequest {
        environment: "staging".parse().expect("a name"),
    };
    server
        .operator
        .put::<_, ()>("/v1/nodes/web-1/environment", &assign)
        .await
        .expect("assigned");
    settled(&server, "web-1").await;
    let (held, _) = compiled(&server, "web-1").await.expect("compiled");
    assert_eq!(held.environment.as_str(), "staging");
    let nowhere = AssignRequest {
        environment: "nowhere".parse().expect("a name"),
    };
    let refused = server
        .operator
        .put::<_, ()>("/v1/nodes/web-1/environment", &nowhere)
        .await;
    assert_eq!(status(refused), 404);
    let refused = server
        .operator
        .delete::<()>("/v1/environments/staging")
        .await;
    assert_eq!(status(refused), 409, "a node is in it");
    server
        .operator
        .delete::<()>("/v1/environments/production")
        .await
        .expect("empty, and so removed");
    server.shutdown().await;
}

#[tokio::test]
async fn a_removed_node_leaves_nothing_of_its_compiles() {
    let (mut server, _nodes, _repository) = production_of(&["web-1"]).await;
    deploy(&server, "production").await;
    let (held, _) = compiled(&server, "web-1").await.expect("compiled");
    server
        .operator
        .delete::<()>("/v1/nodes/web-1")
        .await
        .expect("removed");
    assert!(compiled(&server, "web-1").await.is_none());
    let range = bunraku_store::Range::prefix(keys::catalog_holds(held.catalog));
    let holds = server.store().range(range).await.expect("readable");
    assert!(holds.items.is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn states_from_git_become_catalogs_with_their_files() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let sls = "motd:\n  file.managed:\n    - name: /etc/motd\n    - source: salt://files/motd\n";
    let role = "role:\n  file.managed:\n    - name: /etc/role\n    - contents: {{ grains['role'] | default('none') }}\n";
    let repository = Repository::new(&[
        ("top.sls", "base:\n  '*':\n    - motd\n    - role\n"),
        ("motd.sls", sls),
        ("role.sls", role),
        ("files/motd", "welcome\n"),
    ]);
    add(&server, "production", &repository.url()).await;
    let status = deploy(&server, "production").await;
    assert_eq!(status.progress.compiled, 1, "{:?}", status.failures);
    let (one, _) = compiled(&server, "web-1").await.expect("compiled");
    assert_eq!(one.resources, 2);
    // A changed file is a changed catalog, though no state file changed.
    repository.commit(&[("files/motd", "hello\n")]);
    deploy(&server, "production").await;
    let (two, _) = compiled(&server, "web-1").await.expect("compiled");
    assert_ne!(one.catalog, two.catalog);
    // Errors are reported with their location.
    repository.commit(&[("role.sls", "include:\n  - gone\n")]);
    let status = deploy(&server, "production").await;
    let problem = &status.failures[0].problems[0];
    assert_eq!(problem.file.as_deref(), Some("role.sls"), "{problem:?}");
    assert_eq!(problem.line, Some(2), "{problem:?}");
    repository.commit(&[
        ("role.sls", role),
        ("motd.sls", &sls.replace("files/motd", "gone")),
    ]);
    let status = deploy(&server, "production").await;
    let problem = &status.failures[0].problems[0];
    assert!(
        problem
            .message
            .contains("`salt://gone` is not in the environment"),
        "{problem:?}"
    );
    assert_eq!(problem.file.as_deref(), Some("motd.sls"), "{problem:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn settings_change_and_a_password_is_never_shown() {
    let mut server = TestServer::start().await;
    let repository = site_repository("one");
    let made = add(&server, "production", &repository.url()).await;
    assert_eq!(made.hook_secret.expect("shown once").len(), 64);
    let change = EnvironmentChange {
        url: Some("https://me:hidden@git.example.com/code".to_owned()),
        ..EnvironmentChange::default()
    };
    let changed: Value = server
        .operator
        .put("/v1/environments/production", &change)
        .await
        .expect("changed");
    assert!(!changed.to_string().contains("hidden"), "{changed}");
    let listed: Value = server
        .operator
        .get("/v1/environments")
        .await
        .expect("a list");
    assert!(!listed.to_string().contains("hidden"), "{listed}");
    server.shutdown().await;
}

#[tokio::test]
async fn nodes_without_facts_wait_for_them_and_are_not_failures() {
    let mut server = TestServer::start().await;
    let _silent = server.node("web-1").await;
    let repository = site_repository("one");
    add(&server, "production", &repository.url()).await;
    let status = deploy(&server, "production").await;
    assert_eq!(
        (status.progress.without_facts, status.progress.failed),
        (1, 0)
    );
    assert!(compiled(&server, "web-1").await.is_none());
    server.shutdown().await;
}

#[tokio::test]
async fn asking_for_all_nodes_queues_each_once_and_a_person_goes_first() {
    // Compiling is disabled, so that the queue can be inspected.
    let mut server = TestServer::start_with(|options| {
        options.services.compiles.concurrency = 0;
        options.health_listen = Some("127.0.0.1:0".parse().expect("an address"));
    })
    .await;
    let _nodes = (node(&server, "web-1").await, node(&server, "web-2").await);
    let repository = site_repository("one");
    add(&server, "production", &repository.url()).await;
    let number = ask(&server, "production", None).await;
    is_deployed(&server, "production", number).await;
    compile(&server, "web-2").await;
    compile(&server, "web-2").await;
    let queue: Vec<QueuedCompile> = server
        .operator
        .get("/v1/compiles/queue")
        .await
        .expect("a queue");
    let nodes: Vec<&str> = queue.iter().map(|one| one.node.as_str()).collect();
    assert_eq!(
        nodes,
        ["web-2", "web-1"],
        "the one that a person asked for first"
    );
    // Facts also request a compile whenever they are persisted.
    let reasons = |one: &QueuedCompile| {
        let asked = one.reasons.iter().copied();
        asked
            .filter(|reason| *reason != CompileReason::Facts)
            .collect::<Vec<_>>()
    };
    let asked: Vec<_> = queue.iter().map(reasons).collect();
    assert_eq!(
        asked,
        [
            vec![CompileReason::Person, CompileReason::Code],
            vec![CompileReason::Code]
        ]
    );
    let all: Value = server
        .operator
        .post("/v1/compiles", &CompileSelection::All)
        .await
        .expect("asked for");
    assert_eq!(all["nodes"], json!(["web-1", "web-2"]));
    let wanted = "bunraku_compile_queue_nodes{priority=\"person\"} 2";
    eventually(async || metrics(&server).await.contains(wanted)).await;
    server.shutdown().await;
}
