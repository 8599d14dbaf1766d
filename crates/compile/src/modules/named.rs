//! `modules.yaml`: the modules that an environment's code uses.
//!
//! ```yaml
//! ini_setting: 1.0.0                  # published on the server
//! backup:
//!   version: 2.1.0
//!   url: https://modules.example.com/backup-2.1.0.bunraku-module
//!   sha256: 9f86d081…
//! audit:
//!   version: 1.4.0
//!   git: https://git.example.com/modules.git
//!   commit: 2fd4e1c67a2d28fced849ee1bb76e7391b93eb12
//!   path: audit-1.4.0.bunraku-module
//! local:
//!   version: 1.0.0
//!   path: files/local-1.0.0.bunraku-module   # in this repository
//! ```

use std::path::Path;

use bunraku_model::ContentId;
use bunraku_module::Version;
use bunraku_states::{Node, read_document};
use bunraku_wire::api::CompileProblem;
use serde::{Deserialize, Serialize};

use super::ModuleSource;
use crate::code::is_below;
use bunraku_control::code_problems::{problem_at, problem_of_states};

/// The file at the root of an environment.
pub(super) const FILE: &str = "modules.yaml";

/// Maximum number of modules that one environment may name.
const MOST: usize = 100;

/// One module that the code names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NamedModule {
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) from: ModuleOrigin,
    pub(super) line: u64,
    pub(super) column: u64,
}

/// The source of a module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum ModuleOrigin {
    Published,
    Elsewhere(ModuleSource),
    /// A file of the code.
    Tree(String),
}

impl NamedModule {
    /// Creates a problem for this entry.
    pub(super) fn problem(&self, message: String, hint: Option<String>) -> CompileProblem {
        CompileProblem {
            message: format!("the module `{}` {}: {message}", self.name, self.version),
            file: Some(FILE.to_owned()),
            line: Some(self.line),
            column: Some(self.column),
            hint,
        }
    }
}

/// Reads the file, if there is one. Blocks.
pub(crate) fn read_named(tree: &Path) -> Result<Vec<NamedModule>, CompileProblem> {
    match std::fs::read_to_string(tree.join(FILE)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(CompileProblem {
            message: format!("cannot be read: {error}"),
            file: Some(FILE.to_owned()),
            ..CompileProblem::default()
        }),
    }
}

fn parse(text: &str) -> Result<Vec<NamedModule>, CompileProblem> {
    let document = read_document(FILE, text).map_err(|problem| problem_of_states(&problem))?;
    if document.is_null() {
        return Ok(Vec::new());
    }
    let pairs = document
        .as_map()
        .ok_or_else(|| at(&document, "it must be a map of modules".to_owned()))?;
    if pairs.len() > MOST {
        return Err(at(&document, format!("it lists more than {MOST} modules")));
    }
    pairs.iter().map(|(key, value)| named(key, value)).collect()
}

fn named(key: &Node, value: &Node) -> Result<NamedModule, CompileProblem> {
    let (version, from) = match value.as_map() {
        Some(members) => {
            let entry = Entry { key, members };
            (entry.text("version")?, entry.from()?)
        }
        None => (
            Some(as_text(value, "the version")?),
            ModuleOrigin::Published,
        ),
    };
    let version = version.ok_or_else(|| at(value, "`version` is missing".to_owned()))?;
    let version = version
        .parse()
        .map_err(|error: bunraku_module::InvalidVersion| at(value, error.to_string()))?;
    Ok(NamedModule {
        name: key.key_text(),
        version,
        from,
        line: key.line as u64,
        column: key.column as u64,
    })
}

struct Entry<'a> {
    key: &'a Node,
    members: &'a [(Node, Node)],
}

