//! Transactions of many packages, the same for every manager.

use std::sync::{Mutex, PoisonError};

use super::manager::{Install, Settings, Transaction};
use super::wish::names;
use super::{Ensure, Manager, Status, Statuses, Wish};
use crate::{Applied, Hands, Sight, StepError};

/// The lock for manager calls. Steps run in parallel and a manager does one thing at a
/// time, so the second caller waits here and not at the manager's own lock.
static AT_WORK: Mutex<()> = Mutex::new(());

pub(super) fn look(
    manager: &dyn Manager,
    wishes: &[&Wish],
    sight: &Sight<'_>,
) -> Result<Statuses, StepError> {
    let mut statuses = manager.installed(&names(wishes.iter().copied()), sight)?;
    let mut latest: Vec<&str> = (wishes.iter().flat_map(|wish| &wish.packages))
        .filter(|wanted| wanted.ensure == Ensure::Latest)
        .map(|wanted| wanted.name.as_str())
        .collect();
    latest.sort_unstable();
    latest.dedup();
    if !latest.is_empty() {
        manager.candidates(&latest, &mut statuses, sight)?;
    }
    Ok(statuses)
}

/// Returns the states that one wish needs.
pub(super) fn part(all: &Statuses, wish: &Wish) -> Statuses {
    (wish.packages.iter())
        .filter_map(|wanted| Some((wanted.name.clone(), all.get(&wanted.name)?.clone())))
        .collect()
}

type Member<'a> = (&'a Wish, &'a Statuses);

pub(super) fn act(
    manager: &dyn Manager,
    members: &[Member<'_>],
    hands: &Hands<'_>,
) -> Vec<Result<Applied, StepError>> {
    let _alone = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = match prepare(manager, members, hands) {
        Ok(missing) => missing,
        Err(error) => return members.iter().map(|_| Err(copy(&error))).collect(),
    };
    let lacks = |wish: &Wish| {
        let found = wish
            .packages
            .iter()
            .find(|wanted| missing.contains(&wanted.name));
        found.map(|wanted| wanted.name.clone())
    };
    let able: Vec<Member<'_>> = (members.iter().copied())
        .filter(|(wish, _)| lacks(wish).is_none())
        .collect();
    let mut answers = transact(manager, &able, hands).into_iter();
    (members.iter())
        .map(|(wish, _)| match lacks(wish) {
            Some(name) => Err(StepError::new(format!(
                "there is no package `{name}` in the repositories of this machine"
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
    hands: &Hands<'_>,
) -> Result<Vec<String>, StepError> {
    let wanted: Vec<&str> = (members.iter())
        .filter(|(wish, _)| wish.source.is_none())
        .flat_map(|(wish, statuses)| {
            (wish.packages.iter()).filter(|wanted| {
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
        .map(|(wish, _)| wish.lock_timeout)
        .max()
        .unwrap_or_default();
    let refresh = || manager.refresh(timeout, hands);
    let unfetched =
        (members.iter()).any(|(_, statuses)| statuses.values().any(|status| status.unfetched));
    if unfetched || members.iter().any(|(wish, _)| wish.refresh) {
        hands.once(manager.metadata_key(), refresh)?;
    }
    let missing = manager.unknown(&wanted, hands)?;
    if missing.is_empty() {
        return Ok(missing);
    }
    hands.once(manager.metadata_key(), refresh)?;
    manager.unknown(&wanted, hands)
}

/// Runs one transaction for all members. When it fails, runs one for each member that
/// is not yet in the desired state.
fn transact(
    manager: &dyn Manager,
    members: &[Member<'_>],
    hands: &Hands<'_>,
) -> Vec<Result<Applied, StepError>> {
    if members.is_empty() {
        return Vec::new();
    }
    let all = carry_out(manager, members, hands);
    if let Err(error) = &all
        && (members.len() == 1 || error.interrupted)
    {
        return members.iter().map(|_| Err(copy(error))).collect();
    }
    (members.iter())
        .map(|member| {
            let wishes = [member.0];
            let now = look(manager, &wishes, hands)?;
            match &all {
                Err(_) if !is_done(member.0, &now) => {
                    carry_out(manager, &[(member.0, &now)], hands)?;
                    verify(member.0, &look(manager, &wishes, hands)?)
                }
                _ => verify(member.0, &now),
            }
        })
        .collect()
}

fn carry_out(
    manager: &dyn Manager,
    members: &[Member<'_>],
    hands: &Hands<'_>,
) -> Result<(), StepError> {
    // A hold on a package would prevent its change.
    let released = holds(members, false);
    if !released.is_empty() {
        manager.hold(&released, false, hands)?;
    }
    let transaction = transaction(members, hands);
    if !transaction.is_empty() {
        manager.carry_out(&transaction, hands)?;
    }
    let held = holds(members, true);
    if !held.is_empty() {
        manager.hold(&held, true, hands)?;
    }
    Ok(())
}

/// Returns the names whose hold has to change to this.
fn holds<'a>(members: &[Member<'a>], hold: bool) -> Vec<&'a str> {
    let unknown = Status::default();
    (members.iter())
        .filter(|(wish, _)| wish.hold == Some(hold))
        .flat_map(|(wish, statuses)| {
            let differs = |name: &String| statuses.get(name).unwrap_or(&unknown).held != hold;
            let wanted = wish
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

fn transaction(members: &[Member<'_>], sight: &Sight<'_>) -> Transaction {
    let unknown = Status::default();
    let mut transaction = Transaction::default();
    for (wish, statuses) in members {
        let timeout = transaction.options.lock_timeout.max(wish.lock_timeout);
        transaction.options = Settings {
            install: wish.install_options.clone(),
            uninstall: wish.uninstall_options.clone(),
            recommends: wish.recommends,
            replace_configuration: wish.replace_configuration,
            repository: wish.repository.clone(),
            lock_timeout: timeout,
        };
        for wanted in &wish.packages {
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
                    file: wish.source.as_ref().map(|source| sight.path(source)),
                    installed: status.version.is_some(),
                }),
            }
        }
    }
    transaction
}

fn is_done(wish: &Wish, now: &Statuses) -> bool {
    let unknown = Status::default();
    (wish.packages.iter()).all(|wanted| {
        let status = now.get(&wanted.name).unwrap_or(&unknown);
        wanted.is_met(status)
            && wish
                .hold
                .is_none_or(|hold| !wanted.is_to_be_there() || hold == status.held)
    })
}

fn verify(wish: &Wish, now: &Statuses) -> Result<Applied, StepError> {
    if is_done(wish, now) {
        return Ok(Applied::default());
    }
    let found: Vec<String> = (wish.packages.iter())
        .map(|wanted| {
            let version = now
                .get(&wanted.name)
                .and_then(|status| status.version.as_deref());
            format!("{} is {}", wanted.name, version.unwrap_or("not installed"))
        })
        .collect();
    let found = found.join(", ");
    Err(StepError::new(format!(
        "the package manager reports success, yet {found}"
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
