//! Two servers on one etcd: each of them answers for any node.

use std::sync::Arc;

use bunraku_model::StatusWord;
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_wire::api::{
    CertificateEntry, CertificateState, Command, EventStatus, FactsReply, IssuedCertificate,
    NodeSummary, NumberedEvent, RenewRequest, ReportState, ReportSummary, RunEnding, SendCommand,
    SentCommand, StreamMessage,
};
use bunraku_wire::client::Lines;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::exports;
use crate::fleet::{applied, compile, try_release_all};
use crate::puppet_code::deployed;
use crate::reports;
use crate::repository::{Repository, add, facts};
use crate::support::{
    TestServer, eventually, name, open_stream, open_stream_with_target, options, request, soon,
};

async fn pair() -> (EtcdCluster, TestServer, TestServer) {
    pair_with(|_| {}).await
}

async fn pair_with(
    change: impl Fn(&mut bunraku_server::ServerOptions),
) -> (EtcdCluster, TestServer, TestServer) {
    let etcd = EtcdCluster::start(1).await;
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let mut servers = Vec::new();
    for number in 0..2 {
        let store = EtcdStore::connect(etcd.options("/two/"))
            .await
            .expect("connected");
        let mut options = options(&directory.path().join(number.to_string()));
        options.name = name(&format!("server-{number}.test"));
        change(&mut options);
        servers.push(
            TestServer::on_shared_store(Arc::clone(&directory), options, Arc::new(store)).await,
        );
    }
    let second = servers.pop().expect("two");
    let first = servers.pop().expect("two");
    (etcd, first, second)
}

#[tokio::test]
async fn requests_to_one_server_reach_nodes_on_the_other() {
    let (etcd, mut first, mut second) = pair().await;
    let node = first.node("web-1").await;
    let mut stream = open_stream(&node, "web-1").await;
    node.put::<_, Value>("/v1/nodes/web-1/facts", &json!({"role": "web"}))
        .await
        .expect("facts");
    let seen: NodeSummary = second
        .operator
        .get("/v1/nodes/web-1")
        .await
        .expect("the other server knows");
    assert_eq!(seen.word, StatusWord::Idle);
    let facts: FactsReply = second
        .operator
        .get("/v1/nodes/web-1/facts")
        .await
        .expect("and has its facts");
    assert_eq!(facts.facts.get("role"), Some(&json!("web")));
    let request = SendCommand {
        nodes: vec![name("web-1")],
        command: Command::Ping,
        ttl_seconds: 60,
    };
    let sent: Vec<SentCommand> = second
        .operator
        .post("/v1/commands", &request)
        .await
        .expect("sent");
    match soon(stream.next()).await {
        Some(Ok(StreamMessage::Command(envelope))) => assert_eq!(envelope.id, sent[0].id),
        other => panic!("a command was expected, not {other:?}"),
    }
    first.shutdown().await;
    second.shutdown().await;
    drop(etcd);
}

#[tokio::test]
async fn a_revocation_at_one_server_cuts_connections_at_the_other() {
    let (etcd, mut first, mut second) = pair().await;
    let node = first.node("web-1").await;
    let mut stream = open_stream(&node, "web-1").await;
    let revoke = bunraku_wire::api::RevokeRequest {
        reason: "stolen".to_owned(),
        serial: None,
    };
    second
        .operator
        .post::<_, ()>("/v1/certificates/web-1/revoke", &revoke)
        .await
        .expect("revoked");
    assert!(
        !matches!(soon(stream.next()).await, Some(Ok(_))),
        "the stream must be cut"
    );
    first.shutdown().await;
    second.shutdown().await;
    drop(etcd);
}

/// Someone with a stolen key renews on several connections to both servers while the
/// certificates are revoked: nothing valid remains.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thief_who_renews_in_a_loop_does_not_outrun_a_revocation() {
    let (etcd, mut first, mut second) = pair().await;
    for round in 0..6 {
        let thief = format!("web-{round}");
        let (certificate, key) = first.joined_since(&thief, 300 * 24).await;
        let until = tokio_util::sync::CancellationToken::new();
        let mut loops = tokio::task::JoinSet::new();
        let renewals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for connection in 0..6 {
            let server = if connection % 2 == 0 { &first } else { &second };
            let client = server.client_with(&certificate, &key);
            let (thief, until, renewals) = (thief.clone(), until.clone(), Arc::clone(&renewals));
            loops.spawn(async move {
                while !until.is_cancelled() {
                    let body = RenewRequest {
                        certificate_request: request(&thief).1,
                        proof: None,
                    };
                    let renewed = client
                        .post::<_, IssuedCertificate>("/v1/certificates/renew", &body)
                        .await;
                    if renewed.is_ok() {
                        renewals.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            });
        }
        eventually(async || renewals.load(std::sync::atomic::Ordering::SeqCst) > 0).await;
        let revoke = bunraku_wire::api::RevokeRequest {
            reason: "stolen".to_owned(),
            serial: None,
        };
        second
            .operator
            .post::<_, ()>(&format!("/v1/certificates/{thief}/revoke"), &revoke)
            .await
            .expect("revoked");
        until.cancel();
        while loops.join_next().await.is_some() {}
        let all: Vec<CertificateEntry> = first
            .operator
            .get("/v1/certificates")
            .await
            .expect("a list");
        let valid = all
            .iter()
            .filter(|entry| entry.name.as_str() == thief)
            .filter(|entry| entry.state == CertificateState::Valid)
            .count();
        assert_eq!(valid, 0, "certificates of {thief} survived");
    }
    first.shutdown().await;
    second.shutdown().await;
    drop(etcd);
}

#[tokio::test]
async fn of_two_concurrent_releases_one_wins_and_nodes_of_both_servers_are_notified() {
    let (etcd, mut first, mut second) = pair().await;
    let node = first.node("web-1").await;
    let (mut stream, target) = open_stream_with_target(&node, "web-1").await;
    assert_eq!(target, None);
    let id = compile(&second, "web-1", "one").await;
    let (one, other) = tokio::join!(
        try_release_all(&first, Some(0)),
        try_release_all(&second, Some(0))
    );
    let (made, refused): (Vec<_>, Vec<_>) = [one, other].into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (1, 1));
    let refused = refused.into_iter().filter_map(Result::err).next();
    let refused = refused.expect("one is refused");
    assert_eq!(refused.status(), Some(409), "{refused}");
    assert!(
        refused.to_string().contains("created release 1"),
        "{refused}"
    );
    let made = made.into_iter().flatten().next().expect("one is made");
    applied(&second, &made.release.expect("a release")).await;
    match soon(stream.next()).await {
        Some(Ok(StreamMessage::Target {
            target: Some(target),
        })) => assert_eq!(target.catalog, id),
        other => panic!("a target was expected, not {other:?}"),
    }
    // Any server serves any content.
    let content = format!("/v1/content/{}", bunraku_model::ContentId::of(b"one"));
    for server in [&first, &second] {
        let served = server.operator.fetch(&content, &[]).await.expect("content");
        assert_eq!(served.body().as_ref(), b"one");
    }
    first.shutdown().await;
    second.shutdown().await;
    drop(etcd);
}

