//! Access rules: in force at once, on every server, and hard to lock oneself out of.

use std::sync::Arc;

use bunraku_control::keys;
use bunraku_model::access::AccessRules;
use bunraku_store::testing::MemoryStore;
use bunraku_store::{Store, Transaction};
use bunraku_wire::Client;
use bunraku_wire::api::{IssuedCertificate, RenewRequest, RunEnding};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fleet::compile_in;
use crate::query::{becomes, submit};
use crate::reports::{new_run, whole};
use crate::support::{TestServer, name, options, request, soon, status};

async fn names(client: &Client) -> Vec<String> {
    let nodes: Vec<Value> = client.get("/v1/nodes").await.expect("a list");
    let names = nodes.iter().map(|node| node["name"].as_str());
    names.map(|name| name.expect("a name").to_owned()).collect()
}

async fn may_list(client: &Client) -> bool {
    client.get::<Value>("/v1/nodes").await.is_ok()
}

/// `web-1` in production and `db-1` in staging.
async fn two_environments(server: &TestServer) -> Client {
    let web = server.node("web-1").await;
    let database = server.node("db-1").await;
    compile_in(server, "web-1", "production", "c1", b"one").await;
    compile_in(server, "db-1", "staging", "c1", b"one").await;
    assign(server, "db-1", "staging").await;
    submit(&web, "web-1", json!({"tier": "front", "only_web": 1})).await;
    submit(&database, "db-1", json!({"tier": "back"})).await;
    let front = r#"nodes[certname] { facts.tier = "front" }"#;
    becomes(server, front, r#"[{"certname":"web-1"}]"#).await;
    let back = r#"nodes[certname] { facts.tier = "back" and environment = "staging" }"#;
    becomes(server, back, r#"[{"certname":"db-1"}]"#).await;
    web
}

async fn assign(server: &TestServer, node: &str, environment: &str) {
    let path = format!("/v1/nodes/{node}/environment");
    let body = json!({"environment": environment});
    let assigned = server.operator.put::<_, ()>(&path, &body);
    assigned.await.expect("assigned");
}

async fn query(client: &Client, text: &str) -> Value {
    let reply: Value = client
        .post("/v1/query", &json!({"query": text}))
        .await
        .expect("answered");
    reply["rows"].clone()
}

#[tokio::test]
async fn operators_without_groups_are_administrators_until_that_rule_is_revoked() {
    let mut server = TestServer::start().await;
    let (old, new) = (
        server.operator("old", &[]).await,
        server.operator("new", &["ops"]).await,
    );
    assert!(may_list(&old).await);
    assert_eq!(status(new.get::<Value>("/v1/nodes").await), 403);
    let rules: Vec<Value> = old.get("/v1/access/rules").await.expect("the rules");
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0]["subject"], "@ungrouped");
    // A store without rules is read as if it had this one, and stays as it is.
    let stored = server.store().get(keys::ACCESS_RULES).await.expect("read");
    assert!(stored.is_none());
    // The last administrator stays.
    let last = server.operator.delete::<Value>("/v1/access/rules/1").await;
    let last = last.expect_err("it is the last one");
    assert_eq!(last.status(), Some(409), "{last}");
    assert!(last.hint().expect("a hint").contains("--allow-lockout"));
    // A rule for somebody without a certificate does not count.
    server.grant("ghost", "administrator", "everything").await;
    let last = server.operator.delete::<Value>("/v1/access/rules/1").await;
    assert_eq!(status(last), 409);
    server
        .grant("group:ops", "administrator", "everything")
        .await;
    let revoked: Value = old.delete("/v1/access/rules/1").await.expect("revoked");
    assert_eq!(
        revoked["may_administer"], false,
        "whoever revokes it is told"
    );
    assert!(!may_list(&old).await);
    assert!(may_list(&new).await);
    server.shutdown().await;
}

