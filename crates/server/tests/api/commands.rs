//! Commands reach their nodes despite interruptions.

use bunraku_model::{Activity, Administration, CommandId};
use bunraku_wire::Client;
use bunraku_wire::api::{
    ActivityReceipt, ActivityReport, Command, CommandOutcome, CommandResult, CommandState,
    CommandStatus, Envelope, SendCommand, SentCommand, StreamMessage,
};
use bunraku_wire::client::Lines;
use jiff::Timestamp;

use crate::support::{TestServer, eventually, name, open_stream, soon, status};

async fn send(operator: &Client, nodes: &[&str], ttl_seconds: u64) -> Vec<CommandId> {
    let nodes = nodes.iter().map(|node| name(node)).collect();
    let request = SendCommand {
        nodes,
        command: Command::Ping,
        ttl_seconds,
    };
    let sent: Vec<SentCommand> = operator.post("/v1/commands", &request).await.expect("sent");
    sent.into_iter().map(|sent| sent.id).collect()
}

/// Checks that no earlier command is delivered: the one sent now comes first.
async fn only_the_next_command_comes(server: &TestServer, node: &Client) {
    all_seen(server).await;
    let mut stream = open_stream(node, "web-1").await;
    let next = send(&server.operator, &["web-1"], 600).await[0];
    assert_eq!(next_command(&mut stream).await.id, next);
}

async fn next_command(stream: &mut Lines<StreamMessage>) -> Envelope {
    match soon(stream.next()).await {
        Some(Ok(StreamMessage::Command(envelope))) => envelope,
        other => panic!("a command was expected, not {other:?}"),
    }
}

async fn answer(node: &Client, name: &str, id: CommandId) {
    let result = CommandResult {
        outcome: CommandOutcome::Done,
        message: "pong".to_owned(),
        finished: Timestamp::now(),
    };
    let path = format!("/v1/nodes/{name}/commands/{id}/result");
    node.put::<_, ()>(&path, &result).await.expect("answered");
}

/// Waits until the server has seen every earlier command. Commands arrive in order, across
/// all nodes.
async fn all_seen(server: &TestServer) {
    let node = server.node("last").await;
    let mut stream = open_stream(&node, "last").await;
    let id = send(&server.operator, &["last"], 600).await[0];
    assert_eq!(next_command(&mut stream).await.id, id);
}

async fn state(operator: &Client, name: &str, id: CommandId, wait: u64) -> CommandState {
    let path = format!("/v1/nodes/{name}/commands/{id}?wait_seconds={wait}");
    operator
        .get::<CommandStatus>(&path)
        .await
        .expect("a status")
        .state
}

#[tokio::test]
async fn a_connected_node_gets_a_command_and_its_answer_comes_back() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let mut stream = open_stream(&node, "web-1").await;
    let id = send(&server.operator, &["web-1"], 60).await[0];
    assert_eq!(next_command(&mut stream).await.id, id);
    let operator = server.operator.clone();
    let waiting = tokio::spawn(async move { state(&operator, "web-1", id, 50).await });
    answer(&node, "web-1", id).await;
    assert!(matches!(
        soon(waiting).await.expect("no panic"),
        CommandState::Answered { .. }
    ));
    // The same answer again, as if the reply to the first one was lost.
    answer(&node, "web-1", id).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_command_waits_for_a_node_that_is_away_and_comes_again_until_it_is_answered() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let id = send(&server.operator, &["web-1"], 600).await[0];
    for _ in 0..3 {
        let mut stream = open_stream(&node, "web-1").await;
        assert_eq!(next_command(&mut stream).await.id, id, "not answered yet");
    }
    answer(&node, "web-1", id).await;
    only_the_next_command_comes(&server, &node).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_learns_that_it_is_disabled_at_once_or_when_it_connects() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let mut stream = open_stream(&node, "web-1").await;
    let reason = bunraku_wire::api::DisableRequest {
        reason: "disk".to_owned(),
    };
    let path = "/v1/nodes/web-1/disable";
    server
        .operator
        .post::<_, ()>(path, &reason)
        .await
        .expect("disabled");
    let text = next_command(&mut stream).await;
    let Command::Administer { administration } = text.command else {
        panic!("not {text:?}");
    };
    assert!(matches!(&administration, Administration::Disabled { reason, .. } if reason == "disk"));
    let idle = ActivityReport {
        activity: Activity::Idle {
            since: Timestamp::now(),
        },
    };
    let heard: ActivityReceipt = node
        .put("/v1/nodes/web-1/activity", &idle)
        .await
        .expect("heard");
    assert_eq!(heard.administration, administration);
    server.shutdown().await;
}

