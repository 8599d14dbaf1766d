//! Every command, flag and setting that the documentation names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bunraku_testkit::shell_words;

use crate::support::{all_output, bunraku};

#[test]
fn every_command_and_flag_in_the_documentation_exists() {
    let mut helps = Helps::default();
    let mut wrong = Vec::new();
    let mut calls = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("pages are text");
        for call in calls_in(&text) {
            calls += 1;
            if let Some(problem) = helps.problem(&call) {
                wrong.push(format!("{}: {problem}", page.display()));
            }
        }
    }
    assert!(calls > 200, "only {calls} calls were found");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_configuration_in_the_documentation_is_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bunraku.toml");
    let mut blocks = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("pages are text");
        for block in text.split("```toml\n").skip(1) {
            let settings = block.split("```").next().unwrap_or_default();
            std::fs::write(&file, settings).expect("written");
            let checked = bunraku()
                .args(["config", "check", "--config"])
                .arg(&file)
                .output();
            let checked = checked.expect("it runs");
            assert!(
                checked.status.success(),
                "{}: {}",
                page.display(),
                all_output(&checked)
            );
            blocks += 1;
        }
    }
    assert!(blocks > 8, "only {blocks} blocks were found");
}

#[test]
fn an_unknown_flag_or_subcommand_is_found() {
    let mut helps = Helps::default();
    let mut problem = |call: &str| helps.problem(&split_words(call));
    assert_eq!(problem("node list --json"), None);
    assert_eq!(
        problem("lock exec deploy --wait 10m -- ./deploy --fast"),
        None
    );
    assert_eq!(
        problem("node list --al").as_deref(),
        Some("`bunraku node list` has no flag `--al`")
    );
    assert_eq!(
        problem("node lost").as_deref(),
        Some("`bunraku node` has no command `lost`")
    );
}

/// Returns the pages for users.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).expect("docs exists");
    let mut pages: Vec<PathBuf> = docs
        .map(|entry| entry.expect("docs is readable").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    pages.extend(["README.md", "CHANGELOG.md", "SECURITY.md"].map(|name| root.join(name)));
    pages.sort();
    pages
}

/// Returns the words of every call of `bunraku` in code blocks and in backticks.
fn calls_in(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let mut calls = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let line = line.trim_start_matches(['$', '#', ' ']);
            calls.extend(line.strip_prefix("bunraku ").map(split_words));
        } else {
            let code = line.split('`').skip(1).step_by(2);
            calls.extend(code.filter_map(|code| code.strip_prefix("bunraku ").map(split_words)));
        }
    }
    calls
}

/// Returns the words before a comment, a pipe, another command or the end of the flags.
fn split_words(call: &str) -> Vec<String> {
    call.split_whitespace()
        .take_while(|word| !["--", "#", "|", "&&", ";", ">"].contains(word))
        .take_while(|word| !word.starts_with("$("))
        .map(|word| word.trim_matches(['[', ']', ',', ';', ':']).to_owned())
        .collect()
}

/// The help of each command, requested once.
#[derive(Default)]
pub(crate) struct Helps {
    texts: BTreeMap<Vec<String>, String>,
}

impl Helps {
    fn problem(&mut self, call: &[String]) -> Option<String> {
        let mut path: Vec<String> = Vec::new();
        let mut rest = call;
        while let Some((word, tail)) = rest.split_first() {
            if ["--server", "--credentials", "--config"].contains(&word.as_str()) && path.is_empty()
            {
                rest = tail.get(1..).unwrap_or_default();
            } else if self.commands(&path).contains(word) {
                path.push(word.clone());
                rest = tail;
            } else {
                break;
            }
        }
        let name = format!("bunraku {}", path.join(" "));
        let is_word = |word: &&String| word.chars().all(|c| c.is_ascii_lowercase());
        let takes_only_commands =
            !self.commands(&path).is_empty() && self.help(&path).contains(" <COMMAND>");
        if let Some(word) = rest.first().filter(is_word).filter(|_| takes_only_commands) {
            return Some(format!("`{}` has no command `{word}`", name.trim_end()));
        }
        let help = self.help(&path);
        let flags = rest.iter().filter(|word| word.starts_with("--"));
        let flags = flags.map(|word| word.split(['=', '|', '…']).next().unwrap_or(word));
        flags.into_iter().find_map(|flag| {
            let known = help
                .split([' ', '\n', ',', '<', '[', '='])
                .any(|word| word == flag);
            (!known).then(|| format!("`{name}` has no flag `{flag}`"))
        })
    }

    /// Returns the words of every command that has no subcommands, or works without one.
    pub(crate) fn leaves(&mut self) -> Vec<Vec<String>> {
        let mut leaves = Vec::new();
        let mut open = vec![Vec::new()];
        while let Some(path) = open.pop() {
            let commands = self.commands(&path);
            if !path.is_empty() && !self.help(&path).contains(" <COMMAND>") {
                leaves.push(path.clone());
            }
            for command in commands.into_iter().filter(|it| it != "help") {
                let mut path = path.clone();
                path.push(command);
                open.push(path);
            }
        }
        leaves.sort();
        leaves
    }

    /// Returns the words of every example in the help of a command, without the program's name.
    pub(crate) fn examples(&mut self, path: &[String]) -> Vec<Vec<String>> {
        let help = self.help(path);
        let lines = help.lines().skip_while(|line| !line.starts_with("Example"));
        lines
            .filter_map(|line| line.strip_prefix("  bunraku "))
            .map(shell_words)
            .collect()
    }

    fn commands(&mut self, path: &[String]) -> BTreeSet<String> {
        let help = self.help(path);
        if path.is_empty() {
            // The commands of the program are in groups.
            let lines = help.lines().take_while(|line| *line != "Options:");
            let lines = lines.filter_map(|line| line.strip_prefix("  "));
            return lines
                .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
                .collect();
        }
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        lines
            .take_while(|line| !line.trim().is_empty())
            .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
            .collect()
    }

    fn help(&mut self, path: &[String]) -> &str {
        self.texts.entry(path.to_vec()).or_insert_with(|| {
            let output = bunraku().args(path).arg("--help").output();
            let output = output.expect("it runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }
}
