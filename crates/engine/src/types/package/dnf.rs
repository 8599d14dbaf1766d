//! Packages of the Red Hat family, through `dnf` and `rpm`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::manager::{Manager, Transaction};
use super::{Statuses, holder, unknown};
use crate::types::exec::{FinishedCommand, Run};
use crate::types::tool;
use crate::{ReadAccess, StepError, StepResult, WriteAccess};

pub(crate) struct Dnf;

/// The exit code of dnf with `exit_on_lock` when another process holds the lock.
const LOCKED: i32 = 200;

const INSTALLED: &str = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n";

impl Manager for Dnf {
    fn metadata_key(&self) -> &'static str {
        "dnf metadata"
    }

    fn installed(&self, names: &[&str], access: &ReadAccess<'_>) -> StepResult<Statuses> {
        let done = tool::look(rpm(access, &["-qa", "--queryformat", INSTALLED]), access)?;
        if !done.succeeded() {
            return Err(tool::complaint("rpm -qa", &done));
        }
        let mut statuses = statuses(&done.stdout_text(), names);
        for (name, status) in &mut statuses {
            if status.version.is_none() {
                let done = tool::look(rpm(access, &["-q", "--whatprovides", "--", name]), access)?;
                status.provided = done.succeeded();
            }
        }
        Ok(statuses)
    }

    fn candidates(
        &self,
        names: &[&str],
        statuses: &mut Statuses,
        access: &ReadAccess<'_>,
    ) -> StepResult {
        let offered = offered(names, access)?;
        for name in names {
            let status = statuses.entry((*name).to_owned()).or_default();
            status.unfetched = offered.is_none();
            status.candidate = offered
                .iter()
                .flatten()
                .find(|(known, _)| known == name)
                .map(|(_, version)| version.clone());
        }
        Ok(())
    }

    /// Returns nothing: dnf itself reports the names that it cannot find, and knows
    /// groups and provided names that a list would not show.
    fn unknown(&self, _names: &[&str], _sight: &ReadAccess<'_>) -> StepResult<Vec<String>> {
        Ok(Vec::new())
    }

    fn refresh(&self, lock_timeout: Duration, write_access: &WriteAccess<'_>) -> StepResult {
        let words = words(write_access, &["-q", "makecache", "--refresh"]);
        dnf(&words, "dnf makecache", lock_timeout, write_access).map(drop)
    }

    fn carry_out(&self, transaction: &Transaction, write_access: &WriteAccess<'_>) -> StepResult {
        let options = &transaction.options;
        let timeout = options.lock_timeout;
        let gone: Vec<OsString> = (transaction.remove.iter().chain(&transaction.purge))
            .map(Into::into)
            .collect();
        if !gone.is_empty() {
            let mut words = words(write_access, &["-q", "-y"]);
            words.extend(options.uninstall.iter().map(OsString::from));
            words.push("remove".into());
            words.extend(gone);
            dnf(&words, "dnf remove", timeout, write_access)?;
        }
        let (upgrades, installs): (Vec<_>, Vec<_>) = (transaction.install.iter())
            .partition(|one| one.installed && one.version.is_none() && one.file.is_none());
        for (verb, members) in [("install", installs), ("upgrade", upgrades)] {
            if members.is_empty() {
                continue;
            }
            let mut words = words(write_access, &["-q", "-y"]);
            if let Some(recommends) = options.recommends {
                let value = if recommends { "True" } else { "False" };
                words.push(format!("--setopt=install_weak_deps={value}").into());
            }
            if let Some(repository) = &options.repository {
                words.push(format!("--repo={repository}").into());
            }
            words.extend(options.install.iter().map(OsString::from));
            words.push(verb.into());
            for one in members {
                words.push(match (&one.file, &one.version) {
                    (Some(file), _) => file.clone().into_os_string(),
                    (None, Some(version)) => format!("{}-{version}", one.name).into(),
                    (None, None) => one.name.clone().into(),
                });
            }
            dnf(&words, &format!("dnf {verb}"), timeout, write_access)?;
        }
        Ok(())
    }

    fn hold(&self, _names: &[&str], _hold: bool, _write_access: &WriteAccess<'_>) -> StepResult {
        Err(StepError::new(
            "`hold` is only supported with apt; dnf needs a plug-in",
        ))
    }
}

