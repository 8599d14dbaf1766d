//! Services: decisions, and real units.

use expect_test::expect;
use serde_json::{Value, json};

use crate::types::testing_root::Machine;

fn service(parameters: Value) -> Value {
    json!([{"type": "Service", "title": "web", "parameters": parameters}])
}

/// A script that records its arguments.
const SCRIPT: &str = r#"#!/bin/sh
### BEGIN INIT INFO
# Provides:          web
# Required-Start:
# Required-Stop:
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: test
### END INIT INFO
cd "$(dirname "$0")/../.." || exit 1
echo "$1" >> log
case "$1" in
  start) touch up ;;
  stop) rm -f up ;;
  restart|reload) ;;
  status) test -e up ;;
esac
"#;

fn with_script() -> Machine {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    machine.write("/etc/init.d/web", SCRIPT);
    let runnable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(machine.path("/etc/init.d/web"), runnable).unwrap();
    machine
}

fn log_without_status(machine: &Machine) -> String {
    let log = machine.read("/log");
    log.lines()
        .filter(|line| *line != "status")
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn an_init_script_is_started_enabled_disabled_and_stopped() {
    let machine = with_script();
    let transcript = machine.converges(service(json!({"ensure": "running", "enable": true})));
    expect![[r#"
        Service[web] changed
          enable: false -> true
          ensure: stopped -> running
    "#]]
    .assert_eq(&transcript);
    assert!(machine.path("/etc/rc2.d/S01web").symlink_metadata().is_ok());
    let transcript = machine.converges(service(json!({"ensure": "stopped", "enable": false})));
    expect![[r#"
        Service[web] changed
          enable: true -> false
          ensure: running -> stopped
    "#]]
    .assert_eq(&transcript);
    machine.converges(service(json!({"enable": true})));
    assert_eq!(log_without_status(&machine), "start stop");
}

#[test]
fn a_refresh_restarts_or_reloads_what_runs_and_nothing_else() {
    let machine = with_script();
    let refreshed = |parameters: Value| {
        json!([
            {"type": "Notify", "title": "new", "parameters": {"notify": "Service[web]"}},
            {"type": "Service", "title": "web", "parameters": parameters},
        ])
    };
    machine.apply(refreshed(json!({"ensure": "running"})));
    assert_eq!(
        log_without_status(&machine),
        "start",
        "what was just started needs no restart"
    );
    machine.apply(refreshed(json!({"ensure": "running"})));
    machine.apply(refreshed(json!({"ensure": "running", "hasrestart": true})));
    let transcript = machine.apply(refreshed(json!({"ensure": "running", "reload": true})));
    assert!(
        transcript.contains("refresh: running -> reloaded"),
        "{transcript}"
    );
    let transcript = machine.noop(refreshed(json!({"ensure": "running"})));
    assert!(
        transcript.contains("refresh: running -> restarted"),
        "{transcript}"
    );
    machine.apply(refreshed(json!({"ensure": "stopped"})));
    machine.apply(refreshed(json!({})));
    assert_eq!(
        log_without_status(&machine),
        "start stop start restart reload stop"
    );
}

#[test]
fn a_service_that_the_machine_does_not_know_is_stopped_and_cannot_be_started() {
    let machine = Machine::new();
    assert_eq!(
        machine.apply(service(json!({"ensure": "stopped", "enable": false}))),
        "Service[web] unchanged\n"
    );
    let transcript = machine.apply(service(json!({"ensure": "running"})));
    assert!(transcript.contains("no service `web`"), "{transcript}");
}

#[test]
fn a_unit_is_enabled_masked_and_unmasked_without_a_running_systemd() {
    super::super::package::test_repository::needs(&["systemctl"]);
    let machine = Machine::new();
    machine.write(
        "/usr/lib/systemd/system/web.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    );
    machine.converges(service(json!({"enable": true})));
    let link = machine.path("/etc/systemd/system/multi-user.target.wants/web.service");
    assert!(link.symlink_metadata().is_ok());
    machine.converges(service(json!({"enable": false})));
    assert!(link.symlink_metadata().is_err());
    machine.converges(service(json!({"enable": "mask"})));
    let masked = std::fs::read_link(machine.path("/etc/systemd/system/web.service")).unwrap();
    assert_eq!(masked, std::path::Path::new("/dev/null"));
    let transcript = machine.converges(service(json!({"masked": false, "enable": true})));
    expect![[r#"
        Service[web] changed
          masked: true -> false
          enable: false -> true
    "#]]
    .assert_eq(&transcript);
    let transcript = machine.apply(service(json!({"ensure": "running"})));
    assert!(
        transcript.contains("systemd is not running and cannot start `web`"),
        "{transcript}"
    );
}

/// Kills processes that a failed test leaves behind.
struct Stopped<'a>(&'a Machine);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.run(
            service(json!({"ensure": "stopped", "provider": "supervised"})),
            false,
        );
    }
}

fn supervised(ensure: &str, command: &str) -> Value {
    service(json!({"ensure": ensure, "command": command, "startsecs": 0.2, "stop_timeout": 0.5}))
}

#[test]
fn a_supervised_process_is_started_found_again_restarted_and_ended_with_its_children() {
    let machine = Machine::new();
    let _stopped = Stopped(&machine);
    let command = "trap '' TERM; sleep 1000 & echo $! > child; cd /; wait; wait";
    let command = format!("cd {}; {command}", machine.path("/").display());
    machine.converges(supervised("running", &command));
    let pid = machine.read("/run/web.pid");
    let child = machine.read("/child");
    let alive = |pid: &str| {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(alive(&pid) && alive(&child));
    let mut refreshed = supervised("running", &command);
    let notify =
        json!({"type": "Notify", "title": "new", "parameters": {"notify": "Service[web]"}});
    refreshed.as_array_mut().unwrap().insert(0, notify);
    machine.apply(refreshed);
    assert_ne!(machine.read("/run/web.pid"), pid);
    assert!(
        !alive(&pid) && !alive(&child),
        "the old ones are gone, though they ignored the request"
    );
    let child = machine.read("/child");
    machine.converges(supervised("stopped", &command));
    assert!(!machine.path("/run/web.pid").exists() && !alive(&child));
}

#[test]
fn a_supervised_process_that_ends_at_once_fails_with_its_last_words() {
    let machine = Machine::new();
    let transcript = machine.apply(supervised("running", "echo no such port; exit 3"));
    assert!(
        transcript.contains("`web` exited immediately: no such port"),
        "{transcript}"
    );
}

#[test]
fn a_number_that_another_process_has_by_now_is_not_the_service() {
    let machine = Machine::new();
    machine.write("/run/web.pid", &std::process::id().to_string());
    machine.write("/run/web.pid.started", "1 of-an-earlier-boot\n");
    let transcript = machine.apply(supervised("stopped", "true"));
    assert_eq!(transcript, "Service[web] unchanged\n");
}

#[test]
fn configuration_comes_before_the_service_that_reads_it() {
    let machine = with_script();
    let transcript = machine.apply(json!([
        {"type": "Service", "title": "web", "parameters": {
            "ensure": "running", "start": format!("test -e {}", machine.path("/etc/web/site.conf").display()),
            "status": "true && false"}},
        {"type": "File", "title": "/etc/web/site.conf", "parameters": {"content": "x"}},
        {"type": "File", "title": "/etc/web", "parameters": {"ensure": "directory"}},
    ]));
    // If it had been started first, its own command would have failed.
    assert!(
        transcript.contains("was started but is not running"),
        "{transcript}"
    );
}

#[test]
fn a_path_shows_which_manager_reads_it() {
    let readers = |path: &str| super::readers(std::path::Path::new(path)).join(" ");
    assert_eq!(readers("/etc/nginx/conf.d/a.conf"), "nginx");
    assert_eq!(readers("/etc/default/nginx"), "nginx");
    assert_eq!(readers("/etc/ntp.conf"), "ntp");
    assert_eq!(readers("/etc/ssh/sshd_config"), "ssh sshd");
    assert_eq!(
        readers("/etc/systemd/system/app.service.d/override.conf"),
        "app"
    );
    assert_eq!(readers("/srv/nginx"), "");
}
