//! Servers join over a real `sshd`. Two of three die for good, and the third continues: reading
//! immediately, writing after a recovery.

use serde_json::Value;

use crate::cluster_support::{Cluster, healthy, status};
use crate::ssh::SshServer;
use crate::support::{Running, ServerProcess, all_output, eventually};

/// Creates servers that may verify others over SSH, and the machine's `sshd`.
fn over_ssh() -> (Cluster, SshServer) {
    let cluster = Cluster::new();
    let ssh = SshServer::start(&cluster.site.path("ssh"));
    let place = ssh.directory.display();
    cluster.configure(&format!(
        "snapshot_every = \"1s\"\n[server.cluster.ssh]\n\
         known_hosts = \"{place}/known_authority\"\nauthority = \"{place}/ca\"\nport = {}\n",
        ssh.port
    ));
    (cluster, ssh)
}

/// Starts a cluster of three with an agent. Returns the running servers.
fn whole(cluster: &Cluster) -> ([ServerProcess; 3], Running) {
    let made = cluster.set_up(1, &["init"]);
    assert!(made.status.success(), "{}", all_output(&made));
    let first = cluster.server(1);
    // It is connected while others join, and is notified of them.
    let agent = cluster.site.agent("web-1", &[&first], true);
    first.wait_for("web-1", "idle");
    let address = first.address.to_string();
    let join = ["join", &address, "--ca-fingerprint", &first.fingerprint];
    let others = [2, 3].map(|number| {
        let stranger = cluster.set_up(number, &join);
        let text = all_output(&stranger);
        assert!(!stranger.status.success(), "{text}");
        assert!(text.contains("no operator expects"), "{text}");
        let name = format!("s{number}");
        let expect = ["cluster", "expect", &name, "--address", "127.0.0.1"];
        let named = first.operator(&expect);
        assert!(named.status.success(), "{}", all_output(&named));
        let joined = cluster.set_up(number, &join);
        assert!(
            joined.status.success(),
            "{}\n{}",
            all_output(&joined),
            first.running.log()
        );
        assert!(
            all_output(&joined).contains("verified by s1"),
            "{}",
            all_output(&joined)
        );
        cluster.server(number)
    });
    eventually("the data is on three", || {
        status(&first).is_some_and(|status| healthy(&status) == 3)
    });
    eventually("the agent knows all servers", || {
        let known = std::fs::read(cluster.site.path("web-1/servers.json")).unwrap_or_default();
        let known: Vec<String> = serde_json::from_slice(&known).unwrap_or_default();
        known.len() == 3
    });
    // From here on it knows the voters without asking.
    eventually("the first server keeps where the data is", || {
        let known = std::fs::read(cluster.directory(1).join("cluster/known.json"));
        let known: Value = serde_json::from_slice(&known.unwrap_or_default()).unwrap_or_default();
        let endpoints = known["endpoints"].as_array();
        endpoints.is_some_and(|endpoints| endpoints.len() == 3)
    });
    first.wait_for("web-1", "idle");
    let [second, third] = others;
    ([first, second, third], agent)
}

#[test]
fn servers_join_over_ssh_and_the_last_of_three_serves_reads_and_recovers() {
    let (cluster, _ssh) = over_ssh();
    let ([first, second, third], _agent) = whole(&cluster);
    let left: Vec<_> = std::fs::read_dir("/run/bunraku-join")
        .expect("it was made")
        .collect();
    assert!(
        left.is_empty(),
        "what only a member may know lies about: {left:?}"
    );
    second.running.kill();
    third.running.kill();

    eventually("it is said that there is no majority", || {
        status(&first).is_some_and(|status| status["without_majority_seconds"].is_u64())
    });
    let shown = first.operator(&["cluster", "status"]);
    let text = all_output(&shown);
    assert_eq!(shown.status.code(), Some(3), "{text}");
    assert!(text.contains("NO MAJORITY of 3 datastores"), "{text}");
    for reading in [
        &["node", "list"][..],
        &["node", "show", "web-1"],
        &["query", "nodes { }"],
        &["report", "list"],
        &["environment", "list"],
    ] {
        let output = first.operator(reading);
        let text = all_output(&output);
        assert!(output.status.success(), "{reading:?}: {text}");
        assert!(
            text.contains("this output may be stale"),
            "{reading:?}: {text}"
        );
    }
    let refused = first.operator(&["token", "create"]);
    let text = all_output(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the datastores have had no majority"),
        "{text}"
    );
    assert!(text.contains("nothing was done"), "{text}");

    // Its datastore no longer answers, but the recovery still starts from it.
    first.running.kill();
    let first = cluster.server(1);
    recovers(&cluster, first);
}

