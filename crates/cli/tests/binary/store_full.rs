//! A cluster of one server whose etcd has a quota of 20 MB: full, restarted, and recovered.

use std::path::Path;
use std::process::Command;

use crate::cluster_support::{Cluster, status};
use crate::support::{all_output, eventually};

const PIECE_BYTES: usize = 500_000;
/// This many pieces use more than the quota without its reserve of a fifth.
const PIECES: usize = 35;
const QUOTA: &str = "etcd_flags = [\"--quota-backend-bytes=20971520\"]\n";

/// Writes one piece of junk past our servers. Returns `false` if etcd refuses it.
fn put_junk(cluster: &Cluster, value: &Path, number: usize) -> bool {
    let put = format!("etcdctl put junk/{number} < {} 2>&1", value.display());
    let tls = cluster.directory(1).join("cluster/tls");
    let output = Command::new("sh")
        .args(["-c", &put])
        .env("ETCDCTL_API", "3")
        .env(
            "ETCDCTL_ENDPOINTS",
            format!("https://127.0.0.1:{}", cluster.ports[0][2]),
        )
        .env("ETCDCTL_CACERT", tls.join("ca.pem"))
        .env("ETCDCTL_CERT", tls.join("cert.pem"))
        .env("ETCDCTL_KEY", tls.join("key.pem"))
        .output()
        .expect("sh runs");
    let text = all_output(&output);
    let is_refused = text.contains("space exceeded");
    assert!(is_refused || output.status.success(), "{text}");
    !is_refused
}

/// Fills etcd until it raises its alarm, and its data alone uses more than the servers allow. When
/// it raises the alarm earlier, because its file has unused space, the servers reclaim that.
fn fill(cluster: &Cluster, value: &Path) {
    let mut written = 0;
    eventually("etcd is full of data", || {
        while put_junk(cluster, value, written) {
            written += 1;
            assert!(written < 100, "the quota is no limit");
        }
        written >= PIECES
    });
}

fn level(server: &crate::support::ServerProcess) -> String {
    let level = status(server).map(|status| status["space"]["level"].to_string());
    level.unwrap_or_default()
}

#[test]
fn a_full_etcd_is_reported_survives_a_restart_and_recovers_when_junk_is_deleted() {
    let cluster = Cluster::new();
    cluster.configure(QUOTA);
    let made = cluster.set_up(1, &["init"]);
    assert!(made.status.success(), "{}", all_output(&made));
    let server = cluster.server(1);
    eventually("the space is known", || level(&server) == "\"normal\"");
    let created = server.operator(&["token", "create"]);
    assert!(created.status.success(), "{}", all_output(&created));
    let value = cluster.site.path("junk");
    std::fs::write(&value, "x".repeat(PIECE_BYTES)).expect("written");
    fill(&cluster, &value);

    eventually("the status says it", || level(&server) == "\"full\"");
    let shown = server.operator(&["cluster", "status"]);
    assert_eq!(shown.status.code(), Some(3), "{}", all_output(&shown));
    assert!(
        all_output(&shown).contains("FULL"),
        "{}",
        all_output(&shown)
    );
    eventually("the error says it", || {
        let refused = server.operator(&["token", "create"]);
        !refused.status.success() && all_output(&refused).contains("the datastore is full")
    });

    // A restarted server comes up, with its etcd.
    server.running.kill();
    let server = cluster.server(1);
    eventually("it is still full", || level(&server) == "\"full\"");

    // A deletion makes room, so it is not refused, even if it cannot be recorded yet.
    let tokens = server.json(&["token", "list"]);
    let token = tokens[0]["id"].as_str().expect("an id").to_owned();
    let revoked = server.operator(&["token", "revoke", &token]);
    assert!(revoked.status.success(), "{}", all_output(&revoked));
    let recorded = || server.json(&["audit", "list", "--action", "revoke-token"]);

    let deleted = cluster.etcdctl(1, &["del", "--prefix", "junk/"]);
    assert!(deleted.status.success(), "{}", all_output(&deleted));
    eventually("it recovers", || level(&server) == "\"normal\"");
    eventually("the deletion is recorded once", || {
        let records = recorded();
        let records = records.as_array().expect("a list").as_slice();
        matches!(records, [one] if one["outcome"] == "succeeded" && one["number"].is_u64())
    });
    let shown = server.operator(&["cluster", "status"]);
    assert_eq!(shown.status.code(), Some(0), "{}", all_output(&shown));
    let created = server.operator(&["token", "create"]);
    assert!(created.status.success(), "{}", all_output(&created));
}
