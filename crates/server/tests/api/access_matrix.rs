//! Every endpoint, with every role, about the caller itself and about others.
//!
//! [`MATRIX`] has one row per endpoint of `wire`. A new endpoint without a row fails the tests.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::Role;
use bunraku_wire::endpoints::{self, Access, Definition, Verb};
use bunraku_wire::{Client, ClientError};
use serde_json::{Value, json};

use crate::query::submit;
use crate::support::TestServer;

/// The callers that an endpoint answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    /// Anybody, even without a certificate.
    Anyone,
    /// Anybody with a certificate: nothing about nodes is in the reply.
    Certificate,
    OperatorOnly,
    /// Operators, and servers for their own metrics.
    OperatorOrServer,
    OwnNode,
    OwnNodeOrOperator,
    /// Nodes and operators. An operator's permission decides what a node may do or see.
    Permitted,
}

use Row::{
    Anyone, Certificate, OperatorOnly, OperatorOrServer, OwnNode, OwnNodeOrOperator, Permitted,
};

const MATRIX: &[(&str, Row)] = &[
    ("CheckHealth", Certificate),
    ("CheckReadiness", Certificate),
    ("ShowMetrics", OperatorOrServer),
    ("ShowServer", Certificate),
    ("ShowOpenApi", Certificate),
    ("ListNodes", OperatorOnly),
    ("ShowNode", OwnNodeOrOperator),
    ("RemoveNode", OperatorOnly),
    ("DisableNode", OperatorOnly),
    ("EnableNode", OperatorOnly),
    ("AssignEnvironment", OperatorOnly),
    ("ReportActivity", OwnNode),
    ("ReportQueue", OwnNode),
    ("ShowNodeQueue", OwnNodeOrOperator),
    ("SubmitFacts", OwnNode),
    ("ShowFacts", OwnNodeOrOperator),
    ("ListFactSets", OwnNodeOrOperator),
    ("CompareFacts", OwnNodeOrOperator),
    ("RunQuery", Permitted),
    ("QueryNodeNames", OperatorOnly),
    ("SendCommands", OperatorOnly),
    ("ShowCommand", OperatorOnly),
    ("AnswerCommand", OwnNode),
    ("OpenCommandStream", OwnNode),
    ("AddReportEvents", OwnNode),
    ("ShowHistory", OperatorOnly),
    ("MoveHistory", OperatorOnly),
    ("ListReports", OperatorOnly),
    ("FollowReports", OperatorOnly),
    ("FindReport", OperatorOnly),
    ("ShowReport", OperatorOnly),
    ("ListReportEvents", OperatorOnly),
    ("FollowReport", OperatorOnly),
    ("Join", Anyone),
    ("ListTokens", OperatorOnly),
    ("CreateToken", OperatorOnly),
    ("RevokeToken", OperatorOnly),
    ("ListCertificates", OperatorOnly),
    ("IssueCertificate", OperatorOnly),
    ("RenewCertificate", Certificate),
    ("RevokeCertificates", OperatorOnly),
    ("ListCertificateRequests", OperatorOnly),
    ("SignCertificateRequest", OperatorOnly),
    ("RejectCertificateRequest", OperatorOnly),
    ("ShowRevocationList", Certificate),
    ("ListAccessRules", OperatorOnly),
    ("GrantAccess", OperatorOnly),
    ("RevokeAccess", OperatorOnly),
    ("CheckAccess", Certificate),
    ("ShowOwnAccess", Certificate),
    ("ShowAuthority", Certificate),
    ("ShowRotation", OperatorOnly),
    ("StartRotation", OperatorOnly),
    ("FinishRotation", OperatorOnly),
    ("AbortRotation", OperatorOnly),
    ("ShowStore", OperatorOnly),
    ("MoveContent", OperatorOnly),
    ("ShowRestore", OperatorOnly),
    ("DeclareRestore", OperatorOnly),
    ("AcceptRestore", OperatorOnly),
    ("OfferRevocationLists", Certificate),
    ("ExpectServer", OperatorOnly),
    ("ForgetExpectedServer", OperatorOnly),
    ("ShowCluster", OperatorOnly),
    ("ListServers", Certificate),
    ("InviteServer", OperatorOnly),
    ("JoinCluster", Anyone),
    ("JoinClusterOverSsh", Anyone),
    ("RemoveServer", OperatorOnly),
    ("DrainServer", OperatorOnly),
    ("ListEnvironments", OperatorOnly),
    ("CreateEnvironment", OperatorOnly),
    ("ShowEnvironment", OperatorOnly),
    ("ChangeEnvironment", OperatorOnly),
    ("RemoveEnvironment", OperatorOnly),
    ("DeployEnvironment", OperatorOnly),
    ("ShowDeploy", OperatorOnly),
    ("UnpinEnvironment", OperatorOnly),
    ("ReceivePush", Anyone),
    ("ListRepositories", OperatorOnly),
    ("CreateRepository", OperatorOnly),
    ("ShowRepository", OperatorOnly),
    ("ChangeRepository", OperatorOnly),
    ("RemoveRepository", OperatorOnly),
    ("SyncRepository", OperatorOnly),
    ("ReceiveRepositoryPush", Anyone),
    ("RequestCompiles", OperatorOnly),
    ("ListCompileQueue", OperatorOnly),
    ("ShowCompiles", OperatorOnly),
    ("ListCatalogs", OperatorOnly),
    ("ProposeCatalogs", OperatorOnly),
    ("CompareWithPuppet", OperatorOnly),
    ("ShowCatalog", OperatorOnly),
    ("CompareCatalogs", OperatorOnly),
    ("ShowNodeCatalog", OwnNodeOrOperator),
    ("ShowTarget", OwnNodeOrOperator),
    ("ShowNodePlugins", OwnNodeOrOperator),
    ("ShowContent", Permitted),
    ("ListReleases", OperatorOnly),
    ("CreateRelease", OperatorOnly),
    ("OverrideRelease", OperatorOnly),
    ("ListApprovals", OperatorOnly),
    ("ShowApproval", OperatorOnly),
    ("DecideApproval", OperatorOnly),
    ("ReportRunCheck", OperatorOnly),
    ("ShowRelease", OperatorOnly),
    ("RollBackRelease", OperatorOnly),
    ("CompareReleases", OperatorOnly),
    ("HoldReleases", OperatorOnly),
    ("ResumeReleases", OperatorOnly),
    ("ListOutputReads", OperatorOnly),
    ("ListInputs", OwnNode),
    ("ListModules", OperatorOnly),
    ("PublishModule", OperatorOnly),
    ("ListModuleVersions", OperatorOnly),
    ("ShowModuleVersion", OperatorOnly),
    ("RemoveModuleVersion", OperatorOnly),
    ("ListModuleEvents", OperatorOnly),
    ("ShowModuleKeys", OperatorOnly),
    ("TrustModuleKey", OperatorOnly),
    ("RevokeModuleKey", OperatorOnly),
    ("ListRevokedModuleKeys", Certificate),
    ("ListAudit", OperatorOnly),
    ("ShowAuditHead", OperatorOnly),
    ("ExportAudit", OperatorOnly),
    ("FollowAudit", OperatorOnly),
    ("ListRuns", OperatorOnly),
    ("CreateRun", OperatorOnly),
    ("BindPlan", OperatorOnly),
    ("ShowRun", OperatorOnly),
    ("ShowRunLog", OperatorOnly),
    ("StopRun", OperatorOnly),
    ("CancelRun", OperatorOnly),
    ("ListOnceTasks", OperatorOnly),
    ("ShowOnceTask", OperatorOnly),
    ("ShowOnceStanding", Permitted),
    ("CheckOnceStanding", Permitted),
    ("DefineOnceTask", Permitted),
    ("PermitOnceTask", OperatorOnly),
    ("AddOnceFragment", OwnNodeOrOperator),
    ("RemoveOnceFragment", OwnNodeOrOperator),
    ("ClaimOnceTask", Permitted),
    ("KeepOnceClaim", Permitted),
    ("FinishOnceClaim", Permitted),
    ("ShowOnceAttempt", Permitted),
    ("ResetOnceTask", OperatorOnly),
    ("ListLocks", Permitted),
    ("ShowLock", Permitted),
    ("DefineLock", OperatorOnly),
    ("PermitLock", OperatorOnly),
    ("AcquireLock", Permitted),
    ("RenewLock", Permitted),
    ("ReleaseLock", Permitted),
    ("LeaveLockLine", Permitted),
    ("BreakLock", OperatorOnly),
    ("FireTrigger", Permitted),
    ("ListTriggers", OperatorOnly),
    ("ShowTrigger", OperatorOnly),
    ("LimitTrigger", OperatorOnly),
    ("PermitTrigger", OperatorOnly),
    ("RemoveTriggerLimits", OperatorOnly),
    ("ListTriggerEvents", OperatorOnly),
    ("ListReactors", OperatorOnly),
    ("TestReactors", OperatorOnly),
    ("ReceiveEvents", Anyone),
];

