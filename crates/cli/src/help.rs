//! The help of the program: commands in groups, and `-h` on one screen.
//!
//! Rule: every command is in one group, every command without subcommands has an example that
//! parses, and every argument has a description. The tests walk the whole tree.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::builder::styling::Styles;
use clap::{Command, CommandFactory};

use crate::arguments::Arguments;

/// The groups of commands, in the order in which people need them.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Start",
        &[
            "demo", "server", "agent", "status", "doctor", "console", "context", "version",
        ],
    ),
    ("Fleet", &["node", "facts", "query", "token", "cert"]),
    (
        "Code",
        &[
            "environment",
            "repository",
            "compile",
            "catalog",
            "release",
            "approval",
            "module",
            "apply",
            "states",
            "restore",
        ],
    ),
    ("Runs", &["plan", "run", "report"]),
    (
        "Coordination",
        &["trigger", "reactor", "lock", "once", "init", "stat"],
    ),
    (
        "Administration",
        &[
            "access",
            "cluster",
            "store",
            "audit",
            "authority",
            "signer",
            "backup",
            "config",
            "completions",
            "man",
        ],
    ),
];

/// Replaces clap's single list of commands by the groups.
const TEMPLATE: &str = "{about-with-newline}
{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

/// Returns the command line with the grouped help.
pub(crate) fn command() -> Command {
    let command = Arguments::command();
    let styles = command.get_styles().clone();
    let (short, long) = (short_groups(&styles), long_groups(&command, &styles));
    command
        .help_template(TEMPLATE)
        .before_help(short)
        .before_long_help(long)
}

/// Returns the usage of the command that a command line names.
pub(crate) fn usage_of(words: &[OsString]) -> StyledStr {
    let mut whole = command();
    whole.build();
    let mut named = &mut whole;
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        if named.find_subcommand(word).is_some() {
            // Looked up twice, because a borrow that may end here would last for the loop.
            named = named.find_subcommand_mut(word).expect("it was found");
        }
    }
    named.render_usage()
}

/// One line for each group.
fn short_groups(styles: &Styles) -> StyledStr {
    let header = styles.get_header();
    let lines = GROUPS.iter().map(|(group, commands)| {
        let gap = " ".repeat(16_usize.saturating_sub(group.len() + 1));
        let commands = wrapped(commands, 80 - 18).join(&format!("\n{}", " ".repeat(18)));
        format!("  {header}{group}:{header:#}{gap}{commands}\n")
    });
    // clap wraps styled text at a wrong place unless a new line begins with a space.
    StyledStr::from(lines.collect::<String>())
}

/// Joins words to lines of at most this width.
fn wrapped(words: &[&str], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push((*word).to_owned()),
        }
    }
    lines
}

/// One line for each command.
fn long_groups(command: &Command, styles: &Styles) -> StyledStr {
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::new();
    for (group, names) in GROUPS {
        text += &format!("{header}{group}:{header:#}\n");
        for subcommand in names
            .iter()
            .filter_map(|name| command.find_subcommand(name))
        {
            let about = subcommand.get_about().cloned().unwrap_or_default();
            let name = format!("{:<13}", subcommand.get_name());
            text += &format!("  {literal}{name}{literal:#} {}\n", about.ansi());
        }
        text.push('\n');
    }
    StyledStr::from(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Calls `visit` with the path of every command that people see.
    fn walk(command: &Command, path: &[String], visit: &mut dyn FnMut(&[String], &Command)) {
        visit(path, command);
        let shown = |it: &&Command| !it.is_hide_set() && it.get_name() != "help";
        for subcommand in command.get_subcommands().filter(shown) {
            let mut path = path.to_vec();
            path.push(subcommand.get_name().to_owned());
            walk(subcommand, &path, visit);
        }
    }

    fn walk_all(mut visit: impl FnMut(&[String], &Command)) {
        let mut command = command();
        command.build();
        walk(&command, &["bunraku".to_owned()], &mut visit);
    }

    /// Returns the example lines of a command.
    fn examples(command: &Command) -> Vec<String> {
        let help = command.get_after_long_help().or(command.get_after_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        help.lines()
            .skip_while(|line| !line.starts_with("Example"))
            .filter_map(|line| line.strip_prefix("  bunraku "))
            .map(|line| format!("bunraku {line}"))
            .collect()
    }

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let command = command();
        let visible: BTreeSet<&str> = (command.get_subcommands())
            .filter(|it| !it.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        grouped.sort_unstable();
        assert_eq!(grouped, visible.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn every_command_and_argument_has_a_description() {
        let mut missing = Vec::new();
        walk_all(|path, command| {
            let path = path.join(" ");
            if command.get_about().is_none() {
                missing.push(path.clone());
            }
            let visible = command.get_arguments().filter(|it| !it.is_hide_set());
            missing.extend(
                visible
                    .filter(|it| it.get_help().is_none_or(|help| help.to_string().is_empty()))
                    .map(|it| format!("{path}: {}", it.get_id())),
            );
        });
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn every_leaf_has_an_example_of_itself_that_parses() {
        let mut wrong = Vec::new();
        let mut leaves = 0;
        walk_all(|path, command| {
            let is_leaf = command.get_subcommands().all(|it| it.get_name() == "help");
            if !is_leaf {
                return;
            }
            leaves += 1;
            let path = path.join(" ");
            let examples = examples(command);
            if examples.is_empty() {
                wrong.push(format!("{path}: no example"));
            }
            for example in examples {
                let words = words(&example);
                if let Err(error) = super::command().try_get_matches_from(&words) {
                    let line = error.to_string();
                    let line = line.lines().next().unwrap_or_default();
                    wrong.push(format!("{path}: {example}: {line}"));
                }
            }
        });
        assert!(leaves > 100, "only {leaves} commands were found");
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn the_short_help_fits_one_screen() {
        let mut command = command();
        let short = command.render_help().to_string();
        let long = command.render_long_help().to_string();
        assert!(short.lines().count() <= 24, "{short}");
        for (group, names) in GROUPS {
            let line = format!("{group}: {}", names.join(" "));
            let words: Vec<&str> = short.split_whitespace().collect();
            assert!(
                words.join(" ").contains(&line),
                "`{line}` is missing in:\n{short}"
            );
        }
        assert!(long.lines().count() > 50, "{long}");
        walk_all(|path, command| {
            let text = command.clone().render_help().to_string();
            assert!(!text.contains("--log-format"), "{path:?}: {text}");
        });
    }

    /// Returns the words of an example, with a fingerprint that can be parsed.
    fn words(line: &str) -> Vec<String> {
        let fingerprint = format!("SHA256:{}", "0".repeat(64));
        bunraku_testkit::shell_words(&line.replace("SHA256:…", &fingerprint))
    }
}
