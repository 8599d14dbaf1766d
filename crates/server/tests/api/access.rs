//! Access rules of all routes.

use bunraku_wire::Client;
use bunraku_wire::client::ClientError;
use serde_json::{Value, json};

use crate::support::TestServer;

/// Returns every documented route: method, path with made-up names in it.
fn documented(node: &str) -> Vec<(String, String, String)> {
    let document = bunraku_wire::endpoints::openapi_document();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            let filled = path
                .replace("{node}", node)
                .replace("{name}", node)
                .replace("{environment}", "production")
                .replace("{number}", "1")
                .replace("{app}", "app")
                .replace("{lock}", "lock")
                .replace("{trigger}", "trigger")
                .replace("{token}", "1")
                .replace("{module}", "module")
                .replace("{version}", "1.0.0")
                .replace("{rule}", "1")
                .replace("{id}", "00000000-0000-7000-8000-000000000000");
            routes.push((method.to_uppercase(), path.clone(), filled));
        }
    }
    assert!(
        routes.len() > 25,
        "the document has lost its routes: {routes:?}"
    );
    routes
}

async fn call(client: &Client, method: &str, path: &str) -> u16 {
    if method == "GET" && path.ends_with("/stream") {
        return match client.stream::<Value>(path).await {
            Ok(_) => 200,
            Err(error) => error.status().expect("an answer"),
        };
    }
    let body = json!({});
    let outcome: Result<Value, ClientError> = match method {
        "GET" => client.get(path).await,
        "POST" => client.post(path, &body).await,
        "PUT" => client.put(path, &body).await,
        "DELETE" => client.delete(path).await,
        other => panic!("no call for {other}"),
    };
    match outcome {
        Ok(_) => 200,
        // Text replies are not JSON, but they are still replies.
        Err(ClientError::BadReply { .. }) => 200,
        Err(error) => error
            .status()
            .unwrap_or_else(|| panic!("{method} {path}: {error}")),
    }
}

#[tokio::test]
async fn nothing_but_joining_answers_without_a_certificate() {
    let mut server = TestServer::start().await;
    let stranger = server.stranger();
    for (method, template, path) in documented("web-1") {
        let status = call(&stranger, &method, &path).await;
        if ["/v1/join", "/v1/cluster/join", "/v1/cluster/join-over-ssh"]
            .contains(&template.as_str())
        {
            assert_eq!(
                status, 400,
                "joining answers, and refuses a body that is none"
            );
        } else {
            assert_eq!(status, 401, "{method} {template}");
        }
    }
    assert_eq!(
        call(&stranger, "GET", "/nowhere").await,
        401,
        "a stranger learns nothing of what exists"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn the_document_and_the_routes_are_the_same() {
    let mut server = TestServer::start().await;
    let served: Value = server
        .operator
        .get("/v1/openapi.json")
        .await
        .expect("the document");
    assert_eq!(served, bunraku_wire::endpoints::openapi_document());
    let routes = documented("web-1");
    for (_, template, path) in &routes {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let known = routes
                .iter()
                .any(|(known, other, _)| known == method && other == template);
            let status = call(&server.operator, method, path).await;
            if known {
                assert_ne!(status, 405, "{method} {template} is documented");
            } else {
                assert_eq!(status, 405, "{method} {template} is not documented");
            }
        }
    }
    assert_eq!(call(&server.operator, "GET", "/v1/nothing").await, 404);
    server.shutdown().await;
}

#[tokio::test]
async fn bodies_that_are_wrong_are_refused_with_the_reason() {
    let mut server = TestServer::start_with(|options| options.router.body_limit = 2_000).await;
    let wrong: Result<Value, _> = server
        .operator
        .post("/v1/tokens", &json!({"ttl_seconds": "long"}))
        .await;
    let message = wrong.expect_err("a wrong type").to_string();
    assert!(
        message.contains("ttl_seconds") || message.contains("expected u64"),
        "{message}"
    );
    let large: Result<Value, _> = server
        .operator
        .post("/v1/tokens", &json!({"node": "a".repeat(4_000)}))
        .await;
    assert_eq!(large.expect_err("too large").status(), Some(413));
    server.shutdown().await;
}

#[tokio::test]
async fn parameters_that_are_wrong_are_refused_with_the_json_error() {
    let mut server = TestServer::start().await;
    for path in [
        "/v1/reports?limit=abc",
        "/v1/reports?node=not%20a%20node",
        "/v1/reports?failed=perhaps",
        "/v1/catalogs/not-an-id",
        "/v1/nodes/web%2F1",
        "/v1/environments/production/deploys/last",
        "/v1/releases/production/newest",
        "/v1/nodes/%FF",
    ] {
        let refused: Result<Value, _> = server.operator.get(path).await;
        match refused.expect_err(path) {
            ClientError::Api {
                status, problem, ..
            } => {
                assert_eq!(status, 400, "{path}");
                assert_eq!(problem.code, "invalid", "{path}");
                assert!(!problem.message.is_empty(), "{path}");
            }
            other => panic!("{path}: {other}"),
        }
    }
    server.shutdown().await;
}
