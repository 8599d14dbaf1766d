//! Compilers that misbehave, requests at the wrong time, and servers that stop in the middle.

use std::path::Path;

use bunraku_control::keys;
use bunraku_model::EnvironmentName;
use bunraku_store::Store;
use bunraku_wire::api::{CompileOutcome, Deploy, DeployState, QueuedCompile};
use serde_json::json;

use crate::repository::{
    Repository, add, ask, compile, deploy, external, facts, finished, node, problem, repository_of,
    settled,
};
use crate::support::{TestServer, appears, eventually, name, soon};

async fn server_with(files: &[(&'static str, String)], nodes: &[&str]) -> (TestServer, Repository) {
    let server = TestServer::start().await;
    for name in nodes {
        node(&server, name).await;
    }
    let repository = repository_of(files);
    add(&server, "production", &repository.url()).await;
    (server, repository)
}

fn catalog_of(outcome: &CompileOutcome) -> String {
    match outcome {
        CompileOutcome::Compiled { catalog, .. } => catalog.to_string(),
        other => panic!("a catalog was expected, not {other:?}"),
    }
}

/// Waits for a file that a compiler writes.
async fn written(path: &Path) -> String {
    appears(async || {
        std::fs::read_to_string(path)
            .ok()
            .filter(|text| !text.is_empty())
    })
    .await
}

/// A compiler that reports its start, and continues when it is allowed to.
struct Gate {
    directory: tempfile::TempDir,
}

impl Gate {
    fn new() -> Self {
        let directory = tempfile::TempDir::new().expect("a directory");
        Self { directory }
    }

    /// Returns the file that compiles write to when they start.
    fn started(&self) -> std::path::PathBuf {
        self.directory.path().join("started")
    }

    /// Lets all compiles continue.
    fn open(&self) {
        std::fs::write(self.directory.path().join("go"), "").expect("a file");
    }

    /// Returns a compiler that writes down `says`, waits at the gate while `waits`, and
    /// answers with one resource of this title.
    fn compiler(&self, says: &str, waits: &str, title: &str) -> String {
        let (started, go) = (self.started(), self.directory.path().join("go"));
        format!(
            "def compile(request):
    with open({started:?}, 'a') as log:
        log.write({says} + '\\n')
    while {waits} and not os.path.exists({go:?}):
        time.sleep(0.01)
    return [{{'type': 'Notify', 'title': {title}}}]"
        )
    }
}

#[tokio::test]
async fn a_worker_is_kept_warm_and_replaced_after_its_time() {
    let body = "count = 0\ndef compile(request):\n    global count\n    count += 1\n    return [{'type': 'Notify', 'title': f'{os.getpid()} {count}'}]";
    let files = external(body, "recycle_after: 3\n");
    let (mut server, _repository) = server_with(&files, &["web-1"]).await;
    deploy(&server, "production").await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        compile(&server, "web-1").await;
        seen.push(catalog_of(&settled(&server, "web-1").await));
    }
    // Every answer differs: by its count in one process, by its process after three.
    let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), 5, "{seen:?}");
    let mut titles = Vec::new();
    for id in &seen {
        titles.push(title(&server, id).await);
    }
    let pids: std::collections::BTreeSet<_> = titles
        .iter()
        .map(|title| title.split(' ').next().expect("a pid").to_owned())
        .collect();
    assert_eq!(pids.len(), 2, "{titles:?}");
    assert!(
        titles.iter().any(|title| title.ends_with(" 3")),
        "{titles:?}"
    );
    assert!(
        !titles.iter().any(|title| title.ends_with(" 4")),
        "{titles:?}"
    );
    server.shutdown().await;
}

/// Returns the title of a stored catalog's only resource.
async fn title(server: &TestServer, id: &str) -> String {
    let catalogs = server.catalogs();
    let catalog = catalogs.get(id.parse().expect("an id")).await;
    catalog.expect("a catalog").resources[0].title.clone()
}

#[tokio::test]
async fn a_worker_that_holds_too_much_memory_is_replaced() {
    let body = "held = []\ndef compile(request):\n    held.append(bytearray(80 << 20))\n    return [{'type': 'Notify', 'title': str(os.getpid())}]";
    let files = external(body, "memory_limit: 60\n");
    let (mut server, _repository) = server_with(&files, &["web-1"]).await;
    deploy(&server, "production").await;
    let first = catalog_of(&settled(&server, "web-1").await);
    compile(&server, "web-1").await;
    let second = catalog_of(&settled(&server, "web-1").await);
    assert_ne!(first, second, "another process answered");
    server.shutdown().await;
}

