//! Real repositories, and environments created from them.

use std::path::Path;
use std::process::Command;

use bunraku_wire::Client;
use bunraku_wire::api::{
    CompileOutcome, CompileSelection, CompileStatus, CompileStatusRequest, Deploy, DeployRequest,
    DeployStatus, EnvironmentChanged, NewEnvironment, ReleasePolicy,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{TestServer, appears, eventually, name, soon};

/// A repository with the branch `main`.
pub(crate) struct Repository {
    directory: TempDir,
}

impl Repository {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let repository = Self {
            directory: TempDir::new().expect("a directory"),
        };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.commit(files);
        repository
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// Writes files, commits everything, and returns the commit.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            let place = self.path().join(path);
            std::fs::create_dir_all(place.parent().expect("below")).expect("a directory");
            std::fs::write(&place, text).expect("a file");
            if text.starts_with("#!") {
                use std::os::unix::fs::PermissionsExt;
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&place, mode).expect("a mode");
            }
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message=next"]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(self.path())
            .args(["-c", "user.name=test", "-c", "user.email=test@example.com"])
            .args([
                "-c",
                "commit.gpgsign=false",
                "-c",
                "protocol.file.allow=always",
            ])
            .args(arguments)
            .output()
            .expect("git runs; scripts/setup installs it");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {words}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// Returns one group with one file, for every node.
pub(crate) fn site(content: &str) -> Vec<(&'static str, String)> {
    vec![
        (
            "site.yaml",
            "groups:\n  all:\n    nodes: '*'\n    resources: all.yaml\n".to_owned(),
        ),
        (
            "all.yaml",
            format!("resources:\n  File[/etc/motd]:\n    content: {content}\n"),
        ),
    ]
}

pub(crate) fn site_repository(content: &str) -> Repository {
    let files = site(content);
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    Repository::new(&files)
}

/// Returns an external compiler in Python whose `compile(request)` returns resources.
pub(crate) fn external(body: &str, settings: &str) -> Vec<(&'static str, String)> {
    let script = format!(
        "#!/usr/bin/env python3\nimport json, os, sys, time\n{body}\n\
         for line in sys.stdin:\n    request = json.loads(line)\n    \
         resources = compile(request)\n    \
         catalog = {{'name': request['node'], 'resources': resources}}\n    \
         print(json.dumps({{'id': request['id'], 'catalog': catalog}}), flush=True)\n"
    );
    vec![
        (
            "bunraku.yaml",
            format!("compiler: external\ncommand: [./compile.py]\n{settings}"),
        ),
        ("compile.py", script),
    ]
}

pub(crate) fn repository_of(files: &[(&'static str, String)]) -> Repository {
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    Repository::new(&files)
}

pub(crate) async fn add(server: &TestServer, environment: &str, url: &str) -> EnvironmentChanged {
    let new = NewEnvironment {
        name: environment.parse().expect("a name"),
        url: url.to_owned(),
        branch: Some("main".to_owned()),
        policy: ReleasePolicy::Manual,
        volatile: None,
        order: None,
        poll_seconds: None,
        allow_external_compiler: true,
        fact_targeting: false,
        check_repository: false,
    };
    let added = server.operator.post("/v1/environments", &new).await;
    added.expect("a new environment")
}

/// Requests a deploy.
pub(crate) async fn ask(server: &TestServer, environment: &str, commit: Option<&str>) -> u64 {
    let request = DeployRequest {
        pin: commit.is_some(),
        commit: commit.map(str::to_owned),
    };
    let path = format!("/v1/environments/{environment}/deploys");
    let asked: Deploy = server
        .operator
        .post(&path, &request)
        .await
        .expect("asked for");
    asked.number
}

/// Deploys, and waits until everything is compiled.
pub(crate) async fn deploy(server: &TestServer, environment: &str) -> DeployStatus {
    let number = ask(server, environment, None).await;
    finished(server, environment, number).await
}

pub(crate) async fn finished(server: &TestServer, environment: &str, number: u64) -> DeployStatus {
    let path = format!("/v1/environments/{environment}/deploys/{number}?wait_seconds=30");
    soon(async {
        loop {
            let status: DeployStatus = server.operator.get(&path).await.expect("a status");
            if status.finished {
                return status;
            }
        }
    })
    .await
}

/// Creates a node with facts.
pub(crate) async fn node(server: &TestServer, node: &str) -> Client {
    let client = server.node(node).await;
    facts(&client, node, &json!({"role": "web"})).await;
    client
}

pub(crate) async fn facts(client: &Client, node: &str, facts: &Value) {
    let path = format!("/v1/nodes/{node}/facts");
    let sent: Result<Value, _> = client.put(&path, facts).await;
    sent.expect("facts are taken");
}

pub(crate) async fn compile(server: &TestServer, node: &str) {
    let selection = CompileSelection::Nodes(vec![name(node)]);
    let asked: Result<Value, _> = server.operator.post("/v1/compiles", &selection).await;
    asked.expect("asked for");
}

/// Returns the result of the node's compiles once the queue is empty.
pub(crate) async fn settled(server: &TestServer, node: &str) -> CompileOutcome {
    let request = CompileStatusRequest {
        nodes: vec![name(node)],
        wait_seconds: 10,
    };
    appears(async || {
        let statuses = server.operator.post("/v1/compiles/status", &request).await;
        let [status]: [CompileStatus; 1] = statuses.expect("statuses");
        let last = status.last.filter(|_| !status.waiting)?;
        Some(last.outcome)
    })
    .await
}

/// Waits until the code is in use, regardless of which server compiles it.
pub(crate) async fn is_deployed(server: &TestServer, environment: &str, number: u64) {
    let path = format!("/v1/environments/{environment}/deploys/{number}");
    eventually(async || {
        let status: serde_json::Value = server.operator.get(&path).await.expect("a status");
        status["deploy"]["state"]["state"] == "deployed"
    })
    .await;
}

/// Returns the message of the first problem.
pub(crate) fn problem(outcome: &CompileOutcome) -> String {
    match outcome {
        CompileOutcome::Failed { problems, .. } => problems[0].message.clone(),
        other => panic!("a failure was expected, not {other:?}"),
    }
}
