//! Nodes join and get their certificates.

use bunraku_model::Role;
use bunraku_wire::api::{
    CertificateEntry, IssuedCertificate, JoinReply, JoinRequest, NodeSummary, PendingRequest,
    RenewRequest, SignRequest, TokenEntry, TokenRequest,
};
use bunraku_wire::certificate::Certificate;
use bunraku_wire::client::{Client, ClientError};
use serde_json::{Value, json};

use crate::support::{TestServer, name, request, soon, status};

#[tokio::test]
async fn a_token_lets_one_node_in_once() {
    let mut server = TestServer::start().await;
    let token = server.token(None).await;
    let (_, first) = request("web-1");
    let (_, second) = request("web-2");
    assert!(matches!(
        server.join(&first, Some(token.clone())).await,
        Ok(JoinReply::Signed { .. })
    ));
    assert_eq!(
        status(server.join(&second, Some(token.clone())).await),
        403,
        "it was used"
    );
    // The reply to the first node may have been lost, so the same request is answered again.
    assert!(matches!(
        server.join(&first, Some(token)).await,
        Ok(JoinReply::Signed { .. })
    ));
    let tokens: Vec<TokenEntry> = server.operator.get("/v1/tokens").await.expect("tokens");
    assert!(tokens.is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn a_token_for_one_node_lets_no_other_in() {
    let mut server = TestServer::start().await;
    let token = server.token(Some("web-1")).await;
    let (_, other) = request("web-2");
    assert_eq!(status(server.join(&other, Some(token.clone())).await), 403);
    let (_, right) = request("web-1");
    assert!(matches!(
        server.join(&right, Some(token)).await,
        Ok(JoinReply::Signed { .. })
    ));
    server.shutdown().await;
}

#[tokio::test]
async fn a_revoked_or_invented_token_lets_no_node_join() {
    let mut server = TestServer::start().await;
    let token = server.token(None).await;
    let tokens: Vec<TokenEntry> = server.operator.get("/v1/tokens").await.expect("tokens");
    server
        .operator
        .delete::<()>(&format!("/v1/tokens/{}", tokens[0].id))
        .await
        .expect("taken back");
    let (_, request) = request("web-1");
    assert_eq!(status(server.join(&request, Some(token)).await), 403);
    assert_eq!(
        status(server.join(&request, Some("made-up".to_owned())).await),
        403
    );
    let zero = TokenRequest {
        ttl_seconds: 0,
        node: None,
    };
    let refused: Result<Value, _> = server.operator.post("/v1/tokens", &zero).await;
    assert_eq!(status(refused), 400);
    server.shutdown().await;
}

async fn exactly_one_is_signed(
    joins: impl IntoIterator<Item = impl Future<Output = Result<JoinReply, ClientError>>>,
) {
    let outcomes = futures::future::join_all(joins).await;
    let signed = outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(JoinReply::Signed { .. })))
        .count();
    assert_eq!(signed, 1, "{outcomes:?}");
}

#[tokio::test]
async fn of_many_that_use_one_token_at_once_one_gets_in() {
    let mut server = TestServer::start().await;
    let token = server.token(None).await;
    let requests: Vec<String> = (0..8)
        .map(|number| request(&format!("web-{number}")).1)
        .collect();
    let joins = requests
        .iter()
        .map(|request| server.join(request, Some(token.clone())));
    exactly_one_is_signed(joins).await;
    server.shutdown().await;
}

