//! Triggers through a real etcd, without a Bunraku server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bunraku_store::testing::EtcdCluster;
use rustix::process::Signal;

use crate::support::{Running, Site, all_output, bunraku, eventually};

struct Etcd {
    site: Site,
    endpoint: String,
    /// The flags with which this program authenticates at etcd.
    access: Vec<String>,
    _runtime: tokio::runtime::Runtime,
    _etcd: EtcdCluster,
}

impl Etcd {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts an etcd that also serves the keyspace of the original module.
    fn start_with_v2() -> Self {
        Self::start_with(&["--enable-v2=true"])
    }

    fn start_with(flags: &[&str]) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let etcd = runtime.block_on(EtcdCluster::start_with_flags(1, flags));
        Self {
            site: Site::new(),
            endpoint: etcd.endpoints()[0].clone(),
            access: Vec::new(),
            _runtime: runtime,
            _etcd: etcd,
        }
    }

    /// Starts an etcd that serves both keyspaces only to clients with a certificate.
    fn start_with_v2_and_tls() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let flags = ["--enable-v2=true"];
        let etcd = runtime.block_on(EtcdCluster::start_with_tls_and_flags(1, &flags));
        let site = Site::new();
        let identity = etcd.authority().identity("watcher");
        let files = [
            ("--etcd-ca", "ca.pem", etcd.authority().ca_pem()),
            ("--etcd-certificate", "cert.pem", identity.cert_pem),
            ("--etcd-key", "key.pem", identity.key_pem),
        ];
        let mut access = Vec::new();
        for (flag, name, text) in files {
            std::fs::write(site.path(name), text).expect("a file");
            access.extend([flag.to_owned(), site.path(name).display().to_string()]);
        }
        Self {
            site,
            endpoint: etcd.endpoints()[0].clone(),
            access,
            _runtime: runtime,
            _etcd: etcd,
        }
    }

    /// Starts a watcher for this host whose runs execute this script.
    fn watch(&self, host: &str, script: &str) -> Running {
        let mut command = bunraku();
        command.args([
            "trigger",
            "watch",
            "--etcd",
            &self.endpoint,
            "--name",
            host,
            "--state",
        ]);
        command.arg(self.site.path(&format!("{host}.json")));
        command.args(&self.access);
        command.args(["--log", "info", "--", "sh", "-c", script]);
        let running = Running::start(command, &self.site.path(&format!("{host}.log")));
        eventually("it watches", || running.log().contains("watching"));
        running
    }

    fn fire(&self, trigger: &str, hosts: &str, flags: &[&str]) -> Output {
        let to = ["--etcd", &self.endpoint, "--hosts", hosts];
        let access: Vec<&str> = self.access.iter().map(String::as_str).collect();
        fire_with("etcd", trigger, &[&to, &access[..], flags].concat())
    }

    /// Starts a watcher for the host `lb-1` whose runs add the names of their triggers to a file.
    fn record(&self) -> Record {
        let file = self.site.path("runs");
        let script = format!("echo \"$BUNRAKU_TRIGGERS\" >> {}", file.display());
        Record {
            watcher: self.watch("lb-1", &script),
            file,
        }
    }

    fn etcdctl(&self, arguments: &[&str]) -> String {
        self.etcdctl_of("3", arguments)
    }

    /// Runs the command that the original module uses.
    fn etcdctl_v2(&self, arguments: &[&str]) -> String {
        self.etcdctl_of("2", arguments)
    }

    fn etcdctl_of(&self, api: &str, arguments: &[&str]) -> String {
        let names = match api {
            "2" => ["--ca-file", "--cert-file", "--key-file"],
            _ => ["--cacert", "--cert", "--key"],
        };
        let files = self.access.iter().skip(1).step_by(2);
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", api)
            .args(["--endpoints", &self.endpoint])
            .args(
                names
                    .into_iter()
                    .zip(files)
                    .flat_map(|(name, file)| [name, file.as_str()]),
            )
            .args(arguments)
            .output()
            .expect("etcdctl runs; scripts/setup installs etcd-client");
        assert!(output.status.success(), "{}", all_output(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }
}

/// A watcher, and the file that its runs write.
struct Record {
    watcher: Running,
    file: PathBuf,
}

impl Record {
    fn text(&self) -> String {
        text(&self.file)
    }

    fn wait_for_runs(&self, count: usize) {
        eventually("it ran", || lines(&self.file) == count);
    }

    fn wait_for(&self, trigger: &str) {
        eventually("it ran", || self.text().contains(trigger));
    }
}

/// Fires a trigger through a provider.
fn fire_with(provider: &str, trigger: &str, flags: &[&str]) -> Output {
    let mut command = fire_command(provider, trigger, flags);
    command.output().expect("it runs")
}

fn fire_command(provider: &str, trigger: &str, flags: &[&str]) -> Command {
    let mut command = bunraku();
    command.args(["trigger", "fire", trigger, "--provider", provider]);
    command.args(flags);
    command
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

fn lines(file: &Path) -> usize {
    text(file).lines().count()
}

#[test]
fn a_cue_starts_one_run_and_its_expiry_none() {
    let etcd = Etcd::start();
    let record = etcd.record();
    let fired = etcd.fire("refresh load balancers", "lb-1,lb-2", &["--key-ttl", "1s"]);
    assert_eq!(fired.status.code(), Some(0), "{}", all_output(&fired));
    record.wait_for_runs(1);
    assert_eq!(record.text(), "refresh load balancers\n");
    eventually("the keys expire", || {
        etcd.etcdctl(&["get", "--prefix", "/puppet_trigger/events/"])
            .is_empty()
    });
    // A second cue proves that the watcher has seen everything before it.
    etcd.fire("last", "lb-1", &[]);
    record.wait_for("last");
    assert_eq!(record.text(), "refresh load balancers\nlast\n");
}

#[test]
fn cues_of_the_original_layout_are_understood_and_ours_are_written_in_it() {
    let etcd = Etcd::start();
    let record = etcd.record();
    let message = r#"{"hostname":"web","tags":null,"hosts":["lb-1"],"timestamp":1400000000,"uuid":"11111111-2222-3333-4444-555555555555"}"#;
    etcd.etcdctl(&[
        "put",
        "/puppet_trigger/events/refresh load balancers",
        message,
    ]);
    record.wait_for_runs(1);
    // One is for another host, and one is not a cue.
    etcd.etcdctl(&[
        "put",
        "/puppet_trigger/events/hosts/lb-2",
        &message.replace("1111", "2222"),
    ]);
    etcd.etcdctl(&["put", "/puppet_trigger/events/noise", "this is no JSON"]);
    etcd.fire("ours", "lb-1", &["--tags", "a,b"]);
    record.wait_for_runs(2);
    let written = etcd.etcdctl(&[
        "get",
        "/puppet_trigger/events/hosts/lb-1",
        "--print-value-only",
    ]);
    let written: serde_json::Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["hosts"], serde_json::json!(["lb-1"]));
    assert_eq!(written["tags"], serde_json::json!(["a", "b"]));
    assert!(
        written["timestamp"].is_i64()
            && written["uuid"].is_string()
            && written["hostname"].is_string()
    );
    assert_eq!(
        etcd.etcdctl(&["get", "/puppet_trigger/events/ours", "--print-value-only"])
            .trim(),
        written.to_string().trim(),
        "the same under the trigger's name"
    );
}

#[test]
fn firings_without_a_watcher_are_delivered_later_even_two_on_one_key() {
    let etcd = Etcd::start();
    let mut watcher = etcd.record().watcher;
    assert_eq!(watcher.end(), Some(0), "{}", watcher.log());
    // The second firing overwrites the first one's keys.
    etcd.fire("refresh", "lb-1", &[]);
    etcd.fire("refresh", "lb-1", &[]);
    let record = etcd.record();
    eventually("both are seen", || {
        record.text().matches("refresh").count() == 2
    });
}

#[test]
fn a_watcher_begins_with_what_comes_after_its_first_start() {
    let etcd = Etcd::start();
    etcd.fire("long ago", "lb-1", &[]);
    let record = etcd.record();
    etcd.fire("now", "lb-1", &[]);
    record.wait_for("now");
    assert_eq!(record.text(), "now\n");
}

#[test]
fn away_for_longer_than_etcd_remembers_what_is_still_there_is_seen_and_nothing_twice() {
    let etcd = Etcd::start();
    let mut before = etcd.record();
    etcd.fire("seen", "lb-1", &[]);
    before.wait_for_runs(1);
    assert_eq!(before.watcher.end(), Some(0), "{}", before.watcher.log());
    etcd.fire("missed", "lb-1", &[]);
    etcd.etcdctl(&["put", "/elsewhere", "something newer"]);
    let status = etcd.etcdctl(&["get", "--write-out=json", "nothing"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    // The history up to now is compacted: the revision where the watcher stopped is gone.
    etcd.etcdctl(&["compact", &status["header"]["revision"].to_string()]);
    let record = etcd.record();
    record.wait_for("missed");
    etcd.fire("last", "lb-1", &[]);
    record.wait_for("last");
    assert_eq!(record.text(), "seen\nmissed\nlast\n");
}

/// Returns a run that writes this to a file and then waits until it may continue.
fn held_up(says: &str, file: &Path, go: &Path) -> String {
    format!(
        "echo {says} >> {}; while [ ! -e {} ]; do sleep 0.1; done",
        file.display(),
        go.display()
    )
}

#[test]
fn cues_during_a_run_become_exactly_one_run_after_it() {
    let etcd = Etcd::start();
    let (file, go) = (etcd.path("runs"), etcd.path("go"));
    let script = held_up("\"$BUNRAKU_TRIGGERS\"", &file, &go);
    let _watcher = etcd.watch("lb-1", &script);
    etcd.fire("first", "lb-1", &[]);
    eventually("it runs", || lines(&file) == 1);
    for number in 0..5 {
        etcd.fire(&format!("t{number}"), "lb-1", &[]);
    }
    let state = || text(&etcd.path("lb-1.json"));
    eventually("all of them wait", || state().contains("t4"));
    std::fs::write(&go, "").expect("written");
    eventually("the next ran", || lines(&file) == 2);
    assert_eq!(text(&file), "first\nt0,t1,t2,t3,t4\n");
}

#[test]
fn a_watcher_that_is_killed_in_a_run_runs_again() {
    let etcd = Etcd::start();
    let (file, go) = (etcd.path("runs"), etcd.path("go"));
    let script = held_up("run", &file, &go);
    let watcher = etcd.watch("lb-1", &script);
    etcd.fire("first", "lb-1", &[]);
    eventually("it runs", || lines(&file) == 1);
    watcher.signal(Signal::KILL);
    drop(watcher);
    std::fs::write(&go, "").expect("written");
    let _watcher = etcd.watch("lb-1", &script);
    eventually("it ran again", || lines(&file) == 2);
}

#[test]
fn a_run_that_cues_its_own_host_comes_to_an_end_without_a_server() {
    let etcd = Etcd::start();
    let (runs, fired) = (etcd.path("runs"), etcd.path("fired"));
    let script = format!(
        "echo run >> {}; {} trigger fire again --provider etcd --etcd {} --hosts lb-1 --name-of-this-host lb-1; echo $? >> {}",
        runs.display(),
        env!("CARGO_BIN_EXE_bunraku"),
        etcd.endpoint,
        fired.display()
    );
    let _watcher = etcd.watch("lb-1", &script);
    etcd.fire("again", "lb-1", &[]);
    eventually("the chain is stopped", || text(&fired).ends_with("4\n"));
    assert_eq!(text(&fired), "0\n4\n");
    assert_eq!(lines(&runs), 2);
}

#[test]
fn providers_that_cannot_work_say_so() {
    let dummy = fire_with("dummy", "x", &["--hosts", "a"]);
    assert_eq!(
        all_output(&dummy),
        "exit 0\n--- stdout\n--- stderr\nx was fired for 1 host\n"
    );
    let nobody = ["--hosts", "a", "--etcd", "http://127.0.0.1:9"];
    let etcd = fire_with("etcd", "x", &nobody);
    assert_eq!(etcd.status.code(), Some(1), "{}", all_output(&etcd));
    let mut command = fire_command("mcollective", "x", &["--hosts", "a"]);
    command.env("PATH", "/nonexistent");
    let mco = command.output().expect("it runs");
    assert_eq!(mco.status.code(), Some(1), "{}", all_output(&mco));
    assert!(
        all_output(&mco).contains("cannot run `mco`"),
        "{}",
        all_output(&mco)
    );
}

/// Returns the message of the original provider for
/// `trigger { 'refresh load balancers': hosts => ['lb-1'] }`.
fn original_message(uuid: &str, hosts: &[&str]) -> String {
    serde_json::json!({
        "hostname": "web", "tags": null, "hosts": hosts, "timestamp": 1_400_000_000, "uuid": uuid,
    })
    .to_string()
}

#[test]
fn what_the_original_fires_starts_one_run_here() {
    let etcd = Etcd::start_with_v2();
    let record = etcd.record();
    eventually("it watches both", || {
        record.watcher.log().contains("watching the v2 API")
    });
    // The original's own commands: first the trigger's key, then one key for each host.
    let message = original_message("u1", &["lb-1", "lb-2"]);
    for key in ["refresh load balancers", "hosts/lb-1", "hosts/lb-2"] {
        let key = format!("/puppet_trigger/events/{key}");
        etcd.etcdctl_v2(&["set", "--ttl", "180", &key, &message]);
    }
    record.wait_for_runs(1);
    // Without hosts, the message is for every watcher.
    let message = original_message("u2", &[]);
    let key = "/puppet_trigger/events/rotate (all) / now";
    etcd.etcdctl_v2(&["set", "--ttl", "180", key, &message]);
    record.wait_for_runs(2);
    assert_eq!(
        record.text(),
        "refresh load balancers\nrotate (all) / now\n"
    );
}

#[test]
fn what_is_fired_here_ends_the_watch_of_the_original() {
    let etcd = Etcd::start_with_v2();
    let record = etcd.record();
    let mut original = Command::new("etcdctl")
        .env("ETCDCTL_API", "2")
        .args(["--endpoints", &etcd.endpoint])
        .args(["watch", "--after-index", "1"])
        .arg("/puppet_trigger/events/hosts/lb-1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("etcdctl runs");
    let fired = etcd.fire("refresh / (all)", "lb-1", &["--tags", "blue"]);
    assert_eq!(fired.status.code(), Some(0), "{}", all_output(&fired));
    let status = original.wait().expect("it ends with the change");
    assert!(status.success());
    let key = "/puppet_trigger/events/hosts/lb-1";
    let written: serde_json::Value =
        serde_json::from_str(&etcd.etcdctl_v2(&["get", key])).expect("JSON");
    assert_eq!(written["hosts"], serde_json::json!(["lb-1"]));
    assert_eq!(written["tags"], serde_json::json!(["blue"]));
    // The same cue is in both keyspaces, and one run follows.
    record.wait_for_runs(1);
    etcd.fire("last", "lb-1", &[]);
    record.wait_for("last");
    assert_eq!(record.text(), "refresh / (all)\nlast\n");
}

#[test]
fn both_keyspaces_work_over_tls_with_a_client_certificate() {
    let mut etcd = Etcd::start_with_v2_and_tls();
    let record = etcd.record();
    eventually("it watches both", || {
        record.watcher.log().contains("watching the v2 API")
    });
    let key = "/puppet_trigger/events/hosts/lb-1";
    let message = original_message("u1", &["lb-1"]);
    for key in ["/puppet_trigger/events/refresh", key] {
        etcd.etcdctl_v2(&["set", "--ttl", "180", key, &message]);
    }
    record.wait_for_runs(1);
    let fired = etcd.fire("last", "lb-1", &[]);
    assert_eq!(fired.status.code(), Some(0), "{}", all_output(&fired));
    record.wait_for("last");
    let written: serde_json::Value =
        serde_json::from_str(&etcd.etcdctl_v2(&["get", key])).expect("JSON");
    assert_eq!(written["hosts"], serde_json::json!(["lb-1"]));
    assert_eq!(record.text(), "refresh\nlast\n");
    // Without a certificate, nothing is written, and one line says so.
    etcd.access.truncate(2);
    let refused = etcd.fire("other", "lb-1", &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", all_output(&refused));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(
        said.lines()
            .filter(|line| line.starts_with("error"))
            .count(),
        1,
        "{said}"
    );
}

#[test]
fn a_cue_without_hosts_is_for_every_watcher() {
    let etcd = Etcd::start();
    let file = etcd.path("runs");
    let script = |host: &str| format!("echo {host} >> {}", file.display());
    let _one = etcd.watch("lb-1", &script("lb-1"));
    let _other = etcd.watch("lb-2", &script("lb-2"));
    let fired = fire_with("etcd", "all", &["--etcd", &etcd.endpoint]);
    assert_eq!(
        all_output(&fired),
        "exit 0\n--- stdout\n--- stderr\nall was fired\n"
    );
    eventually("both ran", || {
        text(&file).contains("lb-1") && text(&file).contains("lb-2")
    });
}

#[test]
fn a_trigger_cannot_take_the_key_of_a_host() {
    let etcd = Etcd::start();
    let refused = etcd.fire("hosts/lb-1", "lb-2", &[]);
    assert_eq!(refused.status.code(), Some(64), "{}", all_output(&refused));
}
