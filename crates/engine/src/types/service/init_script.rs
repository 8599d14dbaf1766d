//! Scripts in `/etc/init.d`, and services that only commands describe.

use std::path::{Path, PathBuf};

use super::keeper::{Keeper, shell};
use super::{Seen, Wish};
use crate::types::exec::{self, Run};
use crate::types::tool;
use crate::{Hands, Sight, StepError};

pub(super) struct InitScript;

/// The run levels whose links decide if a service starts at boot.
const LEVELS: [&str; 4] = ["2", "3", "4", "5"];

impl Keeper for InitScript {
    fn observe(&self, wish: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        Ok(Seen {
            running: match wish.running {
                None => runs(wish, sight).unwrap_or(false),
                Some(_) => runs(wish, sight)?,
            },
            enabled: !links(wish, 'S', sight).is_empty(),
            masked: false,
        })
    }

    fn start(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        act(wish, "start", wish.start.as_deref(), hands)?;
        if runs(wish, hands)? {
            Ok(())
        } else {
            Err(StepError::new(format!(
                "`{}` was started, yet it does not run",
                wish.name
            )))
        }
    }

    fn stop(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        act(wish, "stop", wish.stop.as_deref(), hands)
    }

    fn restart(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        if wish.has_restart {
            return act(wish, "restart", None, hands);
        }
        self.stop(wish, hands)?;
        self.start(wish, hands)
    }

    fn reload(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        act(wish, "reload", None, hands)
    }

    fn enable(&self, wish: &Wish, enable: bool, hands: &Hands<'_>) -> Result<(), StepError> {
        if !script(wish, hands).exists() {
            let message = format!(
                "`{}` has no init script that could start at boot",
                wish.name
            );
            return Err(StepError::new(message));
        }
        let known = !links(wish, 'S', hands).is_empty() || !links(wish, 'K', hands).is_empty();
        if enable && !known {
            update(wish, "defaults", hands)?;
        }
        match hands.root() {
            // `update-rc.d` looks for the script outside of the root.
            Some(_) => rename_links(wish, enable, hands),
            None => update(wish, if enable { "enable" } else { "disable" }, hands),
        }
    }
}

fn script(wish: &Wish, sight: &Sight<'_>) -> PathBuf {
    sight.path(format!("/etc/init.d/{}", wish.short()))
}

fn runs(wish: &Wish, sight: &Sight<'_>) -> Result<bool, StepError> {
    if let Some(status) = &wish.status {
        return Ok(tool::look(exec::shell(status), sight)?.succeeded());
    }
    let script = script(wish, sight);
    if wish.has_status && script.exists() {
        return Ok(tool::look([script.into_os_string(), "status".into()], sight)?.succeeded());
    }
    Ok(is_in_process_table(&wish.pattern))
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

fn act(wish: &Wish, verb: &str, command: Option<&str>, hands: &Hands<'_>) -> Result<(), StepError> {
    if let Some(command) = command {
        return shell(command, verb, hands);
    }
    let script = script(wish, hands);
    if !script.exists() {
        return Err(StepError::new(format!(
            "`{}` has no init script and no `{verb}` command",
            wish.name
        )));
    }
    let run = Run::new([script.into_os_string(), verb.into()]);
    tool::act(&run, &format!("the init script's `{verb}`"), hands).map(drop)
}

fn update(wish: &Wish, verb: &str, hands: &Hands<'_>) -> Result<(), StepError> {
    let mut run = Run::new(["update-rc.d", wish.short(), verb]);
    if let Some(root) = hands.root() {
        run = run.environment("DPKG_ROOT", root);
        for level in ["0", "1", "2", "3", "4", "5", "6", "S"] {
            let directory = root.join(format!("etc/rc{level}.d"));
            std::fs::create_dir_all(&directory).map_err(|error| {
                StepError::because(format!("cannot make {}", directory.display()), error)
            })?;
        }
    }
    tool::act(&run, &format!("update-rc.d {verb}"), hands).map(drop)
}

/// Returns the links that start (`S`) or stop (`K`) the service.
fn links(wish: &Wish, letter: char, sight: &Sight<'_>) -> Vec<PathBuf> {
    let is_link = |path: &Path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let rest = name.strip_prefix(letter).unwrap_or_default();
        rest.get(..2)
            .is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            && rest.get(2..) == Some(wish.short())
    };
    let directories = LEVELS
        .iter()
        .map(|level| sight.path(format!("/etc/rc{level}.d")));
    (directories.filter_map(|directory| std::fs::read_dir(directory).ok()))
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| is_link(path))
        .collect()
}

/// Does the same as `update-rc.d enable` and `disable`.
fn rename_links(wish: &Wish, enable: bool, hands: &Hands<'_>) -> Result<(), StepError> {
    let (from, to) = if enable { ('K', "S") } else { ('S', "K") };
    for link in links(wish, from, hands) {
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
