//! Webhooks as GitHub and others send them, with `curl` as the sender.

use std::process::Command;

use aws_lc_rs::hmac;
use bunraku_wire::api::{DeployState, HookReply};
use serde_json::{Value, json};

use crate::repository::{add, deploy, finished, node, site_repository};
use crate::support::TestServer;

/// Returns the status and the body of a delivery.
fn deliver(
    server: &TestServer,
    environment: &str,
    body: &str,
    signature: Option<&str>,
) -> (u16, Value) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--max-time", "60"])
        .args(["--write-out", "\n%{http_code}", "--data-binary", body])
        .args(["--header", "X-GitHub-Event: push"])
        .arg(format!(
            "https://{}/v1/hooks/{environment}",
            server.address()
        ));
    if let Some(signature) = signature {
        curl.args(["--header", &format!("X-Hub-Signature-256: {signature}")]);
    }
    let output = curl.output().expect("curl runs; scripts/setup installs it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').expect("a status");
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    (status.parse().expect("a number"), body)
}

fn sign(secret: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, body.as_bytes());
    format!("sha256={}", hex::encode(tag.as_ref()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_delivery_deploys_and_a_replayed_one_changes_nothing() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let repository = site_repository("one");
    let secret = add(&server, "production", &repository.url())
        .await
        .hook_secret;
    let secret = secret.expect("shown once");
    let body = json!({"ref": "refs/heads/main"}).to_string();
    let signature = sign(&secret, &body);
    let (status, reply) = deliver(&server, "production", &body, Some(&signature));
    assert_eq!(status, 200, "{reply}");
    let reply: HookReply = serde_json::from_value(reply).expect("a reply");
    let first = finished(&server, "production", reply.deploy.expect("a deploy")).await;
    assert!(matches!(first.deploy.state, DeployState::Deployed { .. }));
    assert_eq!(first.progress.compiled, 1);

    let (_, reply) = deliver(&server, "production", &body, Some(&signature));
    let reply: HookReply = serde_json::from_value(reply).expect("a reply");
    let again = finished(&server, "production", reply.deploy.expect("a deploy")).await;
    assert!(
        matches!(again.deploy.state, DeployState::Unchanged { .. }),
        "{:?}",
        again.deploy.state
    );

    let other = json!({"ref": "refs/heads/other"}).to_string();
    let (status, reply) = deliver(&server, "production", &other, Some(&sign(&secret, &other)));
    assert_eq!((status, &reply["deploy"]), (200, &Value::Null), "{reply}");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_signed_right_is_refused_alike_whatever_it_names() {
    let mut server = TestServer::start().await;
    let repository = site_repository("one");
    let secret = add(&server, "production", &repository.url())
        .await
        .hook_secret;
    let secret = secret.expect("shown once");
    let body = "{}";
    let good = sign(&secret, body);
    let mut bent = good.clone();
    bent.replace_range(10..11, if &good[10..11] == "0" { "1" } else { "0" });
    let other = sign("other", body);
    let refused = [
        deliver(&server, "production", body, None),
        deliver(&server, "production", body, Some(&bent)),
        deliver(&server, "production", body, Some(&other)),
        deliver(&server, "production", "{ }", Some(&good)),
        deliver(&server, "nowhere", body, Some(&good)),
        deliver(&server, "No_Name", body, Some(&good)),
    ];
    for (status, reply) in &refused {
        assert_eq!((*status, reply), (401, &refused[0].1));
    }
    let detail: Value = server
        .operator
        .get("/v1/environments/production")
        .await
        .expect("an environment");
    assert_eq!(detail["deploys"], json!([]), "nothing was asked for");
    // The correct secret works.
    let (status, _) = deliver(&server, "production", body, Some(&good));
    assert_eq!(status, 200);
    deploy(&server, "production").await;
    server.shutdown().await;
}
