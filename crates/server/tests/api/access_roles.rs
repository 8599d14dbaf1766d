//! Every endpoint for operators × every built-in role × every kind of scope.
//!
//! What is expected follows from the reviewed table in `wire` (`access_table.txt`) and from
//! [`ROLES`], which repeats on purpose what each role may do.

use bunraku_plan::run::NewRun;
use bunraku_wire::Client;
use bunraku_wire::api::{Command, CompileSelection, SendCommand};
use bunraku_wire::endpoints::{self, Definition, ScopePlace, Verb};
use serde_json::{Value, json};

use crate::access_matrix::{self, DESTRUCTIVE, Names, call};
use crate::fleet::compile_in;
use crate::query::{becomes, submit};
use crate::reports::{new_run, whole};
use crate::support::{TestServer, name};

const ROLES: [(&str, &[&str]); 4] = [
    ("viewer", &["view"]),
    ("operator", &["view", "noop-run", "run"]),
    (
        "releaser",
        &["view", "noop-run", "run", "deploy", "release"],
    ),
    (
        "administrator",
        &[
            "view",
            "view-secrets",
            "noop-run",
            "run",
            "deploy",
            "release",
            "approve",
            "sign",
            "administer",
        ],
    ),
];

/// The scopes of rules, and whether they cover everything, the environment `production`, and the
/// node `web-1` in it.
const SCOPES: [(&str, Covered); 4] = [
    ("everything", Covered(true, true, true)),
    ("environment:production", Covered(false, true, true)),
    (
        "nodes:nodes { certname = \"web-1\" }",
        Covered(false, false, true),
    ),
    ("environment:staging", Covered(false, false, false)),
];

#[derive(Clone, Copy)]
struct Covered(bool, bool, bool);

/// A text that only those who may view `web-1` know.
const MARK: &str = "marked-by-web-1";

/// What an endpoint that checks each thing does for somebody whose rule covers other things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Elsewhere {
    /// It shows nothing of it.
    Shows,
    /// It refuses: the request names `web-1` or its environment.
    Refuses,
}

/// A body about `web-1` for each endpoint that finds its scope there.
fn body(endpoint: &str) -> Option<Value> {
    let id = "00000000-0000-7000-8000-000000000001";
    let nodes = vec![name("web-1")];
    Some(match endpoint {
        "SendCommands" => json!(SendCommand {
            nodes,
            command: Command::Ping,
            ttl_seconds: 60,
        }),
        "RequestCompiles" => json!(CompileSelection::Nodes(nodes)),
        "ShowCompiles" => json!({"nodes": nodes, "wait_seconds": 0}),
        "AssignEnvironment" => json!({"environment": "production"}),
        "ProposeCatalogs" => json!({"environment": "production", "commit": "main"}),
        "CompareWithPuppet" => json!({"node": "web-1"}),
        "RunQuery" | "QueryNodeNames" => json!({"query": "nodes[certname] { }"}),
        "CreateRelease" => json!({"to": "nodes", "nodes": nodes, "mode": "noop"}),
        "OverrideRelease" => json!({
            "request": {"to": "nodes", "nodes": nodes, "mode": "noop"},
            "reason": "an emergency",
        }),
        "CreateRun" => json!(NewRun::of(plan())),
        "BindPlan" => json!({"plan": plan()}),
        "FireTrigger" => json!({"id": id, "hosts": nodes}),
        _ => return None,
    })
}

fn plan() -> bunraku_plan::RunPlan {
    let text = "applications: {a: {components: {web: {node: web-1}}}}";
    let inventory = bunraku_plan::Inventory::default();
    let site = bunraku_plan::site_file("site.yaml", text, &inventory).expect("a site");
    let plan = bunraku_plan::plan_site(&site, &bunraku_plan::PlanOptions::default());
    plan.expect("a plan")
}

fn elsewhere(endpoint: &Definition) -> Elsewhere {
    match endpoint.name {
        "ListNodes" | "ListCatalogs" | "ListCompileQueue" | "ListEnvironments"
        | "ListOutputReads" | "RunQuery" | "QueryNodeNames" | "ListReactors" | "ListReports"
        | "FollowReports" | "ListRuns" | "ListApprovals" => Elsewhere::Shows,
        _ => Elsewhere::Refuses,
    }
}

