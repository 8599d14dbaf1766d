//! The client against a real HTTP server on loopback.

use bunraku_testkit::soon;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{
    self, TestServer, authority, client, client_tls, identity, options, server_tls,
};
use bunraku_model::Role;
use bunraku_wire::client::{Client, ClientError, ServerAddress, TlsRefusal};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
    let connections = server.connections.load(Ordering::SeqCst);
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
    // The connection still works for other requests.
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

#[tokio::test]
async fn what_is_safe_to_repeat_is_repeated_when_the_server_dies_in_the_middle() {
    let authority = authority();
    let mut first = TestServer::start(&server_tls(&authority)).await;
    let second = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&first, &second]);
    first.hangs.store(true, Ordering::SeqCst);
    let under_way = tokio::spawn(async move { client.get::<Value>("/who").await });
    first.arrived(1).await;
    first.die().await;
    under_way.await.unwrap().unwrap();
    assert_eq!(second.requests(), 1);
}

#[tokio::test]
async fn a_post_that_may_have_arrived_is_never_sent_again() {
    let authority = authority();
    let mut first = TestServer::start(&server_tls(&authority)).await;
    let second = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&first, &second]);
    first.hangs.store(true, Ordering::SeqCst);
    let sender = client.clone();
    let under_way = tokio::spawn(async move { sender.post::<_, Value>("/echo", &1).await });
    first.arrived(1).await;
    first.die().await;
    let error = under_way.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
    assert_eq!(second.requests(), 0);
    // A new request goes to the remaining server.
    assert_eq!(client.post::<_, u8>("/echo", &2).await.unwrap(), 2);
}