/// Moves an agent to another server in the middle of a run. The agent cannot know how much of
/// its last batch was stored.
#[tokio::test]
async fn a_report_that_comes_through_two_servers_is_stored_once_and_read_at_both() {
    let (etcd, mut first, mut second) = pair().await;
    let (certificate, key) = first.joined("web-1").await;
    let [at_first, at_second] =
        [&first, &second].map(|server| server.client_with(&certificate, &key));
    // The node must be connected, because the server stops waiting for reports of a
    // disconnected node.
    let _connected = open_stream(&at_first, "web-1").await;
    let run = reports::new_run();
    let all = vec![
        reports::started(),
        reports::resource("/a", EventStatus::Changed),
        reports::resource("/b", EventStatus::Changed),
        reports::finished(RunEnding::Succeeded),
    ];
    let path = format!("/v1/nodes/web-1/reports/{run}/stream");
    let mut followed: Lines<NumberedEvent> = second.operator.stream(&path).await.expect("a stream");
    reports::send(&at_first, run, 0, all[..2].to_vec())
        .await
        .expect("stored");
    // The same events through both at once, and the rest.
    let (one, other) = tokio::join!(
        reports::send(&at_first, run, 1, all[1..3].to_vec()),
        reports::send(&at_second, run, 0, all[..3].to_vec())
    );
    assert_eq!(
        (one.expect("stored").next, other.expect("stored").next),
        (3, 3)
    );
    let receipt = reports::send(&at_second, run, 2, all[2..].to_vec()).await;
    assert!(receipt.expect("stored").finished);
    for (number, event) in all.iter().enumerate() {
        let line = soon(followed.next()).await.expect("a line");
        let line = line.expect("an event");
        assert_eq!((line.number, &line.event), (number as u64, event));
    }
    for server in [&first, &second] {
        let stored = reports::events(server, run, 0).await;
        let stored: Vec<_> = stored.into_iter().map(|event| event.event).collect();
        assert_eq!(stored, all);
        let path = format!("/v1/reports/{run}");
        let summary: ReportSummary = server.operator.get(&path).await.expect("a report");
        assert_eq!(summary.state, ReportState::Finished);
    }
    first.shutdown().await;
    second.shutdown().await;
    drop(etcd);
}

#[tokio::test]
async fn exported_resources_reach_collectors_on_either_server_and_after_one_has_stopped() {
    let (etcd, mut first, mut second) = pair_with(|options| {
        options.services.compiles.puppet = Arc::default();
        options.services.compiles.answer_quiet = exports::QUIET;
    })
    .await;
    let site = "node 'balancer' { File <<| tag == 'pool' |>> }
node default { @@file { \"/etc/pool/${trusted['certname']}\": content => $facts['role'], tag => 'pool' } }
";
    let repository = Repository::new(&[("manifests/site.pp", site)]);
    add(&first, "production", &repository.url()).await;
    deployed(&first, "production").await;
    // The exporter and the collector speak to different servers.
    let balancer = second.node("balancer").await;
    facts(&balancer, "balancer", &json!({"role": "lb"})).await;
    exports::until_resources(&second, "balancer", &[]).await;
    let web = first.node("web-1").await;
    facts(&web, "web-1", &json!({"role": "web"})).await;
    for server in [&first, &second] {
        exports::until_resources(server, "balancer", &["File[/etc/pool/web-1]"]).await;
    }
    // Each server answers alone, from the whole index.
    first.shutdown().await;
    let other = second.node("web-2").await;
    facts(&other, "web-2", &json!({"role": "web"})).await;
    let both = ["File[/etc/pool/web-1]", "File[/etc/pool/web-2]"];
    exports::until_resources(&second, "balancer", &both).await;
    exports::remove(&second, "web-1").await;
    exports::until_resources(&second, "balancer", &both[1..]).await;
    second.shutdown().await;
    drop(etcd);
}
