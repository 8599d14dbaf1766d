//! Units, through `systemctl`.
//!
//! The start at boot can be configured without a running systemd, even below another
//! root. The running state cannot.

use std::ffi::OsString;

use super::manager::{ServiceManager, runs_systemd};
use super::{DesiredService, ObservedService};
use crate::types::exec::Run;
use crate::types::tool;
use crate::{ReadAccess, StepError, StepResult, WriteAccess};

pub(super) struct Systemd;

impl ServiceManager for Systemd {
    fn observe(
        &self,
        desired: &DesiredService,
        access: &ReadAccess<'_>,
    ) -> StepResult<ObservedService> {
        if !runs_systemd(access) {
            return offline(desired, access);
        }
        let properties = "--property=LoadState,ActiveState,UnitFileState";
        let done = tool::look(
            ["systemctl", "show", properties, "--", &desired.name],
            access,
        )?;
        if !done.succeeded() {
            return Err(tool::complaint("systemctl show", &done));
        }
        let text = done.stdout_text();
        if text.contains("LoadState=not-found") && super::needs_it(desired) && !access.may_appear()
        {
            return Err(StepError::new(format!(
                "systemd has no unit `{}`",
                desired.name
            )));
        }
        Ok(read(&text))
    }

    fn start(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        online("start", desired, write_access)
    }

    fn stop(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        online("stop", desired, write_access)
    }

    fn restart(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        online("restart", desired, write_access)
    }

    fn reload(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        online("reload-or-restart", desired, write_access)
    }

    fn enable(
        &self,
        desired: &DesiredService,
        enable: bool,
        write_access: &WriteAccess<'_>,
    ) -> StepResult {
        systemctl(
            if enable { "enable" } else { "disable" },
            desired,
            write_access,
        )
    }

    fn mask(
        &self,
        desired: &DesiredService,
        mask: bool,
        write_access: &WriteAccess<'_>,
    ) -> StepResult {
        systemctl(if mask { "mask" } else { "unmask" }, desired, write_access)
    }
}

fn read(text: &str) -> ObservedService {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
    };
    let state = value("UnitFileState=");
    ObservedService {
        running: matches!(value("ActiveState="), "active" | "reloading" | "activating"),
        enabled: is_enabled(state),
        masked: state.starts_with("masked") || value("LoadState=") == "masked",
    }
}

/// Returns true for enabled units. A static unit, or an alias of an enabled one, starts
/// when it is needed. systemd would change nothing if asked to enable it.
fn is_enabled(state: &str) -> bool {
    matches!(
        state,
        "enabled" | "enabled-runtime" | "static" | "alias" | "indirect" | "generated" | "linked"
    )
}

fn offline(desired: &DesiredService, access: &ReadAccess<'_>) -> StepResult<ObservedService> {
    if desired.running == Some(true) {
        return Err(not_running(desired));
    }
    let done = tool::look(words("is-enabled", desired, access), access)?;
    let text = done.stdout_text();
    let state = text.lines().next().unwrap_or_default();
    if state.is_empty() && super::needs_it(desired) && !access.may_appear() {
        return Err(tool::complaint("systemctl is-enabled", &done));
    }
    Ok(ObservedService {
        running: false,
        enabled: is_enabled(state),
        masked: state.starts_with("masked"),
    })
}

fn not_running(desired: &DesiredService) -> StepError {
    StepError::new(format!(
        "systemd is not running and cannot start `{}`; set `provider` to init or supervised, or omit `ensure`",
        desired.name
    ))
}

fn words(verb: &str, desired: &DesiredService, access: &ReadAccess<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["systemctl".into()];
    if let Some(root) = access.root() {
        let mut option = OsString::from("--root=");
        option.push(root);
        words.push(option);
    }
    words.extend([verb.into(), "--".into(), (&desired.name).into()]);
    words
}

fn systemctl(verb: &str, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
    tool::act(
        &Run::new(words(verb, desired, write_access)),
        &format!("systemctl {verb}"),
        write_access,
    )
    .map(drop)
}

fn online(verb: &str, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
    if !runs_systemd(write_access) {
        return Err(not_running(desired));
    }
    // systemd does not know a unit that a file resource has just written before this.
    if verb != "stop" {
        let run = Run::new(["systemctl", "daemon-reload"]).quiet();
        tool::act(&run, "systemctl daemon-reload", write_access)?;
    }
    systemctl(verb, desired, write_access)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemctl_shows_is_read() {
        let observed = read("LoadState=loaded\nActiveState=active\nUnitFileState=disabled\n");
        assert_eq!(
            (observed.running, observed.enabled, observed.masked),
            (true, false, false)
        );
        let observed = read("LoadState=masked\nActiveState=inactive\nUnitFileState=masked\n");
        assert_eq!(
            (observed.running, observed.enabled, observed.masked),
            (false, false, true)
        );
        let observed = read("LoadState=loaded\nActiveState=failed\nUnitFileState=static\n");
        assert_eq!(
            (observed.running, observed.enabled, observed.masked),
            (false, true, false)
        );
    }
}
