//! A backup is restored, and nothing that happened after it is forgotten or repeated.

use std::path::Path;

use bunraku_store::testing::EtcdCluster;

use crate::support::{ServerProcess, Site, all_output, bunraku, eventually, eventually_or, run};

/// Runs a command under a lock, and returns the token that it got.
fn token_of(server: &ServerProcess) -> u64 {
    let output = bunraku()
        .args(["--server", &server.address.to_string(), "--credentials"])
        .arg(server.credentials())
        .args(["lock", "exec", "db", "--", "sh", "-c"])
        .arg("echo $BUNRAKU_LOCK_TOKEN")
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", all_output(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    text.trim().parse().expect("a token")
}

fn copy(site: &Site, from: &str, to: &str) {
    let (from, to) = (site.path(from), site.path(to));
    let _ = std::fs::remove_dir_all(&to);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    run(Path::new("/"), "cp", &["-a", &text(&from), &text(&to)]);
}

fn as_operator(server: &ServerProcess, credentials: &Path) -> String {
    let mut command = bunraku();
    command.args(["node", "list", "--server", &server.address.to_string()]);
    command.arg("--credentials").arg(credentials);
    all_output(&command.output().expect("it runs"))
}

fn issue(server: &ServerProcess, site: &Site, name: &str) {
    let issued = server.issue_operator(name, &site.path(name));
    assert!(issued.status.success(), "{}", all_output(&issued));
}

#[test]
fn a_restored_backup_repeats_no_token_and_forgets_no_revocation() {
    let site = Site::new();
    let mut server = site.server("s1", 0, &[]);
    let port = server.address.port();
    let web = site.agent("web-1", &[&server], true);
    let stolen = site.agent("stolen", &[&server], true);
    server.wait_for("web-1", "idle");
    server.wait_for("stolen", "idle");
    issue(&server, &site, "alice");
    issue(&server, &site, "mallory");
    let first = token_of(&server);
    assert_eq!(server.running.end(), Some(0));
    copy(&site, "s1", "backup");

    // What the backup does not know: a token, a node, two revocations.
    let server = site.server("s1", port, &[]);
    server.wait_for("web-1", "idle");
    let second = token_of(&server);
    assert!(second > first);
    let late = site.agent("late", &[&server], true);
    server.wait_for("late", "idle");
    for name in ["mallory", "stolen"] {
        let revoked = server.operator(&["cert", "revoke", name, "--reason", "stolen"]);
        assert!(revoked.status.success(), "{}", all_output(&revoked));
    }
    // The agent has the list. It fetches it when it connects.
    web.kill();
    let web = site.agent("web-1", &[&server], false);
    eventually("the agent has the list", || {
        let list = site.path("web-1/tls/crl.pem");
        let shown = std::process::Command::new("openssl")
            .args(["crl", "-noout", "-text", "-in"])
            .arg(list)
            .output()
            .expect("openssl runs");
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        text.matches("Serial Number:").count() == 2
    });
    let mut server = server;
    assert_eq!(server.running.end(), Some(0));
    // While the server is away, no agent may tell it anything yet.
    web.kill();
    stolen.kill();

    copy(&site, "backup", "s1");
    let server = site.server("s1", port, &[]);
    assert!(token_of(&server) > second, "tokens only grow");
    // Nobody but the server's own operator is trusted before the review.
    for name in ["alice", "mallory"] {
        let refused = as_operator(&server, &site.path(name));
        assert!(refused.contains("backup check"), "{refused}");
    }
    // The node that the backup does not know says what to do.
    eventually_or(
        "the late node says what to do",
        || late.log().contains("join again with a new token"),
        || format!("{}\n{}", late.log(), server.running.log()),
    );
    let review = server.json(&["backup", "check"]);
    assert_eq!(review["is_reviewed"], false);
    assert_eq!(review["unknown"][0]["name"], "late", "{review}");
    // An agent brings the revocations back.
    let web = site.agent("web-1", &[&server], false);
    server.wait_for("web-1", "idle");
    eventually("the revocations come back", || {
        server.json(&["backup", "check"])["recovered_revocations"] == 2
    });
    let accepted = server.operator(&["backup", "accept"]);
    assert!(accepted.status.success(), "{}", all_output(&accepted));
    let alice = as_operator(&server, &site.path("alice"));
    assert!(alice.starts_with("exit 0"), "{alice}");
    let mallory = as_operator(&server, &site.path("mallory"));
    assert!(mallory.contains("revoked"), "{mallory}");
    let stolen = site.agent("stolen", &[&server], false);
    eventually("the stolen node is refused", || {
        stolen.log().contains("revoked")
    });
    // With a new token, the late node joins again. Nothing has to be deleted.
    late.kill();
    let late = site.agent("late", &[&server], true);
    server.wait_for("late", "idle");
    // A restart is not a restore.
    drop((web, late, stolen));
    server.running.kill();
    let server = site.server("s1", port, &[]);
    assert_eq!(server.json(&["backup", "check"])["epoch"], 1);
}

