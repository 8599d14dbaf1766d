//! Reactors: events fire what the rules from git define, and loops end.

use bunraku_model::CommandId;
use bunraku_wire::Client;
use bunraku_wire::api::reactors::{ReactorStatus, ReactorVerdict};
use bunraku_wire::api::triggers::{StopReason, TriggerEvent, TriggerNews};
use bunraku_wire::api::{
    Cause, CommandOutcome, CommandResult, DeployState, Envelope, EventStatus, ReportBatch,
    ReportEvent, RunEnding, StreamMessage,
};
use bunraku_wire::client::Lines;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::hooks::deliver_to;
use crate::query::{becomes, submit};
use crate::reports::{finished, new_run, resource, started};
use crate::repository::{Repository, add, deploy, site};
use crate::support::{TestServer, eventually, open_stream, soon, status};

fn repository(rules: &str) -> Repository {
    let files = site("one");
    let mut files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    files.push(("reactors/rules.yaml", rules));
    Repository::new(&files)
}

/// Starts a server whose environment `production` has these rules. Also returns its hook's
/// secret.
async fn with_rules(rules: &str) -> (TestServer, String) {
    let server = TestServer::start().await;
    let repository = repository(rules);
    let added = add(&server, "production", &repository.url()).await;
    let deployed = deploy(&server, "production").await;
    assert!(
        matches!(deployed.deploy.state, DeployState::Deployed { .. }),
        "{:?}",
        deployed.deploy.state
    );
    // The server follows the rules. Once it has seen them, it lists them.
    eventually(async || !reactors(&server).await.is_empty()).await;
    (server, added.hook_secret.expect("shown once"))
}

async fn reactors(server: &TestServer) -> Vec<ReactorStatus> {
    server.operator.get("/v1/reactors").await.expect("a list")
}

async fn history(server: &TestServer) -> Vec<TriggerEvent> {
    let path = "/v1/trigger-events?most=1000";
    let mut events: Vec<TriggerEvent> = server.operator.get(path).await.expect("the history");
    events.reverse();
    events
}

/// Returns the trigger, its hosts and its reason for each firing, oldest first.
async fn fired(server: &TestServer) -> Vec<String> {
    let events = history(server).await;
    let fired = events.iter().filter_map(|event| match &event.what {
        TriggerNews::Fired {
            hosts,
            reason,
            unknown,
            ..
        } => {
            let hosts: Vec<&str> = hosts.iter().map(|host| host.as_str()).collect();
            let reason = reason.clone().unwrap_or_default();
            let unknown = if unknown.is_empty() {
                String::new()
            } else {
                format!(" ({} unknown)", unknown.len())
            };
            Some(format!(
                "{} at {}{unknown}: {reason}",
                event.trigger,
                hosts.join(" ")
            ))
        }
        _ => None,
    });
    fired.collect()
}

/// Returns what was tried for each event without a known host, oldest first.
async fn without_hosts(server: &TestServer) -> Vec<String> {
    let events = history(server).await;
    let tried = events.iter().filter_map(|event| match &event.what {
        TriggerNews::NoHosts { tried, .. } => Some(tried.join("; ")),
        _ => None,
    });
    tried.collect()
}

async fn fires(server: &TestServer, expected: &[&str]) {
    eventually(async || {
        let fired = fired(server).await;
        if fired != expected {
            eprintln!("{fired:?}");
        }
        fired == expected
    })
    .await;
}

async fn send(client: &Client, node: &str, events: Vec<ReportEvent>) {
    let path = format!("/v1/nodes/{node}/reports/{}/events", new_run());
    let batch = ReportBatch { first: 0, events };
    client
        .post::<_, Value>(&path, &batch)
        .await
        .expect("stored");
}

async fn next_run(stream: &mut Lines<StreamMessage>) -> (CommandId, Vec<Cause>) {
    soon(async {
        loop {
            let line = stream.next().await.expect("a line").expect("readable");
            if let StreamMessage::Command(Envelope {
                id,
                command: bunraku_wire::api::Command::Run(run),
                ..
            }) = line
            {
                return (id, run.causes);
            }
        }
    })
    .await
}

async fn answer(client: &Client, node: &str, id: CommandId) {
    let result = CommandResult {
        outcome: CommandOutcome::Done,
        message: "queued".to_owned(),
        finished: Timestamp::now(),
    };
    let path = format!("/v1/nodes/{node}/commands/{id}/result");
    client.put::<_, ()>(&path, &result).await.expect("answered");
}

