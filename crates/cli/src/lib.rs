//! The implementation of the `bunraku` binary: flags, configuration, wiring, rendering.
//!
//! Only this crate reads the environment, prints, and turns errors into text and exit codes. Each
//! command has one file under `commands/`. Commands use the modules beside that directory and not
//! each other; only `dispatch` and `arguments` are above them. The binary calls [`main_with`] and
//! nothing else. The fault tests call it with a guard removed.

/// Prints a line to standard error, as [`messages::note`] does.
macro_rules! note {
    () => {
        $crate::messages::note("")
    };
    ($($part:tt)+) => {
        $crate::messages::note(&format!($($part)+))
    };
}

mod apply_view;
mod arguments;
mod audit_view;
mod bound_child;
mod cluster_view;
mod commands;
mod compile_view;
mod completion;
mod config;
mod connection;
mod console;
mod content_settings;
mod context;
mod cues;
mod demo;
mod diff_view;
mod dispatch;
mod duration;
mod exit;
mod expected_plan;
mod failure;
mod fleet;
mod global_options;
mod help;
mod history_backends;
mod json_mode;
mod lease;
mod local_apply;
mod logging;
mod machine_modules;
mod messages;
mod needed_programs;
mod node_commands;
mod node_list;
mod node_names;
mod node_view;
mod ordering;
mod output;
mod plan_review;
mod plan_view;
mod puppet_server;
mod release_groups;
mod report_view;
mod run_checks;
mod run_due;
mod run_follow;
mod run_hooks;
mod run_options;
mod run_progress;
mod run_view;
mod signals;
mod signer_link;
mod site_modules;
mod site_queries;
mod site_source;
mod site_values;
mod ssh;
mod state_dir;
mod state_functions;
mod state_tree;
mod store_identity;
mod task_log;
mod template_answers;
mod terminal;
mod trigger_view;
mod trust_refresh;
mod user_contexts;
mod waiting;
mod wiring;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;

use arguments::Arguments;
use exit::Exit;
pub use wiring::Wiring;

/// Runs a command line. The first word is the program's name.
pub fn main_with(words: impl IntoIterator<Item = OsString>, wiring: Wiring) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    if asks_for_json(&words) {
        json_mode::turn_on();
    }
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => return usage(error, &words).into(),
    };
    let outcome = dispatch::run(arguments, wiring).and_then(|code| {
        // A command without data says what it did.
        match json_mode::document_of_messages() {
            Some(messages) => output::json(&messages).map(|()| code),
            None => Ok(code),
        }
    });
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report().into(),
    }
}

fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let mut command = help::command();
    let matches = command.try_get_matches_from_mut(words)?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns whether the words contain `--json`. Usage errors are JSON too, so this is known before
/// the words are parsed. What follows `--` belongs to another program.
fn asks_for_json(words: &[OsString]) -> bool {
    let own = words.iter().take_while(|word| *word != "--");
    own.into_iter().any(|word| word == "--json")
}

/// Prints help, version or a usage error. Help and version are successful answers; everything else
/// is a usage error.
fn usage(mut error: clap::Error, words: &[OsString]) -> Exit {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    use clap::error::{ContextKind, ContextValue};
    let is_answer = matches!(error.kind(), DisplayHelp | DisplayVersion);
    if error.get(ContextKind::Usage).is_some() {
        // clap's own line would name flags that come from environment variables.
        let usage = help::usage_of(words);
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    if json_mode::is_on() && !is_answer {
        return usage_failure(&error.to_string()).report();
    }
    // If the terminal is gone, nothing can be done.
    let _ = error.print();
    if is_answer { Exit::Done } else { Exit::Usage }
}

/// Converts the text of a usage error: the message, and a tip if there is one.
fn usage_failure(text: &str) -> failure::Failure {
    let message = text.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let tip = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("tip: "));
    let usage = text.lines().find(|line| line.starts_with("Usage:"));
    let hint = tip.or(usage).map(str::to_owned);
    failure::Failure::usage(message.trim()).hint_if(hint)
}