#[tokio::test]
async fn when_no_server_can_be_reached_the_error_names_each() {
    let authority = authority();
    let mut first = TestServer::start(&server_tls(&authority)).await;
    let mut second = TestServer::start(&server_tls(&authority)).await;
    first.die().await;
    second.die().await;
    let client = client(&authority, &[&first, &second]);
    let error = client.post::<_, Value>("/echo", &1).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::NoServer { .. }), "{error:?}");
    assert!(text.contains(&first.address().to_string()), "{text}");
    assert!(text.contains(&second.address().to_string()), "{text}");
    assert!(text.contains("refused"), "{text}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn a_patient_client_waits_until_a_server_comes() {
    let authority = authority();
    let tls = server_tls(&authority);
    let mut gone = TestServer::start(&tls).await;
    gone.die().await;
    let node = identity(&authority, "node1", Role::Node);
    let mut options = options(&[&gone], client_tls(&authority, Some(node)));
    options.patience = Duration::from_secs(60);
    options.back_off.first = Duration::from_millis(20);
    options.back_off.longest = Duration::from_millis(50);
    let client = Client::new(options);
    // A listener accepts connections there and closes them, so attempts can be counted.
    let closing = tokio::net::TcpListener::bind(gone.local).await.unwrap();
    let waiting = tokio::spawn(async move { client.post::<_, u8>("/echo", &1).await });
    for _ in 0..3 {
        drop(soon(closing.accept()).await.unwrap());
    }
    assert!(!waiting.is_finished());
    drop(closing);
    let _back = TestServer::start_at(&tls, gone.local).await;
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_is_passed_over() {
    let authority = authority();
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = TestServer::start(&server_tls(&authority)).await;
    let node = identity(&authority, "node1", Role::Node);
    let mut options = options(&[&server], client_tls(&authority, Some(node)));
    let port = mute.local_addr().unwrap().port();
    options
        .servers
        .insert(0, ServerAddress::new("127.0.0.1", port).unwrap());
    options.connect_timeout = Duration::from_millis(500);
    let client = Client::new(options);
    client.get::<Value>("/who").await.unwrap();
    assert_eq!(client.server().await, Some(server.address()));
}

#[tokio::test]
async fn something_else_at_the_address_is_recognised() {
    let authority = authority();
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = other.accept().await.unwrap();
            let reply = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(reply).await;
            // Wait for the other side, so that a reset does not discard the reply.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut options = options(&[&server], client_tls(&authority, None));
    options.servers = vec![ServerAddress::new("127.0.0.1", port).unwrap()];
    let error = Client::new(options).get::<Value>("/who").await.unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Refused {
                refusal: TlsRefusal::NotAServer,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_error_of_the_api_brings_its_code_and_hint() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    match client.get::<Value>("/nowhere").await.unwrap_err() {
        ClientError::Api {
            status, problem, ..
        } => {
            assert_eq!(status, 404);
            assert_eq!(problem.code, "not_found");
            assert_eq!(problem.message, "there is nothing here");
            assert_eq!(problem.hint.as_deref(), Some("look elsewhere"));
        }
        other => panic!("{other:?}"),
    }
    let error = client.get::<Value>("/broken").await.unwrap_err();
    assert_eq!(error.to_string(), "the server answered 502 Bad Gateway");
    assert!(error.is_passing());
}

#[tokio::test]
async fn a_reply_that_is_not_json_or_too_large_is_a_bad_reply() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let node = identity(&authority, "node1", Role::Node);
    let mut options = options(&[&server], client_tls(&authority, Some(node)));
    options.largest_reply = 1 << 20;
    let client = Client::new(options);
    for path in ["/garbage", "/large"] {
        let error = client.get::<Value>(path).await.unwrap_err();
        assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
    }
    let error = client.get::<u32>("/who").await.unwrap_err();
    assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
}

#[tokio::test]
async fn a_path_that_is_none_is_refused_before_it_is_sent() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    for path in ["", "no-slash", "/a b", "/\n"] {
        let error = client.get::<Value>(path).await.unwrap_err();
        assert!(
            matches!(error, ClientError::InvalidPath(_)),
            "{path:?}: {error:?}"
        );
    }
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_server_that_leaves_politely_loses_no_request_and_repeats_none() {
    let authority = authority();
    let first = TestServer::start(&server_tls(&authority)).await;
    let second = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&first, &second]);
    // A long-lived stream keeps the old server alive while it drains.
    let mut lines = client.stream::<Value>("/silent").await.unwrap();
    lines.next().await.unwrap().unwrap();
    let posts = (0..300_u32).map(|number| {
        let (client, first) = (client.clone(), &first);
        async move {
            if number == 150 {
                first.drain();
            }
            let reply: u32 = client.post("/echo", &number).await.unwrap();
            assert_eq!(reply, number);
        }
    });
    futures::stream::iter(posts)
        .buffer_unordered(8)
        .collect::<()>()
        .await;
    assert_eq!(first.requests() + second.requests(), 301);
    assert!(second.requests() > 0);
    assert_eq!(client.server().await, Some(second.address()));
}

#[tokio::test]
async fn a_shared_connection_that_went_dead_is_noticed_by_pings() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let (address, stop) = support::relay(server.local).await;
    let node = identity(&authority, "node1", Role::Node);
    let mut options = options(&[&server], client_tls(&authority, Some(node)));
    options.servers.insert(0, address);
    options.keep_alive = Some(Duration::from_millis(300));
    let client = Client::new(options);
    let sender = client.clone();
    let under_way = tokio::spawn(async move { sender.post::<_, Value>("/slow", &1).await });
    server.arrived(1).await;
    // From now on, every packet is silently lost.
    stop.send_replace(true);
    let error = under_way.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
    client.get::<Value>("/who").await.unwrap();
    assert_eq!(client.server().await, Some(server.address()));
}

#[tokio::test]
async fn without_any_server_the_error_says_so() {
    let authority = authority();
    let options = options(&[], client_tls(&authority, None));
    let error = Client::new(options).get::<Value>("/who").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot reach any server: none is configured"
    );
}
