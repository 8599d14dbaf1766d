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
async fn each_role_reaches_its_own_things_and_nothing_else() {
    let mut server = TestServer::start().await;
    let own = server.node("web-1").await;
    let other = server.node("web-2").await;
    let anyone = [
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/openapi.json",
        "/v1/server",
        "/v1/authority",
        "/v1/crl",
        "/v1/join",
        "/v1/cluster/join",
        "/v1/cluster/join-over-ssh",
        "/v1/servers",
        "/v1/once/{app}/standing",
        "/v1/once/{app}/definition",
        "/v1/once/{app}/claims",
        "/v1/once/{app}/claims/{token}",
        "/v1/once/{app}/claims/{token}/outcome",
        "/v1/once/{app}/attempts/{token}",
        "/v1/locks",
        "/v1/locks/{lock}/acquire",
        "/v1/locks/{lock}/lease",
        "/v1/locks/{lock}/release",
        "/v1/locks/{lock}/leave",
        "/v1/triggers/{trigger}/fire",
        "/v1/module-keys/revoked",
        "/v1/query",
    ];
    let own_only = [
        "PUT /v1/nodes/{node}/activity",
        "PUT /v1/nodes/{node}/queue",
        "POST /v1/nodes/{node}/reports/{id}/events",
        "PUT /v1/nodes/{node}/facts",
        "GET /v1/nodes/{node}/stream",
        "GET /v1/nodes/{node}/inputs",
        "PUT /v1/nodes/{node}/commands/{id}/result",
    ];
    let own_or_operator = [
        "GET /v1/nodes/{node}",
        "GET /v1/nodes/{node}/facts",
        "GET /v1/nodes/{node}/target",
        "GET /v1/nodes/{node}/plugins",
        "GET /v1/nodes/{node}/catalogs/{id}",
        "PUT /v1/once/{app}/fragments/{node}",
        "DELETE /v1/once/{app}/fragments/{node}",
        "GET /v1/nodes/{node}/facts/history",
        "GET /v1/nodes/{node}/facts/difference",
        "GET /v1/nodes/{node}/target",
        "GET /v1/nodes/{node}/catalogs/{id}",
        "GET /v1/nodes/{node}/queue",
    ];
    for (method, template, path) in documented("web-1") {
        // These calls remove the node that the other calls use.
        if (method.as_str(), template.as_str()) == ("DELETE", "/v1/nodes/{node}")
            || template.ends_with("/revoke")
            // Any signed request is accepted, with any certificate or none.
            || template.starts_with("/v1/hooks/")
            || template.ends_with("/hook")
        {
            continue;
        }
        let route = format!("{method} {template}");
        let any = anyone.contains(&template.as_str())
            || template == "/v1/certificates/renew"
            || template == "/v1/content/{id}"
            || route == "GET /v1/locks/{lock}";
        let node_may =
            any || own_only.contains(&route.as_str()) || own_or_operator.contains(&route.as_str());
        let operator_may = !own_only.contains(&route.as_str());
        let callers = [
            ("own", &own, node_may),
            ("other", &other, any),
            ("operator", &server.operator, operator_may),
        ];
        for (who, client, may) in callers {
            let status = call(client, &method, &path).await;
            assert_eq!(status == 403, !may, "{who}: {route} answered {status}");
            assert_ne!(status, 401, "{who}: {route}");
            assert_ne!(status, 405, "{who}: {route}");
            assert!(status < 500, "{who}: {route} answered {status}");
        }
    }
    for (method, path) in [
        ("DELETE", "/v1/nodes/web-1"),
        ("POST", "/v1/certificates/web-1/revoke"),
    ] {
        assert_eq!(call(&own, method, path).await, 403, "{method} {path}");
    }
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
