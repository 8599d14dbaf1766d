//! `bunraku context`: several fleets, and the one that commands use.

use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use crate::connection::servers;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};
use crate::user_contexts::{FleetContext, UserContexts, user_directory};

#[derive(Subcommand)]
pub(crate) enum ContextCommand {
    /// List the contexts; `*` marks the one in use
    #[command(after_help = "Example:\n  bunraku context list")]
    List,
    /// Use a context from now on
    #[command(after_help = "Example:\n  bunraku context use production")]
    Use {
        /// Name of the context
        name: String,
    },
    /// Add or replace a context; the first one is used at once
    #[command(
        after_help = "Examples:\n  bunraku context add production --server bunraku.example.com:8150 --credentials ./alice\n  bunraku context add lab --server lab-1.example.com,lab-2.example.com\n\nThe contexts are in ~/.config/bunraku/contexts.toml."
    )]
    Add {
        /// Name of the context
        name: String,
        /// Use it from now on
        #[arg(long = "use")]
        is_used: bool,
    },
    /// Remove a context; its credentials stay
    #[command(after_help = "Example:\n  bunraku context remove lab")]
    Remove {
        /// Name of the context
        name: String,
    },
}

/// A context in a list.
#[derive(Serialize)]
struct ListedContext<'a> {
    name: &'a str,
    current: bool,
    #[serde(flatten)]
    context: &'a FleetContext,
}

/// The servers and credentials that the command line names.
pub(crate) struct Named {
    pub(crate) servers: Vec<String>,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) json: bool,
}

pub(crate) fn run(command: ContextCommand, named: Named) -> Result<Exit, Failure> {
    let mut contexts = UserContexts::load()?;
    match command {
        ContextCommand::List => return list(&contexts, named.json),
        ContextCommand::Use { name } => {
            contexts.named(&name)?;
            contexts.current = Some(name.clone());
            contexts.save()?;
            note!("Using context {name}.");
        }
        ContextCommand::Add { name, is_used } => {
            let context = new_context(&name, named)?;
            let was_there = contexts.contexts.insert(name.clone(), context).is_some();
            let uses_it = is_used || contexts.current.is_none();
            if uses_it {
                contexts.current = Some(name.clone());
            }
            contexts.save()?;
            let done = if was_there { "Replaced" } else { "Added" };
            if uses_it {
                note!("{done} context {name}, which is now in use.");
            } else {
                note!("{done} context {name}.\n\nhint: use it with `bunraku context use {name}`");
            }
        }
        ContextCommand::Remove { name } => {
            contexts.named(&name)?;
            contexts.contexts.remove(&name);
            let was_used = contexts.current.as_ref() == Some(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save()?;
            if was_used {
                note!("Removed context {name}. No context is in use now.");
            } else {
                note!("Removed context {name}.");
            }
        }
    }
    Ok(Exit::Done)
}

fn list(contexts: &UserContexts, json: bool) -> Result<Exit, Failure> {
    let listed = contexts
        .contexts
        .iter()
        .map(|(name, context)| ListedContext {
            name,
            current: contexts.current.as_ref() == Some(name),
            context,
        });
    let listed: Vec<ListedContext<'_>> = listed.collect();
    let empty = "no contexts\n\nhint: `bunraku context add -h` has an example";
    if output::has_rows(&listed, json, empty)? {
        let mut table = Table::new(&["", "CONTEXT", "SERVERS", "CREDENTIALS"]);
        for entry in &listed {
            table.row(vec![
                if entry.current { "*" } else { "" }.to_owned(),
                entry.name.to_owned(),
                entry.context.servers.join(","),
                entry.context.credentials.display().to_string(),
            ]);
        }
        table.print()?;
    }
    Ok(Exit::Done)
}

/// Checks the servers and the credentials, which must exist: a wrong context would fail much later.
fn new_context(name: &str, named: Named) -> Result<FleetContext, Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_plain) {
        let message = format!("`{name}` is not a name for a context");
        return Err(Failure::usage(message).hint("use letters, digits, `-`, `_` and `.`"));
    }
    if named.servers.is_empty() {
        let message = "a context needs a server";
        return Err(Failure::usage(message).hint("pass `--server HOST:PORT`; it is repeatable"));
    }
    servers(&named.servers, &[])?;
    let place = named
        .credentials
        .or_else(|| user_directory().map(|it| it.join(name)));
    let place = place.ok_or_else(|| Failure::usage("pass `--credentials DIR`"))?;
    if !place.join("cert.pem").exists() {
        return Err(
            Failure::new(format!("there is no cert.pem in {}", place.display())).hint(format!(
                "on a server, `bunraku cert issue {name} --role operator --out {name}` creates credentials; copy them there"
            )),
        );
    }
    Ok(FleetContext {
        servers: named.servers,
        credentials: std::fs::canonicalize(&place)?,
    })
}
