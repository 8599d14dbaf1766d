//! Debian's packages, through `apt-get`, `apt-cache`, `apt-mark` and `dpkg`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::manager::{Manager, Transaction};
use super::{Statuses, holder, unknown};
use crate::types::exec::{FinishedCommand, Run};
use crate::types::tool;
use crate::{ReadAccess, StepResult, WriteAccess};

pub(crate) struct Apt;

/// The fields that `dpkg-query` prints for each installed package.
const FORMAT: &str = "${Package}\\t${Architecture}\\t${db:Status-Want}\\t${db:Status-Status}\\t${Version}\\t${Provides}\\n";

impl Manager for Apt {
    fn metadata_key(&self) -> &'static str {
        "apt metadata"
    }

    fn installed(&self, names: &[&str], access: &ReadAccess<'_>) -> StepResult<Statuses> {
        let mut admin = OsString::from("--admindir=");
        admin.push(access.path("/var/lib/dpkg"));
        let words = [
            "dpkg-query".into(),
            admin,
            "--show".into(),
            format!("--showformat={FORMAT}").into(),
        ];
        let done = tool::look(words, access)?;
        // An empty database is not a read failure.
        if !done.succeeded() && !done.stderr_text().contains("no packages found") {
            return Err(tool::complaint("dpkg-query", &done));
        }
        Ok(statuses(&done.stdout_text(), names))
    }

    fn candidates(
        &self,
        names: &[&str],
        statuses: &mut Statuses,
        access: &ReadAccess<'_>,
    ) -> StepResult {
        let unfetched = !has_metadata(access);
        let found = policy(names, access)?;
        for name in names {
            let status = statuses.entry((*name).to_owned()).or_default();
            status.unfetched = unfetched;
            status.candidate = found
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, version)| version.clone());
        }
        Ok(())
    }

    fn unknown(&self, names: &[&str], access: &ReadAccess<'_>) -> StepResult<Vec<String>> {
        let found = policy(names, access)?;
        let mut missing = Vec::new();
        for name in names
            .iter()
            .filter(|name| !found.iter().any(|(known, _)| known == *name))
        {
            // A virtual package has no candidate of its own.
            let done = tool::look(words(access, "apt-cache", &["showpkg", name]), access)?;
            let text = done.stdout_text();
            let provided = text
                .split_once("Reverse Provides:")
                .is_some_and(|(_, rest)| !rest.trim().is_empty());
            if !provided {
                missing.push((*name).to_owned());
            }
        }
        Ok(missing)
    }

    fn refresh(&self, lock_timeout: Duration, write_access: &WriteAccess<'_>) -> StepResult {
        let words = words(write_access, "apt-get", STRICT_UPDATE);
        apt_get(words, "apt-get update", lock_timeout, write_access).map(drop)
    }

    fn carry_out(&self, transaction: &Transaction, write_access: &WriteAccess<'_>) -> StepResult {
        let options = &transaction.options;
        if !transaction.install.is_empty() || !transaction.remove.is_empty() {
            let words = install_words(transaction, write_access);
            let what = if transaction.install.is_empty() {
                "apt-get remove"
            } else {
                "apt-get install"
            };
            apt_get(words, what, options.lock_timeout, write_access)?;
        }
        if !transaction.purge.is_empty() {
            let mut words = words(
                write_access,
                "apt-get",
                &["-q", "-y", "--allow-change-held-packages"],
            );
            words.extend(options.uninstall.iter().map(OsString::from));
            words.push("purge".into());
            words.extend(transaction.purge.iter().map(OsString::from));
            apt_get(words, "apt-get purge", options.lock_timeout, write_access)?;
        }
        Ok(())
    }

    fn hold(&self, names: &[&str], hold: bool, write_access: &WriteAccess<'_>) -> StepResult {
        let verb = if hold { "hold" } else { "unhold" };
        let mut words = words(write_access, "apt-mark", &[verb]);
        words.extend(names.iter().map(OsString::from));
        apt_get(words, "apt-mark", Duration::from_secs(60), write_access).map(drop)
    }
}

