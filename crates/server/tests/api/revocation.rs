//! A revoked certificate stops working immediately.

use bunraku_model::Connection;
use bunraku_wire::api::{NodeSummary, RevokeRequest, StreamMessage};
use bunraku_wire::revocation::RevocationList;

use crate::support::{TestServer, open_stream, request, soon, status};

fn reason() -> RevokeRequest {
    RevokeRequest {
        reason: "stolen".to_owned(),
        serial: None,
    }
}

#[tokio::test]
async fn a_revocation_cuts_the_open_stream_and_refuses_the_next_request() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let mut stream = open_stream(&node, "web-1").await;
    server
        .operator
        .post::<_, ()>("/v1/certificates/web-1/revoke", &reason())
        .await
        .expect("revoked");
    loop {
        match soon(stream.next()).await {
            // Not that another agent connected.
            Some(Ok(StreamMessage::Revoked)) => {}
            Some(Ok(message)) => panic!("nothing more may come: {message:?}"),
            Some(Err(_)) | None => break,
        }
    }
    let lost = soon(async {
        loop {
            let node: NodeSummary = server
                .operator
                .get("/v1/nodes/web-1")
                .await
                .expect("a node");
            if let Connection::Lost { reason, .. } = node.status.connection {
                break reason;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(lost.await, "its certificate was revoked");
    let refused = node.get::<NodeSummary>("/v1/nodes/web-1").await;
    assert!(
        refused.is_err(),
        "a new connection with a revoked certificate got {refused:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_request_on_a_connection_that_is_already_open_is_refused() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    node.get::<NodeSummary>("/v1/nodes/web-1")
        .await
        .expect("connected");
    server
        .operator
        .post::<_, ()>("/v1/certificates/web-1/revoke", &reason())
        .await
        .expect("revoked");
    let refused = node.get::<NodeSummary>("/v1/nodes/web-1").await;
    // Refused on the old connection, or cut off and refused at the new handshake.
    assert!(refused.is_err(), "{refused:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn the_list_names_what_is_revoked_and_is_signed_by_the_authority() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    server
        .operator
        .post::<_, ()>("/v1/certificates/web-1/revoke", &reason())
        .await
        .expect("revoked");
    let mut download = server.operator.download("/v1/crl").await.expect("a list");
    let mut text = Vec::new();
    while let Some(chunk) = download.next().await {
        text.extend_from_slice(&chunk.expect("a chunk"));
    }
    let lists = RevocationList::from_pem(&String::from_utf8(text).expect("text")).expect("a list");
    assert_eq!(lists.len(), 1);
    assert_eq!(lists[0].revoked.len(), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn after_a_revocation_the_name_can_join_again_with_a_new_key() {
    let mut server = TestServer::start().await;
    let (_, old_key) = server.node_with_key("web-1").await;
    server
        .operator
        .post::<_, ()>("/v1/certificates/web-1/revoke", &reason())
        .await
        .expect("revoked");
    drop(old_key);
    let token = server.token(None).await;
    let (_, fresh) = request("web-1");
    server
        .join(&fresh, Some(token))
        .await
        .expect("the name is free again");
    server.shutdown().await;
}

#[tokio::test]
async fn a_revocation_survives_a_restart() {
    let mut server = TestServer::start().await;
    let token = server.token(None).await;
    let (key, pem) = request("web-1");
    let reply = server.join(&pem, Some(token)).await.expect("joined");
    let bunraku_wire::api::JoinReply::Signed { certificate, .. } = reply else {
        panic!("signed")
    };
    server
        .operator
        .post::<_, ()>("/v1/certificates/web-1/revoke", &reason())
        .await
        .expect("revoked");
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    let refused = server
        .client_with(&certificate, &key)
        .get::<NodeSummary>("/v1/nodes/web-1")
        .await;
    assert!(refused.is_err(), "{refused:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_removed_node_is_revoked_and_gone() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    node.put::<_, serde_json::Value>("/v1/nodes/web-1/facts", &serde_json::json!({"a": 1}))
        .await
        .expect("facts");
    server
        .operator
        .delete::<()>("/v1/nodes/web-1")
        .await
        .expect("removed");
    assert!(node.get::<NodeSummary>("/v1/nodes/web-1").await.is_err());
    assert_eq!(
        status(server.operator.get::<NodeSummary>("/v1/nodes/web-1").await),
        404
    );
    assert_eq!(
        status(server.operator.delete::<()>("/v1/nodes/web-1").await),
        404
    );
    server.shutdown().await;
}
