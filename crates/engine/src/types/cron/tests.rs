//! Cron entries: decisions, and real tables.

use expect_test::expect;
use serde_json::json;

use crate::types::testing_root::{Machine, transcript};

fn machine() -> Machine {
    let machine = Machine::new();
    machine.write(
        "/etc/passwd",
        "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/:/bin/sh\n",
    );
    machine
}

const TABLE: &str = "/var/spool/cron/crontabs/root";

#[test]
fn jobs_that_puppet_and_salt_wrote_are_known_by_their_markers() {
    let machine = machine();
    machine.write(
        TABLE,
        "MAILTO=ops@example.com\n# a note\n\n# Puppet Name: backup\n0 1 * * * /bin/backup\n\
         # nightly SALT_CRON_IDENTIFIER:clean\n5 2 * * * /bin/clean\n@reboot /bin/other\n",
    );
    let transcript = machine.converges(json!([
        {"type": "Cron", "title": "backup", "parameters": {"command": "/bin/backup --all", "hour": [1, 13], "minute": "*/30"}},
        {"type": "Cron", "title": "clean", "parameters": {"ensure": "absent"}},
        {"type": "Cron", "title": "new", "parameters": {"command": "true", "special": "daily", "environment": "A=b c"}},
        {"type": "Cron", "title": "adopted", "parameters": {"command": "/bin/other", "special": "reboot"}},
    ]));
    expect![[r#"
        Cron[adopted] unchanged
        Cron[backup] changed
          schedule: 0 1 * * * -> */30 1,13 * * *
          command: /bin/backup -> /bin/backup --all
        Cron[clean] changed
          ensure: present -> absent
        Cron[new] changed
          ensure: - -> present
    "#]]
    .assert_eq(&transcript);
    expect![[r#"
        MAILTO=ops@example.com
        # a note

        # Puppet Name: backup
        */30 1,13 * * * /bin/backup --all
        @reboot /bin/other
        # Puppet Name: new
        A=b c
        @daily true
    "#]]
    .assert_eq(&machine.read(TABLE));
}

#[test]
fn a_users_table_belongs_to_the_user_and_others_cannot_read_it() {
    use std::os::unix::fs::MetadataExt;
    let machine = machine();
    machine.converges(
        json!([{"type": "Cron", "title": "x", "parameters": {"command": "true", "user": "ada"}}]),
    );
    let metadata = std::fs::metadata(machine.path("/var/spool/cron/crontabs/ada")).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (1000, 0o600));
}

#[test]
fn what_would_smuggle_in_another_job_is_refused() {
    for parameters in [
        json!({"command": "true\n* * * * * evil"}),
        json!({"command": "true", "minute": "1 * * * * evil"}),
        json!({"command": "true", "environment": ["A=b\n* * * * * evil"]}),
        json!({"command": "true", "user": "../../etc/passwd"}),
    ] {
        crate::types::testing::assert_refused(
            json!([{"type": "Cron", "title": "x", "parameters": parameters}]),
        );
    }
}

/// Uses the machine's own `crontab` with an otherwise unused account.
#[test]
fn the_crontab_tool_takes_the_job() {
    assert!(
        crate::types::tool::exists("crontab"),
        "`crontab` is missing: run scripts/setup"
    );
    let place = tempfile::tempdir().unwrap();
    let job = |ensure: &str| {
        json!([{"type": "Cron", "title": "bunraku test", "parameters": {
            "ensure": ensure, "command": "/bin/true", "user": "games", "minute": 7}}])
    };
    let run = |ensure| transcript(&crate::types::testing::apply(place.path(), job(ensure)));
    assert_eq!(
        run("present"),
        "Cron[bunraku test] changed\n  ensure: - -> present\n"
    );
    assert_eq!(run("present"), "Cron[bunraku test] unchanged\n");
    assert_eq!(
        run("absent"),
        "Cron[bunraku test] changed\n  ensure: present -> absent\n"
    );
    assert_eq!(run("absent"), "Cron[bunraku test] unchanged\n");
}