/// Recovers from the survivor, which then works again.
fn recovers(cluster: &Cluster, mut first: ServerProcess) {
    let unnamed = cluster.recover(&["--yes"]);
    let text = all_output(&unnamed);
    assert_eq!(unnamed.status.code(), Some(4), "{text}");
    assert!(text.contains("--gone s2 --gone s3"), "{text}");
    let gone = ["--gone", "s2", "--gone", "s3"];
    let unconfirmed = cluster.recover(&gone);
    let text = all_output(&unconfirmed);
    assert_eq!(unconfirmed.status.code(), Some(4), "{text}");
    assert!(text.contains("possible data loss: "), "{text}");
    assert!(
        text.contains("cannot ask for confirmation: no terminal"),
        "{text}"
    );
    let wrong = cluster.recover_on_terminal(&gone, "yes");
    let text = all_output(&wrong);
    assert_eq!(wrong.status.code(), Some(4), "{text}");
    assert!(text.contains("Type `recover` to continue: "), "{text}");
    assert!(text.contains("nothing was changed"), "{text}");
    let still = first.operator(&["node", "list"]);
    assert!(still.status.success(), "it goes on: {}", all_output(&still));
    let again = all_output(&cluster.recover(&gone));
    assert!(again.contains("(epoch 2)"), "nothing was begun: {again}");
    let recovered = cluster.recover_on_terminal(&gone, "recover");
    let text = all_output(&recovered);
    assert_eq!(recovered.status.code(), Some(0), "{text}");
    assert!(
        text.contains("restarts with its data in epoch 2."),
        "{text}"
    );
    first.running.wait();
    let first = cluster.server(1);
    first.wait_for("web-1", "idle");
    let written = first.operator(&["token", "create"]);
    assert!(written.status.success(), "{}", all_output(&written));
    assert!(
        !all_output(&written).contains("old"),
        "{}",
        all_output(&written)
    );
    let refused = cluster.recover(&["--yes"]);
    let text = all_output(&refused);
    assert_eq!(refused.status.code(), Some(4), "{text}");
    assert!(text.contains("there is nothing to recover"), "{text}");
    let two = first.operator(&["cluster", "remove", "s3"]);
    assert!(
        all_output(&two).contains("two servers would be left"),
        "{}",
        all_output(&two)
    );
    from_a_snapshot(cluster, first);
}

/// Recovers when only a snapshot is left.
fn from_a_snapshot(cluster: &Cluster, first: ServerProcess) {
    let snapshots = cluster.directory(1).join("cluster/snapshots");
    let newest = || {
        let entries = std::fs::read_dir(&snapshots).ok()?;
        let paths = entries.flatten().map(|entry| entry.path());
        let taken = paths.filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("20") && name.ends_with(".db"))
        });
        taken.max()
    };
    let before = newest();
    eventually("one more snapshot is taken", || newest() != before);
    first.running.kill();
    let snapshot = newest().expect("it was taken").display().to_string();
    let kept = cluster.site.path("kept.db");
    std::fs::copy(&snapshot, &kept).expect("a copy elsewhere");
    std::fs::remove_dir_all(cluster.directory(1).join("cluster/etcd")).expect("the disk is lost");
    let kept = kept.display().to_string();
    let gone = ["--snapshot", &kept, "--gone", "s2", "--gone", "s3"];
    let unconfirmed = cluster.recover(&gone);
    let text = all_output(&unconfirmed);
    assert_eq!(unconfirmed.status.code(), Some(4), "{text}");
    assert!(text.contains("all writes after the snapshot"), "{text}");
    let recovered = cluster.recover(&[&gone[..], &["--yes"]].concat());
    assert!(recovered.status.success(), "{}", all_output(&recovered));
    let first = cluster.server(1);
    first.wait_for("web-1", "idle");
}
