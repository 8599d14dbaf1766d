//! Triggers: every cue arrives, loops end, and storms become one run.

use std::collections::BTreeMap;
use std::time::Duration;

use bunraku_model::{CommandId, FiringId, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::triggers::{FireReply, FireTrigger, StopReason, TriggerEvent, TriggerNews};
use bunraku_wire::api::{
    Cause, Command, CommandOutcome, CommandResult, Envelope, RunRequest, RunSubject, StreamMessage,
    TriggerCause,
};
use bunraku_wire::client::Lines;
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::query::{becomes, submit};
use crate::support::{TestServer, eventually, metrics, name, open_stream, soon, status};

fn request(hosts: &[&str]) -> FireTrigger {
    let hosts = hosts.iter().map(|host| name(host)).collect();
    FireTrigger::new(FiringId(Uuid::now_v7()), hosts)
}

async fn fire(client: &Client, trigger: &str, request: &FireTrigger) -> FireReply {
    let path = format!("/v1/triggers/{trigger}/fire");
    client.post(&path, request).await.expect("an answer")
}

/// Returns the next line that is not about the node's target.
async fn next_line(stream: &mut Lines<StreamMessage>) -> Option<StreamMessage> {
    loop {
        match stream.next().await.map(|line| line.expect("a line")) {
            Some(StreamMessage::Target { .. }) => {}
            other => return other,
        }
    }
}

async fn next_run(stream: &mut Lines<StreamMessage>) -> (CommandId, RunRequest) {
    match soon(next_line(stream)).await {
        Some(StreamMessage::Command(Envelope {
            id,
            command: Command::Run(run),
            ..
        })) => (id, *run),
        other => panic!("a run was expected, not {other:?}"),
    }
}

async fn nothing_comes(stream: &mut Lines<StreamMessage>) {
    let next = tokio::time::timeout(Duration::from_millis(300), next_line(stream)).await;
    assert!(next.is_err(), "nothing was to come: {next:?}");
}

async fn answer(node: &Client, name: &str, id: CommandId) {
    let result = CommandResult {
        outcome: CommandOutcome::Done,
        message: "queued".to_owned(),
        finished: Timestamp::now(),
    };
    let path = format!("/v1/nodes/{name}/commands/{id}/result");
    node.put::<_, ()>(&path, &result).await.expect("answered");
}

fn causes(run: &RunRequest) -> Vec<TriggerCause> {
    let causes = run.causes.iter().map(|cause| match cause {
        Cause::Trigger(cause) => cause.clone(),
        other => panic!("a trigger, not {other:?}"),
    });
    causes.collect()
}

async fn history(server: &TestServer) -> Vec<TriggerEvent> {
    let path = "/v1/trigger-events?most=1000";
    server.operator.get(path).await.expect("the history")
}

#[tokio::test]
async fn a_fired_trigger_starts_a_run_on_each_host_with_its_cause() {
    let mut server = TestServer::start().await;
    let mut streams = Vec::new();
    for host in ["lb-1", "lb-2"] {
        let node = server.node(host).await;
        streams.push((open_stream(&node, host).await, node));
    }
    let fired = FireTrigger {
        reason: Some("a vhost is new".to_owned()),
        ..request(&["lb-1", "lb-2", "nobody"])
    };
    let reply = fire(&server.operator, "refresh%20load%20balancers", &fired).await;
    assert_eq!(
        reply,
        FireReply::Fired {
            hosts: vec![name("lb-1"), name("lb-2")],
            unknown: vec![name("nobody")],
        }
    );
    for (stream, _) in &mut streams {
        let (_, run) = next_run(stream).await;
        assert_eq!(run.subject, RunSubject::configured());
        assert!(run.coalesce);
        let cause = &causes(&run)[0];
        assert_eq!((&*cause.name, cause.ttl), ("refresh load balancers", 7));
        assert_eq!(cause.reason.as_deref(), Some("a vhost is new"));
        assert_eq!(cause.chain.len(), 1);
    }
    // The same firing again, as if its reply was lost: nothing more happens.
    fire(&server.operator, "refresh%20load%20balancers", &fired).await;
    for (stream, _) in &mut streams {
        nothing_comes(stream).await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_storm_at_one_node_is_a_few_commands_that_carry_every_cause() {
    let mut server = TestServer::start().await;
    let node = server.node("lb-1").await;
    // A thousand at once, while the node is away.
    let firing = (0..1_000).map(|number| {
        let operator = server.operator.clone();
        async move {
            let request = FireTrigger {
                reason: Some(number.to_string()),
                ..request(&["lb-1"])
            };
            fire(&operator, "refresh", &request).await
        }
    });
    let replies = soon(futures::future::join_all(firing)).await;
    assert!(
        replies
            .iter()
            .all(|reply| matches!(reply, FireReply::Fired { hosts, .. } if hosts.len() == 1))
    );
    let mut stream = open_stream(&node, "lb-1").await;
    let (first, run) = next_run(&mut stream).await;
    let before = causes(&run).len();
    answer(&node, "lb-1", first).await;
    let (second, run) = next_run(&mut stream).await;
    let after = causes(&run).len();
    let more: u64 = causes(&run).iter().map(|cause| cause.more).sum();
    answer(&node, "lb-1", second).await;
    assert_eq!(before, 1, "the first goes out at once");
    assert!(after >= 100, "the others together: {after}");
    assert_eq!(
        before as u64 + after as u64 + more,
        1_000,
        "and none is forgotten"
    );
    nothing_comes(&mut stream).await;
    eventually(|| async {
        let nodes: Vec<bunraku_wire::api::NodeSummary> =
            server.operator.get("/v1/nodes").await.expect("the nodes");
        nodes[0].pending_commands == 0
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn what_is_fired_while_a_command_is_on_its_way_starts_a_run_of_its_own() {
    let mut server = TestServer::start().await;
    let node = server.node("lb-1").await;
    let mut stream = open_stream(&node, "lb-1").await;
    fire(&server.operator, "a", &request(&["lb-1"])).await;
    let (first, _) = next_run(&mut stream).await;
    // The node has the command and may have started it, so this cue must not be merged into
    // it.
    fire(&server.operator, "b", &request(&["lb-1"])).await;
    fire(&server.operator, "c", &request(&["lb-1"])).await;
    answer(&node, "lb-1", first).await;
    let (second, run) = next_run(&mut stream).await;
    let names: Vec<String> = causes(&run).into_iter().map(|cause| cause.name).collect();
    assert_eq!(names, ["b", "c"]);
    answer(&node, "lb-1", second).await;
    server.shutdown().await;
}

#[tokio::test]
async fn nothing_is_lost_when_the_server_ends_between_fired_and_delivered() {
    let mut server = TestServer::start().await;
    let (_, key) = server.node_with_key("lb-1").await;
    fire(&server.operator, "a", &request(&["lb-1"])).await;
    fire(&server.operator, "b", &request(&["lb-1"])).await;
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    let csr = bunraku_wire::Request::create(&name("lb-1"), &key).expect("a request");
    let reply = server
        .join(&csr, None)
        .await
        .expect("the same key is known");
    let bunraku_wire::api::JoinReply::Signed { certificate, .. } = reply else {
        panic!("known")
    };
    let node = server.client_with(&certificate, &key);
    let mut stream = open_stream(&node, "lb-1").await;
    for expected in ["a", "b"] {
        let (id, run) = next_run(&mut stream).await;
        assert_eq!(causes(&run)[0].name, expected);
        answer(&node, "lb-1", id).await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn triggers_of_an_absent_node_expire_and_this_is_reported() {
    let mut server = TestServer::start_with(|options| {
        options.services.upkeep.sweep_every = Duration::from_millis(200);
    })
    .await;
    let node = server.node("lb-1").await;
    let short = FireTrigger {
        deadline_seconds: Some(1),
        ..request(&["lb-1"])
    };
    fire(&server.operator, "late", &short).await;
    fire(&server.operator, "on-time", &request(&["lb-1"])).await;
    eventually(|| async {
        history(&server).await.iter().any(|event| {
            event.trigger.as_str() == "late"
                && matches!(&event.what, TriggerNews::Expired { node } if node.as_str() == "lb-1")
        })
    })
    .await;
    // The next one in the queue has more time, and is delivered.
    let mut stream = open_stream(&node, "lb-1").await;
    let (_, run) = next_run(&mut stream).await;
    assert_eq!(causes(&run)[0].name, "on-time");
    let metrics = metrics(&server).await;
    assert!(
        metrics.contains("bunraku_triggers_expired_total 1"),
        "{metrics}"
    );
    server.shutdown().await;
}

/// Nodes whose runs fire the next trigger of a ring, as agents do.
struct Ring {
    nodes: BTreeMap<NodeName, (Client, Lines<StreamMessage>)>,
}

impl Ring {
    async fn start(server: &TestServer, names: &[&str]) -> Self {
        let mut nodes = BTreeMap::new();
        for node in names {
            let client = server.node(node).await;
            let stream = open_stream(&client, node).await;
            nodes.insert(name(node), (client, stream));
        }
        Self { nodes }
    }

    /// Lets runs fire until the chain ends. Returns the number of runs and the reason for the
    /// end.
    async fn run(
        &mut self,
        first: &str,
        next: &BTreeMap<&str, &str>,
        changed: bool,
    ) -> (usize, StopReason) {
        let mut at = first.to_owned();
        let mut runs = 0;
        loop {
            let (client, stream) = self.nodes.get_mut(&name(&at)).expect("a node of the ring");
            let (id, run) = next_run(stream).await;
            runs += 1;
            answer(client, &at, id).await;
            let to = next[at.as_str()];
            let request = FireTrigger {
                causes: run.causes,
                changed,
                ..request(&[to])
            };
            match fire(client, "go", &request).await {
                FireReply::Fired { .. } => at = to.to_owned(),
                FireReply::Stopped { why, .. } => return (runs, why),
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn check_ring(names: &[&str], unchanged_runs: usize) {
    let mut server = TestServer::start().await;
    let mut ring = Ring::start(&server, names).await;
    server.permit("triggers/go").await;
    let next: BTreeMap<&str, &str> = (0..names.len())
        .map(|index| (names[index], names[(index + 1) % names.len()]))
        .collect();
    fire(&server.operator, "go", &request(&names[..1])).await;
    let ended = ring.run(names[0], &next, false).await;
    assert_eq!(ended, (unchanged_runs, StopReason::Repeated));
    // Each of its runs changes something, so only the hop limit ends it.
    fire(&server.operator, "go", &request(&names[..1])).await;
    assert_eq!(
        ring.run(names[0], &next, true).await,
        (8, StopReason::HopLimit)
    );
    let stopped = history(&server).await;
    let stopped: Vec<_> = stopped
        .iter()
        .filter_map(|event| match &event.what {
            TriggerNews::Stopped { why, chain, .. } => Some((*why, chain.len())),
            _ => None,
        })
        .collect();
    assert_eq!(
        stopped,
        [
            (StopReason::HopLimit, 9),
            (StopReason::Repeated, unchanged_runs + 1)
        ]
    );
    let metrics = metrics(&server).await;
    for reason in ["hop_limit", "repeated"] {
        let line = format!("bunraku_triggers_stopped_total{{reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn two_nodes_that_cue_each_other_come_to_an_end() {
    check_ring(&["a", "b"], 3).await;
}

#[tokio::test]
async fn a_ring_of_three_nodes_comes_to_an_end() {
    check_ring(&["a", "b", "c"], 4).await;
}

#[tokio::test]
async fn a_node_that_cues_itself_comes_to_an_end() {
    check_ring(&["a"], 2).await;
}

#[tokio::test]
async fn limits_hold_back_until_it_is_quiet_and_then_everything_goes_out_as_one() {
    let mut server = TestServer::start().await;
    let (a, b) = (server.node("a").await, server.node("b").await);
    let (mut at_a, mut at_b) = (open_stream(&a, "a").await, open_stream(&b, "b").await);
    let limits = json!({"quiet_seconds": 1, "fired_by": ["a"], "hosts": ["*"]});
    assert_eq!(
        status(a.put::<_, ()>("/v1/triggers/slow", &limits).await),
        403
    );
    server
        .operator
        .put::<_, ()>("/v1/triggers/slow", &limits)
        .await
        .expect("limited");
    let refused = b
        .post::<_, FireReply>("/v1/triggers/slow/fire", &request(&["a"]))
        .await;
    assert_eq!(status(refused), 403, "only a may fire it");
    for hosts in [["a"], ["b"], ["a"]] {
        let reply = fire(&a, "slow", &request(&hosts)).await;
        // A node does not learn how often others fired it.
        let (occurrences, until) = (0, None);
        assert_eq!(reply, FireReply::Held { occurrences, until });
    }
    for stream in [&mut at_a, &mut at_b] {
        let (_, run) = next_run(stream).await;
        assert_eq!(causes(&run).len(), 3, "all causes, one run");
    }
    let often = json!({"occurrences": 3, "within_seconds": 60});
    server
        .operator
        .put::<_, ()>("/v1/triggers/often", &often)
        .await
        .expect("limited");
    for count in [1, 2] {
        let reply = fire(&server.operator, "often", &request(&["b"])).await;
        assert_eq!(
            reply,
            FireReply::Held {
                occurrences: count,
                until: None
            }
        );
    }
    assert!(matches!(
        fire(&server.operator, "often", &request(&["b"])).await,
        FireReply::Fired { .. }
    ));
    server.shutdown().await;
}

#[tokio::test]
async fn hosts_are_those_that_a_query_finds_when_it_is_fired() {
    let mut server = TestServer::start().await;
    let mut nodes = BTreeMap::new();
    for (node, role) in [("lb-1", "lb"), ("lb-2", "lb"), ("web-1", "web")] {
        let client = server.node(node).await;
        submit(&client, node, json!({ "role": role })).await;
        nodes.insert(node, client);
    }
    let found = r#"[{"certname":"lb-1"},{"certname":"lb-2"}]"#;
    let query = r#"nodes[certname] { facts.role = "lb" }"#;
    becomes(&server, query, found).await;
    let by_query = || FireTrigger {
        query: Some(r#"nodes { facts.role = "lb" }"#.to_owned()),
        ..request(&[])
    };
    let both = FireReply::Fired {
        hosts: vec![name("lb-1"), name("lb-2")],
        unknown: Vec::new(),
    };
    assert_eq!(fire(&server.operator, "go", &by_query()).await, both);
    let none = FireTrigger {
        query: Some(r#"nodes { facts.role = "db" }"#.to_owned()),
        ..request(&[])
    };
    let refused = server
        .operator
        .post::<_, FireReply>("/v1/triggers/go/fire", &none)
        .await;
    assert_eq!(status(refused), 400, "an operator meant some node");
    // A node must not learn from a reply what it may not query.
    server.permit("triggers/go").await;
    let path = "/v1/triggers/go/fire";
    let refused = nodes["web-1"].post::<_, FireReply>(path, &by_query()).await;
    assert_eq!(status(refused), 403);
    let wrong = json!({"query": "nodes { facts.role = }"});
    let refused = server.operator.put::<_, ()>("/v1/triggers/go", &wrong);
    assert_eq!(status(refused.await), 400);
    let defined = json!({"query": r#"nodes { facts.role = "lb" }"#, "fired_by": ["web-*"]});
    let defined = server.operator.put::<_, ()>("/v1/triggers/go", &defined);
    defined.await.expect("defined");
    // Its reply names only hosts that it named, whether they exist, match, or neither.
    for named in [&[][..], &["lb-1"], &["web-1"], &["nobody"]] {
        let reply = fire(&nodes["web-1"], "go", &request(named)).await;
        let hosts = named.iter().map(|host| name(host)).collect();
        let unknown = Vec::new();
        assert_eq!(reply, FireReply::Fired { hosts, unknown });
    }
    // Only those of the query were reached.
    for (node, runs) in [("lb-1", 1), ("lb-2", 1), ("web-1", 0)] {
        let nodes: Vec<bunraku_wire::api::NodeSummary> =
            server.operator.get("/v1/nodes").await.expect("the nodes");
        let found = nodes.iter().find(|found| found.name == name(node));
        let pending = found.expect("the node").pending_commands;
        assert_eq!(pending, runs, "{node}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn firings_that_make_no_sense_are_refused() {
    let mut server = TestServer::start().await;
    for wrong in [
        request(&[]),
        FireTrigger {
            query: Some("x".to_owned()),
            ..request(&[])
        },
        FireTrigger {
            deadline_seconds: Some(u64::MAX),
            ..request(&["a"])
        },
    ] {
        let refused = server
            .operator
            .post::<_, FireReply>("/v1/triggers/t/fire", &wrong)
            .await;
        assert_eq!(status(refused), 400, "{wrong:?}");
    }
    let none = FireTrigger {
        ttl: Some(0),
        ..request(&["a"])
    };
    assert!(matches!(
        fire(&server.operator, "t", &none).await,
        FireReply::Stopped {
            why: StopReason::HopLimit,
            ..
        }
    ));
    server.shutdown().await;
}

/// Chains travel through nodes. A node that drops them cannot keep a loop going.
#[tokio::test]
async fn a_loop_that_drops_its_causes_ends_at_the_budget() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    server.node("web-2").await;
    server.permit("triggers/ping").await;
    server.permit("triggers/pong").await;
    let mut fired = 0;
    for _ in 0..40 {
        match fire(&node, "ping", &request(&["web-2"])).await {
            FireReply::Fired { .. } => fired += 1,
            FireReply::Stopped { why, .. } => assert_eq!(why, StopReason::Budget),
            FireReply::Held { .. } => panic!("nothing limits the trigger"),
        }
    }
    assert_eq!(fired, 30);
    let events: Vec<TriggerEvent> = server
        .operator
        .get("/v1/trigger-events?most=100")
        .await
        .expect("the history");
    let stops = events
        .iter()
        .filter(|event| matches!(event.what, TriggerNews::Stopped { .. }));
    assert_eq!(stops.count(), 1, "the history names the loop once");
    // Another trigger, another node and operators have budgets of their own, or none.
    assert!(matches!(
        fire(&node, "pong", &request(&["web-2"])).await,
        FireReply::Fired { .. }
    ));
    assert!(matches!(
        fire(&server.operator, "ping", &request(&["web-2"])).await,
        FireReply::Fired { .. }
    ));
    server.shutdown().await;
}

/// Nobody permitted anything: a node reaches nobody, and learns nothing.
#[tokio::test]
async fn without_a_permission_a_node_fires_nothing_and_the_refusal_names_the_command() {
    let mut server = TestServer::start().await;
    let (web, _lb) = (server.node("web-1").await, server.node("lb-1").await);
    let refused = async |trigger: &str, hosts: &[&str]| {
        let path = format!("/v1/triggers/{trigger}/fire");
        let fired = web.post::<_, FireReply>(&path, &request(hosts)).await;
        let error = fired.expect_err("refused");
        assert_eq!(error.status(), Some(403), "{error}");
        (
            error.to_string(),
            error.hint().unwrap_or_default().to_owned(),
        )
    };
    // Neither a trigger nor a host that exists answers differently from one that does not.
    let limits = json!({"quiet_seconds": 1});
    let defined = server.operator.put::<_, ()>("/v1/triggers/known", &limits);
    defined.await.expect("defined");
    for host in ["lb-1", "nobody"] {
        let (known, unknown) = (
            refused("known", &[host]).await,
            refused("other", &[host]).await,
        );
        assert_eq!(known.0.replace("known", "other"), unknown.0);
        assert_eq!(known.1.replace("known", "other"), unknown.1);
        let command = format!("`bunraku trigger permit known --fired-by web-1 --hosts {host}`");
        assert!(known.1.contains(&command), "{}", known.1);
    }
    // Permitted for one host, it reaches that host and no other. The limits stay.
    let permit = json!({"fired_by": ["web-1"], "hosts": ["lb-1"]});
    let permitted = server
        .operator
        .post::<_, ()>("/v1/triggers/known/permissions", &permit);
    permitted.await.expect("permitted");
    let summary: bunraku_wire::api::triggers::TriggerSummary = server
        .operator
        .get("/v1/triggers/known")
        .await
        .expect("the trigger");
    assert_eq!(summary.limits.quiet_seconds, Some(1));
    fire(&web, "known", &request(&["lb-1"])).await;
    for host in ["web-1", "nobody"] {
        let (message, _) = refused("known", &[host]).await;
        assert!(message.contains(&format!("at `{host}`")), "{message}");
    }
    server.shutdown().await;
}