fn begun_by(causes: Vec<Cause>) -> ReportEvent {
    match started() {
        ReportEvent::Started(mut started) => {
            started.causes = causes;
            ReportEvent::Started(started)
        }
        other => other,
    }
}

const MEND: &str = "
mend:
  when: {event: resource, type: File, title: '/etc/*', status: failed}
  then: {hosts: ['${node}', lb-1], reason: '${title} failed on ${node}'}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_resource_fires_a_trigger_and_a_run_that_only_fails_again_ends_the_chain() {
    let (mut server, _) = with_rules(MEND).await;
    let web = server.node("web-1").await;
    server.node("lb-1").await;
    let events = vec![
        started(),
        resource("/srv/other", EventStatus::Failed),
        resource("/etc/fine", EventStatus::Changed),
        resource("/etc/motd", EventStatus::Failed),
        finished(RunEnding::Failed),
    ];
    send(&web, "web-1", events).await;
    fires(&server, &["mend at lb-1 web-1: /etc/motd failed on web-1"]).await;
    let mut stream = open_stream(&web, "web-1").await;
    let (id, causes) = next_run(&mut stream).await;
    answer(&web, "web-1", id).await;
    let Cause::Trigger(cause) = &causes[0] else {
        panic!("a trigger, not {causes:?}");
    };
    assert_eq!(
        cause.chain[0].node.as_ref().expect("a node").as_str(),
        "web-1"
    );
    // The run that it started changes nothing and fails in the same way.
    let events = vec![begun_by(causes), resource("/etc/motd", EventStatus::Failed)];
    send(&web, "web-1", events).await;
    eventually(async || {
        history(&server).await.iter().any(|event| {
            matches!(&event.what, TriggerNews::Stopped { by, why: StopReason::Repeated, chain }
                if by == "reactor mend of production" && chain.len() == 2)
        })
    })
    .await;
    assert_eq!(fired(&server).await.len(), 1);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_rules_back_each_node_for_itself() {
    let rules = "
often:
  when: {event: run, ending: failed}
  then: {hosts: '${node}'}
  limits: {occurrences: 2, within: 10m, per: node}
calm:
  when: {event: resource, status: failed}
  then: {trigger: gather, hosts: lb-1}
  limits: {quiet: 4s}
";
    let (mut server, _) = with_rules(rules).await;
    let (one, two) = (server.node("web-1").await, server.node("web-2").await);
    server.node("lb-1").await;
    let failed = || vec![started(), finished(RunEnding::Failed)];
    send(&one, "web-1", failed()).await;
    send(&two, "web-2", failed()).await;
    eventually(async || reactors(&server).await.iter().any(|rule| rule.held == 2)).await;
    assert_eq!(fired(&server).await.len(), 0, "one of each is not enough");
    send(&one, "web-1", failed()).await;
    fires(&server, &["often at web-1: a run on web-1: failed"]).await;
    for _ in 0..3 {
        let events = vec![
            started(),
            resource("/a", EventStatus::Failed),
            resource("/b", EventStatus::Failed),
        ];
        send(&two, "web-2", events).await;
    }
    eventually(async || fired(&server).await.len() == 2).await;
    let gathered = fired(&server).await.remove(1);
    assert_eq!(
        gathered,
        "gather at lb-1: File[/a] failed on web-2, and 1 more"
    );
    // A later event fires later. All earlier events were combined into one.
    send(
        &one,
        "web-1",
        vec![started(), resource("/c", EventStatus::Failed)],
    )
    .await;
    eventually(async || fired(&server).await.len() > 2).await;
    let fired = fired(&server).await;
    assert_eq!(fired[2..], ["gather at lb-1: File[/c] failed on web-1"]);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_facts_and_lost_nodes_are_events_and_one_that_returns_in_time_is_not() {
    let rules = "
role:
  when: {event: fact_changed, fact: 'role*', after: db}
  then: {hosts: lb-1}
gone:
  when: {event: node_lost, for: 5s}
  then: {hosts: lb-1, reason: '${node} is gone'}
";
    let (mut server, _) = with_rules(rules).await;
    server.node("lb-1").await;
    let (web, db) = (server.node("web-1").await, server.node("db-1").await);
    submit(&web, "web-1", json!({"role": "web", "n": 1})).await;
    let stored = r#"[{"certname":"web-1"}]"#;
    becomes(&server, r#"nodes[certname] { facts.role = "web" }"#, stored).await;
    submit(&web, "web-1", json!({"role": "db", "n": 2})).await;
    fires(&server, &["role at lb-1: role of web-1 changed"]).await;
    let (first, second) = (
        open_stream(&web, "web-1").await,
        open_stream(&db, "db-1").await,
    );
    let connected = async |node: &str| {
        let path = format!("/v1/nodes/{node}");
        let shown: Value = server.operator.get(&path).await.expect("shown");
        shown["status"]["connection"]["state"] == "connected"
    };
    // One node returns immediately. The other leaves later and does not return. When its loss
    // is reported, the time limit of the first is over as well.
    drop(first);
    eventually(async || !connected("web-1").await).await;
    let _back = open_stream(&web, "web-1").await;
    drop(second);
    let expected = [
        "role at lb-1: role of web-1 changed",
        "gone at lb-1: db-1 is gone",
    ];
    fires(&server, &expected).await;
    server.shutdown().await;
}

/// Returns the status and the body of a call.
fn call(server: &TestServer, path: &str, headers: &[&str], body: &str) -> (u16, Value) {
    deliver_to(server, &format!("/v1/hooks/{path}"), body, headers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_starts_a_run_on_the_node_that_it_is_about_and_strangers_start_none() {
    let rules = "
disk:
  when: {event: alert, hook: prometheus, alert.status: firing, alert.labels.alertname: DiskFull}
  then: {trigger: clean, hosts: '${alert.labels.node}'}
";
    let (mut server, secret) = with_rules(rules).await;
    server.node("db-1").await;
    server.node("elsewhere").await;
    add(&server, "other", &repository(rules).url()).await;
    let assigned = json!({"environment": "other"});
    let assigned = server
        .operator
        .put::<_, ()>("/v1/nodes/elsewhere/environment", &assigned);
    assigned.await.expect("assigned");
    // In the format that Alertmanager sends.
    let alert = |status: &str, node: &str| {
        json!({"status": status, "labels": {"alertname": "DiskFull", "node": node},
            "annotations": {}, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": format!("{status} {node}")})
    };
    let body = json!({"version": "4", "groupKey": "{}:{}", "status": "firing", "receiver": "bunraku",
        "alerts": [alert("firing", "db-1"), alert("resolved", "db-1"), alert("firing", "elsewhere"), alert("firing", "../x")]})
    .to_string();
    let bearer = format!("Authorization: Bearer {secret}");
    for (path, header) in [
        (
            "production/events/prometheus",
            "Authorization: Bearer wrong",
        ),
        (
            "production/events/prometheus",
            "X-Hub-Signature-256: sha256=00",
        ),
        ("nowhere/events/prometheus", bearer.as_str()),
        ("other/events/prometheus", bearer.as_str()),
    ] {
        assert_eq!(
            call(&server, path, &[header], &body).0,
            401,
            "{path} {header}"
        );
    }
    let path = "production/events/prometheus";
    let (code, reply) = call(&server, path, &[&bearer], &body);
    assert_eq!(
        (code, &reply["events"], &reply["taken"]),
        (200, &json!(4), &json!(3)),
        "{reply}"
    );
    // A rule of one environment starts nothing in another.
    let expected = "clean at db-1: alert DiskFull is firing, and 2 more";
    fires(&server, &[expected]).await;
    assert_eq!(
        without_hosts(&server).await,
        ["`elsewhere` is a node of environment other; `../x` is not a host name"]
    );
    // The same alerts again, as after a lost reply.
    let (code, reply) = call(&server, path, &[&bearer], &body);
    assert_eq!((code, &reply["taken"]), (200, &json!(0)), "{reply}");
    for unusable in [
        "",
        "{",
        "null",
        "{\"alerts\": []}",
        "{\"alerts\": [{\"status\": \"firing\"}]}",
        "{\"some\": \"other body\"}",
    ] {
        let (code, reply) = call(&server, path, &[&bearer], unusable);
        assert_eq!(code, 400, "{unusable}: {reply}");
        assert!(reply["error"]["message"].is_string(), "{unusable}: {reply}");
    }
    let (code, reply) = call(&server, "production/events/typo", &[&bearer], &body);
    assert_eq!(code, 400, "{reply}");
    let large = format!("\"{}\"", "x".repeat(300_000));
    assert_eq!(call(&server, path, &[&bearer], &large).0, 413);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_is_found_by_its_name_without_the_port_and_by_the_facts_of_a_node() {
    let rules = "
disk:
  when: {event: alert}
  then: {trigger: clean, hosts: '${alert.labels.instance}', labels: {status: '${alert.status}'}}
";
    let (mut server, secret) = with_rules(rules).await;
    let (web, db) = (server.node("web-1").await, server.node("db-1").await);
    let facts =
        json!({"networking": {"ip": "10.0.0.5", "hostname": "database", "fqdn": "database.lan"}});
    submit(&db, "db-1", facts).await;
    let stored = r#"[{"certname":"db-1"}]"#;
    becomes(
        &server,
        r#"nodes[certname] { facts.networking.ip = "10.0.0.5" }"#,
        stored,
    )
    .await;
    let bearer = format!("Authorization: Bearer {secret}");
    let alerted = |instance: &str| {
        let body = json!({"groupKey": "g", "alerts": [{"status": "firing",
            "labels": {"alertname": "Disk", "instance": instance, "severity": "page"}}]});
        let path = "production/events/prometheus";
        let (code, reply) = call(&server, path, &[&bearer], &body.to_string());
        assert_eq!((code, &reply["taken"]), (200, &json!(1)), "{reply}");
    };
    let mut stream = open_stream(&web, "web-1").await;
    alerted("web-1:9100");
    let (id, causes) = next_run(&mut stream).await;
    answer(&web, "web-1", id).await;
    let Cause::Trigger(cause) = &causes[0] else {
        panic!("a trigger, not {causes:?}");
    };
    let labels: Vec<(&str, &str)> = (cause.labels.iter())
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("alertname", "Disk"),
        ("instance", "web-1:9100"),
        ("severity", "page"),
        ("status", "firing"),
    ];
    assert_eq!(labels, expected);
    for instance in ["10.0.0.5:9100", "database:9100", "database.lan"] {
        alerted(instance);
    }
    let at = |host: &str| format!("clean at {host}: alert Disk is firing");
    let expected = [at("web-1"), at("db-1"), at("db-1"), at("db-1")];
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    fires(&server, &expected).await;
    alerted("192.0.2.1:9100");
    let expected = "`192.0.2.1:9100` is not a node of environment production";
    eventually(async || without_hosts(&server).await == [expected]).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_run_starts_once_and_refused_ones_and_its_end_are_in_the_history() {
    let rules = "
order:
  when: {event: webhook, hook: ci, body.app: shop}
  then: {run: {site: order.yaml, batch: 50%, canary: 1}, reason: 'build ${body.build}'}
lost:
  when: {event: webhook, hook: ci, body.app: other}
  then: {run: {site: order.yaml, instance: nothing}}
none:
  when: {event: webhook, hook: ci, body.app: none}
  then: {run: {site: order.yaml}, hosts: '${body.host}'}
ended:
  when: {event: run_finished, by: 'reactor order*', outcome: refused}
  then: {hosts: lb-1}
joined:
  when: {event: node_joined, node: 'new-*'}
  then: {hosts: lb-1}
released:
  when: {event: release_made}
  then: {hosts: lb-1, reason: '${kind} release'}
  limits: {interval: 1h}
";
    let server = TestServer::start().await;
    let code = repository(rules);
    code.commit(&[(
        "order.yaml",
        "applications:\n  shop:\n    components:\n      db: {node: db-1, produces: [sql]}\n      web: {query: 'web-*', consumes: [sql]}\n",
    )]);
    let mut server = server;
    let added = add(&server, "production", &code.url()).await;
    for node in ["lb-1", "db-1", "web-1", "web-2"] {
        server.node(node).await;
    }
    deploy(&server, "production").await;
    eventually(async || reactors(&server).await.len() == 6).await;
    let secret = added.hook_secret.expect("shown once");
    let bearer = format!("Authorization: Bearer {secret}");
    let built = |body: Value| {
        let (code, reply) = call(
            &server,
            "production/events/ci",
            &[&bearer],
            &body.to_string(),
        );
        assert_eq!((code, &reply["taken"]), (200, &json!(1)), "{reply}");
    };
    built(json!({"app": "shop", "build": 7}));
    // Its nodes are not connected, so the run ends without having started anything.
    eventually(async || {
        fired(&server)
            .await
            .iter()
            .any(|text| text.starts_with("ended at lb-1: run "))
    })
    .await;
    built(json!({"app": "other"}));
    built(json!({"app": "none", "host": "lb-1"}));
    let news = async || {
        let events = history(&server).await;
        let words = events.into_iter().filter_map(|event| match event.what {
            TriggerNews::RunStarted { nodes, reason, .. } => Some(format!(
                "{} {nodes} {}",
                event.trigger,
                reason.unwrap_or_default()
            )),
            TriggerNews::RunRefused { message, .. } => {
                Some(format!("{}: {message}", event.trigger))
            }
            TriggerNews::RunEnded {
                outcome, failed, ..
            } => Some(format!("{} {outcome:?} {failed}", event.trigger)),
            _ => None,
        });
        words.collect::<Vec<String>>()
    };
    eventually(async || news().await.len() == 4).await;
    let news = news().await;
    assert_eq!(news[0], "order 3 build 7");
    assert_eq!(news[1], "order Refused 3");
    assert!(news[2].starts_with("lost: "), "{news:?}");
    assert!(news[2].contains("nothing"), "{news:?}");
    assert_eq!(news[3], "none: the filter matches nothing");
    let runs: Vec<Value> = server.operator.get("/v1/runs").await.expect("runs");
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["by"], "reactor order of production");
    assert_eq!(runs[0]["options"]["canary"], 1);
    // Other events.
    server.node("new-1").await;
    eventually(async || {
        fired(&server)
            .await
            .contains(&"joined at lb-1: new-1 joined".to_owned())
    })
    .await;
    crate::repository::node(&server, "app-1").await;
    crate::repository::settled(&server, "app-1").await;
    let release = json!({"to": "everything", "mode": "enforce"});
    let made: Result<Value, _> = server
        .operator
        .post("/v1/releases/production", &release)
        .await;
    made.expect("released");
    eventually(async || {
        fired(&server)
            .await
            .iter()
            .any(|text| text.starts_with("released at lb-1: "))
    })
    .await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_rules_stop_the_deploy_with_their_place_and_the_old_ones_stay() {
    let mut server = TestServer::start().await;
    let code = repository(MEND);
    add(&server, "production", &code.url()).await;
    deploy(&server, "production").await;
    eventually(async || reactors(&server).await.len() == 1).await;
    code.commit(&[("reactors/more.yaml", "\nbad:\n  when: {event: resorce}\n")]);
    let failed = deploy(&server, "production").await;
    let DeployState::Failed { problem, .. } = failed.deploy.state else {
        panic!("it must fail: {:?}", failed.deploy.state);
    };
    assert_eq!(
        (problem.file.as_deref(), problem.line, problem.column),
        (Some("reactors/more.yaml"), Some(3), Some(17))
    );
    code.commit(&[("reactors/more.yaml", MEND)]);
    let failed = deploy(&server, "production").await;
    let printed = format!("{:?}", failed.deploy.state);
    assert!(printed.contains("`mend` already exists"), "{printed}");
    assert_eq!(reactors(&server).await.len(), 1);
    server.node("web-1").await;
    let event = json!({"event": {"event": "resource", "node": "web-1", "type": "File", "title": "/etc/motd", "status": "failed"}});
    let verdicts: Vec<ReactorVerdict> = server
        .operator
        .post("/v1/reactors/test", &event)
        .await
        .expect("tested");
    assert_eq!(verdicts[0].mismatch, None);
    assert_eq!(
        verdicts[0].reason.as_deref(),
        Some("/etc/motd failed on web-1")
    );
    let event = json!({"event": {"event": "resource", "node": "web-1", "type": "File", "title": "/x", "status": "failed"}});
    let verdicts: Vec<ReactorVerdict> = server
        .operator
        .post("/v1/reactors/test", &event)
        .await
        .expect("tested");
    assert_eq!(
        verdicts[0].mismatch.as_deref(),
        Some("`title` is `/x`, not `/etc/*`")
    );
    let node = server.node("web-2").await;
    assert_eq!(status(node.get::<Value>("/v1/reactors").await), 403);
    assert_eq!(fired(&server).await.len(), 0, "testing fires nothing");
    // Rules that are removed from the code are gone.
    code.git(&["rm", "--quiet", "-r", "reactors"]);
    code.commit(&[]);
    deploy(&server, "production").await;
    eventually(async || reactors(&server).await.is_empty()).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_at_any_moment_reacts_to_every_event_once() {
    let (mut server, _) = with_rules(MEND).await;
    let (web, key) = server.node_with_key("web-1").await;
    server.node("lb-1").await;
    let count = 12;
    for number in 0..count {
        let title = format!("/etc/{number}");
        send(
            &web,
            "web-1",
            vec![started(), resource(&title, EventStatus::Failed)],
        )
        .await;
    }
    // Immediately, so that some events are handled and some are not.
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    eventually(async || fired(&server).await.len() >= count).await;
    let mut reasons = fired(&server).await;
    reasons.sort();
    let before = reasons.len();
    reasons.dedup();
    assert_eq!((before, reasons.len()), (count, count));
    drop(key);
    server.shutdown().await;
}