#[tokio::test]
async fn root_on_a_server_can_always_repair_the_rules_and_do_nothing_else() {
    let mut server = TestServer::start().await;
    let _other = server.operator("other", &[]).await;
    let path = "/v1/access/rules/1?allow_lockout=true";
    let _: Value = server.operator.delete(path).await.expect("locked out");
    // The server's own credentials, as root on its machine has them.
    assert_eq!(status(server.operator.get::<Value>("/v1/nodes").await), 403);
    let rules: Vec<Value> = (server.operator.get("/v1/access/rules").await).expect("the rules");
    assert!(rules.is_empty());
    let rule = server
        .grant("operator.server.test", "administrator", "everything")
        .await;
    assert_eq!(rule, 2, "numbers are not used twice");
    assert!(may_list(&server.operator).await);
    server.shutdown().await;
}

#[tokio::test]
async fn a_rule_counts_on_every_server_as_soon_as_the_reply_was_sent() {
    let store = Arc::new(MemoryStore::new());
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let mut servers = Vec::new();
    for number in 0..2 {
        let mut options = options(&directory.path().join(number.to_string()));
        options.name = name(&format!("server-{number}.test"));
        let server = TestServer::on_shared_store(directory.clone(), options, store.clone());
        servers.push(server.await);
    }
    let (certificate, key) = servers[0].operator_with_key("alice", &["ops"]).await;
    let alice: Vec<Client> = (servers.iter())
        .map(|server| server.client_with(&certificate, &key))
        .collect();
    for turn in 0..20 {
        let (here, there) = (&servers[turn % 2], &alice[(turn + 1) % 2]);
        let rule = here.grant("alice", "viewer", "everything").await;
        assert!(may_list(there).await, "turn {turn}");
        let path = format!("/v1/access/rules/{rule}");
        let _: Value = here.operator.delete(&path).await.expect("revoked");
        assert!(!may_list(there).await, "turn {turn}");
    }
    for server in &mut servers {
        server.shutdown().await;
    }
}

#[tokio::test]
async fn rules_that_are_granted_at_once_are_all_kept() {
    let mut server = TestServer::start().await;
    let granted = (0..20).map(|number| {
        let (server, subject) = (&server, format!("group:g{number}"));
        async move { server.grant(&subject, "viewer", "everything").await }
    });
    let mut ids = futures::future::join_all(granted).await;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    let again = server.grant("group:g7", "viewer", "everything").await;
    assert!(ids.contains(&again), "the same rule again is the same rule");
    let rules: Vec<Value> = (server.operator.get("/v1/access/rules").await).expect("the rules");
    assert_eq!(rules.len(), 21);
    server.shutdown().await;
}

#[tokio::test]
async fn a_group_and_a_name_with_the_same_spelling_are_different() {
    let mut server = TestServer::start().await;
    let named = server.operator("dba", &["other"]).await;
    let grouped = server.operator("carol", &["dba"]).await;
    server.grant("group:dba", "viewer", "everything").await;
    assert!(may_list(&grouped).await && !may_list(&named).await);
    server.grant("dba", "viewer", "everything").await;
    let rule = json!({"subject": "group:group:dba", "grants": "viewer", "scope": "everything"});
    let refused = server.operator.post::<_, Value>("/v1/access/rules", &rule);
    assert_eq!(status(refused.await), 400);
    assert!(may_list(&named).await);
    server.shutdown().await;
}