/// The steps of the manual for an etcd of one's own, with real etcd.
#[test]
fn a_restored_etcd_starts_a_new_epoch_when_the_operator_says_so() {
    let site = Site::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut etcd = runtime.block_on(EtcdCluster::start(1));
    let endpoint = etcd.endpoints()[0].clone();
    let mut server = site.server("s1", 0, &["--etcd", &endpoint]);
    let port = server.address.port();
    let web = site.agent("web-1", &[&server], true);
    server.wait_for("web-1", "idle");
    issue(&server, &site, "alice");
    let first = token_of(&server);
    let snapshot = site.path("snapshot.db");
    let saved = std::process::Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &endpoint, "snapshot", "save"])
        .arg(&snapshot)
        .output()
        .expect("etcdctl runs; scripts/setup installs it");
    assert!(saved.status.success(), "{}", all_output(&saved));

    // What the snapshot does not know: a token, a node, a revocation.
    let second = token_of(&server);
    assert!(second > first);
    let late = site.agent("late", &[&server], true);
    server.wait_for("late", "idle");
    issue(&server, &site, "mallory");
    let revoked = server.operator(&["cert", "revoke", "mallory", "--reason", "stolen"]);
    assert!(revoked.status.success(), "{}", all_output(&revoked));
    web.kill();
    late.kill();
    assert_eq!(server.running.end(), Some(0));
    etcd.kill(0);
    etcd.restore(0, &snapshot);
    runtime.block_on(etcd.restart(0));

    let server = site.server("s1", port, &["--etcd", &endpoint]);
    let declared = server.operator(&["backup", "restored"]);
    assert!(declared.status.success(), "{}", all_output(&declared));
    assert!(token_of(&server) > second, "tokens only grow");
    let refused = as_operator(&server, &site.path("alice"));
    assert!(refused.contains("backup check"), "{refused}");
    let review = server.json(&["backup", "check"]);
    assert_eq!(review["epoch"], 1, "{review}");
    assert_eq!(review["is_reviewed"], false, "{review}");
    // The node that the snapshot does not know says what to do, and the others come back.
    let late = site.agent("late", &[&server], false);
    eventually_or(
        "the late node says what to do",
        || late.log().contains("join again with a new token"),
        || late.log(),
    );
    let _web = site.agent("web-1", &[&server], false);
    server.wait_for("web-1", "idle");
    let accepted = server.operator(&["backup", "accept"]);
    assert!(accepted.status.success(), "{}", all_output(&accepted));
    let alice = as_operator(&server, &site.path("alice"));
    assert!(alice.starts_with("exit 0"), "{alice}");
    let mallory = as_operator(&server, &site.path("mallory"));
    assert!(!mallory.starts_with("exit 0"), "{mallory}");
    late.kill();
    let _late = site.agent("late", &[&server], true);
    server.wait_for("late", "idle");
    // The log goes on where the snapshot ended, and is intact.
    let verified = server.operator(&["audit", "verify"]);
    assert!(verified.status.success(), "{}", all_output(&verified));
}
