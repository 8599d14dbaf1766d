//! Facts that users add: files and executables in directories.
//!
//! The rules are those of Facter. A fact in a directory replaces the whole built-in fact of the
//! same name. Within a directory, the later file name wins. Of several directories, the earlier one
//! wins. Names are in lower case. A file that cannot be used causes a warning, and the others still
//! load.

mod file;
mod parse;
mod run;
mod trust;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::warning::{FactWarning, WarningPlace};
use file::Kind;
use parse::ParseProblem;

/// The maximum number of files that are read from one directory.
const FILE_LIMIT: usize = 1000;

/// The maximum total size of all external facts, as JSON.
const TOTAL_LIMIT: usize = 4 * 1024 * 1024;

/// The facts of all directories, and the problems that occurred.
#[derive(Default)]
pub(super) struct ExternalFacts {
    size: usize,
    pub(super) facts: Map<String, Value>,
    pub(super) warnings: Vec<FactWarning>,
}

/// Collects external facts. `timeout` applies to each executable separately.
pub(super) fn collect(directories: &[PathBuf], timeout: Duration) -> ExternalFacts {
    let mut found = ExternalFacts::default();
    // Later directories overwrite earlier ones, so the first directory comes last.
    for directory in directories.iter().rev() {
        match names(directory) {
            Ok(mut names) => {
                if names.len() > FILE_LIMIT {
                    let advice = format!("keep at most {FILE_LIMIT} files there");
                    found.warn(directory, ParseProblem::new("has too many files", &advice));
                    names.truncate(FILE_LIMIT);
                }
                for name in names {
                    found.load(&directory.join(name), timeout);
                }
            }
            // A directory of external facts does not have to exist.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let problem = format!("cannot be listed: {error}");
                found.warn(
                    directory,
                    ParseProblem::new(&problem, "check its permissions"),
                );
            }
        }
    }
    found
}

fn names(directory: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in directory.read_dir()? {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

impl ExternalFacts {
    fn warn(&mut self, path: &Path, trouble: ParseProblem) {
        self.warnings.push(FactWarning {
            place: WarningPlace::File {
                path: path.to_owned(),
                line: trouble.line,
            },
            problem: trouble.problem,
            advice: Some(trouble.advice),
        });
    }

    fn load(&mut self, path: &Path, timeout: Duration) {
        let mut troubles = Vec::new();
        let facts = load(path, timeout, &mut troubles);
        let added = facts.and_then(|facts| self.add(facts));
        troubles.extend(added.err());
        for trouble in troubles {
            self.warn(path, trouble);
        }
    }

    fn add(&mut self, facts: Map<String, Value>) -> Result<(), ParseProblem> {
        let size = serde_json::to_vec(&facts).map_or(usize::MAX, |json| json.len());
        let total = self.size.saturating_add(size);
        if total > TOTAL_LIMIT {
            let problem = "is ignored: with it, external facts exceed 4 MiB";
            return Err(ParseProblem::new(
                problem,
                "facts are small: shorten the files",
            ));
        }
        self.size = total;
        for (name, value) in facts {
            self.facts.insert(name.to_lowercase(), value);
        }
        Ok(())
    }
}

fn load(
    path: &Path,
    timeout: Duration,
    troubles: &mut Vec<ParseProblem>,
) -> Result<Map<String, Value>, ParseProblem> {
    match file::kind(path)? {
        Kind::Ignored => Ok(Map::new()),
        Kind::Json => parse::json(&file::read(path)?),
        Kind::Yaml => parse::yaml(&file::read(path)?),
        Kind::Text => Ok(parse::pairs(&file::read(path)?, troubles)),
        Kind::Executable => {
            trust::check(path)?;
            let output = run::run(path, timeout)?;
            troubles.extend(run::problems(&output));
            Ok(parse::output(&output.stdout, troubles))
        }
    }
}
