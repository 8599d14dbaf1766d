//! A node that knows its target, and asks whether there is a newer one.

use std::sync::Arc;

use bunraku_model::Role;
use bunraku_wire::api::{IssueRequest, IssuedCertificate};
use bunraku_wire::key::KeyKind;
use bunraku_wire::tls::{ClientTls, Identity};
use bunraku_wire::{PrivateKey, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::StatusCode;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::server_process::{ServerProcess, name};

pub(crate) struct AskingNode {
    sender: SendRequest<Empty<Bytes>>,
    path: String,
    entity_tag: String,
}

impl AskingNode {
    /// Connects and fetches the node's target.
    pub(crate) async fn connect(server: &ServerProcess, number: u64) -> Self {
        let stream = TcpStream::connect(server.address).await.expect("connected");
        stream.set_nodelay(true).expect("a TCP connection");
        let host = "127.0.0.1".try_into().expect("a name");
        let connector = TlsConnector::from(Arc::new(tls(server, number).await));
        let stream = connector.connect(host, stream).await.expect("TLS");
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/1.1");
        tokio::spawn(connection);
        let mut node = Self {
            sender,
            path: format!("/v1/nodes/{}/target", name(number)),
            entity_tag: "\"none\"".to_owned(),
        };
        let (status, entity_tag) = node.send().await;
        assert_eq!(status, StatusCode::OK, "it has a target");
        node.entity_tag = entity_tag;
        node
    }

    /// Asks once, and expects nothing newer.
    pub(crate) async fn ask(&mut self) {
        let (status, _) = self.send().await;
        assert_eq!(status, StatusCode::NOT_MODIFIED);
    }

    async fn send(&mut self) -> (StatusCode, String) {
        let request = hyper::Request::get(&self.path)
            .header("host", "127.0.0.1")
            .header("if-none-match", &self.entity_tag)
            .body(Empty::new())
            .expect("a request");
        self.sender.ready().await.expect("the connection is kept");
        let reply = self.sender.send_request(request).await.expect("a reply");
        let status = reply.status();
        let tag = reply.headers().get("etag").expect("a tag");
        let tag = tag.to_str().expect("ASCII").to_owned();
        reply.into_body().collect().await.expect("its body");
        (status, tag)
    }
}

/// Creates a TLS configuration with a certificate in the node's name.
async fn tls(server: &ServerProcess, number: u64) -> tokio_rustls::rustls::ClientConfig {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).expect("a key");
    let issue = IssueRequest {
        certificate_request: Request::create(&name(number), &key).expect("a request"),
        role: Role::Node,
        server_names: Vec::new(),
        groups: std::collections::BTreeSet::new(),
        proof: None,
    };
    let issued = server.operator.post("/v1/certificates/issue", &issue).await;
    let issued: IssuedCertificate = issued.expect("issued");
    let tls = ClientTls {
        authority_pem: server.authority_pem.clone(),
        revocation_lists_pem: String::new(),
        identity: Some(Identity::from_pem(&issued.certificate, &key).expect("an identity")),
    };
    let mut tls = tls.config().expect("TLS");
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    tls
}
