//! Users: decisions, and real users on a test machine.

use expect_test::expect;
use serde_json::json;

use crate::types::testing_root::Machine;

fn machine() -> Machine {
    let machine = Machine::new();
    machine.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    machine.write("/etc/shadow", "root:*:1::::::\n");
    machine.write("/etc/group", "root:x:0:\ndocker:x:200:\nwheel:x:201:\n");
    machine.write("/etc/gshadow", "root:*::\ndocker:!::\nwheel:!::\n");
    machine.write(
        "/etc/login.defs",
        "UID_MIN 1000\nUID_MAX 60000\nUSERGROUPS_ENAB yes\n",
    );
    machine
}

#[test]
fn an_account_is_made_with_its_group_changed_and_removed() {
    let machine = machine();
    let transcript = machine.converges(json!([
        {"type": "User", "title": "ada", "parameters": {"uid": 1200, "gid": "science", "groups": ["docker"],
            "home": "/home/ada", "managehome": true, "shell": "/bin/sh", "comment": "Ada L.", "expiry": "2030-12-31"}},
        {"type": "Group", "title": "science", "parameters": {"gid": 1300}},
    ]));
    expect![[r#"
        Group[science] changed
          ensure: - -> present
        User[ada] changed
          ensure: - -> present
    "#]]
    .assert_eq(&transcript);
    assert!(
        machine
            .read("/etc/passwd")
            .contains("ada:x:1200:1300:Ada L.:/home/ada:/bin/sh\n")
    );
    assert!(machine.path("/home/ada").is_dir());
    let transcript = machine.converges(json!([
        {"type": "User", "title": "ada", "parameters": {"uid": 1201, "gid": "docker", "groups": ["wheel"],
            "membership": "inclusive", "home": "/home/countess", "managehome": true, "shell": "/bin/bash",
            "comment": "Ada", "expiry": "absent"}},
    ]));
    expect![[r#"
        User[ada] changed
          uid: 1200 -> 1201
          gid: 1300 -> docker
          comment: Ada L. -> Ada
          home: /home/ada -> /home/countess
          shell: /bin/sh -> /bin/bash
          groups: ["docker"] -> ["wheel"]
          expiry: 2030-12-31 -> never
    "#]]
    .assert_eq(&transcript);
    assert!(machine.path("/home/countess").is_dir() && !machine.path("/home/ada").exists());
    machine.converges(json!([{"type": "User", "title": "ada", "parameters": {"ensure": "absent", "managehome": true}}]));
    assert!(
        !machine.read("/etc/passwd").contains("ada") && !machine.path("/home/countess").exists()
    );
}

#[test]
fn a_password_is_set_and_its_hash_is_never_shown() {
    let machine = machine();
    let user = |hash: &str| {
        json!([{"type": "User", "title": "bob", "parameters": {"uid": 1100,
            "password": {"__ptype": "Sensitive", "__pvalue": hash}}}])
    };
    machine.converges(user("$6$salt$first"));
    assert!(machine.read("/etc/shadow").contains("bob:$6$salt$first:"));
    let transcript = machine.converges(user("$6$salt$second"));
    expect![[r#"
        User[bob] changed
          password: [secret] -> [secret]
    "#]]
    .assert_eq(&transcript);
    assert!(machine.read("/etc/shadow").contains("bob:$6$salt$second:"));
}

#[test]
fn a_home_that_is_missing_is_made_from_the_skeleton() {
    let machine = machine();
    machine.write("/etc/skel/.profile", "# hello\n");
    let user = |home: bool| json!([{"type": "User", "title": "eve", "parameters": {"uid": 1100, "home": "/home/eve", "managehome": home}}]);
    machine.converges(user(false));
    assert!(!machine.path("/home/eve").exists());
    let transcript = machine.converges(user(true));
    expect![[r#"
        User[eve] changed
          home_directory: - -> present
    "#]]
    .assert_eq(&transcript);
    let metadata = std::fs::metadata(machine.path("/home/eve/.profile")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&metadata), 1100);
}

#[test]
fn names_and_fields_that_would_break_a_line_are_refused_before_anything_changes() {
    let refused = |parameters: serde_json::Value, title: &str| {
        let catalog = crate::types::testing::catalog(
            json!([{"type": "User", "title": title, "parameters": parameters}]),
        );
        let plan = crate::CatalogPlan::new(
            &catalog,
            &crate::Registry::standard(),
            crate::PlanOptions::default(),
        );
        plan.err().expect("refused").to_string()
    };
    assert!(refused(json!({}), "--root").contains("not a valid user name"));
    assert!(refused(json!({"comment": "x:0:0"}), "a").contains("`comment` must be"));
    assert!(refused(json!({"home": "/x\nroot2:x:0:0::/:/bin/sh"}), "a").contains("`home` must be"));
    let secret = refused(
        json!({"password": {"__ptype": "Sensitive", "__pvalue": "hunter2\n"}}),
        "a",
    );
    assert!(
        secret.contains("`password` must be") && !secret.contains("hunter2"),
        "{secret}"
    );
}

#[test]
fn a_group_goes_after_the_user_whose_primary_group_it_is() {
    let machine = machine();
    let both = |ensure: &str| {
        json!([
            {"type": "Group", "title": "team", "parameters": {"ensure": ensure, "gid": 1300}},
            {"type": "User", "title": "ada", "parameters": {"ensure": ensure, "uid": 1200, "gid": "team"}},
        ])
    };
    machine.converges(both("present"));
    machine.converges(both("absent"));
    assert!(!machine.read("/etc/group").contains("team"));
}
