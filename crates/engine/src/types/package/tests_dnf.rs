//! Tests with the real dnf and rpm, on roots and repositories of the test.

use std::path::PathBuf;
use std::process::Command;

use expect_test::expect;
use serde_json::{Value, json};

use super::test_repository::{needs, run};
use crate::types::testing_root::Machine;

struct RedHat {
    machine: Machine,
}

impl RedHat {
    fn new() -> Self {
        needs(&["dnf", "rpm", "rpmbuild", "createrepo_c"]);
        let red_hat = Self {
            machine: Machine::new(),
        };
        let repository = red_hat.repository();
        std::fs::create_dir(&repository).unwrap();
        red_hat.machine.write(
            "/etc/yum.repos.d/test.repo",
            &format!(
                "[test]\nname=test\nbaseurl=file://{}\ngpgcheck=0\nmetadata_expire=0\n",
                repository.display()
            ),
        );
        red_hat
    }

    fn repository(&self) -> PathBuf {
        self.machine.beside().join("repository")
    }

    fn package(&self, name: &str, version: &str) {
        let build = tempfile::tempdir().unwrap();
        let spec = build.path().join("package.spec");
        let text = format!(
            "Name: {name}\nVersion: {version}\nRelease: 1\nSummary: test\nLicense: none\n\
             BuildArch: noarch\n%description\ntest\n%files\n"
        );
        std::fs::write(&spec, text).unwrap();
        run(Command::new("rpmbuild")
            .arg("-bb")
            .arg("--quiet")
            .arg(format!("--define=_rpmdir {}", self.repository().display()))
            .arg(format!("--define=_topdir {}", build.path().display()))
            .arg(&spec));
        run(Command::new("createrepo_c")
            .arg("--quiet")
            .arg(self.repository()));
        self.forget_metadata();
    }

    /// Removes the cached metadata. dnf counts its age in whole seconds: within one
    /// second, even `metadata_expire=0` trusts the old list.
    fn forget_metadata(&self) {
        let cache = self.machine.path("/var/cache/dnf");
        if cache.exists() {
            std::fs::remove_dir_all(cache).unwrap();
        }
    }

    fn installed(&self) -> String {
        let root = self.machine.path("/");
        let text = run(Command::new("rpm").arg("--root").arg(root).args([
            "-qa",
            "--qf",
            "%{NAME} %{VERSION}\\n",
        ]));
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

fn package(title: &str, ensure: &str) -> Value {
    json!({"type": "Package", "title": title, "parameters": {"ensure": ensure}})
}

#[test]
fn packages_are_installed_upgraded_downgraded_and_removed() {
    let red_hat = RedHat::new();
    red_hat.package("tiny", "1.0");
    red_hat.package("other", "1.0");
    let transcript = red_hat.machine.converges(json!([
        package("tiny", "1.0"),
        package("other", "installed")
    ]));
    expect![[r#"
        Package[other] changed
          ensure: - -> installed
        Package[tiny] changed
          ensure: - -> 1.0
    "#]]
    .assert_eq(&transcript);
    assert_eq!(red_hat.installed(), "other 1.0\ntiny 1.0");
    red_hat.package("tiny", "2.0");
    red_hat.machine.converges(json!([package("tiny", "2.0")]));
    assert_eq!(red_hat.installed(), "other 1.0\ntiny 2.0");
    red_hat.machine.converges(json!([package("tiny", "1.0")]));
    assert_eq!(red_hat.installed(), "other 1.0\ntiny 1.0");
    red_hat
        .machine
        .converges(json!([package("tiny", "latest")]));
    assert_eq!(red_hat.installed(), "other 1.0\ntiny 2.0");
    red_hat.machine.converges(json!([
        package("tiny", "absent"),
        package("other", "purged")
    ]));
    assert_eq!(red_hat.installed(), "");
}

#[test]
fn an_unavailable_package_fails_alone() {
    let red_hat = RedHat::new();
    red_hat.package("tiny", "1.0");
    let transcript = red_hat.machine.apply(json!([
        package("tiny", "installed"),
        package("nonesuch", "installed")
    ]));
    assert!(
        transcript.contains("Package[nonesuch] failed\n  dnf install failed"),
        "{transcript}"
    );
    assert!(
        transcript.contains("nonesuch") && transcript.contains("Package[tiny] changed"),
        "{transcript}"
    );
    assert_eq!(red_hat.installed(), "tiny 1.0");
}

#[test]
fn the_holder_of_the_lock_is_named_after_waiting_in_vain() {
    let red_hat = RedHat::new();
    red_hat.package("tiny", "1.0");
    let mut holder = Command::new("sleep").arg("600").spawn().unwrap();
    red_hat
        .machine
        .write("/var/lib/dnf/rpmdb_lock.pid", &holder.id().to_string());
    let transcript = red_hat
        .machine
        .apply(json!([{"type": "Package", "title": "tiny", "parameters": {"lock_timeout": 0.3}}]));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(
        transcript.contains(&format!("locked by process {} (sleep)", holder.id())),
        "{transcript}"
    );
    red_hat
        .machine
        .converges(json!([package("tiny", "installed")]));
}
