//! Transactions of many packages, the same for every manager.

use std::sync::{Mutex, PoisonError};

use super::desired::names;
use super::manager::{Install, Settings, Transaction};
use super::{DesiredPackages, Ensure, Manager, Status, Statuses};
use crate::{ApplyResult, ReadAccess, StepError, StepResult, WriteAccess};

/// The lock for manager calls. Steps run in parallel and a manager does one thing at a
/// time, so the second caller waits here and not at the manager's own lock.
static AT_WORK: Mutex<()> = Mutex::new(());

pub(super) fn look(
    manager: &dyn Manager,
    desired: &[&DesiredPackages],
    access: &ReadAccess<'_>,
) -> StepResult<Statuses> {
    let mut statuses = manager.installed(&names(desired.iter().copied()), access)?;
    let mut latest: Vec<&str> = (desired.iter().flat_map(|desired| &desired.packages))
        .filter(|wanted| wanted.ensure == Ensure::Latest)
        .map(|wanted| wanted.name.as_str())
        .collect();
    latest.sort_unstable();
    latest.dedup();
    if !latest.is_empty() {
        manager.candidates(&latest, &mut statuses, access)?;
    }
    Ok(statuses)
}

/// Returns the states that one wish needs.
pub(super) fn part(all: &Statuses, desired: &DesiredPackages) -> Statuses {
    (desired.packages.iter())
        .filter_map(|wanted| Some((wanted.name.clone(), all.get(&wanted.name)?.clone())))
        .collect()
}

type Member<'a> = (&'a DesiredPackages, &'a Statuses);

