//! `bunraku.yaml`: the settings for compiling an environment's code.

use std::path::Path;
use std::time::Duration;

use bunraku_states::{Node, read_document};
use bunraku_wire::api::CompileProblem;
use serde::{Deserialize, Serialize};

use super::puppet::PuppetSettings;
use bunraku_control::code_problems::{problem_at, problem_of_states};

/// The file at the root of an environment.
pub(crate) const FILE: &str = "bunraku.yaml";

/// The selected compiler and its settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Settings {
    Static {
        site: String,
    },
    States {
        root: String,
        pillar: Option<String>,
    },
    Puppet(PuppetSettings),
    External(ExternalSettings),
}

/// A command that compiles.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ExternalSettings {
    pub command: Vec<String>,
    pub time_limit: Duration,
    pub recycle_after: u64,
    pub memory_limit: Option<u64>,
    pub workers: usize,
    /// Directories that are searched for `puppet:///modules/NAME/…`.
    pub modules: Vec<String>,
}

/// Reads the file, or detects the compiler from the tree. Blocks.
pub(crate) fn read(root: &Path) -> Result<Settings, CompileProblem> {
    let text = match std::fs::read_to_string(root.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return detect(root),
        Err(error) => return Err(problem_in_file(format!("cannot be read: {error}"))),
    };
    parse(&text)
}

fn detect(root: &Path) -> Result<Settings, CompileProblem> {
    if root.join("top.sls").is_file() {
        let pillar = root.join("pillar").is_dir().then(|| "pillar".to_owned());
        let root = ".".to_owned();
        return Ok(Settings::States { root, pillar });
    }
    if root.join("states/top.sls").is_file() {
        let pillar = root.join("pillar").is_dir().then(|| "pillar".to_owned());
        let root = "states".to_owned();
        return Ok(Settings::States { root, pillar });
    }
    if root.join("site.yaml").is_file() {
        let site = "site.yaml".to_owned();
        return Ok(Settings::Static { site });
    }
    if root.join("environment.conf").is_file() || root.join("manifests").is_dir() {
        return Ok(Settings::Puppet(PuppetSettings::default()));
    }
    Err(CompileProblem {
        message: "no compiler is configured for this code".to_owned(),
        hint: Some(format!(
            "write `compiler: static|states|puppet|external` to `{FILE}`, or add a `top.sls`, a `site.yaml`, an `environment.conf` or `manifests`"
        )),
        ..CompileProblem::default()
    })
}

pub(super) fn parse(text: &str) -> Result<Settings, CompileProblem> {
    let document = read_document(FILE, text).map_err(|problem| problem_of_states(&problem))?;
    let members = Members::of(&document, "`bunraku.yaml`")?;
    let compiler = members.text("compiler")?;
    let settings = match compiler.as_deref() {
        Some("static") => {
            members.check_keys(&["compiler", "site", "repositories"])?;
            let site = members.path("site")?;
            Settings::Static {
                site: site.unwrap_or_else(|| "site.yaml".to_owned()),
            }
        }
        Some("states") => {
            members.check_keys(&["compiler", "root", "pillar", "repositories"])?;
            let root = members.path("root")?;
            Settings::States {
                root: root.unwrap_or_else(|| ".".to_owned()),
                pillar: members.path("pillar")?,
            }
        }
        Some("puppet") => Settings::Puppet(PuppetSettings::read(&members)?),
        Some("external") => Settings::External(external(&members)?),
        Some(other) => {
            let message =
                format!("`{other}` is not a compiler; use static, states, puppet or external");
            return Err(at(members.get("compiler").unwrap_or(&document), message));
        }
        None => return Err(at(&document, "`compiler` is missing".to_owned())),
    };
    Ok(settings)
}

fn external(members: &Members<'_>) -> Result<ExternalSettings, CompileProblem> {
    members.check_keys(&[
        "compiler",
        "command",
        "time_limit",
        "recycle_after",
        "memory_limit",
        "workers",
        "modules",
        "repositories",
    ])?;
    let command = members.texts("command")?;
    if command.is_empty() {
        let message = "`command` is missing: a list of the program and its arguments".to_owned();
        return Err(at(members.node, message));
    }
    let seconds = members.number("time_limit", 1..=3_600)?.unwrap_or(60);
    let megabytes = members.number("memory_limit", 1..=1 << 20)?;
    let workers = members.number("workers", 1..=64)?.unwrap_or(1);
    let modules = members.texts("modules")?;
    Ok(ExternalSettings {
        command,
        time_limit: Duration::from_secs(seconds),
        recycle_after: members
            .number("recycle_after", 1..=1_000_000)?
            .unwrap_or(500),
        memory_limit: megabytes.map(|count| count << 20),
        workers: usize::try_from(workers).unwrap_or(1),
        modules: if modules.is_empty() {
            vec!["modules".to_owned()]
        } else {
            modules
        },
    })
}

/// A map whose members are looked up by name.
pub(super) struct Members<'a> {
    node: &'a Node,
    pairs: &'a [(Node, Node)],
}

