//! Compiles that kill their worker: how often they are tried, and what makes them tried again.

use bunraku_wire::api::{CompileOutcome, EnvironmentChange, EnvironmentChanged, EnvironmentDetail};
use serde_json::json;

use crate::repository::{
    Repository, add, compile, deploy, external, facts, node, problem, repository_of, settled,
};
use crate::support::{TestServer, eventually};

/// A compiler that writes down every start of a compile, and dies for the role `dies`.
struct Deadly {
    directory: tempfile::TempDir,
    repository: Repository,
}

impl Deadly {
    fn new() -> Self {
        let directory = tempfile::TempDir::new().expect("a directory");
        let tries = directory.path().join("tries");
        let body = format!(
            "def compile(request):
    with open({tries:?}, 'a') as log:
        log.write(request['node'] + '\\n')
    if request['facts'].get('role') == 'dies':
        os.kill(os.getpid(), 9)
    return [{{'type': 'Notify', 'title': 'fine'}}]"
        );
        let repository = repository_of(&external(&body, ""));
        Self {
            directory,
            repository,
        }
    }

    /// Returns how often a node was tried.
    fn tries(&self, node: &str) -> usize {
        let text = std::fs::read_to_string(self.directory.path().join("tries"));
        let text = text.unwrap_or_default();
        text.lines().filter(|line| *line == node).count()
    }
}

fn is_quarantined(outcome: &CompileOutcome) -> bool {
    match outcome {
        CompileOutcome::Failed { quarantined, .. } => *quarantined,
        other => panic!("a failure was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn work_that_killed_its_worker_twice_is_tried_again_only_with_other_inputs() {
    let mut server = TestServer::start().await;
    let client = node(&server, "web-1").await;
    node(&server, "web-2").await;
    let deadly = Deadly::new();
    add(&server, "production", &deadly.repository.url()).await;
    facts(&client, "web-1", &json!({"role": "dies"})).await;
    deploy(&server, "production").await;
    let outcome = settled(&server, "web-1").await;
    assert!(is_quarantined(&outcome), "{outcome:?}");
    let said = problem(&outcome);
    assert_eq!(said, "the compiler was killed by signal 9");
    assert_eq!(deadly.tries("web-1"), 2);
    let other = settled(&server, "web-2").await;
    assert!(
        matches!(other, CompileOutcome::Compiled { .. }),
        "{other:?}"
    );
    let shown: EnvironmentDetail =
        (server.operator.get("/v1/environments/production").await).expect("an environment");
    let progress = shown.summary.progress;
    assert_eq!((progress.failed, progress.quarantined), (1, 1));
    // The same commit again: nothing has changed for the node.
    deploy(&server, "production").await;
    assert!(is_quarantined(&settled(&server, "web-1").await));
    assert_eq!(deadly.tries("web-1"), 2, "tried without a reason");
    // A person may insist.
    compile(&server, "web-1").await;
    assert!(is_quarantined(&settled(&server, "web-1").await));
    assert_eq!(deadly.tries("web-1"), 4);
    // Facts, settings and code are inputs.
    facts(&client, "web-1", &json!({"role": "dies", "more": 1})).await;
    eventually(async || deadly.tries("web-1") == 6).await;
    assert!(is_quarantined(&settled(&server, "web-1").await));
    let change = EnvironmentChange {
        order: Some("genius".parse().expect("a mode")),
        ..EnvironmentChange::default()
    };
    let path = "/v1/environments/production";
    let changed: Result<EnvironmentChanged, _> = server.operator.put(path, &change).await;
    changed.expect("changed");
    deploy(&server, "production").await;
    assert!(is_quarantined(&settled(&server, "web-1").await));
    assert_eq!(deadly.tries("web-1"), 8);
    deadly.repository.commit(&[("notes.txt", "another commit")]);
    deploy(&server, "production").await;
    assert!(is_quarantined(&settled(&server, "web-1").await));
    assert_eq!(deadly.tries("web-1"), 10);
    facts(&client, "web-1", &json!({"role": "fine"})).await;
    eventually(async || {
        let outcome = settled(&server, "web-1").await;
        matches!(outcome, CompileOutcome::Compiled { .. })
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_repository_runs_programs_only_where_an_operator_allows_it() {
    let mut server = TestServer::start().await;
    node(&server, "web-1").await;
    let deadly = Deadly::new();
    add(&server, "production", &deadly.repository.url()).await;
    deploy(&server, "production").await;
    let catalog = settled(&server, "web-1").await;
    assert!(
        matches!(catalog, CompileOutcome::Compiled { .. }),
        "{catalog:?}"
    );
    let tries = deadly.tries("web-1");
    let change = EnvironmentChange {
        allow_external_compiler: Some(false),
        ..EnvironmentChange::default()
    };
    let path = "/v1/environments/production";
    let changed: Result<EnvironmentChanged, _> = server.operator.put(path, &change).await;
    assert!(
        !changed
            .expect("changed")
            .environment
            .allows_external_compiler
    );
    // Its compiler is warm, and must not be used any more.
    let outcome = settled(&server, "web-1").await;
    let said = problem(&outcome);
    assert!(
        said.contains("environment `production` does not allow"),
        "{said}"
    );
    assert_eq!(deadly.tries("web-1"), tries);
    server.shutdown().await;
}
