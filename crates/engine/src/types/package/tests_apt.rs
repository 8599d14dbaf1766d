//! Tests with the real apt and dpkg, on roots and repositories of the test.

use std::process::{Command, Stdio};
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use super::test_repository::{Debian, needs};

fn package(title: &str, parameters: Value) -> Value {
    json!({"type": "Package", "title": title, "parameters": parameters})
}

fn one(title: &str, ensure: &str) -> Value {
    json!([package(title, json!({"ensure": ensure}))])
}

fn debian() -> Debian {
    let debian = Debian::new().with_source();
    debian.package("tiny", "1.0", "");
    debian.package("other", "1.0", "Provides: virtual\n");
    debian
}

#[test]
fn packages_are_installed_in_one_transaction_and_only_once() {
    let debian = debian();
    let desired = json!([
        package("tiny", json!({"ensure": "installed"})),
        package("other", json!({"ensure": "present"})),
    ]);
    let transcript = debian.machine.converges(desired);
    expect![[r#"
        Package[other] changed
          ensure: - -> installed
        Package[tiny] changed
          ensure: - -> installed
    "#]]
    .assert_eq(&transcript);
    assert_eq!(debian.installed(), "other ii 1.0\ntiny ii 1.0\n");
    assert_eq!(debian.transactions(), 1);
    assert_eq!(
        debian.machine.apply(one("virtual", "installed")),
        "Package[virtual] unchanged\n"
    );
}

#[test]
fn a_version_is_installed_upgraded_to_the_latest_and_downgraded() {
    let debian = debian();
    debian.package("tiny", "2.0", "");
    debian.machine.converges(one("tiny", "1.0"));
    assert_eq!(debian.installed(), "tiny ii 1.0\n");
    let transcript = debian.machine.converges(one("tiny", "latest"));
    expect![[r#"
        Package[tiny] changed
          ensure: 1.0 -> 2.0
    "#]]
    .assert_eq(&transcript);
    debian.machine.converges(one("tiny", "1.*"));
    assert_eq!(debian.installed(), "tiny ii 1.0\n");
}

#[test]
fn a_held_package_stays_until_somebody_says_otherwise() {
    let debian = debian();
    debian.machine.converges(one("tiny", "held"));
    assert_eq!(debian.installed(), "tiny hi 1.0\n");
    let transcript = debian
        .machine
        .converges(json!([package("tiny", json!({"mark": "none"}))]));
    expect![[r#"
        Package[tiny] changed
          hold: true -> false
    "#]]
    .assert_eq(&transcript);
    assert_eq!(debian.installed(), "tiny ii 1.0\n");
}

#[test]
fn absent_leaves_configuration_files_and_purged_does_not() {
    let debian = debian();
    debian.machine.converges(one("tiny", "installed"));
    debian.machine.converges(one("tiny", "absent"));
    assert_eq!(debian.installed(), "tiny rc 1.0\n");
    assert!(debian.machine.path("/etc/tiny.conf").exists());
    let transcript = debian.machine.converges(one("tiny", "purged"));
    expect![[r#"
        Package[tiny] changed
          ensure: configuration files -> purged
    "#]]
    .assert_eq(&transcript);
    assert!(!debian.machine.path("/etc/tiny.conf").exists());
}

#[test]
fn a_list_of_packages_changes_together_and_each_shows_its_own_name() {
    let debian = debian();
    let transcript = debian
        .machine
        .converges(json!([{"type": "Pkg", "title": "all", "parameters": {
        "pkgs": ["other", {"tiny": "1.0"}]}}]));
    expect![[r#"
        Pkg[all] changed
          other: - -> installed
          tiny: - -> 1.0
    "#]]
    .assert_eq(&transcript);
    assert_eq!(debian.transactions(), 1);
}

#[test]
fn an_unavailable_package_fails_alone() {
    let debian = debian();
    let transcript = debian.machine.apply(json!([
        package("tiny", json!({})),
        package("nonesuch", json!({})),
        package("broken", json!({"ensure": "9.9"})),
    ]));
    assert!(
        transcript.contains("no package `nonesuch` in the repositories"),
        "{transcript}"
    );
    assert!(transcript.contains("Package[tiny] changed"), "{transcript}");
    debian.package("broken", "1.0", "Depends: missing\n");
    let transcript = debian.machine.apply(json!([
        package("other", json!({})),
        package("broken", json!({"refresh": true}))
    ]));
    assert!(
        transcript.contains("Package[broken] failed\n  apt-get install failed"),
        "{transcript}"
    );
    assert!(
        transcript.contains("Package[other] changed"),
        "{transcript}"
    );
    assert_eq!(debian.installed(), "other ii 1.0\ntiny ii 1.0\n");
}

#[test]
fn changed_configuration_files_are_kept_without_a_question() {
    let debian = debian();
    debian.machine.converges(one("tiny", "installed"));
    debian.machine.write("/etc/tiny.conf", "mine");
    debian.package("tiny", "2.0", "");
    debian.machine.apply(json!([package(
        "tiny",
        json!({"ensure": "2.0", "refresh": true})
    )]));
    assert_eq!(debian.installed(), "tiny ii 2.0\n");
    assert_eq!(debian.machine.read("/etc/tiny.conf"), "mine");
}

#[test]
fn a_package_file_is_installed() {
    let debian = Debian::new();
    let file = debian.package("tiny", "1.5", "");
    std::fs::copy(file, debian.machine.path("/tiny.deb")).unwrap();
    debian
        .machine
        .converges(json!([package("tiny", json!({"source": "/tiny.deb"}))]));
    assert_eq!(debian.installed(), "tiny ii 1.5\n");
}

#[test]
fn what_was_cut_off_in_the_middle_is_finished_first() {
    let debian = debian();
    debian.machine.converges(one("tiny", "installed"));
    // As dpkg leaves it after a power loss: unpacked, and its journal not merged.
    let status = debian.machine.read("/var/lib/dpkg/status");
    let journal = status.replace("install ok installed", "install ok unpacked");
    debian.machine.write("/var/lib/dpkg/updates/0000", &journal);
    debian.machine.apply(one("other", "installed"));
    assert_eq!(debian.installed(), "other ii 1.0\ntiny ii 1.0\n");
}

/// A process that holds dpkg's lock until it is killed, or for a limited time.
struct Holder(std::process::Child);

impl Holder {
    fn of(debian: &Debian, seconds: &str) -> Self {
        needs(&["python3"]);
        let lock = debian.machine.path("/var/lib/dpkg/lock-frontend");
        let program = "import fcntl,sys,time\nf=open(sys.argv[1],'w')\nfcntl.lockf(f,fcntl.LOCK_EX)\n\
                       print('held',flush=True)\ntime.sleep(float(sys.argv[2]))";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .arg(lock)
            .arg(seconds)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_locked_manager_is_waited_for() {
    let debian = debian();
    let mut holder = Holder::of(&debian, "1");
    debian.machine.apply(one("tiny", "installed"));
    assert_eq!(debian.installed(), "tiny ii 1.0\n");
    assert!(
        holder.0.try_wait().unwrap().is_some(),
        "it installed only after the holder was done"
    );
}

#[test]
fn the_holder_of_the_lock_is_named_after_waiting_in_vain() {
    let debian = debian();
    let holder = Holder::of(&debian, "600");
    let transcript = debian
        .machine
        .apply(json!([package("tiny", json!({"lock_timeout": 0.3}))]));
    let expected = format!(
        "the package manager is still locked by process {} (python3)",
        holder.0.id()
    );
    assert!(
        transcript.contains(&expected) && transcript.contains("after 0.3 s"),
        "{transcript}"
    );
    assert_eq!(debian.installed(), "");
}

#[test]
fn an_interrupt_ends_the_wait_for_the_lock() {
    let debian = debian();
    let _holder = Holder::of(&debian, "600");
    let cancellation = crate::Cancellation::new().unwrap();
    let stop = cancellation.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stop.cancel();
    });
    let summary = debian
        .machine
        .run_until(one("tiny", "installed"), cancellation);
    let transcript = debian.machine.transcript(&summary);
    assert!(transcript.contains("interrupted"), "{transcript}");
}