/// Fetches the metadata of the sources in one file and leaves all other metadata alone.
pub(crate) fn refresh_apt_file(
    file: &std::path::Path,
    lock_timeout: Duration,
    write_access: &WriteAccess<'_>,
) -> StepResult {
    let mut words = words(write_access, "apt-get", STRICT_UPDATE);
    let mut list = OsString::from("Dir::Etc::sourcelist=");
    list.push(file);
    words.extend(["-o".into(), list]);
    words.extend(
        [
            "-o",
            "Dir::Etc::sourceparts=-",
            "-o",
            "APT::Get::List-Cleanup=0",
        ]
        .map(OsString::from),
    );
    apt_get(words, "apt-get update", lock_timeout, write_access).map(drop)
}

/// Arguments that make an unreachable repository an error. By default apt only warns.
const STRICT_UPDATE: &[&str] = &["-q", "-o", "APT::Update::Error-Mode=any", "update"];

/// Returns the words of an apt program, with the options for another root.
fn words(access: &ReadAccess<'_>, program: &str, arguments: &[&str]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![program.into()];
    // Without its own terminal dpkg prints no progress bars into the log.
    words.extend(["-o", "Dpkg::Use-Pty=0"].map(OsString::from));
    if let Some(root) = access.root() {
        for (option, path) in [
            ("Dir=", ""),
            ("DPkg::Options::=--root=", ""),
            ("Dir::Log=", "/var/log/apt"),
        ] {
            let mut value = OsString::from(option);
            value.push(root);
            value.push(path);
            words.extend(["-o".into(), value]);
        }
    }
    words.extend(arguments.iter().map(OsString::from));
    words
}

fn install_words(transaction: &Transaction, access: &ReadAccess<'_>) -> Vec<OsString> {
    let options = &transaction.options;
    let mut words = words(
        access,
        "apt-get",
        &["-q", "-y", "--allow-change-held-packages"],
    );
    let configuration = if options.replace_configuration {
        "confnew"
    } else {
        "confold"
    };
    for force in [
        "--force-confdef".to_owned(),
        format!("--force-{configuration}"),
    ] {
        words.extend(["-o".into(), format!("DPkg::Options::={force}").into()]);
    }
    if transaction
        .install
        .iter()
        .any(|one| one.version.is_some() || one.file.is_some())
    {
        words.push("--allow-downgrades".into());
    }
    if let Some(recommends) = options.recommends {
        let word = if recommends {
            "--install-recommends"
        } else {
            "--no-install-recommends"
        };
        words.push(word.into());
    }
    if let Some(repository) = &options.repository {
        words.push(format!("--target-release={repository}").into());
    }
    words.extend(options.install.iter().map(OsString::from));
    if transaction.install.is_empty() {
        words.extend(options.uninstall.iter().map(OsString::from));
    }
    words.push(
        if transaction.install.is_empty() {
            "remove"
        } else {
            "install"
        }
        .into(),
    );
    for one in &transaction.install {
        words.push(match (&one.file, &one.version) {
            (Some(file), _) => file.clone().into_os_string(),
            (None, Some(version)) => format!("{}={version}", one.name).into(),
            (None, None) => one.name.clone().into(),
        });
    }
    // Removals in the same transaction may make room for the installs.
    let dash = if transaction.install.is_empty() {
        ""
    } else {
        "-"
    };
    words.extend(
        transaction
            .remove
            .iter()
            .map(|name| OsString::from(format!("{name}{dash}"))),
    );
    words
}

/// Runs `apt-get` when the locks are free. If an earlier run of dpkg was interrupted
/// (power loss), lets dpkg finish that and runs it again.
fn apt_get(
    words: Vec<OsString>,
    what: &str,
    lock_timeout: Duration,
    write_access: &WriteAccess<'_>,
) -> StepResult<FinishedCommand> {
    let begun = std::time::Instant::now();
    let mut repaired = false;
    loop {
        holder::wait(
            &locks(write_access),
            begun,
            lock_timeout,
            write_access,
            holder::lock_holder,
        )?;
        let done = quiet_environment(Run::new(words.clone()))
            .to_the_end()
            .run(write_access)?;
        if done.succeeded() {
            return Ok(done);
        }
        let said = done.stderr_text();
        if said.contains("dpkg was interrupted") && !repaired {
            repaired = true;
            repair(write_access)?;
            continue;
        }
        // Another process took the lock between our check and apt's.
        if said.contains("Could not get lock") && begun.elapsed() < lock_timeout {
            continue;
        }
        return Err(tool::complaint(what, &done));
    }
}

