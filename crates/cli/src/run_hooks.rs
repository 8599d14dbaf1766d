//! Actions after the end of a run: a local command, or a trigger that the server fires even if
//! nobody watches.

use std::str::FromStr;

use bunraku_model::{NodeName, TriggerName};
use bunraku_plan::run::{HookTrigger, RunHooks, RunOutcome, RunRecord};

use crate::failure::Failure;

#[derive(clap::Args, Clone)]
pub(crate) struct HookArguments {
    /// After success: a command to run here, or `trigger:NAME HOST,…` (or a query)
    /// for the server to fire
    #[arg(long, value_name = "HOOK")]
    on_success: Option<Hook>,
    /// After any other result: a command or a trigger
    #[arg(long, value_name = "HOOK")]
    on_failure: Option<Hook>,
}

#[derive(Clone, PartialEq, Debug)]
enum Hook {
    Command(String),
    Trigger(HookTrigger),
}

impl FromStr for Hook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(trigger) = text.strip_prefix("trigger:") else {
            return Ok(Self::Command(text.to_owned()));
        };
        let (name, whom) = trigger.split_once(char::is_whitespace).ok_or(
            "the trigger has no hosts: write `trigger:NAME HOST,HOST` or `trigger:NAME nodes { … }`",
        )?;
        let trigger = TriggerName::new(name).map_err(|error| error.to_string())?;
        let whom = whom.trim();
        let (hosts, query) = if whom.contains(['{', '[', ' ']) {
            (Vec::new(), Some(whom.to_owned()))
        } else {
            let hosts = whom.split(',').map(NodeName::new);
            let hosts = hosts.collect::<Result<_, _>>();
            (hosts.map_err(|error| error.to_string())?, None)
        };
        Ok(Self::Trigger(HookTrigger {
            trigger,
            hosts,
            query,
        }))
    }
}

impl HookArguments {
    /// Returns the triggers that the server fires.
    pub(crate) fn triggers(&self) -> RunHooks {
        let trigger = |hook: &Option<Hook>| match hook {
            Some(Hook::Trigger(trigger)) => Some(trigger.clone()),
            _ => None,
        };
        RunHooks {
            on_success: trigger(&self.on_success),
            on_failure: trigger(&self.on_failure),
        }
    }

    /// Refuses commands: a command needs a process that waits for the end.
    pub(crate) fn refuse_commands(&self) -> Result<(), Failure> {
        let mut hooks = self.on_success.iter().chain(&self.on_failure);
        if hooks.any(|hook| matches!(hook, Hook::Command(_))) {
            Err(Failure::usage(
                "a hook command runs on this machine after the run, and a detached or scheduled run does not wait for it",
            )
            .hint("use a trigger (`--on-success 'trigger:NAME HOST,…'`), or do not detach"))
        } else {
            Ok(())
        }
    }

    /// Runs the command for this outcome, if there is one.
    pub(crate) fn run_command(
        &self,
        record: &RunRecord,
        outcome: RunOutcome,
    ) -> Result<(), Failure> {
        let hook = match outcome {
            RunOutcome::Succeeded => &self.on_success,
            _ => &self.on_failure,
        };
        let Some(Hook::Command(command)) = hook else {
            return Ok(());
        };
        let status = std::process::Command::new("sh")
            .args(["-c", command])
            .env("BUNRAKU_RUN", record.id.to_string())
            .env("BUNRAKU_OUTCOME", format!("{outcome:?}").to_lowercase())
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(format!(
                "the hook `{command}` failed ({status})"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_a_command_or_a_trigger_with_hosts_or_a_query() {
        let hook = |text: &str| text.parse::<Hook>();
        assert_eq!(
            hook("mail -s done ops"),
            Ok(Hook::Command("mail -s done ops".to_owned()))
        );
        let Ok(Hook::Trigger(named)) = hook("trigger:reload lb1,lb2") else {
            panic!("a trigger");
        };
        assert_eq!(named.hosts.len(), 2);
        let Ok(Hook::Trigger(asked)) = hook("trigger:reload nodes { facts.role = \"lb\" }") else {
            panic!("a trigger");
        };
        assert_eq!(
            asked.query.as_deref(),
            Some("nodes { facts.role = \"lb\" }")
        );
        assert!(hook("trigger:reload").is_err());
        assert!(hook("trigger:reload bad_host!").is_err());
    }
}
