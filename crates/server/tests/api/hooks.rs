//! Webhooks as GitHub and others send them, with `curl` as the sender.

use std::ffi::OsStr;
use std::process::Command;

use aws_lc_rs::hmac;
use bunraku_wire::api::{DeployState, HookReply};
use serde_json::{Value, json};

use crate::repository::{add, ask, deploy, finished, node, site_repository};
use crate::support::{TestServer, status as status_of};

/// Returns the status and the body of a delivery.
fn deliver(
    server: &TestServer,
    environment: &str,
    body: &str,
    signature: Option<&str>,
) -> (u16, Value) {
    let mut headers = vec!["X-GitHub-Event: push".to_owned()];
    headers.extend(signature.map(|signature| format!("X-Hub-Signature-256: {signature}")));
    deliver_with(server, environment, body, &headers)
}

/// Like [`deliver`], with any headers.
fn deliver_with(
    server: &TestServer,
    environment: &str,
    body: &str,
    headers: &[String],
) -> (u16, Value) {
    let path = format!("/v1/hooks/{environment}");
    deliver_to(server, &path, body, headers)
}

/// Delivers to any hook.
pub(crate) fn deliver_to(
    server: &TestServer,
    path: &str,
    body: &str,
    headers: &[impl AsRef<OsStr>],
) -> (u16, Value) {
    // A file, because arguments cannot be as long as bodies.
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), body).expect("written");
    let data = format!("@{}", file.path().display());
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--max-time", "60"])
        .args(["--write-out", "\n%{http_code}", "--data-binary", &data])
        .arg(format!("https://{}{path}", server.address()));
    for header in headers {
        curl.arg("--header").arg(header);
    }
    let output = curl.output().expect("curl runs; scripts/setup installs it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').expect("a status");
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    (status.parse().expect("a number"), body)
}

async fn production(server: &TestServer) -> Value {
    let detail = server.operator.get("/v1/environments/production").await;
    detail.expect("an environment")
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
    let detail = production(&server).await;
    assert_eq!(detail["deploys"], json!([]), "nothing was asked for");
    // The correct secret works.
    let (status, _) = deliver(&server, "production", body, Some(&good));
    assert_eq!(status, 200);
    deploy(&server, "production").await;
    server.shutdown().await;
}

/// The headers of a push as GitLab sends it.
pub(crate) fn gitlab(token: &str) -> Vec<String> {
    vec![
        "X-Gitlab-Event: Push Hook".to_owned(),
        format!("X-Gitlab-Token: {token}"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gitlab_proves_itself_with_the_secret_in_its_own_header() {
    let mut server = TestServer::start().await;
    let repository = site_repository("one");
    let added = add(&server, "production", &repository.url()).await;
    let secret = added.hook_secret.expect("shown once");
    let body = json!({"object_kind": "push", "ref": "refs/heads/main"}).to_string();
    let (unsigned, refusal) = deliver(&server, "production", &body, None);
    for token in ["", "other", &secret[..63], &secret.to_uppercase()] {
        let (status, reply) = deliver_with(&server, "production", &body, &gitlab(token));
        assert_eq!((status, &reply), (unsigned, &refusal), "{token}");
        assert_eq!(status, 401);
    }
    let (status, reply) = deliver_with(&server, "production", &body, &gitlab(&secret));
    assert_eq!(status, 200, "{reply}");
    let reply: HookReply = serde_json::from_value(reply).expect("a reply");
    let done = finished(&server, "production", reply.deploy.expect("a deploy")).await;
    assert!(matches!(done.deploy.state, DeployState::Deployed { .. }));
    let mut tag = gitlab(&secret);
    tag[0] = "X-Gitlab-Event: Tag Push Hook".to_owned();
    let (status, reply) = deliver_with(&server, "production", &body, &tag);
    assert_eq!((status, &reply["deploy"]), (200, &Value::Null), "{reply}");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_does_not_move_a_pinned_environment_until_the_pin_is_lifted() {
    let mut server = TestServer::start().await;
    let _node = node(&server, "web-1").await;
    let repository = site_repository("one");
    let first = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["tag", "--annotate", "--message=one", "v1.0"]);
    let added = add(&server, "production", &repository.url()).await;
    let secret = added.hook_secret.expect("shown once");
    let number = ask(&server, "production", Some("v1.0")).await;
    let body = json!({"ref": "refs/heads/main"}).to_string();
    // A push that arrives before the deploy is done does not overtake it.
    let (status, reply) = deliver_with(&server, "production", &body, &gitlab(&secret));
    assert_eq!((status, &reply["deploy"]), (200, &Value::Null), "{reply}");
    let done = finished(&server, "production", number).await;
    assert!(
        matches!(&done.deploy.state, DeployState::Deployed { code_id, .. } if code_id.0 == first),
        "{:?}",
        done.deploy.state
    );

    let second = repository.commit(&[("README", "new")]);
    let (_, reply) = deliver_with(&server, "production", &body, &gitlab(&secret));
    assert_eq!(reply["deploy"], Value::Null, "{reply}");
    let said = reply["message"].as_str().unwrap_or_default();
    assert!(said.contains("pinned to `v1.0`"), "{said}");
    let refused: Result<Value, _> = server
        .operator
        .post("/v1/environments/production/deploys", &json!({}))
        .await;
    assert_eq!(status_of(refused), 409);
    let detail = production(&server).await;
    assert_eq!(detail["pin"]["reference"], "v1.0");
    assert_eq!(detail["deployed"]["code_id"], json!(first));
    assert_eq!(detail["deploys"].as_array().map(Vec::len), Some(1));

    // A pin that leads nowhere fails and leaves the one before.
    let number = ask(&server, "production", Some("v9.9")).await;
    let failed = finished(&server, "production", number).await;
    assert!(matches!(failed.deploy.state, DeployState::Failed { .. }));
    let detail = production(&server).await;
    assert_eq!(detail["pin"]["reference"], "v1.0");

    let unpin = server
        .operator
        .delete::<()>("/v1/environments/production/pin");
    unpin.await.expect("lifted");
    let (_, reply) = deliver_with(&server, "production", &body, &gitlab(&secret));
    let reply: HookReply = serde_json::from_value(reply).expect("a reply");
    let done = finished(&server, "production", reply.deploy.expect("a deploy")).await;
    assert!(
        matches!(&done.deploy.state, DeployState::Deployed { code_id, .. } if code_id.0 == second),
        "{:?}",
        done.deploy.state
    );
    server.shutdown().await;
}
