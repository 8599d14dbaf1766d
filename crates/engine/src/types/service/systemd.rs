//! Units, through `systemctl`.
//!
//! The start at boot can be configured without a running systemd, even below another
//! root. The running state cannot.

use std::ffi::OsString;

use super::keeper::{Keeper, runs_systemd};
use super::{Seen, Wish};
use crate::types::exec::Run;
use crate::types::tool;
use crate::{Hands, Sight, StepError};

pub(super) struct Systemd;

impl Keeper for Systemd {
    fn observe(&self, wish: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        if !runs_systemd(sight) {
            return offline(wish, sight);
        }
        let properties = "--property=LoadState,ActiveState,UnitFileState";
        let done = tool::look(["systemctl", "show", properties, "--", &wish.name], sight)?;
        if !done.succeeded() {
            return Err(tool::complaint("systemctl show", &done));
        }
        let text = done.stdout_text();
        if text.contains("LoadState=not-found") && super::needs_it(wish) && !sight.may_appear() {
            return Err(StepError::new(format!(
                "systemd knows no unit `{}`",
                wish.name
            )));
        }
        Ok(read(&text))
    }

    fn start(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        online("start", wish, hands)
    }

    fn stop(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        online("stop", wish, hands)
    }

    fn restart(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        online("restart", wish, hands)
    }

    fn reload(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        online("reload-or-restart", wish, hands)
    }

    fn enable(&self, wish: &Wish, enable: bool, hands: &Hands<'_>) -> Result<(), StepError> {
        systemctl(if enable { "enable" } else { "disable" }, wish, hands)
    }

    fn mask(&self, wish: &Wish, mask: bool, hands: &Hands<'_>) -> Result<(), StepError> {
        systemctl(if mask { "mask" } else { "unmask" }, wish, hands)
    }
}

fn read(text: &str) -> Seen {
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
    };
    let state = value("UnitFileState=");
    Seen {
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

fn offline(wish: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
    if wish.running == Some(true) {
        return Err(not_running(wish));
    }
    let done = tool::look(words("is-enabled", wish, sight), sight)?;
    let text = done.stdout_text();
    let state = text.lines().next().unwrap_or_default();
    if state.is_empty() && super::needs_it(wish) && !sight.may_appear() {
        return Err(tool::complaint("systemctl is-enabled", &done));
    }
    Ok(Seen {
        running: false,
        enabled: is_enabled(state),
        masked: state.starts_with("masked"),
    })
}

fn not_running(wish: &Wish) -> StepError {
    StepError::new(format!(
        "systemd is not running here, so it cannot start `{}`; use `provider` init or supervised, or leave `ensure` out",
        wish.name
    ))
}

fn words(verb: &str, wish: &Wish, sight: &Sight<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["systemctl".into()];
    if let Some(root) = sight.root() {
        let mut option = OsString::from("--root=");
        option.push(root);
        words.push(option);
    }
    words.extend([verb.into(), "--".into(), (&wish.name).into()]);
    words
}

fn systemctl(verb: &str, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    tool::act(
        &Run::new(words(verb, wish, hands)),
        &format!("systemctl {verb}"),
        hands,
    )
    .map(drop)
}

fn online(verb: &str, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
    if !runs_systemd(hands) {
        return Err(not_running(wish));
    }
    // systemd does not know a unit that a file resource has just written before this.
    if verb != "stop" {
        let run = Run::new(["systemctl", "daemon-reload"]).quiet();
        tool::act(&run, "systemctl daemon-reload", hands)?;
    }
    systemctl(verb, wish, hands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemctl_shows_is_read() {
        let seen = read("LoadState=loaded\nActiveState=active\nUnitFileState=disabled\n");
        assert_eq!(
            (seen.running, seen.enabled, seen.masked),
            (true, false, false)
        );
        let seen = read("LoadState=masked\nActiveState=inactive\nUnitFileState=masked\n");
        assert_eq!(
            (seen.running, seen.enabled, seen.masked),
            (false, false, true)
        );
        let seen = read("LoadState=loaded\nActiveState=failed\nUnitFileState=static\n");
        assert_eq!(
            (seen.running, seen.enabled, seen.masked),
            (false, true, false)
        );
    }
}
