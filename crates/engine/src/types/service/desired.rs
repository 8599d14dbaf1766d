//! The declaration of a service.

use std::time::Duration;

use crate::types::single_line;
use crate::{Declaration, Refusal};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    Systemd,
    Init,
    Supervised,
}

pub(crate) struct DesiredService {
    pub(super) name: String,
    pub(super) running: Option<bool>,
    pub(super) enabled: Option<bool>,
    pub(super) masked: Option<bool>,
    pub(super) kind: Option<Kind>,
    pub(super) reload: bool,
    pub(super) has_status: bool,
    pub(super) has_restart: bool,
    pub(super) pattern: String,
    pub(super) start: Option<String>,
    pub(super) stop: Option<String>,
    pub(super) restart: Option<String>,
    pub(super) status: Option<String>,
    pub(super) command: Option<String>,
    pub(super) pid_file: String,
    pub(super) log: String,
    pub(super) startup: Duration,
    pub(super) stop_timeout: Duration,
}

impl DesiredService {
    pub(super) fn read(declaration: &Declaration) -> Result<Self, Refusal> {
        let name = single_line::name_word(declaration)?;
        if name.contains('/') || name.starts_with(['-', '.']) {
            return Err(Refusal::other(format!(
                "`{name}` is not a valid service name"
            )));
        }
        let (enabled, masked) = enable(declaration)?;
        let command = match declaration.text("command")? {
            Some(command) => Some(command),
            None => declaration.text("binary")?,
        };
        let kind = match declaration.text("provider")?.as_deref() {
            None if command.is_some() => Some(Kind::Supervised),
            None => None,
            Some("systemd") => Some(Kind::Systemd),
            Some("init" | "debian" | "redhat" | "base" | "service") => Some(Kind::Init),
            Some("supervised") => Some(Kind::Supervised),
            Some(_) => return Err(declaration.refuse("provider", "systemd, init or supervised")),
        };
        let running = running(declaration)?;
        if kind == Some(Kind::Supervised) && command.is_none() && running == Some(true) {
            return Err(Refusal::Missing("command"));
        }
        let short = name.trim_end_matches(".service").to_owned();
        let path = |parameter: &str, usual: String| -> Result<String, Refusal> {
            Ok(declaration.text(parameter)?.unwrap_or(usual))
        };
        Ok(Self {
            running,
            enabled,
            masked,
            kind,
            reload: declaration.boolean("reload")?.unwrap_or(false),
            has_status: declaration.boolean("hasstatus")?.unwrap_or(true),
            has_restart: declaration.boolean("hasrestart")?.unwrap_or(false),
            pattern: declaration
                .text("pattern")?
                .unwrap_or_else(|| short.clone()),
            start: declaration.text("start")?,
            stop: declaration.text("stop")?,
            restart: declaration.text("restart")?,
            status: declaration.text("status")?,
            command,
            pid_file: path("pidfile", format!("/run/{short}.pid"))?,
            log: path("log", format!("/var/log/{short}.log"))?,
            startup: (declaration.seconds("startsecs")?).unwrap_or(Duration::from_secs(1)),
            stop_timeout: (declaration.seconds("stop_timeout")?).unwrap_or(Duration::from_secs(10)),
            name,
        })
    }

    /// Returns the name without systemd's suffix.
    pub(super) fn short(&self) -> &str {
        self.name.strip_suffix(".service").unwrap_or(&self.name)
    }
}

fn running(declaration: &Declaration) -> Result<Option<bool>, Refusal> {
    match declaration.text("ensure")?.as_deref() {
        None => Ok(None),
        Some("running" | "true") => Ok(Some(true)),
        Some("stopped" | "dead" | "false") => Ok(Some(false)),
        Some(_) => Err(declaration.refuse("ensure", "running or stopped")),
    }
}

/// Reads two settings: the start at boot, and the mask.
fn enable(declaration: &Declaration) -> Result<(Option<bool>, Option<bool>), Refusal> {
    let masked = declaration.boolean("masked")?;
    match declaration.text("enable")?.as_deref() {
        None => Ok((None, masked)),
        Some("mask" | "masked") => Ok((None, Some(true))),
        Some("manual") => Ok((Some(false), masked)),
        Some(_) => Ok((declaration.boolean("enable")?, masked)),
    }
}