impl Entry<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, CompileProblem> {
        let found = (self.members.iter()).find(|(key, _)| key.as_text() == Some(name));
        found.map(|(_, value)| as_text(value, name)).transpose()
    }

    /// Refuses unknown members: a misspelt one would silently mean another source.
    fn check_keys(&self, known: &[&str]) -> Result<(), CompileProblem> {
        for (key, _) in self.members {
            if !known.contains(&key.key_text().as_str()) {
                let (word, known) = (key.key_text(), known.join(", "));
                return Err(at(
                    key,
                    format!("`{word}` is unknown here; use one of {known}"),
                ));
            }
        }
        Ok(())
    }

    fn required_text(&self, name: &str) -> Result<String, CompileProblem> {
        let text = self.text(name)?;
        text.ok_or_else(|| at(self.key, format!("`{name}` is missing")))
    }

    fn from(&self) -> Result<ModuleOrigin, CompileProblem> {
        if let Some(url) = self.text("url")? {
            self.check_keys(&["version", "url", "sha256"])?;
            let sha256 = self.required_text("sha256")?;
            let sha256: ContentId = sha256.parse().map_err(|_| {
                at(
                    self.key,
                    "`sha256` must be 64 hexadecimal digits".to_owned(),
                )
            })?;
            return Ok(ModuleOrigin::Elsewhere(ModuleSource::Url { url, sha256 }));
        }
        if let Some(url) = self.text("git")? {
            self.check_keys(&["version", "git", "commit", "path"])?;
            return Ok(ModuleOrigin::Elsewhere(ModuleSource::Git {
                url,
                commit: self.required_text("commit")?,
                path: self.required_text("path")?,
            }));
        }
        self.check_keys(&["version", "url", "git", "path"])?;
        match self.text("path")? {
            Some(path) if is_below(Path::new(&path)) => Ok(ModuleOrigin::Tree(path)),
            Some(path) => Err(at(
                self.key,
                format!("`{path}` must be a path below the environment's root"),
            )),
            None => Ok(ModuleOrigin::Published),
        }
    }
}

/// Reads a text. YAML reads `1.10` as a number, which is 1.1.
fn as_text(node: &Node, what: &str) -> Result<String, CompileProblem> {
    let text = node.as_text().map(str::to_owned);
    text.ok_or_else(|| {
        let kind = node.kind();
        at(
            node,
            format!("{what} must be a string, not {kind}: put it in quotes"),
        )
    })
}

fn at(node: &Node, message: String) -> CompileProblem {
    problem_at(FILE, node, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let problem = parse(text).expect_err("refused");
        let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
        format!("{line}:{column} {}", problem.message)
    }

    #[test]
    fn every_source_is_read() {
        let hash = "ab".repeat(32);
        let commit = "cd".repeat(20);
        let text = format!(
            "a: 1.0.0\nb:\n  version: '2.10'\n  url: https://h/b\n  sha256: {hash}\nc:\n  version: 1.2.3\n  git: /srv/c.git\n  commit: {commit}\n  path: c.bunraku-module\nd: {{version: 0.1.0, path: files/d}}\n"
        );
        let all = parse(&text).expect("good");
        let names: Vec<String> = all
            .iter()
            .map(|one| format!("{} {}", one.name, one.version))
            .collect();
        assert_eq!(names, ["a 1.0.0", "b 2.10", "c 1.2.3", "d 0.1.0"]);
        assert_eq!(all[0].from, ModuleOrigin::Published);
        assert_eq!(all[3].from, ModuleOrigin::Tree("files/d".to_owned()));
        assert!(matches!(
            &all[1].from,
            ModuleOrigin::Elsewhere(ModuleSource::Url { .. })
        ));
        assert!(matches!(
            &all[2].from,
            ModuleOrigin::Elsewhere(ModuleSource::Git { .. })
        ));
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn problems_are_reported_with_their_location() {
        assert_eq!(
            refused("a: 1.10\n"),
            "1:4 the version must be a string, not a number: put it in quotes"
        );
        assert_eq!(
            refused("a:\n  version: 1.0.0\n  url: https://h/a\n"),
            "1:1 `sha256` is missing"
        );
        assert_eq!(
            refused("a:\n  version: 1.0.0\n  git: /srv/a\n  path: x\n"),
            "1:1 `commit` is missing"
        );
        assert_eq!(
            refused("a: {version: 1.0.0, path: ../../etc/shadow}\n"),
            "1:1 `../../etc/shadow` must be a path below the environment's root"
        );
        assert_eq!(
            refused("a: {version: 1.0.0, sha: x}\n"),
            "1:21 `sha` is unknown here; use one of version, url, git, path"
        );
        assert_eq!(refused("[a]\n"), "1:1 it must be a map of modules");
        assert_eq!(refused("a: {path: x}\n"), "1:4 `version` is missing");
    }
}
