//! `cron`: a job in a user's crontab.
//!
//! The `# Puppet Name:` line above a job identifies it, so Puppet and Bunraku can take
//! turns. Salt's identifiers are understood too.

mod crontab;
mod schedule;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::json;

use super::exec::Run;
use super::{accounts, config_file, presence, single_line, tool};
use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StepError, SystemObject, TypeSpec,
};
use crontab::Job;

pub(crate) struct Cron;

pub(crate) struct DesiredCronJob {
    name: String,
    present: bool,
    user: String,
    job: Job,
}

impl ResourceType for Cron {
    type Desired = DesiredCronJob;
    type Observed = Option<Job>;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredCronJob, Refusal> {
        let present = presence::present(declaration)?;
        let state_name = || {
            declaration
                .is_state()
                .then(|| declaration.name())
                .transpose()
        };
        let name = match single_line::line(declaration, "identifier")? {
            Some(identifier) => identifier,
            None => declaration.name()?,
        };
        let command = match single_line::line(declaration, "command")? {
            Some(command) => Some(command),
            None => state_name()?,
        };
        let command = match command {
            None if present => return Err(Refusal::Missing("command")),
            command => command.unwrap_or_default(),
        };
        let user = match single_line::word(declaration, "user")? {
            Some(user) => Some(user),
            None => single_line::word(declaration, "target")?,
        };
        let user = user.unwrap_or_else(|| "root".to_owned());
        if name.contains(char::is_control) || command.contains(char::is_control) {
            return Err(Refusal::other(
                "the name and command of a job must be single lines",
            ));
        }
        if !accounts::is_name(&user) {
            return Err(declaration.refuse("user", "the name of a user"));
        }
        Ok(DesiredCronJob {
            name,
            present,
            user,
            job: Job {
                // Salt removes a command regardless of its schedule.
                schedule: match schedule::read(declaration)? {
                    _ if !present && declaration.is_state() => String::new(),
                    schedule => schedule,
                },
                command,
                environment: environment(declaration)?,
            },
        })
    }

    fn changes(&self, desired: &DesiredCronJob, observed: &Option<Job>) -> Vec<Change> {
        presence::changes(desired.present, observed.as_ref(), |old| {
            let new = &desired.job;
            presence::differing([
                ("schedule", json!(old.schedule), json!(new.schedule)),
                ("command", json!(old.command), json!(new.command)),
                (
                    "environment",
                    json!(old.environment),
                    json!(new.environment),
                ),
            ])
        })
    }

    fn relations(&self, desired: &DesiredCronJob, relations: &mut Relations) {
        relations.needs(SystemObject::User(desired.user.clone()), "its user");
        for package in ["cron", "cronie"] {
            relations.genius_needs(
                SystemObject::Package(package.to_owned()),
                "provides crontab",
            );
        }
    }
}

fn environment(declaration: &Declaration) -> Result<Vec<String>, Refusal> {
    let given = declaration.texts("environment")?.unwrap_or_default();
    let fits = |one: &String| {
        one.split_once('=')
            .is_some_and(|(name, _)| single_line::is_word(name) && !name.starts_with('#'))
            && !one.contains(char::is_control)
    };
    if given.iter().all(fits) {
        Ok(given.into_iter().filter(|one| !one.is_empty()).collect())
    } else {
        Err(declaration.refuse("environment", "a list of NAME=value"))
    }
}

impl Provider for Cron {
    fn observe(
        &self,
        desired: &DesiredCronJob,
        access: &ReadAccess<'_>,
    ) -> Result<Option<Job>, StepError> {
        let table = match read(desired, access) {
            // An earlier resource may create the user.
            Err(_) if access.may_appear() => Vec::new(),
            table => table?,
        };
        Ok(crontab::find(&table, &desired.name, &desired.job))
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let Observation {
            desired,
            write_access,
            ..
        } = *step;
        let change =
            |table: &[u8]| crontab::put(table, &desired.name, &desired.job, desired.present);
        let account = accounts::find_user(write_access, &desired.user)?;
        let account =
            account.ok_or_else(|| StepError::new(format!("no user `{}`", desired.user)))?;
        if write_access.root().is_some() {
            let new_file = config_file::NewFile {
                mode: 0o600,
                owner: Some((account.uid, account.gid)),
            };
            config_file::edit(
                &spool(desired, write_access),
                new_file,
                write_access,
                change,
            )?;
        } else {
            config_file::alone(|| {
                let table = change(&read(desired, write_access)?);
                // Remove a table that became empty.
                let run = if table.is_empty() {
                    Run::new(["crontab", "-u", &desired.user, "-r"])
                } else {
                    Run::new(["crontab", "-u", &desired.user, "-"]).stdin(table)
                };
                tool::act(&run, "crontab", write_access)
            })?;
        }
        Ok(ApplyResult::default())
    }
}

/// Returns Debian's directory, or Red Hat's if that is the one that exists.
fn spool(desired: &DesiredCronJob, access: &ReadAccess<'_>) -> std::path::PathBuf {
    let debian = access.path("/var/spool/cron/crontabs");
    let red_hat = access.path("/var/spool/cron");
    if !debian.is_dir() && red_hat.is_dir() {
        return red_hat.join(&desired.user);
    }
    debian.join(&desired.user)
}

fn read(desired: &DesiredCronJob, access: &ReadAccess<'_>) -> Result<Vec<u8>, StepError> {
    if access.root().is_some() {
        return Ok(config_file::read(&spool(desired, access))?.unwrap_or_default());
    }
    let done = tool::look(["crontab", "-u", &desired.user, "-l"], access)?;
    if done.succeeded() {
        return Ok(done.stdout);
    }
    if done.stderr_text().contains("no crontab for") {
        return Ok(Vec::new());
    }
    Err(tool::complaint("crontab -l", &done))
}
