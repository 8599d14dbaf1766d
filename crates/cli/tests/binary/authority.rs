//! The CA is replaced while agents work.

use std::path::Path;

use serde_json::Value;

use crate::cluster_support::{Cluster, healthy};
use crate::support::{
    Running, ServerProcess, Site, all_output, bunraku, eventually, eventually_or,
};

/// Returns the number of CAs that a directory of credentials trusts.
fn trusted(directory: &Path) -> usize {
    let text = std::fs::read_to_string(directory.join("ca.pem")).unwrap_or_default();
    text.matches("BEGIN CERTIFICATE").count()
}

fn status(server: &ServerProcess) -> Value {
    server.json(&["authority", "status"])
}

fn wait_until_renewed(server: &ServerProcess, nodes: usize, waiting: &[&str]) {
    eventually_or(
        "all connected nodes renew",
        || {
            let status = status(server);
            status["renewed"] == nodes && status["waiting"] == serde_json::json!(waiting)
        },
        || status(server).to_string(),
    );
}

fn refused(server: &ServerProcess, arguments: &[&str]) -> String {
    let output = server.operator(arguments);
    assert!(!output.status.success(), "{}", all_output(&output));
    all_output(&output)
}

fn succeeds(server: &ServerProcess, arguments: &[&str]) -> String {
    let output = server.operator(arguments);
    assert!(output.status.success(), "{}", all_output(&output));
    all_output(&output)
}

#[test]
fn a_rotation_on_a_live_fleet_loses_no_agent_and_one_that_was_off_has_a_way_back() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    let former = server.fingerprint.clone();
    let names = ["web-1", "web-2", "web-3"];
    let agents: Vec<_> = names
        .iter()
        .map(|name| site.agent(name, &[&server], true))
        .collect();
    let absent = site.agent("web-off", &[&server], true);
    for name in names.iter().chain(&["web-off"]) {
        server.wait_for(name, "idle");
    }
    absent.kill();
    server.wait_for("web-off", "lost");
    let alice = site.path("alice");
    let alice_text = alice.to_str().expect("text");
    succeeds(
        &server,
        &[
            "cert", "issue", "alice", "--role", "operator", "--out", alice_text,
        ],
    );

    succeeds(&server, &["authority", "rotate"]);
    refused(&server, &["authority", "rotate"]);
    wait_until_renewed(&server, 3, &["web-off"]);
    for name in names {
        assert_eq!(trusted(&site.path(&format!("{name}/tls"))), 2);
        server.wait_for(name, "idle");
    }
    // The server and an agent start in the middle of it.
    let port = server.address.port();
    server.running.kill();
    let server = site.server("s1", port, &[]);
    assert_eq!(server.fingerprint, former, "nodes still pin the former CA");
    for name in names {
        server.wait_for(name, "idle");
    }
    let joined = site.agent("web-new", &[&server], true);
    server.wait_for("web-new", "idle");
    wait_until_renewed(&server, 4, &["web-off"]);

    let text = refused(&server, &["authority", "rotate", "--finish"]);
    assert!(text.contains("1 node would lose"), "{text}");
    // Another operator's next command renews the operator's certificate.
    let mut command = bunraku();
    command.args(["node", "list", "--server", &server.address.to_string()]);
    command.arg("--credentials").arg(&alice);
    std::fs::remove_file(alice.join("trust-checked")).ok();
    assert!(command.output().expect("it runs").status.success());
    assert_eq!(trusted(&alice), 2);
    assert_eq!(status(&server)["operators_waiting"], serde_json::json!([]));

    succeeds(&server, &["authority", "rotate", "--finish", "--force"]);
    for name in names.iter().chain(&["web-new"]) {
        eventually("the agent trusts only the new CA", || {
            trusted(&site.path(&format!("{name}/tls"))) == 1
        });
        server.wait_for(name, "idle");
    }
    assert!(command.output().expect("it runs").status.success());
    let key = std::fs::read_dir(site.path("s1/ca")).expect("a directory");
    let keys: Vec<_> = key
        .flatten()
        .filter(|entry| entry.path().join("ca.key").exists())
        .collect();
    assert!(keys.is_empty(), "only one key is left: {keys:?}");

    // After a restart, everybody still comes back, under the new CA.
    server.running.kill();
    let server = site.server("s1", port, &[]);
    assert_ne!(server.fingerprint, former);
    for name in names.iter().chain(&["web-new"]) {
        server.wait_for(name, "idle");
    }

    // The one that was off does not trust the server; with a new token it joins again.
    let agent = site.agent("web-off", &[&server], false);
    eventually("it says why it cannot connect", || {
        agent.log().contains("join again with a new token")
    });
    agent.kill();
    let _agent = site.agent("web-off", &[&server], true);
    server.wait_for("web-off", "idle");
    drop((agents, joined));
}

#[test]
fn an_aborted_rotation_leaves_the_former_ca() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    let _agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    succeeds(&server, &["authority", "rotate"]);
    wait_until_renewed(&server, 1, &[]);
    succeeds(&server, &["authority", "rotate", "--abort"]);
    eventually("the rotation is gone", || {
        let output = server.operator(&["authority", "status"]);
        all_output(&output).contains("does not exist")
    });
    eventually("the agent trusts only the former CA", || {
        trusted(&site.path("web-1/tls")) == 1
    });
    eventually("the next CA is deleted", || {
        !site.path("s1/ca/next").exists()
    });
    server.wait_for("web-1", "idle");
    let port = server.address.port();
    let former = server.fingerprint.clone();
    server.running.kill();
    let server = site.server("s1", port, &[]);
    assert_eq!(server.fingerprint, former);
    server.wait_for("web-1", "idle");
}

