//! Another etcd is installed on all servers at once, while clients write.

use bunraku_testkit::eventually;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Cluster, PATIENCE, Server};
use bunraku_store::{Compare, SharedStore, StoreError, Transaction};

/// Installs another program, as a package does.
fn install(place: &Path, script: &str) {
    let fresh = place.with_extension("new");
    std::fs::write(&fresh, script).expect("written");
    std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).expect("it may be run");
    std::fs::rename(&fresh, place).expect("in place");
}

fn pid(server: &Server) -> String {
    std::fs::read_to_string(server.directory().datastore_pid()).unwrap_or_default()
}

/// The number of acknowledged writes, and the longest time without one.
struct Written {
    count: usize,
    longest: Duration,
}

async fn write(store: SharedStore, stop: Arc<AtomicBool>) -> Written {
    let (mut count, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let key = format!("test/{count}");
        let put = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, "kept");
        match store.commit(put).await {
            // Refused: the same write was committed before, and its answer was lost.
            Ok(_) => count += 1,
            Err(StoreError::OutcomeUnknown(_)) => continue,
            Err(error) => panic!("writing stopped: {error:?}"),
        }
        longest = longest.max(last.elapsed());
        last = Instant::now();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Written { count, longest }
}

/// Collects the process ids of each datastore until the events contain this text this many times.
async fn until_said(cluster: &Cluster, what: &str, times: usize) -> Vec<Vec<String>> {
    let mut pids: Vec<Vec<String>> = vec![Vec::new(); cluster.servers.len()];
    let deadline = Instant::now() + PATIENCE;
    eventually(async || {
        for (server, seen) in cluster.servers.iter().zip(&mut pids) {
            let pid = pid(server);
            // Empty while the file is written.
            if !pid.is_empty() && seen.last() != Some(&pid) {
                seen.push(pid);
            }
        }
        let events = cluster.events().await;
        let said = events.iter().filter(|event| event.contains(what));
        let is_said = said.count() >= times;
        assert!(is_said || Instant::now() < deadline, "{what}: {events:#?}");
        is_said
    })
    .await;
    pids
}

fn copy_of_etcd(place: &Path) -> PathBuf {
    let etcd = place.join("etcd");
    std::fs::copy("/usr/bin/etcd", &etcd)
        .expect("/usr/bin/etcd is there; scripts/setup installs etcd-server");
    etcd
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_etcd_is_rolled_out_one_datastore_at_a_time_during_writes() {
    let place = tempfile::tempdir().expect("a directory");
    let etcd = copy_of_etcd(place.path());
    let setting = format!("etcd={}", etcd.display());
    let cluster = Cluster::start_with(3, 3, &[&setting]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(cluster.store().await, Arc::clone(&stop)));

    install(&etcd, "#!/bin/sh\nexec /usr/bin/etcd \"$@\"\n");
    let pids = until_said(&cluster, "done: the datastore of", 3).await;
    stop.store(true, Ordering::Relaxed);
    let written = writing.await.expect("it wrote on");
    eprintln!(
        "{} writes, none for {:?} at most",
        written.count, written.longest
    );
    assert!(
        pids.iter().all(|seen| seen.len() == 2),
        "once each: {pids:?}"
    );
    let events = cluster.events().await;
    let steps = events.iter().filter_map(|event| {
        [
            "planned: restart the datastore",
            "datastore restart requested",
            "done: the datastore of",
        ]
        .into_iter()
        .position(|step| event.contains(step))
    });
    let steps: Vec<usize> = steps.collect();
    assert_eq!(steps, [0, 1, 2, 0, 1, 2, 0, 1, 2], "{events:#?}");
    let store = cluster.store().await;
    for number in 0..written.count {
        let kept = store.get(&format!("test/{number}")).await;
        assert!(kept.expect("readable").is_some(), "test/{number} is lost");
    }

    let leaps = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'etcd Version: 3.9.0' && exit\n\
                 exec /usr/bin/etcd \"$@\"\n";
    install(&etcd, leaps);
    let waits = "etcd 3.9.0 is installed on server-2 but not started";
    let after = until_said(&cluster, waits, 1).await;
    let same = pids
        .iter()
        .zip(&after)
        .all(|(one, two)| one.last() == two.last());
    assert!(
        same && after.iter().all(|seen| seen.len() == 1),
        "{after:?}"
    );
}
