//! The declaration of an `exec`, parsed and checked.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::time::Duration;

use serde_json::Value;

use super::{FinishedCommand, Run, outputs};
use crate::{ApplyResult, Declaration, Refusal, Relations, SystemObject};

/// Puppet's default timeout.
const PUPPET_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) struct DesiredExec {
    command: DeclaredCommand,
    refresh: Option<DeclaredCommand>,
    pub(super) onlyif: Vec<DeclaredCommand>,
    pub(super) unless: Vec<DeclaredCommand>,
    pub(super) creates: Vec<String>,
    pub(super) refreshonly: bool,
    pub(super) returns: Vec<i32>,
    pub(super) tries: u32,
    pub(super) try_sleep: Duration,
    /// True if Salt's rules apply to lists of guards.
    pub(super) state: bool,
    stateful: bool,
    secret: bool,
    cwd: Option<String>,
    user: Option<String>,
    /// The command without its words.
    base: Run,
    shell: OsString,
}

/// A command as declared.
#[derive(Clone, Debug)]
pub(super) enum DeclaredCommand {
    Text(String),
    List(Vec<String>),
}

impl DeclaredCommand {
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(words) => words.join(" "),
        }
    }

    /// Returns the words that begin with a slash, as Puppet searches for them.
    fn paths(&self) -> VecDeque<&str> {
        let words: Vec<&str> = match self {
            Self::Text(text) => text.split_whitespace().collect(),
            Self::List(words) => words.iter().map(String::as_str).collect(),
        };
        words
            .into_iter()
            .filter(|word| word.starts_with('/'))
            .collect()
    }

    fn first(&self) -> &str {
        match self {
            Self::Text(text) => text.split_whitespace().next().unwrap_or_default(),
            Self::List(words) => words.first().map_or("", String::as_str),
        }
    }
}

impl DesiredExec {
    pub(super) fn read(declaration: &Declaration) -> Result<Self, Refusal> {
        let command = match words(declaration, "command")? {
            Some(command) => command,
            None => DeclaredCommand::Text(declaration.name()?),
        };
        let state = declaration.is_state();
        let path = search_path(declaration)?;
        declaration.word("provider", &["posix", "shell"])?;
        let shell = declaration.value("provider").and_then(Value::as_str) == Some("shell");
        if !state && !shell && path.is_none() && !command.first().starts_with('/') {
            return Err(Refusal::other(format!(
                "`{}` is not an absolute path, and `path` is not set",
                if declaration.is_sensitive("command") {
                    "the command"
                } else {
                    command.first()
                }
            )));
        }
        Ok(Self {
            refresh: words(declaration, "refresh")?,
            onlyif: word_lists(declaration, "onlyif")?,
            unless: word_lists(declaration, "unless")?,
            creates: declaration.texts("creates")?.unwrap_or_default(),
            refreshonly: declaration.boolean("refreshonly")?.unwrap_or(false),
            returns: returns(declaration)?,
            tries: tries(declaration)?,
            try_sleep: declaration.seconds("try_sleep")?.unwrap_or_default(),
            state,
            stateful: declaration.boolean("stateful")?.unwrap_or(false),
            secret: declaration.is_sensitive("command"),
            cwd: declaration.text("cwd")?,
            user: declaration.text("user")?,
            shell: declaration
                .text("shell")?
                .unwrap_or_else(|| "/bin/sh".to_owned())
                .into(),
            base: base(declaration, path, state)?,
            command,
        })
    }

    pub(super) fn command(&self) -> Run {
        self.run(&self.command)
    }

    pub(super) fn refresh_command(&self) -> Run {
        self.run(self.refresh.as_ref().unwrap_or(&self.command))
    }

    /// Returns a command with the user, directory, environment and limits of this one.
    pub(super) fn run(&self, words: &DeclaredCommand) -> Run {
        match words {
            DeclaredCommand::List(words) => {
                self.base.clone().words(words.iter().map(OsString::from))
            }
            DeclaredCommand::Text(text) => {
                (self.base.clone()).words([self.shell.clone(), "-c".into(), text.into()])
            }
        }
    }

    /// Returns the command for messages.
    pub(super) fn shown(&self) -> String {
        if self.secret {
            crate::secrets::HIDDEN.to_owned()
        } else {
            self.command.shown()
        }
    }

    pub(super) fn applied(&self, done: &FinishedCommand) -> ApplyResult {
        let mut applied = ApplyResult {
            outputs: outputs(done),
            ..ApplyResult::default()
        };
        if self.stateful {
            let (changed, comment) = stated(&done.stdout_text());
            applied.no_change = !changed;
            applied.message = comment;
        }
        applied
    }

    pub(super) fn relations(&self, relations: &mut Relations) {
        let mut paths: Vec<&str> = Vec::new();
        if self.command.first().starts_with('/') {
            paths.push(self.command.first());
        }
        paths.extend(
            self.onlyif
                .iter()
                .chain(&self.unless)
                .flat_map(DeclaredCommand::paths),
        );
        for path in paths {
            relations.needs(SystemObject::Path(path.into()), "what it runs");
        }
        if let Some(cwd) = &self.cwd {
            relations.needs(SystemObject::Path(cwd.into()), "its directory");
            relations.genius_needs_above(cwd, "its directory");
        }
        for path in &self.creates {
            relations.genius_needs_above(path, "where it creates its file");
        }
        if let Some(user) = &self.user {
            relations.needs(SystemObject::User(user.clone()), "its user");
        }
    }
}

