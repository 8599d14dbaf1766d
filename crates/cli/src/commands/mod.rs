//! One file per command.

pub(crate) mod agent;
pub(crate) mod apply;
mod apply_ssh;
pub(crate) mod bound;
pub(crate) mod catalog;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod environment;
pub(crate) mod facts;
pub(crate) mod lock;
pub(crate) mod man;
mod member;
pub(crate) mod module;
pub(crate) mod node;
mod node_add;
pub(crate) mod node_queue;
pub(crate) mod node_run;
pub(crate) mod once;
pub(crate) mod plan;
pub(crate) mod query;
pub(crate) mod reactor;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod states;
pub(crate) mod token;
pub(crate) mod trigger;

use std::future::Future;
use std::process::ExitCode;

use bunraku_wire::Client;

use crate::Wiring;
use crate::arguments::{Arguments, Command, Global};
use crate::config::{Loaded, load};
use crate::connection::connect;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging;

/// What every command gets.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) loaded: Loaded,
    pub(crate) wiring: Wiring,
}

pub(crate) fn run(arguments: Arguments, wiring: Wiring) -> Result<ExitCode, Failure> {
    let Arguments { global, command } = arguments;
    // Daemons say what they do; commands speak only when something is wrong.
    let usual = match command {
        Command::Server(_) | Command::Agent(_) => "info",
        _ => "warn",
    };
    logging::start(global.log.as_deref().unwrap_or(usual), global.log_format);
    if let Command::Config(command) = command {
        return config::run(&command, &global).map(ExitCode::from);
    }
    let context = Context {
        loaded: load(global.config.as_deref())?,
        global,
        wiring,
    };
    let exit = match command {
        Command::Apply(arguments) => return Ok(apply::run(&arguments, context.global.json)),
        Command::Restore(arguments) => return Ok(restore::run(&arguments, context.global.json)),
        Command::States(arguments) => return Ok(states::run(&arguments, context.global.json)),
        Command::Stat(arguments) => return once::stat(&arguments, &context),
        Command::Init(arguments) => return once::init(&arguments, &context),
        Command::Lock(command) => return lock::run(command, &context),
        Command::Once(command) => once::run(command, &context),
        Command::Trigger(command) => trigger::run(command, &context),
        Command::Reactor(command) => reactor::run(command, &context),
        Command::Bound(arguments) => bound::run(&arguments),
        Command::Module(command) => module::run(command, &context),
        Command::Server(arguments) => server::run(arguments, &context),
        Command::Agent(arguments) => agent::run(arguments, &context),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Run(arguments) => run::run(*arguments, &context),
        Command::Plan(arguments) => plan::run(&arguments, &context),
        Command::Node(command) => node::run(command, &context),
        Command::Report(command) => report::run(command, &context),
        Command::Environment(command) => environment::run(command, &context),
        Command::Compile(arguments) => compile::run(arguments, &context),
        Command::Facts(command) => facts::run(command, &context),
        Command::Catalog(command) => catalog::run(command, &context),
        Command::Release(command) => release::run(command, &context),
        Command::Query(arguments) => query::run(arguments, &context),
        Command::Cert(command) => cert::run(command, &context),
        Command::Token(command) => token::run(command, &context),
        Command::Cluster(command) => cluster::run(command, &context),
        Command::Console(arguments) => console::run(&arguments, &context),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::Config(_) => Ok(Exit::Done),
    };
    exit.map(ExitCode::from)
}

impl Context {
    /// Runs what talks to a server: one thread is enough, and starts at once.
    pub(crate) fn with_client<F, R>(&self, work: F) -> Result<Exit, Failure>
    where
        F: FnOnce(Client) -> R,
        R: Future<Output = Result<Exit, Failure>>,
    {
        let client = connect(&self.global, &self.loaded)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(work(client.clone()));
        if let Some(lasting) = client.old_data() {
            eprintln!(
                "warning: no majority of the datastores has answered for {} s: this may be old, and nothing can be changed; see `bunraku cluster status`",
                lasting.as_secs()
            );
        }
        outcome
    }
}

/// Resolves when the process is asked to end. A second request ends it at once.
pub(crate) async fn asked_to_end() -> Result<&'static str, std::io::Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
    Ok(name)
}

/// Asks the kernel to end this process when its parent ends, even by `kill -9`.
///
/// The parent may be gone before the kernel was asked; then this process has
/// another parent already, and ends by itself.
pub(crate) fn end_with_parent(parent: Option<i32>) -> Result<(), Failure> {
    let Some(parent) = parent else {
        return Ok(());
    };
    let signal = rustix::process::Signal::TERM;
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    match now == Some(parent) {
        true => Ok(()),
        false => Err(Failure::new("the process that started this one has ended")),
    }
}
