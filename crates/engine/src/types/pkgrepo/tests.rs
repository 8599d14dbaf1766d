//! Package repositories: decisions, and real files.

use expect_test::expect;
use serde_json::{Value, json};

use crate::types::package::test_repository::{Debian, needs, run};
use crate::types::testing_root::Machine;

fn signed() -> (Debian, String) {
    needs(&["gpg", "gpgconf"]);
    let debian = Debian::new();
    debian.package("tiny", "1.0", "");
    let home = debian.machine.beside().join("gnupg");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(0), Some(0)).unwrap();
    let gpg = |arguments: &[&str]| {
        let mut command = std::process::Command::new("gpg");
        command.env("GNUPGHOME", &home).args([
            "--batch",
            "--yes",
            "--no-tty",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
        ]);
        run(command.args(arguments))
    };
    gpg(&[
        "--quick-generate-key",
        "Test <test@example.com>",
        "ed25519",
        "sign",
        "never",
    ]);
    let index = std::fs::read(debian.repository().join("Packages")).unwrap();
    let hash = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&index));
    let release = format!(
        "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {hash} {} Packages\n",
        index.len()
    );
    let file = debian.repository().join("Release");
    std::fs::write(&file, release).unwrap();
    let (from, to) = (
        file.display().to_string(),
        debian.repository().join("InRelease").display().to_string(),
    );
    gpg(&["--clearsign", "--output", &to, &from]);
    let key = gpg(&["--armor", "--export"]);
    // The agent that gpg starts must not outlive the test.
    run(std::process::Command::new("gpgconf")
        .env("GNUPGHOME", &home)
        .args(["--kill", "all"]));
    (debian, key)
}

fn repository(debian: &Debian, more: Value) -> Value {
    let mut parameters =
        json!({"uris": format!("file:{}", debian.repository().display()), "suites": "./"});
    parameters
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"type": "Pkgrepo", "title": "local", "parameters": parameters})
}

#[test]
fn a_signed_repository_and_its_package_come_in_one_run() {
    let (debian, key) = signed();
    let desired = json!([
        {"type": "Package", "title": "tiny"},
        repository(&debian, json!({"key": key})),
    ]);
    let transcript = debian.machine.apply(desired.clone());
    assert!(
        transcript.starts_with("Package[tiny] changed")
            && transcript.contains("Pkgrepo[local] changed"),
        "{transcript}"
    );
    assert_eq!(debian.installed(), "tiny ii 1.0\n");
    let again = debian.machine.apply(desired);
    assert_eq!(again, "Package[tiny] unchanged\nPkgrepo[local] unchanged\n");
    let sources = debian.machine.read("/etc/apt/sources.list.d/local.sources");
    expect![[r#"
        Types: deb
        URIs: file:REPOSITORY
        Suites: ./
        Signed-By: /etc/apt/keyrings/local.asc
    "#]]
    .assert_eq(&sources.replace(&*debian.repository().to_string_lossy(), "REPOSITORY"));
    let transcript = debian.machine.converges(json!([repository(
        &debian,
        json!({"key": key, "ensure": "absent"})
    )]));
    assert!(
        transcript.contains("ensure: present -> absent"),
        "{transcript}"
    );
    assert!(!debian.machine.path("/etc/apt/keyrings/local.asc").exists());
}

#[test]
fn a_repository_that_cannot_be_read_or_trusted_is_undone() {
    let debian = Debian::new();
    debian.package("tiny", "1.0", "");
    let transcript = debian
        .machine
        .apply(json!([repository(&debian, json!({}))]));
    assert!(
        transcript.contains("Pkgrepo[local] failed"),
        "unsigned: {transcript}"
    );
    assert!(
        !debian
            .machine
            .path("/etc/apt/sources.list.d/local.sources")
            .exists()
    );
    let both = json!([
        repository(&debian, json!({"trusted": true})),
        {"type": "Pkgrepo", "title": "deb [trusted=yes] file:/nowhere ./"},
    ]);
    let transcript = debian.machine.apply(both);
    assert!(
        transcript.contains("Pkgrepo[local] changed"),
        "{transcript}"
    );
    assert!(
        transcript.contains("Pkgrepo[deb [trusted=yes] file:/nowhere ./] failed"),
        "{transcript}"
    );
    let files = std::fs::read_dir(debian.machine.path("/etc/apt/sources.list.d")).unwrap();
    assert_eq!(files.count(), 1, "the good one stays");
}

#[test]
fn a_line_lands_in_its_list_beside_the_others() {
    let machine = Machine::new();
    machine.write("/etc/apt/sources.list", "deb http://a.example.com x main\n");
    let transcript = machine.converges(json!([{"type": "Pkgrepo", "title": "deb http://b.example.com y main",
        "parameters": {"target": "/etc/apt/sources.list", "refresh": false, "components": "main,extra"}}]));
    assert!(transcript.contains("ensure: - -> present"), "{transcript}");
    let expected = "deb http://a.example.com x main\ndeb http://b.example.com y main extra\n";
    assert_eq!(machine.read("/etc/apt/sources.list"), expected);
}

#[test]
fn a_section_for_dnf_is_made_used_changed_and_removed() {
    needs(&["dnf", "createrepo_c"]);
    let machine = Machine::new();
    let place = machine.beside().join("repository");
    std::fs::create_dir(&place).unwrap();
    run(std::process::Command::new("createrepo_c")
        .arg("--quiet")
        .arg(&place));
    let desired = |more: Value| {
        let mut parameters = json!({"baseurl": format!("file://{}", place.display()), "descr": "Ours", "gpgcheck": false});
        parameters
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([{"type": "Yumrepo", "title": "ours", "parameters": parameters}])
    };
    machine.converges(desired(json!({"priority": 10})));
    let text = machine.read("/etc/yum.repos.d/ours.repo");
    assert!(
        text.starts_with("[ours]\nname=Ours\nenabled=1\nbaseurl=file://"),
        "{text}"
    );
    machine.converges(desired(json!({"priority": "absent", "enabled": false})));
    let text = machine.read("/etc/yum.repos.d/ours.repo");
    assert!(
        text.contains("enabled=0") && !text.contains("priority"),
        "{text}"
    );
    let transcript = machine.apply(desired(json!({"baseurl": "file:///nowhere"})));
    assert!(
        transcript.contains("Yumrepo[ours] failed\n  dnf makecache failed"),
        "{transcript}"
    );
    assert_eq!(machine.read("/etc/yum.repos.d/ours.repo"), text, "undone");
    machine.converges(desired(json!({"ensure": "absent"})));
    assert!(!machine.path("/etc/yum.repos.d/ours.repo").exists());
}
