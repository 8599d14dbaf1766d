//! Servers and agents as processes: joining, disconnecting, reconnecting.

use bunraku_store::testing::EtcdCluster;
use rustix::process::Signal;

use crate::support::{ServerProcess, Site, all_output, bunraku, ended, eventually, shows};

#[test]
fn a_node_joins_with_a_token_submits_facts_and_answers() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let mut agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    eventually("facts are there", || {
        server
            .operator(&["facts", "show", "web-1", "kernel"])
            .stdout
            == b"Linux\n"
    });
    let ping = server.operator(&["node", "ping", "web-1"]);
    assert_eq!(
        all_output(&ping),
        "exit 0\n--- stdout\n✓ web-1  pong\n--- stderr\n"
    );
    let refreshed = server.operator(&["facts", "refresh", "web-1"]);
    ended(&refreshed, 0);
    assert_eq!(agent.end(), Some(0), "{}", agent.log());
    server.wait_for("web-1", "lost");
    let silence = server.operator(&["node", "ping", "web-1", "--timeout", "5s"]);
    shows(&silence, "web-1 is lost: ");
    assert_eq!(
        silence.status.code(),
        Some(3),
        "silence is never success: {}",
        all_output(&silence)
    );
}

#[test]
fn the_printed_line_joins_the_node_by_a_name_of_the_certificate() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let made = server.operator(&["token", "create", "--node", "web-1"]);
    ended(&made, 0);
    let port = server.address.port();
    let expected =
        format!(" bunraku agent --name web-1 --server server.test:{port} --ca-fingerprint ");
    shows(&made, &expected);
}

#[test]
fn a_node_without_a_token_waits_for_an_operator() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let agent = site.agent("web-1", &[&server], false);
    eventually("the request waits", || {
        server
            .json(&["cert", "requests"])
            .as_array()
            .is_some_and(|all| all.len() == 1)
    });
    let fingerprint = server.json(&["cert", "requests"])[0]["fingerprint"]
        .as_str()
        .expect("text")
        .to_owned();
    eventually("the node tells its fingerprint", || {
        agent.log().contains(&fingerprint)
    });
    let wrong = server.operator(&["cert", "sign", "web-1", "--fingerprint", "SHA256:00"]);
    ended(&wrong, 4);
    let right = server.operator(&["cert", "sign", "web-1", "--fingerprint", &fingerprint]);
    ended(&right, 0);
    server.wait_for("web-1", "idle");
}

#[test]
fn an_agent_does_not_join_a_server_of_another_authority() {
    let site = Site::new();
    let ours = site.server("ours", 0, &[]);
    let theirs = site.server("theirs", 0, &[]);
    let mut command = bunraku();
    command.args([
        "agent",
        "--name",
        "web-1",
        "--server",
        &theirs.address.to_string(),
    ]);
    command.args(["--ca-fingerprint", &ours.fingerprint, "--log", "error"]);
    let output = command
        .arg("--data-dir")
        .arg(site.path("web-1"))
        .output()
        .expect("it runs");
    ended(&output, 1);
    assert_eq!(theirs.status_of("web-1"), None);
}

#[test]
fn a_killed_server_loses_no_command_and_no_node() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let port = server.address.port();
    let stays = site.agent("stays", &[&server], true);
    let goes = site.agent("goes", &[&server], true);
    server.wait_for("stays", "idle");
    server.wait_for("goes", "idle");
    goes.kill();
    server.wait_for("goes", "lost");
    // No answer arrives in time for the caller, but the command stays.
    let mut waiting = bunraku();
    waiting.args([
        "facts",
        "refresh",
        "goes",
        "--timeout",
        "10m",
        "--server",
        &server.address.to_string(),
    ]);
    let mut waiting = waiting
        .arg("--credentials")
        .arg(server.credentials())
        .spawn()
        .expect("it runs");
    let pending =
        |server: &ServerProcess| server.json(&["node", "show", "goes"])["pending_commands"].clone();
    eventually("the command waits", || pending(&server) == 1);
    waiting.kill().expect("it can be killed");
    waiting.wait().expect("it ended");
    let disabled = server.operator(&["node", "disable", "stays", "--reason", "on purpose"]);
    ended(&disabled, 0);
    server.running.kill();
    let server = site.server("server", port, &[]);
    server.wait_for("stays", "disabled");
    let shown = server.operator(&["node", "list"]);
    shows(&shown, "on purpose");
    let _back = site.agent("goes", &[&server], false);
    server.wait_for("goes", "idle");
    eventually("the command that waited is answered", || {
        pending(&server) == 0
    });
    drop(stays);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused_with_the_owner() {
    let site = Site::new();
    let _first = site.server("server", 0, &[]);
    let mut second = bunraku();
    second.args([
        "server",
        "--listen",
        "127.0.0.1:0",
        "--name",
        "server.test",
        "--log",
        "error",
        "--data-dir",
    ]);
    let output = second.arg(site.path("server")).output().expect("it runs");
    ended(&output, 1);
    shows(&output, "is in use by");
}