#[tokio::test]
async fn garbage_crashes_and_silence_are_errors_with_the_output_only() {
    let body = "def compile(request):
    role = request['facts'].get('role')
    print('about ' + str(role), file=sys.stderr, flush=True)
    if role == 'garbage':
        print('this is not JSON', flush=True)
    if role == 'dies':
        sys.exit(7)
    if role == 'hangs':
        time.sleep(3600)
    if role == 'chatters':
        print(json.dumps({'id': request['id'] + 1, 'catalog': {}}), flush=True)
    if role == 'complains':
        error = {'message': 'no such thing', 'file': request['directory'] + '/site.pp', 'line': 12}
        print(json.dumps({'id': request['id'], 'error': error}), flush=True)
        return compile(json.loads(sys.stdin.readline()))
    return [{'type': 'Notify', 'title': str(role)}]";
    let files = external(body, "time_limit: 2\n");
    let (mut server, _repository) = server_with(&files, &[]).await;
    let client = node(&server, "web-1").await;
    deploy(&server, "production").await;
    for (role, expected) in [
        ("garbage", "is not a JSON answer"),
        ("dies", "the compiler ended (exit code 7) without an answer"),
        ("hangs", "the compiler did not answer within 2 s"),
        ("chatters", "does not belong to request"),
    ] {
        facts(&client, "web-1", &json!({"role": role})).await;
        compile(&server, "web-1").await;
        let said = problem(&settled(&server, "web-1").await);
        assert!(said.contains(expected), "{role}: {said}");
        assert!(
            said.contains(&format!("its output: about {role}")),
            "{role}: {said}"
        );
        // The next compile gets a working compiler.
        facts(&client, "web-1", &json!({"role": "fine"})).await;
        compile(&server, "web-1").await;
        catalog_of(&settled(&server, "web-1").await);
    }
    facts(&client, "web-1", &json!({"role": "complains"})).await;
    compile(&server, "web-1").await;
    let outcome = settled(&server, "web-1").await;
    let CompileOutcome::Failed { problems, .. } = &outcome else {
        panic!("a failure was expected, not {outcome:?}");
    };
    assert_eq!(problems[0].message, "no such thing");
    assert_eq!(problems[0].file.as_deref(), Some("site.pp"));
    assert_eq!(problems[0].line, Some(12));
    server.shutdown().await;
}

#[tokio::test]
async fn what_a_hanging_compiler_started_is_ended_with_it() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let mark = directory.path().join("child");
    let body = format!(
        "import subprocess\ndef compile(request):\n    child = subprocess.Popen(['sleep', '3600'])\n    open({mark:?}, 'w').write(str(child.pid))\n    time.sleep(3600)"
    );
    let files = external(&body, "time_limit: 1\n");
    let (mut server, _repository) = server_with(&files, &["web-1"]).await;
    deploy(&server, "production").await;
    // On a busy machine, the time limit may expire before the compiler starts anything.
    eventually(async || {
        compile(&server, "web-1").await;
        let said = problem(&settled(&server, "web-1").await);
        assert!(said.contains("did not answer within 1 s"), "{said}");
        mark.exists()
    })
    .await;
    let pid = written(&mark).await;
    eventually(async || !is_alive(&pid)).await;
    server.shutdown().await;
}

