//! Authorized keys: decisions, and real files.

use std::os::unix::fs::{MetadataExt, symlink};

use expect_test::expect;
use serde_json::{Value, json};

use crate::types::testing_root::Machine;

const FILE: &str = "/home/ada/.ssh/authorized_keys";

fn machine() -> Machine {
    let machine = Machine::new();
    machine.write("/etc/passwd", "ada:x:1200:1300::/home/ada:/bin/sh\n");
    std::fs::create_dir_all(machine.path("/home/ada")).unwrap();
    machine
}

fn key(title: &str, parameters: Value) -> Value {
    let mut all = json!({"user": "ada", "type": "ssh-ed25519"});
    all.as_object_mut()
        .unwrap()
        .extend(parameters.as_object().unwrap().clone());
    json!([{"type": "Ssh_authorized_key", "title": title, "parameters": all}])
}

#[test]
fn a_key_is_added_changed_and_removed_and_belongs_to_the_user() {
    let machine = machine();
    machine.converges(key("work", json!({"key": "AAAA"})));
    let metadata = std::fs::metadata(machine.path(FILE)).unwrap();
    assert_eq!(
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777),
        (1200, 1300, 0o600)
    );
    let metadata = std::fs::metadata(machine.path("/home/ada/.ssh")).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (1200, 0o700));
    std::fs::write(
        machine.path(FILE),
        "# keep\nssh-rsa BBBB other\nssh-ed25519 AAAA work\n",
    )
    .unwrap();
    let transcript = machine.converges(key(
        "work",
        json!({"key": "CCCC", "options": ["no-pty", "command=\"a b\""]}),
    ));
    expect![[r#"
        Ssh_authorized_key[work] changed
          key: AAAA -> CCCC
          options: [] -> ["no-pty","command=\"a b\""]
    "#]]
    .assert_eq(&transcript);
    machine.converges(key("other", json!({"ensure": "absent"})));
    expect![[r#"
        # keep
        no-pty,command="a b" ssh-ed25519 CCCC work
    "#]]
    .assert_eq(&machine.read(FILE));
}

#[test]
fn links_that_the_user_made_lead_nowhere() {
    let machine = machine();
    machine.write("/etc/secret/authorized_keys", "precious\n");
    symlink(machine.path("/etc/secret"), machine.path("/home/ada/.ssh")).unwrap();
    let transcript = machine.apply(key("work", json!({"key": "AAAA"})));
    assert!(
        transcript.contains("goes through a symbolic link"),
        "{transcript}"
    );
    std::fs::remove_file(machine.path("/home/ada/.ssh")).unwrap();
    std::fs::create_dir(machine.path("/home/ada/.ssh")).unwrap();
    symlink(
        machine.path("/etc/secret/authorized_keys"),
        machine.path(FILE),
    )
    .unwrap();
    let transcript = machine.apply(key("work", json!({"key": "AAAA"})));
    assert!(
        transcript.contains("goes through a symbolic link"),
        "{transcript}"
    );
    assert_eq!(machine.read("/etc/secret/authorized_keys"), "precious\n");
}

#[test]
fn what_would_smuggle_in_another_key_is_refused() {
    for parameters in [
        json!({"key": "AAAA\nssh-rsa EVIL"}),
        json!({"key": "AAAA", "options": ["no-pty ssh-rsa EVIL"]}),
        json!({"key": "AAAA", "comment": "a\nssh-rsa EVIL"}),
        json!({"key": "AAAA", "target": "../../root/.ssh/authorized_keys"}),
    ] {
        crate::types::testing::assert_refused(key("x", parameters));
    }
}

#[test]
fn a_user_that_is_not_there_is_an_error_unless_the_run_makes_one() {
    let machine = machine();
    let mut desired = key("x", json!({"key": "AAAA", "user": "bob"}));
    assert!(machine.apply(desired.clone()).contains("no user `bob`"));
    for (file, line) in [
        ("/etc/shadow", ""),
        ("/etc/group", ""),
        ("/etc/gshadow", ""),
    ] {
        machine.write(file, line);
    }
    desired
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "User", "title": "bob", "parameters": {
        "uid": 1400, "home": "/home/bob", "managehome": true}}));
    machine.converges(desired);
}