/// Operators' calls that would end what the other calls need.
pub(crate) const DESTRUCTIVE: &[&str] = &[
    "StartRotation",
    "FinishRotation",
    "DeclareRestore",
    "RemoveNode",
    "RevokeCertificates",
    "RevokeModuleKey",
    "RevokeAccess",
];

/// The values of path parameters.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) node: &'static str,
    pub(crate) thing: &'static str,
}

pub(crate) fn path(endpoint: &Definition, names: Names) -> String {
    let mut path = endpoint.template.to_owned();
    for parameter in endpoint.parameters() {
        let value = match parameter {
            "node" | "name" => names.node,
            "number" | "token" | "rule" => "1",
            "version" => "1.0.0",
            "id" => "00000000-0000-7000-8000-000000000000",
            _ => names.thing,
        };
        path = path.replace(&format!("{{{parameter}}}"), value);
    }
    path
}

/// A valid body for each endpoint that a node reaches and that has one.
pub(crate) fn body(endpoint: &str) -> Option<Value> {
    let id = "00000000-0000-7000-8000-000000000001";
    Some(match endpoint {
        "OfferRevocationLists" => json!({"lists": ""}),
        "CheckAccess" => json!({"verb": "view", "target": "node:victim"}),
        "AcquireLock" => json!({"session": "s", "lease_seconds": 60, "only_now": true}),
        "RenewLock" | "ReleaseLock" => json!({"token": 1}),
        "LeaveLockLine" => json!({"session": "s"}),
        "CheckOnceStanding" | "DefineOnceTask" => {
            json!({"definition": {"command": "true", "init_on": ["other"]}})
        }
        "ClaimOnceTask" => json!({"claim": id, "lease_seconds": 60}),
        "KeepOnceClaim" => json!({"log": "mine"}),
        "FinishOnceClaim" => json!({"exit_code": 0, "log": "mine"}),
        "RunQuery" => json!({"query": "nodes[certname] { certname = \"victim\" }"}),
        "AddOnceFragment" => json!({"fragment": {"port": 1}}),
        "RemoveOnceFragment" => json!({}),
        "FireTrigger" => json!({"id": id, "hosts": ["victim"]}),
        "Join" | "RenewCertificate" => json!({"certificate_request": "none"}),
        "JoinCluster" | "JoinClusterOverSsh" => json!({}),
        "ReceivePush" | "ReceiveRepositoryPush" | "ReceiveEvents" => json!({}),
        _ => return None,
    })
}