async fn fleet(server: &TestServer) {
    let web = server.node("web-1").await;
    let _other = server.node("db-1").await;
    compile_in(server, "web-1", "production", "c1", b"one").await;
    compile_in(server, "db-1", "staging", "c1", b"one").await;
    let moved = json!({"environment": "staging"});
    let moved = server
        .operator
        .put::<_, ()>("/v1/nodes/db-1/environment", &moved);
    moved.await.expect("moved");
    submit(&web, "web-1", json!({"mark": MARK})).await;
    whole(&web, new_run(), bunraku_wire::api::RunEnding::Succeeded).await;
    let all = r#"[{"certname":"db-1"},{"certname":"web-1"}]"#;
    becomes(server, "nodes[certname] { }", all).await;
    let staging = r#"nodes[certname] { environment = "staging" }"#;
    becomes(server, staging, r#"[{"certname":"db-1"}]"#).await;
}

/// Returns whether a role with a scope reaches the handler.
fn is_expected(endpoint: &Definition, verbs: &[&str], covered: Covered) -> bool {
    let needs = endpoint.needs.expect("an endpoint for operators");
    let has_verb = verbs.contains(&needs.verb.as_str());
    has_verb
        && match needs.place {
            ScopePlace::Everything => covered.0,
            ScopePlace::Environment => covered.1,
            ScopePlace::Node => covered.2,
            ScopePlace::Each => true,
        }
}

async fn check(
    client: &Client,
    who: &str,
    endpoint: &Definition,
    verbs: &[&str],
    covered: Covered,
) {
    let names = Names {
        node: "web-1",
        thing: "production",
    };
    let expected = is_expected(endpoint, verbs, covered);
    if expected && DESTRUCTIVE.contains(&endpoint.name) {
        return;
    }
    let path = access_matrix::path(endpoint, names);
    let body = match endpoint.verb {
        Verb::Get | Verb::Delete => Value::Null,
        _ => body(endpoint.name)
            .or_else(|| access_matrix::body(endpoint.name))
            .unwrap_or_else(|| json!({})),
    };
    let answer = call(client, endpoint, &path, &body).await;
    let (status, text) = (answer.status, &answer.text);
    let route = format!("{who}: {} {path} answered {status} {text}", endpoint.verb);
    assert!(status != 401 && status != 405 && status < 500, "{route}");
    let needs = endpoint.needs.expect("an endpoint for operators");
    if !expected {
        assert_eq!(status, 403, "{route}");
        assert!(text.contains(&format!("needs `{}`", needs.verb)), "{route}");
        assert!(text.contains("bunraku access grant"), "{route}");
        return;
    }
    if needs.place != ScopePlace::Each {
        // Handlers may need more, and say what.
        let more = ["IssueCertificate", "RevokeCertificates"].contains(&endpoint.name);
        assert!(more || status != 403, "{route}");
        return;
    }
    let outside = !covered.2;
    match elsewhere(endpoint) {
        Elsewhere::Shows if outside => {
            assert_eq!(status, 200, "{route}");
            assert!(!text.contains("web-1") && !text.contains(MARK), "{route}");
        }
        Elsewhere::Shows => assert_ne!(status, 403, "{route}"),
        // A run or a report with this id does not exist for anybody.
        Elsewhere::Refuses if outside => assert!(matches!(status, 400 | 403 | 404), "{route}"),
        Elsewhere::Refuses => {}
    }
    if outside {
        assert!(!text.contains(MARK), "{route}");
    }
}

#[tokio::test]
async fn each_role_reaches_what_its_verbs_and_scope_say_on_every_endpoint() {
    let mut server = TestServer::start().await;
    fleet(&server).await;
    for (role, verbs) in ROLES {
        for (number, (scope, covered)) in SCOPES.into_iter().enumerate() {
            let who = format!("{role}-{number}");
            let client = server.operator(&who, &["limited"]).await;
            server.grant(&who, role, scope).await;
            for endpoint in endpoints::all().filter(|known| known.needs.is_some()) {
                check(&client, &who, endpoint, verbs, covered).await;
            }
        }
    }
    // Without a rule, nothing is allowed.
    let nobody = server.operator("nobody", &["limited"]).await;
    for endpoint in endpoints::all().filter(|known| known.needs.is_some()) {
        check(
            &nobody,
            "nobody",
            endpoint,
            &[],
            Covered(false, false, false),
        )
        .await;
    }
    server.shutdown().await;
}

/// What each endpoint with limits does about `web-1` is either in the list of those that show
/// less, or refused with the right reason.
#[tokio::test]
async fn whoever_names_a_node_outside_of_the_scope_is_refused_by_every_endpoint() {
    let mut server = TestServer::start().await;
    fleet(&server).await;
    let client = server.operator("eve", &["limited"]).await;
    server
        .grant("eve", "administrator", "environment:staging")
        .await;
    for endpoint in endpoints::all() {
        let Some(needs) = endpoint.needs else {
            continue;
        };
        if needs.place != ScopePlace::Each || elsewhere(endpoint) == Elsewhere::Shows {
            continue;
        }
        let Some(body) = body(endpoint.name) else {
            // It names what it is about in its path, by an id.
            assert!(
                endpoint.template.contains("{id}"),
                "{} needs a body",
                endpoint.name
            );
            continue;
        };
        assert!(
            endpoint.can_read(body.to_string().as_bytes()),
            "{}",
            endpoint.name
        );
        let names = Names {
            node: "web-1",
            thing: "production",
        };
        let path = access_matrix::path(endpoint, names);
        let answer = call(&client, endpoint, &path, &body).await;
        let route = format!(
            "{} {path}: {} {}",
            endpoint.verb, answer.status, answer.text
        );
        assert_eq!(answer.status, 403, "{route}");
        assert!(answer.text.contains("`eve` needs"), "{route}");
    }
    server.shutdown().await;
}