pub(super) fn act(
    manager: &dyn Manager,
    members: &[Member<'_>],
    write_access: &WriteAccess<'_>,
) -> Vec<StepResult<ApplyResult>> {
    let _alone = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = match prepare(manager, members, write_access) {
        Ok(missing) => missing,
        Err(error) => return members.iter().map(|_| Err(copy(&error))).collect(),
    };
    let lacks = |desired: &DesiredPackages| {
        let found = desired
            .packages
            .iter()
            .find(|wanted| missing.contains(&wanted.name));
        found.map(|wanted| wanted.name.clone())
    };
    let able: Vec<Member<'_>> = (members.iter().copied())
        .filter(|(desired, _)| lacks(desired).is_none())
        .collect();
    let mut answers = transact(manager, &able, write_access).into_iter();
    (members.iter())
        .map(|(desired, _)| match lacks(desired) {
            Some(name) => Err(StepError::new(format!(
                "no package `{name}` in the repositories of this machine"
            ))),
            None => answers.next().expect("each able member has an answer"),
        })
        .collect()
}

/// Refreshes the metadata if that is requested or needed. Returns the names that no
/// repository has even then.
fn prepare(
    manager: &dyn Manager,
    members: &[Member<'_>],
    write_access: &WriteAccess<'_>,
) -> StepResult<Vec<String>> {
    let wanted: Vec<&str> = (members.iter())
        .filter(|(desired, _)| desired.source.is_none())
        .flat_map(|(desired, statuses)| {
            (desired.packages.iter()).filter(|wanted| {
                wanted.is_to_be_there()
                    && statuses
                        .get(&wanted.name)
                        .is_none_or(|status| !wanted.is_met(status))
            })
        })
        .map(|wanted| wanted.name.as_str())
        .collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let timeout = members
        .iter()
        .map(|(desired, _)| desired.lock_timeout)
        .max()
        .unwrap_or_default();
    let refresh = || manager.refresh(timeout, write_access);
    let unfetched =
        (members.iter()).any(|(_, statuses)| statuses.values().any(|status| status.unfetched));
    if unfetched || members.iter().any(|(desired, _)| desired.refresh) {
        write_access.once(manager.metadata_key(), refresh)?;
    }
    let missing = manager.unknown(&wanted, write_access)?;
    if missing.is_empty() {
        return Ok(missing);
    }
    write_access.once(manager.metadata_key(), refresh)?;
    manager.unknown(&wanted, write_access)
}

/// Runs one transaction for all members. When it fails, runs one for each member that
/// is not yet in the desired state.
fn transact(
    manager: &dyn Manager,
    members: &[Member<'_>],
    write_access: &WriteAccess<'_>,
) -> Vec<StepResult<ApplyResult>> {
    if members.is_empty() {
        return Vec::new();
    }
    let all = carry_out(manager, members, write_access);
    if let Err(error) = &all
        && (members.len() == 1 || error.interrupted)
    {
        return members.iter().map(|_| Err(copy(error))).collect();
    }
    (members.iter())
        .map(|member| {
            let desired = [member.0];
            let now = look(manager, &desired, write_access)?;
            match &all {
                Err(_) if !is_done(member.0, &now) => {
                    carry_out(manager, &[(member.0, &now)], write_access)?;
                    verify(member.0, &look(manager, &desired, write_access)?)
                }
                _ => verify(member.0, &now),
            }
        })
        .collect()
}

fn carry_out(
    manager: &dyn Manager,
    members: &[Member<'_>],
    write_access: &WriteAccess<'_>,
) -> StepResult {
    // A hold on a package would prevent its change.
    let released = holds(members, false);
    if !released.is_empty() {
        manager.hold(&released, false, write_access)?;
    }
    let transaction = transaction(members, write_access);
    if !transaction.is_empty() {
        manager.carry_out(&transaction, write_access)?;
    }
    let held = holds(members, true);
    if !held.is_empty() {
        manager.hold(&held, true, write_access)?;
    }
    Ok(())
}

/// Returns the names whose hold has to change to this.
fn holds<'a>(members: &[Member<'a>], hold: bool) -> Vec<&'a str> {
    let unknown = Status::default();
    (members.iter())
        .filter(|(desired, _)| desired.hold == Some(hold))
        .flat_map(|(desired, statuses)| {
            let differs = |name: &String| statuses.get(name).unwrap_or(&unknown).held != hold;
            let wanted = desired
                .packages
                .iter()
                .filter(|wanted| wanted.is_to_be_there());
            wanted
                .map(|wanted| &wanted.name)
                .filter(|name| differs(name))
                .map(String::as_str)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn transaction(members: &[Member<'_>], access: &ReadAccess<'_>) -> Transaction {
    let unknown = Status::default();
    let mut transaction = Transaction::default();
    for (desired, statuses) in members {
        let timeout = transaction.options.lock_timeout.max(desired.lock_timeout);
        transaction.options = Settings {
            install: desired.install_options.clone(),
            uninstall: desired.uninstall_options.clone(),
            recommends: desired.recommends,
            replace_configuration: desired.replace_configuration,
            repository: desired.repository.clone(),
            lock_timeout: timeout,
        };
        for wanted in &desired.packages {
            let status = statuses.get(&wanted.name).unwrap_or(&unknown);
            if wanted.is_met(status) {
                continue;
            }
            match &wanted.ensure {
                Ensure::Absent => transaction.remove.push(wanted.name.clone()),
                Ensure::Purged => transaction.purge.push(wanted.name.clone()),
                ensure => transaction.install.push(Install {
                    name: wanted.name.clone(),
                    version: match ensure {
                        Ensure::Version(version) => Some(version.clone()),
                        _ => None,
                    },
                    file: desired.source.as_ref().map(|source| access.path(source)),
                    installed: status.version.is_some(),
                }),
            }
        }
    }
    transaction
}

fn is_done(desired: &DesiredPackages, now: &Statuses) -> bool {
    let unknown = Status::default();
    (desired.packages.iter()).all(|wanted| {
        let status = now.get(&wanted.name).unwrap_or(&unknown);
        wanted.is_met(status)
            && desired
                .hold
                .is_none_or(|hold| !wanted.is_to_be_there() || hold == status.held)
    })
}

fn verify(desired: &DesiredPackages, now: &Statuses) -> StepResult<ApplyResult> {
    if is_done(desired, now) {
        return Ok(ApplyResult::default());
    }
    let found: Vec<String> = (desired.packages.iter())
        .map(|wanted| {
            let version = now
                .get(&wanted.name)
                .and_then(|status| status.version.as_deref());
            format!("{} is {}", wanted.name, version.unwrap_or("not installed"))
        })
        .collect();
    let found = found.join(", ");
    Err(StepError::new(format!(
        "the package manager reported success, but {found}"
    )))
}

impl Transaction {
    fn is_empty(&self) -> bool {
        self.install.is_empty() && self.remove.is_empty() && self.purge.is_empty()
    }
}

/// Copies an error, as each member of a group needs one.
fn copy(error: &StepError) -> StepError {
    let mut copy = StepError::new(error.chain()).with_outputs(error.outputs.clone());
    copy.interrupted = error.interrupted;
    copy
}