#[test]
fn a_revoked_agent_is_cut_off_and_the_reason_is_listed() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let revoked = server.operator(&["cert", "revoke", "web-1", "--reason", "stolen laptop"]);
    ended(&revoked, 0);
    server.wait_for("web-1", "lost");
    let list = all_output(&server.operator(&["cert", "list"]));
    assert!(list.contains("revoked: stolen laptop"), "{list}");
}

#[test]
fn an_agent_renews_its_certificate_before_it_ends_and_stays_connected() {
    let site = Site::new();
    let file = site.path("bunraku.toml");
    std::fs::write(&file, "[server.certificates]\nnode_lifetime = \"8s\"\n").expect("written");
    let server = site.server("server", 0, &["--config", &file.display().to_string()]);
    let agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let issued = |server: &ServerProcess| {
        let all = server.json(&["cert", "list"]);
        let entries = all.as_array().expect("a list").iter();
        let own = entries.filter(|entry| entry["name"] == "web-1");
        own.map(|entry| {
            entry["state"]["state"]
                .as_str()
                .expect("a state")
                .to_owned()
        })
        .collect::<Vec<_>>()
    };
    eventually("the first certificate has ended", || {
        issued(&server).contains(&"expired".to_owned())
    });
    assert!(
        issued(&server).contains(&"valid".to_owned()),
        "{}",
        agent.log()
    );
    let ping = server.operator(&["node", "ping", "web-1"]);
    assert_eq!(
        ping.status.code(),
        Some(0),
        "{}\n{}",
        all_output(&ping),
        agent.log()
    );
}

#[test]
fn another_operator_is_made_and_can_work() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let out = site.path("alice");
    let issued = server.issue_operator("alice", &out);
    ended(&issued, 0);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(out.join("key.pem"))
            .expect("a key")
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let mut command = bunraku();
    command
        .args([
            "node",
            "list",
            "--server",
            &server.address.to_string(),
            "--credentials",
        ])
        .arg(&out);
    let listed = command.output().expect("it runs");
    ended(&listed, 0);
}

#[test]
fn a_shutdown_is_orderly_and_quick_to_come_back() {
    let site = Site::new();
    let mut server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    let port = server.address.port();
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.wait(), Some(0), "{}", server.running.log());
    let server = site.server("server", port, &[]);
    server.wait_for("web-1", "idle");
}

#[test]
fn with_two_servers_on_etcd_agents_move_when_theirs_is_killed() {
    let site = Site::new();
    let (_etcd, first, second) = two_servers(&site);
    let _agent = site.agent("web-1", &[&first, &second], true);
    first.wait_for("web-1", "idle");
    second.wait_for("web-1", "idle");
    let at_first =
        second.json(&["node", "show", "web-1"])["status"]["connection"]["server"].clone();
    first.running.kill();
    eventually("the agent moves", || {
        let node = second.json(&["node", "show", "web-1"]);
        node["word"] == "idle" && node["status"]["connection"]["server"] != at_first
    });
    let ping = second.operator(&["node", "ping", "web-1"]);
    ended(&ping, 0);
}

#[test]
fn a_server_that_is_killed_has_its_nodes_buried_by_the_other() {
    let site = Site::new();
    let (_etcd, first, second) = two_servers(&site);
    let agent = site.agent("web-1", &[&first], true);
    second.wait_for("web-1", "idle");
    // Kill server and agent at the same moment: nobody is left to report the disconnect.
    first.running.kill();
    agent.kill();
    second.wait_for("web-1", "lost");
}

/// A real etcd that runs for as long as this value lives.
pub(crate) struct Etcd {
    _cluster: EtcdCluster,
    _runtime: tokio::runtime::Runtime,
}

/// Starts two servers on one etcd. The second one shares the authority, as in a cluster.
pub(crate) fn two_servers(site: &Site) -> (Etcd, ServerProcess, ServerProcess) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(EtcdCluster::start(1));
    let endpoint = cluster.endpoints()[0].clone();
    let first = site.server("first", 0, &["--etcd", &endpoint]);
    copy(&site.path("first/ca"), &site.path("second/ca"));
    let second = site.server("second", 0, &["--etcd", &endpoint]);
    let etcd = Etcd {
        _cluster: cluster,
        _runtime: runtime,
    };
    (etcd, first, second)
}

pub(crate) fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory");
    std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("private");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}
