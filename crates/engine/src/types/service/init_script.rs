//! Scripts in `/etc/init.d`, and services that only commands describe.

use std::path::{Path, PathBuf};

use super::manager::{ServiceManager, shell};
use super::{DesiredService, ObservedService};
use crate::types::exec::{self, Run};
use crate::types::tool;
use crate::{ReadAccess, StepError, StepResult, WriteAccess};

pub(super) struct InitScript;

/// The run levels whose links decide if a service starts at boot.
const LEVELS: [&str; 4] = ["2", "3", "4", "5"];

impl ServiceManager for InitScript {
    fn observe(
        &self,
        desired: &DesiredService,
        access: &ReadAccess<'_>,
    ) -> StepResult<ObservedService> {
        Ok(ObservedService {
            running: match desired.running {
                None => runs(desired, access).unwrap_or(false),
                Some(_) => runs(desired, access)?,
            },
            enabled: !links(desired, 'S', access).is_empty(),
            masked: false,
        })
    }

    fn start(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        act(desired, "start", desired.start.as_deref(), write_access)?;
        if runs(desired, write_access)? {
            Ok(())
        } else {
            Err(StepError::new(format!(
                "`{}` was started but is not running",
                desired.name
            )))
        }
    }

    fn stop(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        act(desired, "stop", desired.stop.as_deref(), write_access)
    }

    fn restart(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        if desired.has_restart {
            return act(desired, "restart", None, write_access);
        }
        self.stop(desired, write_access)?;
        self.start(desired, write_access)
    }

    fn reload(&self, desired: &DesiredService, write_access: &WriteAccess<'_>) -> StepResult {
        act(desired, "reload", None, write_access)
    }

    fn enable(
        &self,
        desired: &DesiredService,
        enable: bool,
        write_access: &WriteAccess<'_>,
    ) -> StepResult {
        if !script(desired, write_access).exists() {
            let message = format!("`{}` has no init script to enable at boot", desired.name);
            return Err(StepError::new(message));
        }
        let known = !links(desired, 'S', write_access).is_empty()
            || !links(desired, 'K', write_access).is_empty();
        if enable && !known {
            update(desired, "defaults", write_access)?;
        }
        match write_access.root() {
            // `update-rc.d` looks for the script outside of the root.
            Some(_) => rename_links(desired, enable, write_access),
            None => update(
                desired,
                if enable { "enable" } else { "disable" },
                write_access,
            ),
        }
    }
}

fn script(desired: &DesiredService, access: &ReadAccess<'_>) -> PathBuf {
    access.path(format!("/etc/init.d/{}", desired.short()))
}

fn runs(desired: &DesiredService, access: &ReadAccess<'_>) -> StepResult<bool> {
    if let Some(status) = &desired.status {
        return Ok(tool::look(exec::shell(status), access)?.succeeded());
    }
    let script = script(desired, access);
    if desired.has_status && script.exists() {
        return Ok(tool::look([script.into_os_string(), "status".into()], access)?.succeeded());
    }
    Ok(is_in_process_table(&desired.pattern))
}

/// Returns true if the command line of a process other than ours contains the text.
fn is_in_process_table(pattern: &str) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return false;
    };
    let own = std::process::id().to_string();
    (processes.flatten())
        .filter(|entry| entry.file_name().to_string_lossy() != own)
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| {
            String::from_utf8_lossy(&line)
                .replace('\0', " ")
                .contains(pattern)
        })
}

fn act(
    desired: &DesiredService,
    verb: &str,
    command: Option<&str>,
    write_access: &WriteAccess<'_>,
) -> StepResult {
    if let Some(command) = command {
        return shell(command, verb, write_access);
    }
    let script = script(desired, write_access);
    if !script.exists() {
        return Err(StepError::new(format!(
            "`{}` has no init script and no `{verb}` command",
            desired.name
        )));
    }
    let run = Run::new([script.into_os_string(), verb.into()]);
    tool::act(&run, &format!("the init script's `{verb}`"), write_access).map(drop)
}

fn update(desired: &DesiredService, verb: &str, write_access: &WriteAccess<'_>) -> StepResult {
    let mut run = Run::new(["update-rc.d", desired.short(), verb]);
    if let Some(root) = write_access.root() {
        run = run.environment("DPKG_ROOT", root);
        for level in ["0", "1", "2", "3", "4", "5", "6", "S"] {
            let directory = root.join(format!("etc/rc{level}.d"));
            std::fs::create_dir_all(&directory).map_err(|error| {
                StepError::because(format!("cannot create {}", directory.display()), error)
            })?;
        }
    }
    tool::act(&run, &format!("update-rc.d {verb}"), write_access).map(drop)
}

/// Returns the links that start (`S`) or stop (`K`) the service.
fn links(desired: &DesiredService, letter: char, access: &ReadAccess<'_>) -> Vec<PathBuf> {
    let is_link = |path: &Path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let rest = name.strip_prefix(letter).unwrap_or_default();
        rest.get(..2)
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            && rest.get(2..) == Some(desired.short())
    };
    let directories = LEVELS
        .iter()
        .map(|level| access.path(format!("/etc/rc{level}.d")));
    (directories.filter_map(|directory| std::fs::read_dir(directory).ok()))
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| is_link(path))
        .collect()
}

/// Does the same as `update-rc.d enable` and `disable`.
fn rename_links(
    desired: &DesiredService,
    enable: bool,
    write_access: &WriteAccess<'_>,
) -> StepResult {
    let (from, to) = if enable { ('K', "S") } else { ('S', "K") };
    for link in links(desired, from, write_access) {
        let name = link
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        std::fs::rename(&link, link.with_file_name(format!("{to}{}", &name[1..]))).map_err(
            |error| StepError::because(format!("cannot rename {}", link.display()), error),
        )?;
    }
    Ok(())
}
