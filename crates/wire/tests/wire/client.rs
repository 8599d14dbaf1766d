//! The client against a real HTTP/2 server on loopback.

use std::time::Duration;

use crate::support::{TestServer, authority, client, client_tls, identity, options, server_tls};
use bunraku_model::Role;
use bunraku_wire::client::{Client, ClientError};
use serde_json::{Value, json};

#[tokio::test]
async fn a_request_says_who_asks() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let reply: Value = client(&authority, &[&server]).get("/who").await.unwrap();
    assert_eq!(reply, json!({"name": "node1", "role": "node"}));

    let operator = identity(&authority, "alice", Role::Operator);
    let client = Client::new(options(&[&server], client_tls(&authority, Some(operator))));
    let reply: Value = client.get("/who").await.unwrap();
    assert_eq!(reply, json!({"name": "alice", "role": "operator"}));
}

#[tokio::test]
async fn values_go_there_and_back() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let value = json!({"ä": [1, 2, {"x": null}]});
    let reply: Value = client.post("/echo", &value).await.unwrap();
    assert_eq!(reply, value);
    let reply: Value = client.put("/echo", &value).await.unwrap();
    assert_eq!(reply, value);
    client.delete::<()>("/empty").await.unwrap();
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let requests = (0..100).map(|number| {
        let client = client.clone();
        async move {
            let reply: u32 = client.post("/echo", &number).await.unwrap();
            assert_eq!(reply, number);
        }
    });
    futures::future::join_all(requests).await;
    let connections = server.connections.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(connections, 1);
}

#[tokio::test]
async fn without_a_certificate_only_the_open_routes_answer() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = Client::new(options(&[&server], client_tls(&authority, None)));
    assert_eq!(client.get::<String>("/open").await.unwrap(), "welcome");
    let error = client.get::<Value>("/who").await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(error.hint().as_deref(), Some("join first"));
}

#[tokio::test]
async fn a_slow_server_is_a_timeout() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut options = options(
        &[&server],
        client_tls(&authority, Some(identity(&authority, "node1", Role::Node))),
    );
    options.request_timeout = Duration::from_millis(300);
    let client = Client::new(options);
    let error = client.get::<Value>("/slow").await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    assert!(error.is_passing());
    // The connection is still good for others.
    client.get::<Value>("/who").await.unwrap();
}

#[tokio::test]
async fn when_the_server_dies_the_next_one_takes_over() {
    let authority = authority();
    let mut first = TestServer::start(&server_tls(&authority)).await;
    let second = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&first, &second]);
    client.get::<Value>("/who").await.unwrap();
    assert_eq!(client.server().await, Some(first.address()));
    first.die().await;
    client.get::<Value>("/who").await.unwrap();
    assert_eq!(client.server().await, Some(second.address()));
    assert_eq!((first.requests(), second.requests()), (1, 1));
}