#[tokio::test]
async fn lists_and_queries_show_only_what_the_caller_may_view() {
    let mut server = TestServer::start().await;
    let web = two_environments(&server).await;
    whole(&web, new_run(), RunEnding::Succeeded).await;
    let staging = server.operator("stage", &["limited"]).await;
    server.grant("stage", "viewer", "environment:staging").await;
    let front = server.operator("front", &["limited"]).await;
    let query_scope = r#"nodes:nodes { facts.tier = "front" }"#;
    server.grant("front", "viewer", query_scope).await;
    assert_eq!(names(&staging).await, ["db-1"]);
    assert_eq!(names(&front).await, ["web-1"]);
    let environments: Vec<Value> = staging.get("/v1/environments").await.expect("a list");
    assert_eq!(environments.len(), 1);
    assert_eq!(environments[0]["name"], "staging");
    let environments: Vec<Value> = front.get("/v1/environments").await.expect("a list");
    assert!(
        environments.is_empty(),
        "an environment is more than some nodes"
    );
    let reports: Value = staging.get("/v1/reports").await.expect("a page");
    assert_eq!(reports["reports"], json!([]));
    let reports: Value = front.get("/v1/reports").await.expect("a page");
    assert_eq!(reports["reports"].as_array().map(Vec::len), Some(1));
    let run = reports["reports"][0]["run"].as_str().expect("an id");
    let hidden = staging.get::<Value>(&format!("/v1/reports/{run}")).await;
    let missing = staging.get::<Value>("/v1/reports/00000000-0000-7000-8000-000000000000");
    let (hidden, missing) = (
        hidden.expect_err("hidden"),
        missing.await.expect_err("none"),
    );
    let same = |error: &bunraku_wire::ClientError| {
        let text = error.to_string().replace(run, "ID");
        (
            error.status(),
            text.replace("00000000-0000-7000-8000-000000000000", "ID"),
        )
    };
    assert_eq!(same(&hidden), same(&missing));
    // Not even through a query inside a query, a group, or a hint.
    for text in [
        "nodes[certname] { }",
        r#"nodes[certname] { certname in inventory[certname] { facts.tier = "front" } }"#,
        "nodes[count()] { facts.only_web = 1 }",
        "facts[name, count()] { name = \"only_web\" group by name }",
    ] {
        let rows = query(&staging, text).await.to_string();
        assert!(!rows.contains("web"), "{text}: {rows}");
        let all = query(&server.operator, text).await.to_string();
        assert_ne!(rows, all, "{text}");
    }
    let reply: Value = staging
        .post(
            "/v1/query",
            &json!({"query": "nodes[certname] { facts.only_wab = 1 }"}),
        )
        .await
        .expect("answered");
    assert!(!reply.to_string().contains("only_web"), "{reply}");
    // A node that exists and one that does not are refused alike.
    let refusal = async |node: &str| {
        let refused = staging.get::<Value>(&format!("/v1/nodes/{node}")).await;
        let refused = refused.expect_err("refused");
        let text = format!("{refused} {}", refused.hint().unwrap_or_default());
        (refused.status(), text.replace(node, "NODE"))
    };
    assert_eq!(refusal("web-1").await, refusal("web-9").await);
    server.shutdown().await;
}

#[tokio::test]
async fn access_follows_a_node_into_another_environment() {
    let mut server = TestServer::start().await;
    let _web = two_environments(&server).await;
    let staging = server.operator("stage", &["limited"]).await;
    server
        .grant("stage", "operator", "environment:staging")
        .await;
    let disable = async |node: &str| {
        let path = format!("/v1/nodes/{node}/disable");
        staging
            .post::<_, ()>(&path, &json!({"reason": "test"}))
            .await
    };
    assert_eq!(status(disable("web-1").await), 403);
    disable("db-1").await.expect("it is in staging");
    assign(&server, "web-1", "staging").await;
    assign(&server, "db-1", "production").await;
    disable("web-1").await.expect("it is in staging now");
    assert_eq!(status(disable("db-1").await), 403);
    server.shutdown().await;
}

#[tokio::test]
async fn moving_a_node_needs_access_to_both_environments() {
    let mut server = TestServer::start().await;
    let _web = two_environments(&server).await;
    let client = server.operator("mover", &["limited"]).await;
    let assign = async |environment: &str| {
        let body = json!({"environment": environment});
        client
            .put::<_, ()>("/v1/nodes/web-1/environment", &body)
            .await
    };
    server
        .grant("mover", "administer", "environment:staging")
        .await;
    assert_eq!(status(assign("staging").await), 403, "not from there");
    let rule = server
        .grant("mover", "administer", "environment:production")
        .await;
    assign("staging").await.expect("both");
    let path = format!("/v1/access/rules/{rule}");
    let _: Value = server.operator.delete(&path).await.expect("revoked");
    assert_eq!(status(assign("production").await), 403, "not to there");
    server.shutdown().await;
}