#[test]
fn a_server_whose_certificate_is_revoked_is_refused_by_agents_and_the_command_line() {
    let site = Site::new();
    let server = site.server("s1", 0, &[]);
    let port = server.address.port();
    let agent = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    // Somebody has a copy of the server's key. Here it is the server itself.
    succeeds(
        &server,
        &["cert", "revoke", "s1.test", "--reason", "stolen"],
    );
    eventually_or(
        "the agent refuses the server",
        || agent.log().contains("the server's certificate was revoked"),
        || agent.log(),
    );
    std::fs::remove_file(server.credentials().join("trust-checked")).ok();
    let text = refused(&server, &["node", "list"]);
    assert!(
        text.contains("the server's certificate was revoked"),
        "{text}"
    );
    // Both remember it: nobody has to tell them again.
    server.running.kill();
    let server = site.server("s1", port, &[]);
    let text = refused(&server, &["node", "list"]);
    assert!(
        text.contains("the server's certificate was revoked"),
        "{text}"
    );
    server.running.kill();
    std::fs::remove_dir_all(site.path("s1/tls")).expect("removed");
    let server = site.server("s1", port, &[]);
    server.wait_for("web-1", "idle");
}

/// Replaces the end of the period in the store, as if it were in the past.
fn end_the_period(cluster: &Cluster) {
    let shown = cluster.etcdctl(
        1,
        &["get", "/bunraku/authority-rotation", "--print-value-only"],
    );
    assert!(shown.status.success(), "{}", all_output(&shown));
    let mut rotation: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    rotation["until"] = "2026-01-01T00:00:00Z".into();
    let value = rotation.to_string();
    let written = cluster.etcdctl(1, &["put", "/bunraku/authority-rotation", &value]);
    assert!(written.status.success(), "{}", all_output(&written));
}

/// Returns the keys of former CAs below the directory of a server.
fn former_keys(cluster: &Cluster, number: usize) -> usize {
    let entries = std::fs::read_dir(cluster.directory(number).join("ca")).expect("a directory");
    let entries = entries.flatten();
    entries
        .filter(|it| it.path().join("ca.key").exists())
        .count()
}

#[test]
fn a_rotation_in_a_cluster_ends_with_its_period_and_reaches_every_server() {
    let cluster = Cluster::new();
    let made = cluster.set_up(1, &["init", "--datastores=3"]);
    assert!(made.status.success(), "{}", all_output(&made));
    let mut servers = vec![cluster.server(1)];
    for number in [2, 3] {
        let next = cluster.join(&servers[0], number);
        servers.push(next);
    }
    let status_of = crate::cluster_support::status;
    eventually("the data is on three", || {
        status_of(&servers[0]).is_some_and(|status| healthy(&status) == 3)
    });
    let former = servers[0].fingerprint.clone();
    // Each agent prefers another server.
    let names = ["web-1", "web-2", "web-3"];
    let all: Vec<&ServerProcess> = servers.iter().collect();
    let agents: Vec<Running> = names
        .iter()
        .map(|name| cluster.site.agent(name, &all, true))
        .collect();
    let absent = cluster.site.agent("web-off", &all, true);
    for name in names.iter().chain(&["web-off"]) {
        servers[0].wait_for(name, "idle");
    }
    absent.kill();
    servers[0].wait_for("web-off", "lost");

    succeeds(&servers[1], &["authority", "rotate", "--period", "1d"]);
    for server in &servers {
        wait_until_renewed(server, 3, &["web-off"]);
    }
    // A server that was away in the meantime gets the new CA when it starts.
    let port = servers[2].address.port();
    assert_eq!(port, cluster.ports[2][0]);
    servers.pop().expect("three servers").running.kill();
    servers.push(cluster.server(3));
    for name in names {
        servers[2].wait_for(name, "idle");
    }
    eventually_or(
        "every server has the new CA",
        || status(&servers[0])["servers_waiting"] == serde_json::json!([]),
        || status(&servers[0]).to_string(),
    );

    end_the_period(&cluster);
    for name in names {
        eventually("the agent trusts only the new CA", || {
            trusted(&cluster.site.path(&format!("{name}/tls"))) == 1
        });
        servers[0].wait_for(name, "idle");
    }
    for number in 1..=3 {
        eventually("the former key is deleted", || {
            former_keys(&cluster, number) == 0
        });
    }
    // It ended automatically, once, and the log says so.
    let ends = || servers[0].json(&["audit", "list", "--action", "finish-rotation"]);
    eventually("it is recorded", || ends() != serde_json::json!([]));
    assert_eq!(ends().as_array().map(Vec::len), Some(1), "{}", ends());
    // Every server presents the new CA, and all nodes come back to it.
    let servers: Vec<ServerProcess> = (1..=3)
        .zip(servers)
        .map(|(number, server)| {
            server.running.kill();
            cluster.server(number)
        })
        .collect();
    for server in &servers {
        assert_ne!(server.fingerprint, former);
        for name in names {
            server.wait_for(name, "idle");
        }
    }
    let all: Vec<&ServerProcess> = servers.iter().collect();
    let off = cluster.site.agent("web-off", &all, false);
    eventually("it says why it cannot connect", || {
        off.log().contains("join again with a new token")
    });
    off.kill();
    let _off = cluster.site.agent("web-off", &all, true);
    servers[0].wait_for("web-off", "idle");
    drop(agents);
}
