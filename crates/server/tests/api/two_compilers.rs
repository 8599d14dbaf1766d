//! Two servers on one etcd with one queue: no compile runs on both.

use std::sync::Arc;

use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_wire::api::{CompileOutcome, CompileSelection};
use serde_json::Value;
use tempfile::TempDir;

use crate::repository::{
    add, deploy, external, is_deployed, node, repository_of, settled, site_repository,
};
use crate::support::{TestServer, name, options, soon};

async fn server(
    etcd: &EtcdCluster,
    directory: &Arc<TempDir>,
    number: usize,
    concurrency: usize,
) -> TestServer {
    let store = EtcdStore::connect(etcd.options("/compile/")).await;
    let mut options = options(&directory.path().join(number.to_string()));
    options.name = name(&format!("server-{number}.test"));
    options.services.compiles.concurrency = concurrency;
    let store = Arc::new(store.expect("connected"));
    TestServer::on_shared_store(Arc::clone(directory), options, store).await
}

async fn compile_all(server: &TestServer) {
    let all = &CompileSelection::All;
    let asked: Result<Value, _> = server.operator.post("/v1/compiles", all).await;
    asked.expect("asked for");
}

#[tokio::test]
async fn each_node_is_compiled_by_one_server_at_a_time_and_every_request_is_served() {
    let etcd = EtcdCluster::start(1).await;
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let mut first = server(&etcd, &directory, 0, 3).await;
    let mut second = server(&etcd, &directory, 1, 3).await;
    let locks = TempDir::new().expect("a directory");
    // A lock file per node: creating it fails while another compile of the node is running.
    let body = format!(
        "def compile(request):
    lock = os.path.join({:?}, request['node'])
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    time.sleep(0.05)
    os.unlink(lock)
    return [{{'type': 'Notify', 'title': request['node']}}]",
        locks.path()
    );
    let repository = repository_of(&external(&body, "workers: 3\n"));
    let names: Vec<String> = (1..=8).map(|number| format!("web-{number}")).collect();
    for one in &names {
        node(&first, one).await;
    }
    add(&first, "production", &repository.url()).await;
    let status = deploy(&first, "production").await;
    assert_eq!(status.progress.compiled, 8, "{:?}", status.failures);
    for round in 0..5 {
        compile_all(if round % 2 == 0 { &second } else { &first }).await;
    }
    for one in &names {
        let outcome = settled(&second, one).await;
        let good = matches!(outcome, CompileOutcome::Compiled { changed: false, .. });
        assert!(good, "{one}: {outcome:?}");
    }
    soon(first.shutdown()).await;
    // The remaining server can compile code that only the other one fetched.
    drop(repository);
    compile_all(&second).await;
    for one in &names {
        let outcome = settled(&second, one).await;
        assert!(
            matches!(outcome, CompileOutcome::Compiled { .. }),
            "{one}: {outcome:?}"
        );
    }
    soon(second.shutdown()).await;
    drop(etcd);
}

#[tokio::test]
async fn a_server_without_slots_deploys_and_the_other_compiles() {
    let etcd = EtcdCluster::start(1).await;
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let mut first = server(&etcd, &directory, 0, 0).await;
    let repository = site_repository("one");
    node(&first, "web-1").await;
    add(&first, "production", &repository.url()).await;
    let number = crate::repository::ask(&first, "production", None).await;
    is_deployed(&first, "production", number).await;
    // It has never seen the repository, and never will.
    drop(repository);
    let mut second = server(&etcd, &directory, 1, 2).await;
    let outcome = settled(&first, "web-1").await;
    assert!(
        matches!(outcome, CompileOutcome::Compiled { .. }),
        "{outcome:?}"
    );
    soon(first.shutdown()).await;
    soon(second.shutdown()).await;
    drop(etcd);
}