#[tokio::test]
async fn a_rule_whose_query_cannot_be_read_allows_nothing_and_says_so() {
    let mut server = TestServer::start().await;
    let _web = two_environments(&server).await;
    let client = server.operator("bob", &["limited"]).await;
    let rule = json!({"subject": "bob", "grants": "viewer", "scope": "nodes:nodes { nonsense"});
    let refused = server.operator.post::<_, Value>("/v1/access/rules", &rule);
    assert_eq!(status(refused.await), 400, "it is not accepted");
    // As another version, with another query language, may have written it.
    server
        .grant("bob", "viewer", r#"nodes:nodes { certname = "web-1" }"#)
        .await;
    let stored = server.store().get(keys::ACCESS_RULES).await.expect("read");
    let text = String::from_utf8(stored.expect("rules").value.to_vec()).expect("text");
    let text = text.replace(r#"nodes { certname = \"web-1\" }"#, "nodes where nonsense");
    let rules: AccessRules = serde_json::from_str(&text).expect("rules");
    assert_eq!(rules.rules().len(), 2);
    let put = Transaction::new().put(keys::ACCESS_RULES, text);
    server.store().commit(put).await.expect("written");
    assert!(names(&client).await.is_empty());
    assert_eq!(status(client.get::<Value>("/v1/nodes/web-1").await), 403);
    let rules: Vec<Value> = (server.operator.get("/v1/access/rules").await).expect("the rules");
    let problem = rules[1]["problem"].as_str().expect("a problem");
    assert!(problem.contains("cannot be read"), "{problem}");
    server.shutdown().await;
}

#[tokio::test]
async fn an_open_stream_breaks_off_when_its_reader_may_no_longer_view_it() {
    let mut server = TestServer::start().await;
    let web = two_environments(&server).await;
    let reader = server.operator("reader", &["limited"]).await;
    let rule = server
        .grant("reader", "viewer", "environment:production")
        .await;
    let unrelated = server.grant("group:x", "viewer", "everything").await;
    let run = new_run();
    let mut all = reader
        .stream::<Value>("/v1/reports/stream")
        .await
        .expect("all");
    let open = soon(all.next()).await.expect("a line").expect("open");
    assert!(open.to_string().contains("cursor"), "{open}");
    let path = format!("/v1/nodes/web-1/reports/{run}/stream");
    let mut one = reader.stream::<Value>(&path).await.expect("one");
    whole(&web, new_run(), RunEnding::Succeeded).await;
    let events = soon(all.next()).await.expect("a line").expect("events");
    assert_eq!(events["node"], "web-1", "{events}");
    // Another change of the rules does not touch it.
    let path = format!("/v1/access/rules/{unrelated}");
    let _: Value = server.operator.delete(&path).await.expect("revoked");
    whole(&web, new_run(), RunEnding::Succeeded).await;
    soon(all.next()).await.expect("a line").expect("events");
    let path = format!("/v1/access/rules/{rule}");
    let _: Value = server.operator.delete(&path).await.expect("revoked");
    for stream in [&mut all, &mut one] {
        // What was on its way may still arrive; then it breaks, and does not end.
        let broken = loop {
            match soon(stream.next()).await {
                Some(Ok(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(broken, Some(Err(_))), "{broken:?}");
    }
    let again = reader.stream::<Value>("/v1/reports/stream").await;
    assert_eq!(again.err().and_then(|error| error.status()), Some(403));
    server.shutdown().await;
}

#[tokio::test]
async fn a_stream_of_all_reports_shows_those_of_viewed_nodes() {
    let mut server = TestServer::start().await;
    let web = two_environments(&server).await;
    let reader = server.operator("reader", &["limited"]).await;
    server
        .grant("reader", "viewer", "environment:staging")
        .await;
    let mut all = reader
        .stream::<Value>("/v1/reports/stream")
        .await
        .expect("all");
    soon(all.next()).await.expect("a line").expect("open");
    whole(&web, new_run(), RunEnding::Succeeded).await;
    assign(&server, "web-1", "staging").await;
    let seen = new_run();
    whole(&web, seen, RunEnding::Succeeded).await;
    let events = soon(all.next()).await.expect("a line").expect("events");
    assert_eq!(events["run"], seen.to_string(), "only the second: {events}");
    server.shutdown().await;
}

#[tokio::test]
async fn who_may_sign_nodes_may_neither_issue_nor_revoke_operators() {
    let mut server = TestServer::start().await;
    let _web = server.node("web-1").await;
    let signer = server.operator("signer", &["signers"]).await;
    server
        .grant("group:signers", "sign,view", "everything")
        .await;
    let limited = json!({"subject": "bob", "grants": "sign", "scope": "environment:production"});
    let limited = server
        .operator
        .post::<_, Value>("/v1/access/rules", &limited);
    assert_eq!(status(limited.await), 400, "it could not be limited");
    for (role, expected) in [
        ("node", None),
        ("operator", Some(403)),
        ("server", Some(403)),
    ] {
        let (_, certificate_request) = request(&format!("new-{role}"));
        let issue = json!({"certificate_request": certificate_request, "role": role});
        let issued = signer
            .post::<_, Value>("/v1/certificates/issue", &issue)
            .await;
        assert_eq!(
            issued.err().and_then(|error| error.status()),
            expected,
            "{role}"
        );
    }
    let reason = json!({"reason": "test"});
    let revoke = async |name: &str| {
        let path = format!("/v1/certificates/{name}/revoke");
        signer.post::<_, ()>(&path, &reason).await
    };
    revoke("web-1").await.expect("a node");
    assert_eq!(status(revoke("operator.server.test").await), 403);
    assert_eq!(status(revoke("server.test").await), 403);
    server.shutdown().await;
}

#[tokio::test]
async fn a_renewal_keeps_the_groups() {
    let mut server = TestServer::start().await;
    let (old, key) = server
        .operator_since("alice", &["ops", "web"], 24 * 60)
        .await;
    let client = server.client_with(&old, &key);
    let (_, certificate_request) = request("alice");
    let renewal = RenewRequest {
        certificate_request,
        proof: None,
    };
    let renewed: IssuedCertificate = client
        .post("/v1/certificates/renew", &renewal)
        .await
        .expect("renewed");
    let groups = |pem: &str| {
        let certificate = bunraku_wire::Certificate::from_pem(pem).expect("a certificate");
        certificate.groups
    };
    assert_eq!(groups(&renewed.certificate), groups(&old));
    assert_eq!(groups(&old).len(), 2);
    let listed: Vec<Value> = (server.operator.get("/v1/certificates").await).expect("a list");
    let shown = listed.iter().filter(|entry| entry["name"] == "alice");
    assert!(
        shown
            .clone()
            .all(|entry| entry["groups"] == json!(["ops", "web"]))
    );
    assert_eq!(shown.count(), 2);
    server.shutdown().await;
}

#[tokio::test]
async fn secrets_are_hidden_from_those_who_may_only_view() {
    let mut server = TestServer::start().await;
    let _web = server.node("web-1").await;
    let resource = json!({"type": "User", "title": "u", "parameters": {"password": "s3cret", "shell": "/bin/zsh"},
        "sensitive_parameters": ["password"]});
    let resources = vec![resource];
    let id = crate::fleet::compile_resources(&server, "web-1", "production", "c1", b"x", resources);
    let id = id.await;
    let define = json!({"definition": {"command": "psql --password s3cret"}});
    let defined = server
        .operator
        .put::<_, ()>("/v1/once/app/definition", &define);
    defined.await.expect("defined");
    let viewer = server.operator("viewer", &["viewers"]).await;
    server.grant("group:viewers", "viewer", "everything").await;
    let trusted = server.operator("trusted", &["trusted"]).await;
    server
        .grant("group:trusted", "view-secrets", "everything")
        .await;
    for path in [
        format!("/v1/catalogs/{id}"),
        format!("/v1/nodes/web-1/catalogs/{id}"),
        "/v1/once/app".to_owned(),
    ] {
        let shown: Value = viewer.get(&path).await.expect("shown");
        assert!(!shown.to_string().contains("s3cret"), "{path}: {shown}");
        let shown: Value = trusted.get(&path).await.expect("shown");
        assert!(shown.to_string().contains("s3cret"), "{path}: {shown}");
    }
    let shown: Value = viewer
        .get(&format!("/v1/catalogs/{id}"))
        .await
        .expect("shown");
    assert!(shown.to_string().contains("/bin/zsh"), "{shown}");
    let content = bunraku_model::ContentId::of(b"x");
    let content = format!("/v1/content/{content}");
    assert_eq!(status(viewer.download(&content).await), 403);
    assert!(trusted.download(&content).await.is_ok());
    server.shutdown().await;
}

#[tokio::test]
async fn a_check_names_the_rule_that_decides() {
    let mut server = TestServer::start().await;
    let _web = two_environments(&server).await;
    let client = server.operator("alice", &["web"]).await;
    let rule = server
        .grant("group:web", "operator", "environment:production")
        .await;
    let check = async |client: &Client, who: Option<&str>, verb: &str, target: &str| {
        let mut request = json!({"verb": verb, "target": target});
        if let Some(who) = who {
            request["who"] = json!(who);
        }
        client.post::<_, Value>("/v1/access/check", &request).await
    };
    let operator = &server.operator;
    let allowed = check(operator, Some("alice"), "run", "node:web-1").await;
    let allowed = allowed.expect("checked");
    assert_eq!(allowed["is_allowed"], true);
    assert_eq!(allowed["rule"]["id"], rule);
    assert_eq!(allowed["groups"], json!(["web"]));
    let denied = check(operator, Some("alice"), "run", "node:db-1").await;
    let denied = denied.expect("checked");
    assert_eq!(denied["is_allowed"], false);
    let why = denied["others"][0]["why"].as_str().expect("why");
    assert!(
        why.contains("`db-1` is in the environment `staging`"),
        "{why}"
    );
    let denied = check(
        operator,
        Some("group:web"),
        "release",
        "environment:production",
    )
    .await;
    let why = denied.expect("checked")["others"][0]["why"].to_string();
    assert!(why.contains("does not grant `release`"), "{why}");
    // About oneself, everybody may ask, and learns nothing about nodes outside.
    let own = check(&client, None, "run", "node:web-1")
        .await
        .expect("checked");
    assert_eq!(own["is_allowed"], true);
    let hidden = check(&client, Some("alice"), "run", "node:db-1").await;
    let missing = check(&client, None, "run", "node:db-9").await;
    assert_eq!(hidden.expect("checked"), missing.expect("checked"));
    let other = check(&client, Some("bob"), "run", "node:web-1").await;
    assert_eq!(status(other), 403);
    let mine: Value = client.get("/v1/access/mine").await.expect("mine");
    assert_eq!(mine["rules"][0]["id"], rule);
    server.shutdown().await;
}

#[tokio::test]
async fn runs_and_releases_need_access_to_every_node() {
    let mut server = TestServer::start().await;
    let _web = two_environments(&server).await;
    let client = server.operator("rel", &["limited"]).await;
    let scope = r#"nodes:nodes { certname = "web-1" }"#;
    server.grant("rel", "releaser", scope).await;
    let release = async |body: Value| {
        client
            .post::<_, Value>("/v1/releases/production", &body)
            .await
    };
    let everything = release(json!({"to": "everything", "mode": "enforce"})).await;
    assert_eq!(
        status(everything),
        403,
        "it also decides about nodes that join later"
    );
    let both = json!({"to": "nodes", "nodes": ["web-1", "db-1"], "mode": "enforce"});
    let both = release(both).await.expect_err("not both");
    assert!(both.to_string().contains("`release` on `db-1`"), "{both}");
    assert!(!both.to_string().contains("web-1"), "{both}");
    let own = json!({"to": "nodes", "nodes": ["web-1"], "mode": "enforce"});
    let made = release(own).await.expect("its own node");
    assert_eq!(made["release"]["number"], 1);
    let plan = |nodes: &[&str]| {
        let mut text = "applications: {a: {components: {".to_owned();
        for node in nodes {
            text.push_str(&format!("{}: {{node: {node}}}, ", node.replace('-', "_")));
        }
        text.push_str("}}}");
        let inventory = bunraku_plan::Inventory::default();
        let site = bunraku_plan::site_file("site.yaml", &text, &inventory).expect("a site");
        let plan = bunraku_plan::plan_site(&site, &bunraku_plan::PlanOptions::default());
        bunraku_plan::run::NewRun::of(plan.expect("a plan"))
    };
    let two = plan(&["web-1", "db-1"]);
    let both = client.post::<_, Value>("/v1/runs", &two).await;
    let both = both.expect_err("not both");
    assert_eq!(both.status(), Some(403), "{both}");
    assert!(both.to_string().contains("`run` on `db-1`"), "{both}");
    // A run with another node does not exist for them.
    let hidden: Value = server
        .operator
        .post("/v1/runs", &plan(&["db-1"]))
        .await
        .expect("a run");
    let id = hidden["id"].as_str().expect("an id");
    let runs: Vec<Value> = client.get("/v1/runs").await.expect("a list");
    assert!(runs.is_empty(), "{runs:?}");
    for path in [format!("/v1/runs/{id}"), format!("/v1/runs/{id}/log")] {
        assert_eq!(status(client.get::<Value>(&path).await), 404, "{path}");
    }
    let stop = format!("/v1/runs/{id}/stop");
    assert_eq!(status(client.post::<_, ()>(&stop, &json!({})).await), 404);
    let own: Value = (client.post("/v1/runs", &plan(&["web-1"])).await).expect("its own node");
    let id = own["id"].as_str().expect("an id");
    let shown = client.get::<Value>(&format!("/v1/runs/{id}")).await;
    assert_eq!(shown.expect("its own run")["record"]["id"], id);
    server.shutdown().await;
}

/// A list ends its page after some thousand reports, even if it shows none of them. The position at
/// which it goes on must not be that of a hidden report: it contains an id and a time.
#[tokio::test]
async fn the_position_in_a_list_of_reports_reveals_no_hidden_report() {
    let mut server = TestServer::start().await;
    let web = two_environments(&server).await;
    for _ in 0..2 {
        whole(&web, new_run(), RunEnding::Succeeded).await;
    }
    let hidden: Vec<_> = (0..5_500).map(|_| new_run()).collect();
    let now = jiff::Timestamp::now();
    for some in hidden.chunks(100) {
        let put = |transaction: Transaction, run: &bunraku_model::NodeRunId| {
            let place = json!({"node": "db-1", "run": run}).to_string();
            transaction.put(keys::report_time(now, *run), place)
        };
        let written = some.iter().fold(Transaction::new(), put);
        server.store().commit(written).await.expect("written");
    }
    let front = server.operator("front", &["limited"]).await;
    let scope = r#"nodes:nodes { facts.tier = "front" }"#;
    server.grant("front", "viewer", scope).await;
    let all: Value = front.get("/v1/reports").await.expect("a page");
    assert_eq!(all["reports"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["next"], Value::Null, "there is nothing else");
    let first: Value = front.get("/v1/reports?limit=1").await.expect("a page");
    let (shown, next) = (&first["reports"][0]["run"], &first["next"]);
    let (shown, next) = (shown.as_str().expect("an id"), next.as_str().expect("more"));
    assert!(next.ends_with(shown), "{next} is the place of {shown}");
    let path = format!("/v1/reports?limit=1&after={next}");
    let second: Value = front.get(&path).await.expect("a page");
    assert_eq!(second["reports"][0]["run"], all["reports"][1]["run"]);
    server.shutdown().await;
}