/// Returns `true` if the process is running and is not a zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_clear_error() {
    let files = vec![(
        "bunraku.yaml",
        "compiler: external\ncommand: [./gone]\n".to_owned(),
    )];
    let (mut server, _repository) = server_with(&files, &["web-1"]).await;
    deploy(&server, "production").await;
    let said = problem(&settled(&server, "web-1").await);
    assert!(
        said.starts_with("cannot start the compiler `./gone`"),
        "{said}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_catalog_that_is_too_large_is_refused_and_the_one_before_stays() {
    let body = "def compile(request):
    size = 50 << 20 if request['facts'].get('role') == 'huge' else 1
    return [{'type': 'Notify', 'title': 't', 'parameters': {'message': 'x' * size}}]";
    let files = external(body, "");
    let (mut server, _repository) = server_with(&files, &[]).await;
    let client = node(&server, "web-1").await;
    deploy(&server, "production").await;
    catalog_of(&settled(&server, "web-1").await);
    facts(&client, "web-1", &json!({"role": "huge"})).await;
    compile(&server, "web-1").await;
    let said = problem(&settled(&server, "web-1").await);
    assert!(said.contains("exceeds 33554432 bytes"), "{said}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_request_during_a_compile_of_its_node_is_processed_afterwards() {
    let (gate, role) = (Gate::new(), "request['facts']['role']");
    let body = gate.compiler(role, &format!("{role} == 'old'"), role);
    let files = external(&body, "");
    let (mut server, _repository) = server_with(&files, &[]).await;
    let client = node(&server, "web-1").await;
    facts(&client, "web-1", &json!({"role": "old"})).await;
    let number = ask(&server, "production", None).await;
    assert_eq!(written(&gate.started()).await, "old\n");
    // During the compile: other facts, and two requests.
    facts(&client, "web-1", &json!({"role": "new"})).await;
    compile(&server, "web-1").await;
    compile(&server, "web-1").await;
    gate.open();
    finished(&server, "production", number).await;
    let last = catalog_of(&settled(&server, "web-1").await);
    assert_eq!(title(&server, &last).await, "new");
    let log = std::fs::read_to_string(gate.started()).expect("a log");
    // Facts request a compile of their own, which may come at any time.
    let mut seen: Vec<&str> = log.lines().collect();
    seen.dedup();
    assert_eq!(seen, ["old", "new"]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_stops_in_the_middle_loses_nothing() {
    let gate = Gate::new();
    let files = external(&gate.compiler("'x'", "True", "'done'"), "");
    let (mut server, _repository) = server_with(&files, &["web-1"]).await;
    ask(&server, "production", None).await;
    written(&gate.started()).await;
    let (place, options) = (server.directory(), server.options());
    soon(server.shutdown()).await;
    gate.open();
    let mut server = TestServer::open(place, options).await;
    let last = catalog_of(&settled(&server, "web-1").await);
    assert_eq!(title(&server, &last).await, "done");
    server.shutdown().await;
}

#[tokio::test]
async fn environments_and_commits_never_share_a_worker() {
    let body = "memory = None
def compile(request):
    global memory
    here = request['environment'] + ' ' + request['code_id'] + ' ' + open('value').read()
    memory = memory or here
    assert memory == here and os.getcwd() == request['directory']
    time.sleep(0.05)
    return [{'type': 'Notify', 'title': here}]";
    let mut files = external(body, "workers: 2\n");
    files.push(("value", "one".to_owned()));
    let (mut server, repository) = server_with(&files, &["web-1", "web-2", "web-3"]).await;
    add(&server, "staging", &repository.url()).await;
    let first = repository.git(&["rev-parse", "HEAD"]);
    let second = repository.commit(&[("value", "two")]);
    let assign = bunraku_wire::api::AssignRequest {
        environment: "staging".parse().expect("a name"),
    };
    for node in ["web-2", "web-3"] {
        let path = format!("/v1/nodes/{node}/environment");
        let assigned = server.operator.put::<_, ()>(&path, &assign).await;
        assigned.expect("assigned");
    }
    // Both environments and both commits at the same time, repeatedly.
    for round in 0..3 {
        let (one, two) = if round % 2 == 0 {
            (&first, &second)
        } else {
            (&second, &first)
        };
        let numbers = (
            ask(&server, "production", Some(one)).await,
            ask(&server, "staging", Some(two)).await,
        );
        finished(&server, "production", numbers.0).await;
        finished(&server, "staging", numbers.1).await;
        for (node, environment, commit) in [
            ("web-1", "production", one),
            ("web-2", "staging", two),
            ("web-3", "staging", two),
        ] {
            let value = if *commit == first { "one" } else { "two" };
            let last = catalog_of(&settled(&server, node).await);
            let expected = format!("{environment} {commit} {value}");
            assert_eq!(title(&server, &last).await, expected);
        }
    }
    server.shutdown().await;
}

#[tokio::test]
async fn an_environment_that_hangs_does_not_delay_others() {
    let hangs = external(
        "def compile(request):\n    time.sleep(3600)",
        "time_limit: 3600\n",
    );
    let (mut server, _hanging) = server_with(&hangs, &["web-1", "web-2", "web-3", "web-4"]).await;
    for node in ["web-5", "web-6"] {
        crate::repository::node(&server, node).await;
    }
    ask(&server, "production", None).await;
    let good = crate::repository::site_repository("good");
    add(&server, "staging", &good.url()).await;
    deploy(&server, "staging").await;
    eventually(async || {
        let queue = server.operator.get("/v1/compiles/queue").await;
        let queue: Vec<QueuedCompile> = queue.expect("a queue");
        queue.iter().filter(|one| one.started.is_some()).count() >= 4
    })
    .await;
    let assign = bunraku_wire::api::AssignRequest {
        environment: "staging".parse().expect("a name"),
    };
    let assigned = server
        .operator
        .put::<_, ()>("/v1/nodes/web-6/environment", &assign)
        .await;
    assigned.expect("assigned");
    catalog_of(&settled(&server, "web-6").await);
    soon(server.shutdown()).await;
}

#[tokio::test]
async fn a_node_that_leaves_an_environment_that_hangs_stops_waiting() {
    let hangs = external(
        "def compile(request):\n    time.sleep(3600)",
        "time_limit: 3600\n",
    );
    let (mut server, _hanging) = server_with(&hangs, &["web-1"]).await;
    ask(&server, "production", None).await;
    let good = crate::repository::site_repository("good");
    add(&server, "staging", &good.url()).await;
    deploy(&server, "staging").await;
    eventually(|| async {
        let queue = server.operator.get("/v1/compiles/queue").await;
        let queue: Vec<QueuedCompile> = queue.expect("a queue");
        queue.iter().any(|one| one.started.is_some())
    })
    .await;
    let assign = bunraku_wire::api::AssignRequest {
        environment: "staging".parse().expect("a name"),
    };
    let path = "/v1/nodes/web-1/environment";
    let assigned = server.operator.put::<_, ()>(path, &assign).await;
    assigned.expect("assigned");
    catalog_of(&settled(&server, "web-1").await);
    soon(server.shutdown()).await;
}

#[tokio::test]
async fn a_proposed_commit_is_compiled_and_leaves_no_trace() {
    let repository = crate::repository::site_repository("one");
    let server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    add(&server, "production", &repository.url()).await;
    deploy(&server, "production").await;
    let before = settled(&server, "web-1").await;
    repository.git(&["checkout", "--quiet", "-b", "proposal"]);
    let files = crate::repository::site("two");
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let commit = repository.commit(&files);
    let (environments, compiles) = server.environments_and_compiles();
    let environment = "production".parse().expect("a name");
    let code = environments.fetch_commit(&environment, Some(&commit)).await;
    let code = code.expect("fetched");
    let proposed = compiles.compile_for(&name("web-1"), &code).await;
    let proposed = proposed.expect("compiled");
    assert_eq!(
        proposed.catalog.resources[0].parameters["content"],
        json!("two")
    );
    assert_ne!(proposed.id.to_string(), catalog_of(&before));
    assert_eq!(settled(&server, "web-1").await, before);
    let kept = server
        .catalogs()
        .record(proposed.id)
        .await
        .expect("readable");
    assert!(kept.is_none(), "nothing was written");
    let mut server = server;
    server.shutdown().await;
}

#[tokio::test]
async fn a_compile_whose_lease_ended_is_thrown_away_and_done_again() {
    let (gate, process) = (Gate::new(), "str(os.getpid())");
    let body = gate.compiler(process, "True", process);
    let files = external(&body, "time_limit: 600\n");
    let (mut server, _repository) = server_with(&files, &["web-1"]).await;
    let number = ask(&server, "production", None).await;
    let first = written(&gate.started()).await.trim().to_owned();
    // Simulates a server that was away for longer than its lease lasts.
    let key = keys::compile_claim(&name("web-1"));
    let claim = server.store().get(&key).await.expect("readable");
    let lease = claim.expect("claimed").lease.expect("bound to a lease");
    server.store().lease_revoke(lease).await.expect("ended");
    eventually(async || !is_alive(&first)).await;
    eventually(async || written(&gate.started()).await.lines().count() == 2).await;
    gate.open();
    finished(&server, "production", number).await;
    let last = catalog_of(&settled(&server, "web-1").await);
    assert_ne!(title(&server, &last).await, first);
    server.shutdown().await;
}

#[tokio::test]
async fn a_deploy_that_was_cut_off_after_any_step_is_carried_on() {
    let repository = crate::repository::site_repository("one");
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    add(&server, "production", &repository.url()).await;
    let status = deploy(&server, "production").await;
    let DeployState::Deployed { code_id, .. } = status.deploy.state.clone() else {
        panic!("a deploy was expected, not {:?}", status.deploy.state);
    };
    let environment: EnvironmentName = "production".parse().expect("a name");
    let before = settled(&server, "web-1").await;
    // The state left by a server that dies before it begins, and by one that dies after the
    // code is deployed, while it queues nodes.
    for (number, state) in [
        (2, DeployState::Waiting),
        (3, DeployState::Queueing { code_id }),
    ] {
        let (place, options) = (server.directory(), server.options());
        let left = Deploy {
            number,
            state,
            ..status.deploy.clone()
        };
        let text = serde_json::to_vec(&left).expect("JSON");
        let claim = keys::deploy_claim(&environment);
        let crash = bunraku_store::Transaction::new()
            .put(keys::deploy(&environment, number), text)
            .put(claim, "{}")
            .delete(keys::compile_status(&name("web-1")));
        server.store().commit(crash).await.expect("written");
        soon(server.shutdown()).await;
        server = TestServer::open(place, options).await;
        let after = finished(&server, "production", number).await;
        assert!(
            matches!(after.deploy.state, DeployState::Deployed { .. }),
            "{:?}",
            after.deploy.state
        );
        let again = settled(&server, "web-1").await;
        assert_eq!(catalog_of(&again), catalog_of(&before), "compiled again");
    }
    server.shutdown().await;
}