fn repair(write_access: &WriteAccess<'_>) -> StepResult {
    let mut words: Vec<OsString> = vec!["dpkg".into()];
    if let Some(root) = write_access.root() {
        let mut option = OsString::from("--root=");
        option.push(root);
        words.push(option);
    }
    words.extend([
        "--force-confdef".into(),
        "--force-confold".into(),
        "--configure".into(),
        "-a".into(),
    ]);
    let run = quiet_environment(Run::new(words)).to_the_end();
    tool::act(&run, "dpkg --configure -a", write_access).map(drop)
}

/// Sets the environment so that no tool asks a question.
fn quiet_environment(run: Run) -> Run {
    run.environment("DEBIAN_FRONTEND", "noninteractive")
        .environment("DEBIAN_PRIORITY", "critical")
        .environment("APT_LISTCHANGES_FRONTEND", "none")
        .environment("APT_LISTBUGS_FRONTEND", "none")
        .environment("UCF_FORCE_CONFFOLD", "1")
        .environment("NEEDRESTART_MODE", "l")
}

fn locks(access: &ReadAccess<'_>) -> Vec<PathBuf> {
    let files = [
        "/var/lib/dpkg/lock-frontend",
        "/var/lib/dpkg/lock",
        "/var/lib/apt/lists/lock",
        "/var/cache/apt/archives/lock",
    ];
    files.iter().map(|file| access.path(file)).collect()
}

fn has_metadata(access: &ReadAccess<'_>) -> bool {
    let lists = std::fs::read_dir(access.path("/var/lib/apt/lists"));
    lists.is_ok_and(|lists| {
        lists
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    })
}

/// Returns the version that would be installed, for each name that has one.
fn policy(names: &[&str], access: &ReadAccess<'_>) -> StepResult<Vec<(String, String)>> {
    let mut words = words(access, "apt-cache", &["policy", "--"]);
    words.extend(names.iter().map(OsString::from));
    let done = tool::look(words, access)?;
    if !done.succeeded() {
        return Err(tool::complaint("apt-cache policy", &done));
    }
    Ok(candidates(&done.stdout_text()))
}

fn candidates(text: &str) -> Vec<(String, String)> {
    let mut name = "";
    let mut found = Vec::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            name = line.trim_end_matches(':');
        } else if let Some(version) = line.trim().strip_prefix("Candidate: ")
            && version != "(none)"
        {
            found.push((name.to_owned(), version.to_owned()));
        }
    }
    found
}

fn statuses(text: &str, names: &[&str]) -> Statuses {
    let mut statuses = unknown(names);
    for line in text.lines() {
        let mut fields = line.split('\t');
        let [name, architecture, want, state, version, provides] =
            std::array::from_fn(|_| fields.next().unwrap_or_default());
        let installed = state == "installed";
        for known in [name.to_owned(), format!("{name}:{architecture}")] {
            let Some(status) = statuses.get_mut(&known) else {
                continue;
            };
            status.held |= want == "hold";
            if installed {
                status.version = Some(version.to_owned());
            } else if state == "config-files" {
                status.configuration_left = true;
            }
        }
        for provided in provides.split(',').filter(|_| installed) {
            let provided = provided.split_whitespace().next().unwrap_or_default();
            if let Some(status) = statuses.get_mut(provided) {
                status.provided = true;
            }
        }
    }
    statuses
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn the_output_of_dpkg_is_parsed() {
        let text = "a\tamd64\tinstall\tinstalled\t1.0\tvirtual, other (= 2)\n\
                    b\tall\thold\tinstalled\t2:1-1\t\n\
                    c\tall\tdeinstall\tconfig-files\t3\t\n\
                    d\tall\tinstall\thalf-configured\t3\t\n";
        let all = statuses(text, &["a", "a:amd64", "b", "c", "d", "virtual", "none"]);
        assert_eq!(all["a"].version.as_deref(), Some("1.0"));
        assert_eq!(all["a:amd64"].version.as_deref(), Some("1.0"));
        assert!(all["b"].held && all["c"].configuration_left && all["virtual"].provided);
        assert_eq!(all["d"].version, None, "it has to be installed again");
        assert_eq!(all["none"], Status::default());
    }

    #[test]
    fn the_output_of_apt_cache_policy_is_parsed() {
        let text = "a:\n  Installed: (none)\n  Candidate: 2.0\n  Version table:\n     2.0 500\n\
                    b:\n  Installed: 1\n  Candidate: (none)\n";
        assert_eq!(candidates(text), [("a".to_owned(), "2.0".to_owned())]);
    }
}
