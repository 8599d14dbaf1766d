//! What may follow on a command line, for the completions of shells. Pure.
//!
//! The names of nodes, environments, releases and runs come from a server; this module only says
//! which of them are wanted.

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use clap::builder::ValueParser;
use clap::{Arg, Command};

/// What a server has to be asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WantedNames {
    Nodes,
    Environments,
    /// Nodes and environments, for commands that take both.
    NodesAndEnvironments,
    /// The releases of this environment.
    Releases(String),
    /// Ordered runs.
    Runs,
    /// Runs of single nodes.
    Reports,
}

/// What may follow.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Candidates {
    pub(crate) words: Vec<String>,
    pub(crate) names: Option<WantedNames>,
}

/// The place on a command line that the words lead to.
struct Place<'a> {
    command: &'a Command,
    path: Vec<&'a str>,
    /// The option whose value comes next.
    option: Option<&'a Arg>,
    /// The number of positional arguments so far.
    positional: usize,
    environment: Option<String>,
    /// After `--`, the words belong to another program.
    is_over: bool,
}

/// Returns what may stand in place of the last word.
pub(crate) fn candidates(command: &Command, words: &[String]) -> Candidates {
    let Some((last, before)) = words.split_last() else {
        return Candidates::default();
    };
    let mut place = Place {
        command,
        path: Vec::new(),
        option: None,
        positional: 0,
        environment: None,
        is_over: false,
    };
    for word in before {
        place.pass(word);
    }
    let mut found = place.candidates(last);
    found.words.retain(|word| word.starts_with(last.as_str()));
    found.words.sort();
    found.words.dedup();
    found
}

impl<'a> Place<'a> {
    fn pass(&mut self, word: &str) {
        if self.is_over || self.option.take().is_some() {
            return;
        }
        if word == "--" {
            self.is_over = true;
        } else if let Some(option) = word.strip_prefix("--") {
            if !option.contains('=') {
                let named = |arg: &&Arg| arg.get_long() == Some(option);
                self.option = self.command.get_arguments().find(named);
            }
        } else if let Some(option) = word.strip_prefix('-') {
            let named = |arg: &&Arg| arg.get_short().map(String::from).as_deref() == Some(option);
            self.option = self.command.get_arguments().find(named);
        } else if let Some(command) = self.command.find_subcommand(word) {
            self.command = command;
            self.path.push(command.get_name());
            self.positional = 0;
        } else {
            let is_environment = |arg: &Arg| is::<EnvironmentName>(arg.get_value_parser());
            if self.expected().is_some_and(is_environment) {
                self.environment = Some(word.to_owned());
            }
            self.positional += 1;
        }
        self.option = self.option.filter(|arg| arg.get_action().takes_values());
    }

    /// Returns the positional argument that comes next.
    fn expected(&self) -> Option<&'a Arg> {
        let next = self.command.get_positionals().nth(self.positional);
        next.or_else(|| {
            self.command
                .get_positionals()
                .find(|arg| takes_several(arg))
        })
    }

    fn candidates(&self, last: &str) -> Candidates {
        if self.is_over {
            return Candidates::default();
        }
        if let Some(option) = self.option {
            return self.values(option);
        }
        if last.starts_with('-') {
            let shown = self
                .command
                .get_arguments()
                .filter(|arg| !arg.is_hide_set());
            let options = shown.filter_map(|arg| arg.get_long());
            return Candidates {
                words: options.map(|option| format!("--{option}")).collect(),
                names: None,
            };
        }
        let mut found = self
            .expected()
            .map(|arg| self.values(arg))
            .unwrap_or_default();
        if self.positional == 0 {
            let shown = self
                .command
                .get_subcommands()
                .filter(|it| !it.is_hide_set());
            found.words.extend(shown.map(|it| it.get_name().to_owned()));
        }
        found
    }

    fn values(&self, arg: &Arg) -> Candidates {
        let possible = arg.get_possible_values();
        let words = possible.iter().filter(|it| !it.is_hide_set());
        let words: Vec<String> = words.map(|it| it.get_name().to_owned()).collect();
        let names = self.wanted_names(arg);
        Candidates { words, names }
    }

    fn wanted_names(&self, arg: &Arg) -> Option<WantedNames> {
        let parser = arg.get_value_parser();
        let top = self.path.first().copied();
        match (arg.get_id().as_str(), top) {
            ("run", Some("run")) => return Some(WantedNames::Runs),
            ("run", Some("report")) => return Some(WantedNames::Reports),
            ("names", Some("node")) => return Some(WantedNames::NodesAndEnvironments),
            // A new name, or the name of a person.
            ("name", Some("cert" | "node")) => return None,
            _ => {}
        }
        if is::<NodeName>(parser) && top != Some("cluster") {
            Some(WantedNames::Nodes)
        } else if is::<EnvironmentName>(parser) {
            Some(WantedNames::Environments)
        } else if is::<ReleaseNumber>(parser) {
            self.environment.clone().map(WantedNames::Releases)
        } else {
            None
        }
    }
}

fn takes_several(arg: &Arg) -> bool {
    arg.get_num_args()
        .is_some_and(|range| range.max_values() > 1)
}

fn is<T: 'static>(parser: &ValueParser) -> bool {
    parser.type_id() == std::any::TypeId::of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, words: &[&str], names: Option<WantedNames>) {
        let mut command = crate::help::command();
        command.build();
        let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = candidates(&command, &line);
        assert_eq!(
            (found.words, found.names),
            (words.iter().map(|it| (*it).to_owned()).collect(), names),
            "{line:?}"
        );
    }

    #[test]
    fn commands_options_and_values_follow() {
        check("rel", &["release"], None);
        check("node en", &["enable"], None);
        check("node list --fail", &["--failed"], None);
        check("--json release cr", &["create"], None);
        check("node list --status lo", &["lost"], None);
        check("environment add x /y --policy a", &["auto"], None);
        check("bound", &[], None);
    }

    #[test]
    fn names_come_from_the_server() {
        check("node show we", &[], Some(WantedNames::Nodes));
        check("node run web-1 we", &[], Some(WantedNames::Nodes));
        check("report list --node we", &[], Some(WantedNames::Nodes));
        check("release list pro", &[], Some(WantedNames::Environments));
        check(
            "node assign web-1 p",
            &[],
            Some(WantedNames::NodesAndEnvironments),
        );
        let releases = WantedNames::Releases("production".to_owned());
        check("release show production ", &[], Some(releases.clone()));
        check("release diff production 7 --against ", &[], Some(releases));
        check("run watch ", &[], Some(WantedNames::Runs));
        check("report show ", &[], Some(WantedNames::Reports));
        check("lock exec deploy -- we", &[], None);
        check("cert issue al", &[], None);
    }
}