/// The status of a reply, and everything it says.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

pub(crate) async fn call(
    client: &Client,
    endpoint: &Definition,
    path: &str,
    body: &Value,
) -> Answer {
    let shown = |outcome: Result<String, ClientError>| match outcome {
        Ok(text) => Answer { status: 200, text },
        Err(ClientError::BadReply { .. }) => Answer {
            status: 200,
            text: String::new(),
        },
        Err(error) => Answer {
            status: error
                .status()
                .unwrap_or_else(|| panic!("{} {path}: {error}", endpoint.name)),
            text: format!("{error} {}", error.hint().unwrap_or_default()),
        },
    };
    let json = |outcome: Result<Value, ClientError>| shown(outcome.map(|value| value.to_string()));
    match endpoint.verb {
        Verb::Get if path.ends_with("/stream") => {
            shown(client.stream::<Value>(path).await.map(|_| String::new()))
        }
        Verb::Get => shown(text_of(client, path).await),
        Verb::Post => json(client.post(path, body).await),
        Verb::Put => json(client.put(path, body).await),
        Verb::Delete => json(client.delete(path).await),
    }
}

async fn text_of(client: &Client, path: &str) -> Result<String, ClientError> {
    let mut download = client.download(path).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = download.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A caller with a server's certificate.
async fn server_client(server: &TestServer) -> Client {
    let (certificate, key) = server
        .issue("other-server", |issue| {
            issue.role = Role::Server;
            issue.server_names = vec!["127.0.0.1".to_owned()];
        })
        .await;
    server.client_with(&certificate, &key)
}

#[test]
fn every_endpoint_has_a_row_that_agrees_with_its_definition() {
    let rows: BTreeMap<&str, Row> = MATRIX.iter().copied().collect();
    assert_eq!(rows.len(), MATRIX.len(), "each endpoint once");
    let known: BTreeSet<&str> = endpoints::all().map(|known| known.name).collect();
    for endpoint in endpoints::all() {
        let row = rows.get(endpoint.name).unwrap_or_else(|| {
            panic!(
                "{} has no row in the access matrix: add it to MATRIX",
                endpoint.name
            )
        });
        let access = match row {
            Anyone => Access::Anonymous,
            Certificate => Access::AnyRole,
            OperatorOnly => Access::Operator,
            OperatorOrServer => Access::OperatorOrServer,
            OwnNode => Access::OwnNode,
            OwnNodeOrOperator => Access::OwnNodeOrOperator,
            Permitted => Access::NodeOrOperator,
        };
        assert_eq!(endpoint.access, access, "{}", endpoint.name);
    }
    for name in rows.keys() {
        assert!(known.contains(name), "{name} is not an endpoint any more");
    }
}

#[tokio::test]
async fn each_role_reaches_what_its_row_says_and_nothing_else() {
    let mut server = TestServer::start().await;
    let (own, other) = (server.node("web-1").await, server.node("web-2").await);
    let (stranger, machine) = (server.stranger(), server_client(&server).await);
    // Everything is permitted to nodes here: the row decides alone.
    for thing in ["locks/thing", "once/thing", "triggers/thing"] {
        server.permit(thing).await;
    }
    let names = Names {
        node: "web-1",
        thing: "thing",
    };
    for (endpoint, row) in endpoints::all().zip_rows() {
        let path = path(endpoint, names);
        let callers = [
            ("anonymous", &stranger, row == Anyone),
            ("own", &own, !matches!(row, OperatorOnly | OperatorOrServer)),
            (
                "other",
                &other,
                matches!(row, Anyone | Certificate | Permitted),
            ),
            (
                "server",
                &machine,
                matches!(row, Anyone | Certificate | OperatorOrServer),
            ),
            ("operator", &server.operator, row != OwnNode),
        ];
        for (who, client, may) in callers {
            if who == "operator" && DESTRUCTIVE.contains(&endpoint.name) {
                continue;
            }
            let body = body(endpoint.name).unwrap_or_else(|| json!({}));
            let status = call(client, endpoint, &path, &body).await.status;
            let route = format!("{who}: {} {path} answered {status}", endpoint.verb);
            // Webhooks authenticate by a signature, and answer 401 or 404 without one.
            if endpoint.template.contains("hook") {
                assert!(matches!(status, 401 | 404), "{route}");
                continue;
            }
            // Operators list no facts (`node_facts`), so nodes may query nothing.
            if endpoint.name == "RunQuery" && matches!(who, "own" | "other") {
                assert_eq!(status, 403, "{route}");
                continue;
            }
            if who == "anonymous" && !may {
                assert_eq!(status, 401, "{route}");
                continue;
            }
            assert_eq!(status == 403, !may, "{route}");
            assert!(status != 401 && status != 405 && status < 500, "{route}");
        }
    }
    server.shutdown().await;
}

/// Endpoints with their rows.
trait ZipRows {
    fn zip_rows(self) -> impl Iterator<Item = (&'static Definition, Row)>;
}

impl<I: Iterator<Item = &'static Definition>> ZipRows for I {
    fn zip_rows(self) -> impl Iterator<Item = (&'static Definition, Row)> {
        let rows: BTreeMap<&str, Row> = MATRIX.iter().copied().collect();
        self.map(move |endpoint| (endpoint, rows[endpoint.name]))
    }
}

/// A text that only the victim and operators know.
const MARK: &str = "marked-by-the-victim";

/// A node with facts, a lock, a once task, and a trigger that it fired.
async fn victim(server: &TestServer) {
    let victim = server.node("victim").await;
    submit(&victim, "victim", json!({"secret": MARK})).await;
    let only = ["victim"];
    for (path, permit) in [
        ("/v1/locks/thing/permissions", json!({"may_hold": only})),
        (
            "/v1/once/thing/permissions",
            json!({"init_on": only, "contributors": only}),
        ),
        (
            "/v1/triggers/thing/permissions",
            json!({"fired_by": only, "hosts": only}),
        ),
    ] {
        let permitted = server.operator.post::<_, ()>(path, &permit).await;
        permitted.expect("permitted");
    }
    let lock = json!({"session": "s", "lease_seconds": 3600, "reason": MARK});
    let held = victim.post::<_, Value>("/v1/locks/thing/acquire", &lock);
    held.await.expect("held");
    let part = json!({"fragment": {"password": MARK}});
    let added = victim.put::<_, ()>("/v1/once/thing/fragments/victim", &part);
    added.await.expect("its part");
    let definition = json!({"definition": {"command": MARK}});
    let defined = victim.put::<_, ()>("/v1/once/thing/definition", &definition);
    defined.await.expect("defined");
    let claim = json!({"claim": "00000000-0000-7000-8000-000000000009", "lease_seconds": 3600});
    let claimed = victim.post::<_, Value>("/v1/once/thing/claims", &claim);
    assert_eq!(claimed.await.expect("claimed")["claim"], "granted");
    let fire = json!({
        "id": "00000000-0000-7000-8000-000000000008", "hosts": only, "reason": MARK,
    });
    let fired = victim.post::<_, Value>("/v1/triggers/thing/fire", &fire);
    fired.await.expect("fired");
}

/// A node without permissions calls everything, about what exists and about what does not. The
/// replies are the same, and say nothing about the other node.
#[tokio::test]
async fn a_node_learns_nothing_about_other_nodes_not_even_what_exists() {
    let mut server = TestServer::start().await;
    victim(&server).await;
    let curious = server.node("curious").await;
    let there = Names {
        node: "victim",
        thing: "thing",
    };
    let not_there = Names {
        node: "nobody",
        thing: "blank",
    };
    for (endpoint, row) in endpoints::all().zip_rows() {
        // Its own certificate and the description of the API are not about other nodes.
        if endpoint.name == "ShowOpenApi" {
            continue;
        }
        let is_reachable = !matches!(row, OperatorOnly | OperatorOrServer);
        let body = match (endpoint.verb, body(endpoint.name)) {
            (Verb::Get, _) => Value::Null,
            (_, Some(body)) => body,
            (_, None) => {
                assert!(
                    !matches!(row, Permitted | Certificate | Anyone) || !is_reachable,
                    "{} needs a body in `body`",
                    endpoint.name
                );
                json!({})
            }
        };
        let mut shown = Vec::new();
        for names in [there, not_there] {
            let path = path(endpoint, names);
            let text = body.to_string().replace("victim", names.node);
            let body = serde_json::from_str(&text).expect("JSON");
            let answer = call(&curious, endpoint, &path, &body).await;
            assert!(
                !answer.text.contains(MARK),
                "{} {path}: {}",
                endpoint.verb,
                answer.text
            );
            let text = answer
                .text
                .replace(names.node, "NODE")
                .replace(names.thing, "THING");
            shown.push((answer.status, text));
        }
        // Without a name in it, both were the same request.
        if endpoint.parameters().count() > 0 || body.to_string().contains("victim") {
            assert_eq!(shown[0], shown[1], "{} tells what exists", endpoint.name);
        }
        // Whatever it tells about what does not exist is not about the victim. What is the same
        // for both must not name the victim in passing.
        let path = path(endpoint, not_there);
        let text = body.to_string().replace("victim", not_there.node);
        let body = serde_json::from_str(&text).expect("JSON");
        let answer = call(&curious, endpoint, &path, &body).await;
        assert!(
            !answer.text.contains("victim"),
            "{} {path} names another node: {}",
            endpoint.verb,
            answer.text
        );
    }
    // Nothing changed for the victim.
    let lock: Value = server
        .operator
        .get("/v1/locks/thing")
        .await
        .expect("the lock");
    assert_eq!(lock["holders"][0]["owner"], "victim", "{lock}");
    let task: Value = server
        .operator
        .get("/v1/once/thing")
        .await
        .expect("the task");
    assert_eq!(task["state"], "busy", "{task}");
    assert_eq!(task["parts"]["victim"]["password"], MARK, "{task}");
    assert_eq!(task["parts"].as_object().map(serde_json::Map::len), Some(1));
    let events: Vec<Value> = server
        .operator
        .get("/v1/trigger-events")
        .await
        .expect("the history");
    assert_eq!(events.len(), 1, "only the victim fired: {events:?}");
    server.shutdown().await;
}

/// A node that may see a lock sees its holders, and nothing that they say.
#[tokio::test]
async fn nodes_that_may_see_a_lock_see_names_only() {
    let mut server = TestServer::start().await;
    victim(&server).await;
    let curious = server.node("curious").await;
    let permit = json!({"may_see": ["cur*"]});
    let permitted = server
        .operator
        .post::<_, ()>("/v1/locks/thing/permissions", &permit);
    permitted.await.expect("permitted");
    for path in ["/v1/locks", "/v1/locks/thing"] {
        let seen: Value = curious.get(path).await.expect("seen");
        let text = seen.to_string();
        assert!(text.contains("\"owner\":\"victim\""), "{text}");
        for hidden in [MARK, "may_hold", "may_see"] {
            assert!(!text.contains(hidden), "{text}");
        }
    }
    let lock = json!({"session": "s", "lease_seconds": 60, "only_now": true});
    let refused = curious.post::<_, Value>("/v1/locks/thing/acquire", &lock);
    let refused = refused.await.expect_err("it may only look");
    assert_eq!(refused.status(), Some(403));
    server.shutdown().await;
}

/// A contributor sees whether the task is done, and neither fragments nor definition.
#[tokio::test]
async fn contributors_see_the_state_of_a_task_and_none_of_its_parts() {
    let mut server = TestServer::start().await;
    victim(&server).await;
    let helper = server.node("helper").await;
    let permit = json!({"contributors": ["helper"]});
    let permitted = server
        .operator
        .post::<_, ()>("/v1/once/thing/permissions", &permit);
    permitted.await.expect("permitted");
    let part = json!({"fragment": {"port": 1}});
    let added = helper.put::<_, ()>("/v1/once/thing/fragments/helper", &part);
    added.await.expect("its own part");
    let state: Value = helper
        .get("/v1/once/thing/standing")
        .await
        .expect("a standing");
    assert_eq!(state["state"], "busy", "{state}");
    assert!(!state.to_string().contains(MARK), "{state}");
    let claim = json!({"claim": "00000000-0000-7000-8000-00000000000a", "lease_seconds": 60});
    for (path, body) in [
        ("/v1/once/thing/claims", claim),
        (
            "/v1/once/thing/definition",
            json!({"definition": {"command": MARK}}),
        ),
    ] {
        let refused = if path.ends_with("claims") {
            helper.post::<_, Value>(path, &body).await
        } else {
            helper.put::<_, Value>(path, &body).await
        };
        assert_eq!(refused.expect_err("refused").status(), Some(403), "{path}");
    }
    server.shutdown().await;
}