impl<'a> Members<'a> {
    pub(super) fn of(node: &'a Node, what: &str) -> Result<Self, CompileProblem> {
        match node.as_map() {
            Some(pairs) => Ok(Self { node, pairs }),
            None => Err(at(
                node,
                format!("{what} must be a map, not {}", node.kind()),
            )),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        let found = self
            .pairs
            .iter()
            .find(|(key, _)| key.as_text() == Some(name));
        found.map(|(_, value)| value)
    }

    /// Returns the member's node, or that of the whole map if the member is missing.
    pub(super) fn node(&self, name: &str) -> &'a Node {
        self.get(name).unwrap_or(self.node)
    }

    pub(super) fn pairs(&self) -> &'a [(Node, Node)] {
        self.pairs
    }

    /// Refuses unknown members: a misspelt one would silently have no effect.
    pub(super) fn check_keys(&self, known: &[&str]) -> Result<(), CompileProblem> {
        for (key, _) in self.pairs {
            if !known.contains(&key.key_text().as_str()) {
                let message = format!(
                    "`{}` is unknown here; use one of {}",
                    key.key_text(),
                    known.join(", ")
                );
                return Err(at(key, message));
            }
        }
        Ok(())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, CompileProblem> {
        match self.get(name) {
            None => Ok(None),
            Some(node) => match node.as_text() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(at(
                    node,
                    format!("`{name}` must be a string, not {}", node.kind()),
                )),
            },
        }
    }

    /// Returns a path below the root.
    fn path(&self, name: &str) -> Result<Option<String>, CompileProblem> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        if text != "." && !crate::code::is_below(Path::new(&text)) {
            let node = self.get(name).unwrap_or(self.node);
            return Err(at(
                node,
                format!("`{text}` must be a path below the environment's root"),
            ));
        }
        Ok(Some(text))
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, CompileProblem> {
        let Some(node) = self.get(name) else {
            return Ok(Vec::new());
        };
        if let Some(text) = node.as_text() {
            return Ok(vec![text.to_owned()]);
        }
        let wrong = |node: &Node| at(node, format!("`{name}` must be a list of strings"));
        let items = node.as_list().ok_or_else(|| wrong(node))?;
        items
            .iter()
            .map(|item| item.as_text().map(str::to_owned).ok_or_else(|| wrong(item)))
            .collect()
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, CompileProblem> {
        let Some(node) = self.get(name) else {
            return Ok(None);
        };
        let value = node.to_json().as_bool();
        let wrong = || at(node, format!("`{name}` must be true or false"));
        value.map(Some).ok_or_else(wrong)
    }

    pub(super) fn number(
        &self,
        name: &str,
        allowed: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, CompileProblem> {
        let Some(node) = self.get(name) else {
            return Ok(None);
        };
        let number = node
            .to_json()
            .as_u64()
            .filter(|number| allowed.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = (allowed.start(), allowed.end());
            at(
                node,
                format!("`{name}` must be a number from {least} to {most}"),
            )
        })
    }
}

pub(super) fn at(node: &Node, message: String) -> CompileProblem {
    problem_at(FILE, node, message)
}

fn problem_in_file(message: String) -> CompileProblem {
    CompileProblem {
        message,
        file: Some(FILE.to_owned()),
        ..CompileProblem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let problem = parse(text).expect_err("wrong settings");
        let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
        format!("{line}:{column} {}", problem.message)
    }

    #[test]
    fn every_compiler_has_defaults() {
        assert_eq!(
            parse("compiler: static\n"),
            Ok(Settings::Static {
                site: "site.yaml".to_owned()
            })
        );
        let external = parse("compiler: external\ncommand: [./compile, --fast]\n");
        let Ok(Settings::External(external)) = external else {
            panic!("an external compiler, not {external:?}");
        };
        assert_eq!(external.command, ["./compile", "--fast"]);
        assert_eq!(external.workers, 1);
        assert_eq!(external.time_limit, Duration::from_secs(60));
    }

    #[test]
    fn problems_are_reported_with_their_location() {
        assert_eq!(
            refused("compiler: magic\n"),
            "1:11 `magic` is not a compiler; use static, states, puppet or external"
        );
        assert_eq!(
            refused("compiler: static\nsiet: x\n"),
            "2:1 `siet` is unknown here; use one of compiler, site, repositories"
        );
        assert_eq!(
            refused("compiler: static\nsite: ../../etc/passwd\n"),
            "2:7 `../../etc/passwd` must be a path below the environment's root"
        );
        assert_eq!(
            refused("compiler: external\ncommand: x\nworkers: 0\n"),
            "3:10 `workers` must be a number from 1 to 64"
        );
        assert_eq!(
            refused("compiler: external\n"),
            "1:1 `command` is missing: a list of the program and its arguments"
        );
        assert_eq!(
            refused("[]\n"),
            "1:1 `bunraku.yaml` must be a map, not a list"
        );
        assert_eq!(refused("a: 1\n"), "1:1 `compiler` is missing");
    }
}