#[tokio::test]
async fn of_many_keys_for_one_name_at_once_one_gets_it() {
    let mut server = TestServer::start().await;
    let mut attempts = Vec::new();
    for _ in 0..8 {
        attempts.push((server.token(None).await, request("web-1").1));
    }
    let joins = attempts
        .iter()
        .map(|(token, request)| server.join(request, Some(token.clone())));
    exactly_one_is_signed(joins).await;
    let certificates: Vec<CertificateEntry> = server
        .operator
        .get("/v1/certificates")
        .await
        .expect("certificates");
    assert_eq!(
        certificates
            .iter()
            .filter(|entry| entry.name == name("web-1"))
            .count(),
        1
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_name_with_a_valid_certificate_is_not_given_to_another_key() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let (_, other) = request("web-1");
    let token = server.token(None).await;
    assert_eq!(status(server.join(&other, Some(token)).await), 409);
    assert_eq!(status(server.join(&other, None).await), 409);
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_with_the_name_of_a_server_is_told_to_choose_another() {
    let mut server = TestServer::start().await;
    let all: Vec<CertificateEntry> =
        (server.operator.get("/v1/certificates").await).expect("certificates");
    let own = all.iter().find(|entry| entry.role == Role::Server);
    let own = own.expect("the server's").name.to_string();
    let token = server.token(None).await;
    let (_, request) = request(&own);
    let refused = server.join(&request, Some(token)).await;
    let error = refused.expect_err("a name of a server");
    assert!(
        error.to_string().contains("is the name of a server"),
        "{error}"
    );
    let hint = error.hint().unwrap_or_default();
    assert!(hint.contains("--name"), "{hint}");
    assert!(!hint.contains("revoke"), "{hint}");
    server.shutdown().await;
}

#[tokio::test]
async fn without_a_token_a_request_waits_until_an_operator_signs_it() {
    let mut server = TestServer::start().await;
    let (key, pem) = request("web-1");
    let waiting = server.join(&pem, None).await.expect("queued");
    let JoinReply::Waiting { fingerprint } = waiting else {
        panic!("nobody signed it yet")
    };
    let pending: Vec<PendingRequest> = server
        .operator
        .get("/v1/certificate-requests")
        .await
        .expect("requests");
    assert_eq!((pending.len(), &pending[0].fingerprint), (1, &fingerprint));
    let stranger = server.stranger();
    let long = JoinRequest {
        certificate_request: pem,
        token: None,
        wait_seconds: 50,
    };
    let joining =
        tokio::spawn(async move { stranger.post::<_, JoinReply>("/v1/join", &long).await });
    let path = "/v1/certificate-requests/web-1/sign";
    let wrong = SignRequest {
        fingerprint: "SHA256:00".to_owned(),
    };
    assert_eq!(
        status(server.operator.post::<_, ()>(path, &wrong).await),
        409,
        "a different request"
    );
    let right = SignRequest { fingerprint };
    server
        .operator
        .post::<_, ()>(path, &right)
        .await
        .expect("signed");
    let reply = soon(joining).await.expect("no panic").expect("an answer");
    let JoinReply::Signed { certificate, .. } = reply else {
        panic!("it was signed")
    };
    let node = server.client_with(&certificate, &key);
    node.get::<NodeSummary>("/v1/nodes/web-1")
        .await
        .expect("the certificate is good");
    server.shutdown().await;
}

#[tokio::test]
async fn a_pending_request_blocks_no_other_key_and_its_fingerprint_decides() {
    let mut server = TestServer::start().await;
    let (squatter, own) = (request("web-1"), request("web-1"));
    server.join(&squatter.1, None).await.expect("queued");
    let JoinReply::Waiting { fingerprint } = server.join(&own.1, None).await.expect("queued")
    else {
        panic!("nobody signed it yet")
    };
    let third = server.join(&request("web-1").1, None).await;
    assert_eq!(status(third), 429, "one address does not use all places");
    let pending: Vec<PendingRequest> = server
        .operator
        .get("/v1/certificate-requests")
        .await
        .expect("requests");
    assert_eq!(pending.len(), 2);
    let path = "/v1/certificate-requests/web-1/sign";
    let none = serde_json::json!({});
    let unnamed = server.operator.post::<_, ()>(path, &none).await;
    assert_eq!(status(unnamed), 400, "a fingerprint is required");
    let sign = SignRequest { fingerprint };
    let signed = server.operator.post::<_, ()>(path, &sign).await;
    signed.expect("signed");
    assert!(matches!(
        server.join(&own.1, None).await,
        Ok(JoinReply::Signed { .. })
    ));
    assert_eq!(status(server.join(&squatter.1, None).await), 409);
    server.queue_request("web-2").await;
    server.reject_request("web-2").await;
    server.shutdown().await;
}

/// A server that keeps at most this number of pending requests.
async fn server_with_room_for(requests: usize) -> TestServer {
    TestServer::start_with(|options| options.services.certificates.most_waiting = requests).await
}

#[tokio::test]
async fn a_pending_request_that_nobody_repeats_expires() {
    let mut server = server_with_room_for(1).await;
    server.sent_since("web-1", 25).await;
    let pending: Vec<PendingRequest> = server
        .operator
        .get("/v1/certificate-requests")
        .await
        .expect("requests");
    assert_eq!(pending, []);
    server
        .join(&request("web-2").1, None)
        .await
        .expect("its place is free");
    let more = server.join(&request("web-3").1, None).await;
    assert_eq!(status(more), 429, "a newer one stays");
    server.shutdown().await;
}

#[tokio::test]
async fn a_request_of_an_earlier_version_can_be_signed() {
    let mut server = TestServer::start().await;
    let (_, pem) = request("web-1");
    let JoinReply::Waiting { fingerprint } = server.join(&pem, None).await.expect("queued") else {
        panic!("nobody signed it yet")
    };
    use bunraku_store::Store as _;
    let key = "certificate-requests/web-1";
    let store = server.store().clone();
    let entry = store.get(key).await.expect("read").expect("a request");
    let list: serde_json::Value = serde_json::from_slice(&entry.value).expect("JSON");
    let put = bunraku_store::Transaction::new().put(key, list[0].to_string());
    store.commit(put).await.expect("stored as before");
    let sign = SignRequest { fingerprint };
    let path = "/v1/certificate-requests/web-1/sign";
    let signed = server.operator.post::<_, ()>(path, &sign).await;
    signed.expect("signed");
    server.shutdown().await;
}

#[tokio::test]
async fn a_request_can_be_rejected_and_sent_again() {
    let mut server = TestServer::start().await;
    server.queue_request("web-1").await;
    server.reject_request("web-1").await;
    server.queue_request("web-1").await;
    server.shutdown().await;
}

#[tokio::test]
async fn strangers_cannot_fill_the_store_with_requests() {
    let mut server = server_with_room_for(3).await;
    for number in 0..3 {
        server
            .join(&request(&format!("web-{number}")).1, None)
            .await
            .expect("queued");
    }
    assert_eq!(status(server.join(&request("web-3").1, None).await), 429);
    server.shutdown().await;
}

#[tokio::test]
async fn garbage_is_refused_as_a_request() {
    let mut server = TestServer::start().await;
    for pem in [
        "",
        "hello",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ] {
        assert_eq!(status(server.join(pem, None).await), 400, "{pem:?}");
    }
    server.shutdown().await;
}

async fn renew(
    node: &Client,
    certificate_request: String,
) -> Result<IssuedCertificate, ClientError> {
    let request = RenewRequest {
        certificate_request,
        proof: None,
    };
    node.post("/v1/certificates/renew", &request).await
}

#[tokio::test]
async fn a_renewal_keeps_name_and_role() {
    let mut server = TestServer::start().await;
    let (certificate, old_key) = server.joined_since("web-1", 300 * 24).await;
    let node = server.client_with(&certificate, &old_key);
    let (key, pem) = request("web-1");
    let renewed = renew(&node, pem).await.expect("renewed");
    let certificate = Certificate::from_pem(&renewed.certificate).expect("a certificate");
    assert_eq!(
        (certificate.name().expect("a name"), certificate.role),
        (name("web-1"), Role::Node)
    );
    server
        .client_with(&renewed.certificate, &key)
        .get::<NodeSummary>("/v1/nodes/web-1")
        .await
        .expect("it is good");
    let (_, other) = request("web-2");
    assert_eq!(status(renew(&node, other).await), 403);
    server.shutdown().await;
}

#[tokio::test]
async fn an_operator_makes_another_operator() {
    let mut server = TestServer::start().await;
    let alice = server.operator("alice", &[]).await;
    alice
        .get::<Vec<NodeSummary>>("/v1/nodes")
        .await
        .expect("an operator reads the list");
    assert_eq!(
        status(
            alice
                .put::<_, Value>("/v1/nodes/alice/facts", &json!({}))
                .await
        ),
        403,
        "and is no node"
    );
    server.shutdown().await;
}
