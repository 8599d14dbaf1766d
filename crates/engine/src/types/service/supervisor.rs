//! A process that its pid file identifies, if no service manager is available.
//!
//! It is started in its own session, so that it outlives the run and can be killed with
//! all its children. A file beside the pid file distinguishes this process from a later
//! one that happens to get the same process ID.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::manager::ServiceManager;
use super::{DesiredService, ObservedService};
use crate::types::config_file::{self, NewFile};
use crate::types::exec::Run;
use crate::types::file::place;
use crate::types::tool;
use crate::{ReadAccess, StepError, StepResult, WriteAccess};

pub(super) struct ProcessSupervisor;

/// A script that writes its own process ID, then becomes the command.
const STARTER: &str =
    r#"exec >>"$2" 2>&1 </dev/null; echo $$ >"$1.new" && mv "$1.new" "$1" && exec /bin/sh -c "$3""#;

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl ServiceManager for ProcessSupervisor {
    fn observe(
        &self,
        desired: &DesiredService,
        access: &ReadAccess<'_>,
    ) -> StepResult<ObservedService> {
        let running = process(desired, access).is_some();
        // Nothing starts it at boot: each run does.
        Ok(ObservedService {
            running,
            enabled: false,
            masked: false,
        })
    }

    fn start(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        let command = desired
            .command
            .as_deref()
            .ok_or_else(|| StepError::new("no `command` to run"))?;
        let (pid_file, log) = (
            write_access.path(&desired.pid_file),
            write_access.path(&desired.log),
        );
        for file in [&pid_file, &log] {
            if let Some(parent) = file.parent() {
                place::created_directory(parent).map_err(|error| {
                    StepError::because(format!("cannot create {}", parent.display()), error)
                })?;
            }
        }
        config_file::remove(&pid_file, write_access)?;
        let words = [
            "setsid".into(),
            "--fork".into(),
            "/bin/sh".into(),
            "-c".into(),
            STARTER.into(),
            "sh".into(),
            pid_file.into_os_string(),
            log.into_os_string(),
            command.into(),
        ];
        tool::act(&Run::new(words).quiet(), "setsid", write_access)?;
        live(desired, write_access)
    }

    fn stop(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        if let Some(pid) = process(desired, write_access) {
            end(pid, desired, write_access)?;
        }
        config_file::remove(&write_access.path(&desired.pid_file), write_access)?;
        config_file::remove(&identity_file(desired, write_access), write_access)
    }

    fn reload(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        let pid = process(desired, write_access).and_then(to_pid);
        let pid = pid.ok_or_else(|| StepError::new("it is not running"))?;
        rustix::process::kill_process(pid, Signal::HUP)
            .map_err(|error| StepError::because("cannot signal it", std::io::Error::from(error)))
    }

    fn enable(&self, _: &DesiredService, _: bool, _: &WriteAccess<'_>) -> StepResult {
        Err(StepError::new(
            "a supervised process cannot be enabled at boot: every run starts it if needed",
        ))
    }
}

/// Waits until the process has lived long enough to count as started.
fn live(desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
    let begun = Instant::now();
    let mut known = None;
    loop {
        let pid = pid_in_file(desired, write_access);
        if known.is_none()
            && let Some(identity) = pid.and_then(identity)
        {
            let file = identity_file(desired, write_access);
            config_file::put(&file, identity.as_bytes(), NewFile::PUBLIC, write_access)?;
            known = pid;
        }
        let alive = known.is_some() && process(desired, write_access).is_some();
        if alive && begun.elapsed() >= desired.startup {
            return Ok(());
        }
        // The starter itself needs a moment on a busy machine.
        if !alive
            && (known.is_some() || begun.elapsed() > desired.startup + Duration::from_secs(10))
        {
            let log = std::fs::read_to_string(write_access.path(&desired.log)).unwrap_or_default();
            let last = log.lines().last().unwrap_or("no output").to_owned();
            return Err(StepError::new(format!(
                "`{}` exited immediately: {last}",
                desired.name
            )));
        }
        if write_access.cancellation().sleep(BETWEEN_LOOKS) {
            return Err(StepError::interrupted());
        }
    }
}

/// Asks the process and its children to end, and kills them if they do not.
fn end(pid: u32, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
    let failed = |error: rustix::io::Errno| {
        StepError::because("cannot signal it", std::io::Error::from(error))
    };
    let group = to_pid(pid).ok_or_else(|| StepError::new("its PID file is invalid"))?;
    // It leads its own session. A daemon that wrote the file itself may not.
    let signal = |signal| match rustix::process::kill_process_group(group, signal) {
        Err(rustix::io::Errno::SRCH) => rustix::process::kill_process(group, signal),
        other => other,
    };
    signal(Signal::TERM).map_err(failed)?;
    let deadline = Instant::now() + desired.stop_timeout;
    while process(desired, write_access).is_some() {
        if Instant::now() >= deadline {
            signal(Signal::KILL).map_err(failed)?;
        }
        if write_access.cancellation().sleep(BETWEEN_LOOKS) {
            return Err(StepError::interrupted());
        }
    }
    // Kill children that ignored the request.
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    Ok(())
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn identity_file(desired: &DesiredService, access: &ReadAccess<'_>) -> PathBuf {
    let mut path = access.path(&desired.pid_file).into_os_string();
    path.push(".started");
    path.into()
}

fn pid_in_file(desired: &DesiredService, access: &ReadAccess<'_>) -> Option<u32> {
    let text = std::fs::read_to_string(access.path(&desired.pid_file)).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 1)
}

/// Returns the start time of a process and the boot: no other process has the same.
fn identity(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{} {}\n", fields.get(19)?, boot.trim()))
}

/// Returns the service's process, if it lives and is still the one that was started.
fn process(desired: &DesiredService, access: &ReadAccess<'_>) -> Option<u32> {
    let pid = pid_in_file(desired, access)?;
    let now = identity(pid)?;
    match std::fs::read_to_string(identity_file(desired, access)) {
        Ok(then) if then != now => None,
        // Without an identity, another program wrote the pid file.
        _ => Some(pid),
    }
}