#[tokio::test]
async fn a_command_survives_the_server() {
    let mut server = TestServer::start().await;
    let (node, key) = server.node_with_key("web-1").await;
    drop(node);
    let id = send(&server.operator, &["web-1"], 600).await[0];
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    let node = server.known_node("web-1", &key).await;
    assert_eq!(
        next_command(&mut open_stream(&node, "web-1").await)
            .await
            .id,
        id
    );
    server.shutdown().await;
}

#[tokio::test]
async fn many_commands_come_once_each_and_in_order() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let before = send_many(&server.operator, 20).await;
    let mut stream = open_stream(&node, "web-1").await;
    let during = send_many(&server.operator, 20).await;
    let mut seen = Vec::new();
    while seen.len() < 40 {
        seen.push(next_command(&mut stream).await.id);
    }
    assert_eq!(seen, [before, during].concat());
    server.shutdown().await;
}

async fn send_many(operator: &Client, count: usize) -> Vec<CommandId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.extend(send(operator, &["web-1"], 600).await);
    }
    ids
}

#[tokio::test]
async fn a_command_that_is_not_accepted_in_time_is_reported_as_expired() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let id = send(&server.operator, &["web-1"], 1).await[0];
    eventually(async || {
        match state(&server.operator, "web-1", id, 0).await {
            CommandState::Pending { .. } => false,
            // For a moment, until that is recorded.
            CommandState::Expired { .. } => true,
            CommandState::Answered { result } => {
                assert_eq!(result.outcome, CommandOutcome::Expired);
                true
            }
        }
    })
    .await;
    only_the_next_command_comes(&server, &node).await;
    server.shutdown().await;
}

#[tokio::test]
async fn unknown_nodes_and_full_queues_are_refused_and_nothing_is_sent() {
    let mut server =
        TestServer::start_with(|options| options.services.commands.most_pending = 2).await;
    server.node("web-1").await;
    let nodes = vec![name("web-1"), name("web-2")];
    let request = SendCommand {
        nodes,
        command: Command::Ping,
        ttl_seconds: 60,
    };
    let sent = async |request: &SendCommand| -> Result<Vec<SentCommand>, _> {
        server.operator.post("/v1/commands", request).await
    };
    assert_eq!(status(sent(&request).await), 404);
    send(&server.operator, &["web-1"], 60).await;
    send(&server.operator, &["web-1"], 60).await;
    let request = SendCommand {
        nodes: vec![name("web-1")],
        ..request
    };
    assert_eq!(status(sent(&request).await), 429);
    server.shutdown().await;
}

#[tokio::test]
async fn a_newer_connection_takes_over() {
    let mut server = TestServer::start().await;
    let (node, key) = server.node_with_key("web-1").await;
    let mut old = open_stream(&node, "web-1").await;
    let request = bunraku_wire::Request::create(&name("web-1"), &key).expect("a request");
    let reply = server.join(&request, None).await.expect("known");
    let bunraku_wire::api::JoinReply::Signed { certificate, .. } = reply else {
        panic!("known")
    };
    let clone = server.client_with(&certificate, &key);
    let mut new = open_stream(&clone, "web-1").await;
    assert!(matches!(
        soon(old.next()).await,
        Some(Ok(StreamMessage::Superseded))
    ));
    let id = send(&server.operator, &["web-1"], 60).await[0];
    assert_eq!(next_command(&mut new).await.id, id);
    server.shutdown().await;
}

#[tokio::test]
async fn one_unknown_node_among_many_leaves_no_command_behind() {
    let mut server = TestServer::start().await;
    let mut nodes = Vec::new();
    // More than fit into one transaction, so that some are already written.
    for number in 0..130 {
        let node = format!("web-{number}");
        server.node(&node).await;
        nodes.push(name(&node));
    }
    nodes.push(name("nobody"));
    let request = SendCommand {
        nodes,
        command: Command::Ping,
        ttl_seconds: 60,
    };
    let refused = server
        .operator
        .post::<_, Vec<SentCommand>>("/v1/commands", &request);
    assert_eq!(status(refused.await), 404);
    let nodes: Vec<bunraku_wire::api::NodeSummary> =
        server.operator.get("/v1/nodes").await.expect("the nodes");
    assert!(nodes.iter().all(|node| node.pending_commands == 0));
    server.shutdown().await;
}