fn base(declaration: &Declaration, path: Option<String>, state: bool) -> Result<Run, Refusal> {
    let mut run = Run::new(Vec::<OsString>::new());
    if let Some(path) = path {
        run = run.environment("PATH", path);
    }
    for (name, value) in environment(declaration)? {
        run = run.environment(name, value);
    }
    if let Some(cwd) = declaration.text("cwd")? {
        run = run.cwd(cwd);
    }
    if let Some(user) = declaration.text("user")? {
        run = run.user(user);
    }
    if let Some(group) = declaration.text("group")? {
        run = run.group(group);
    }
    if let Some(umask) = declaration.text("umask")? {
        let octal = u32::from_str_radix(&umask, 8)
            .ok()
            .filter(|umask| *umask <= 0o7777);
        run = run.umask(octal.ok_or_else(|| declaration.refuse("umask", "an octal number"))?);
    }
    if let Some(stdin) = declaration.bytes("stdin")? {
        run = run.stdin(stdin);
    }
    if let Some(limit) = declaration.integer("output_limit")? {
        let limit = usize::try_from(limit)
            .map_err(|_| declaration.refuse("output_limit", "a number of bytes"))?;
        run = run.limit(limit);
    }
    let timeout = declaration
        .seconds("timeout")?
        .or((!state).then_some(PUPPET_TIMEOUT));
    Ok(match timeout.filter(|timeout| !timeout.is_zero()) {
        Some(timeout) => run.timeout(timeout),
        None => run,
    })
}

fn words(declaration: &Declaration, name: &str) -> Result<Option<DeclaredCommand>, Refusal> {
    Ok(match declaration.value(name) {
        None => None,
        Some(Value::Array(_)) => Some(DeclaredCommand::List(
            declaration.texts(name)?.unwrap_or_default(),
        )),
        Some(_) => declaration.text(name)?.map(DeclaredCommand::Text),
    })
}

/// Reads one command, a list of commands, or a list of lists of words.
fn word_lists(declaration: &Declaration, name: &str) -> Result<Vec<DeclaredCommand>, Refusal> {
    let Some(Value::Array(items)) = declaration.value(name) else {
        return Ok(declaration
            .text(name)?
            .map(DeclaredCommand::Text)
            .into_iter()
            .collect());
    };
    let refuse = || declaration.refuse(name, "a command or a list of commands");
    let list = items.iter().map(|item| match item {
        Value::String(text) => Ok(DeclaredCommand::Text(text.clone())),
        Value::Array(words) => {
            let words = words
                .iter()
                .map(|word| word.as_str().map(str::to_owned).ok_or_else(refuse));
            Ok(DeclaredCommand::List(words.collect::<Result<_, _>>()?))
        }
        _ => Err(refuse()),
    });
    list.collect()
}

fn search_path(declaration: &Declaration) -> Result<Option<String>, Refusal> {
    let path = declaration.texts("path")?.map(|path| path.join(":"));
    Ok(match declaration.text("prepend_path")? {
        None => path,
        Some(first) => {
            let rest = path
                .or_else(|| std::env::var("PATH").ok())
                .unwrap_or_default();
            Some(format!("{first}:{rest}"))
        }
    })
}

fn environment(declaration: &Declaration) -> Result<Vec<(String, String)>, Refusal> {
    let refuse = || declaration.refuse("environment", "a list of NAME=value or a map");
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    let mut pairs = Vec::new();
    let mut members = |map: &serde_json::Map<String, Value>| {
        for (name, value) in map {
            pairs.push((name.clone(), text(value).ok_or_else(refuse)?));
        }
        Ok(())
    };
    match declaration.value("environment") {
        None => {}
        Some(Value::Object(map)) => members(map)?,
        Some(value) => {
            let one = std::slice::from_ref(value);
            for item in value.as_array().map_or(one, Vec::as_slice) {
                match item {
                    Value::Object(map) => members(map)?,
                    Value::String(text) => {
                        let (name, value) = text.split_once('=').ok_or_else(refuse)?;
                        members(
                            &[(name.to_owned(), Value::from(value))]
                                .into_iter()
                                .collect(),
                        )?;
                    }
                    _ => return Err(refuse()),
                }
            }
        }
    }
    Ok(pairs)
}

fn returns(declaration: &Declaration) -> Result<Vec<i32>, Refusal> {
    let Some(texts) = declaration.texts("returns")? else {
        return Ok(vec![0]);
    };
    let codes = texts.iter().map(|text| {
        text.trim()
            .parse()
            .map_err(|_| declaration.refuse("returns", "exit codes"))
    });
    codes.collect()
}

fn tries(declaration: &Declaration) -> Result<u32, Refusal> {
    let tries = declaration.integer("tries")?.unwrap_or(1);
    let counted = u32::try_from(tries).ok().filter(|tries| *tries > 0);
    counted.ok_or_else(|| declaration.refuse("tries", "a positive number"))
}

/// Parses Salt's `stateful`: the last line is JSON or `changed=yes comment='…'`.
fn stated(stdout: &str) -> (bool, Option<String>) {
    let last = stdout.trim_end().lines().last().unwrap_or_default().trim();
    if let Ok(Value::Object(said)) = serde_json::from_str(last) {
        let changed = said
            .get("changed")
            .is_some_and(|value| value == &Value::Bool(true) || value == "yes");
        return (
            changed,
            said.get("comment")
                .and_then(Value::as_str)
                .map(str::to_owned),
        );
    }
    let changed = last
        .split_whitespace()
        .any(|word| matches!(word, "changed=yes" | "changed=true" | "changed=True"));
    let comment = last.split_once("comment=").map(|(_, rest)| {
        let quote = rest
            .chars()
            .next()
            .filter(|first| matches!(first, '\'' | '"'));
        match quote {
            Some(quote) => rest[1..].split(quote).next().unwrap_or_default().to_owned(),
            None => rest
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    });
    (changed, comment)
}
