//! One member as a process: `bunraku-cluster-member DATA_DIR [SETTING=VALUE]…`.
//! Prints `ready` when its store answers, then runs until it is killed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bunraku_cluster::member::{Member, MemberOptions};
use bunraku_cluster::membership::SwimOptions;
use jiff::SignedDuration;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter("info,bunraku_cluster=debug")
        .init();
    let Some(data_dir) = std::env::args().nth(1).map(PathBuf::from) else {
        return ExitCode::from(64);
    };
    let mut options = MemberOptions::new(data_dir);
    options.listen = IpAddr::from([127, 0, 0, 1]);
    options.swim = SwimOptions {
        probe_period: Duration::from_millis(500),
        probe_timeout: Duration::from_millis(200),
        suspicion: Duration::from_millis(1500),
        guard: true,
    };
    options.limits.grace = SignedDuration::from_millis(500);
    options.limits.start = SignedDuration::from_secs(15);
    options.limits.pause = SignedDuration::from_millis(200);
    options.limits.most_per_hour = 1000;
    options.check_interval = Duration::from_millis(300);
    options.leader_ttl = Duration::from_secs(2);
    // For tests of periodic work.
    for setting in std::env::args().skip(2) {
        if let Some(path) = setting.strip_prefix("etcd=") {
            options.etcd = PathBuf::from(path);
            continue;
        }
        match setting
            .split_once('=')
            .map(|(name, value)| (name, value.parse()))
        {
            Some(("certificate-seconds", Ok(seconds))) => {
                options.certificate_lifetime = SignedDuration::from_secs(seconds);
            }
            Some(("start-seconds", Ok(seconds))) => {
                options.limits.start = SignedDuration::from_secs(seconds);
            }
            Some(("snapshot-seconds", Ok(seconds))) => {
                options.snapshot_every = Duration::from_secs(seconds.unsigned_abs());
            }
            _ => return ExitCode::from(64),
        }
    }
    let member = match Member::start(options).await {
        Ok(member) => member,
        Err(error) => {
            tracing::error!(error = %error, "the member did not start");
            return ExitCode::FAILURE;
        }
    };
    let serving = async {
        let store = member.connect_store().await;
        member.attach(store);
        println!("ready");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        // The tests restart it, as a service manager would.
        _ = member.must_restart() => {}
        _ = terminated() => {}
    }
    member.shutdown().await;
    ExitCode::SUCCESS
}

async fn terminated() -> Option<()> {
    use tokio::signal::unix::{SignalKind, signal};
    signal(SignalKind::terminate()).ok()?.recv().await
}