/// Fetches the metadata of one repository.
pub(crate) fn refresh_dnf_repository(
    name: &str,
    lock_timeout: Duration,
    write_access: &WriteAccess<'_>,
) -> StepResult {
    let repository = format!("--repo={name}");
    // By default dnf only warns about a repository that it cannot reach.
    let strict = "--setopt=skip_if_unavailable=False";
    let words = words(
        write_access,
        &["-q", strict, "makecache", "--refresh", &repository],
    );
    dnf(&words, "dnf makecache", lock_timeout, write_access).map(drop)
}

fn rpm(access: &ReadAccess<'_>, arguments: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["rpm".into()];
    if let Some(root) = access.root() {
        words.extend(["--root".into(), root.into()]);
    }
    words.extend(arguments.iter().map(OsString::from));
    words
}

fn words(access: &ReadAccess<'_>, arguments: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["dnf".into(), "--setopt=exit_on_lock=True".into()];
    if let Some(root) = access.root() {
        for (option, path) in [
            ("--installroot=", ""),
            ("--setopt=reposdir=", "/etc/yum.repos.d"),
        ] {
            let mut value = OsString::from(option);
            value.push(root);
            value.push(path);
            words.push(value);
        }
    }
    words.extend(arguments.iter().map(OsString::from));
    words
}

fn dnf(
    words: &[OsString],
    what: &str,
    lock_timeout: Duration,
    write_access: &WriteAccess<'_>,
) -> StepResult<FinishedCommand> {
    let begun = Instant::now();
    loop {
        holder::wait(
            &locks(write_access),
            begun,
            lock_timeout,
            write_access,
            holder::pid_file_holder,
        )?;
        let done = Run::new(words.iter().cloned())
            .to_the_end()
            .run(write_access)?;
        if done.succeeded() {
            return Ok(done);
        }
        if done.code == Some(LOCKED) && begun.elapsed() < lock_timeout {
            continue;
        }
        return Err(tool::complaint(what, &done));
    }
}

fn locks(access: &ReadAccess<'_>) -> Vec<PathBuf> {
    let files = [
        "/var/cache/dnf/metadata_lock.pid",
        "/var/cache/dnf/download_lock.pid",
        "/var/lib/dnf/rpmdb_lock.pid",
    ];
    files.iter().map(|file| access.path(file)).collect()
}

/// Returns the versions in the repositories, from the cache only. `None` if there is no cache.
fn offered(
    names: &[&str],
    access: &ReadAccess<'_>,
) -> Result<Option<Vec<(String, String)>>, StepError> {
    let format = "--queryformat=%{name}\\t%{epoch}:%{version}-%{release}";
    let mut words = words(
        access,
        &[
            "-q",
            "--cacheonly",
            "repoquery",
            "--latest-limit=1",
            format,
            "--",
        ],
    );
    words.extend(names.iter().map(OsString::from));
    let done = tool::look(words, access)?;
    if !done.succeeded() {
        return Ok(None);
    }
    let text = done.stdout_text();
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(Some(
        pairs
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .collect(),
    ))
}

fn statuses(text: &str, names: &[&str]) -> Statuses {
    let mut statuses = unknown(names);
    for line in text.lines() {
        let mut fields = line.split('\t');
        let [name, version, architecture] =
            std::array::from_fn(|_| fields.next().unwrap_or_default());
        for known in [name.to_owned(), format!("{name}.{architecture}")] {
            if let Some(status) = statuses.get_mut(&known) {
                status.version = Some(version.to_owned());
            }
        }
    }
    statuses
}
