//! Runs the command that the command line names.

use std::process::ExitCode;
use std::sync::Arc;

use crate::arguments::{Arguments, Command};
use crate::commands::{
    access, agent, apply, approval, audit, authority, backup, bound, catalog, cert, cluster,
    code_worker, compile, complete, completions, config, console, context, demo, doctor,
    environment, facts, isolated, lock, man, module, node, once, plan, query, reactor, release,
    report, repository, restore, run, server, signer, states, status, store, token, trigger,
    version,
};
use crate::config::load;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::help;
use crate::logging;
use crate::user_contexts::fill_in;
use crate::wiring::Wiring;

pub(crate) fn run(arguments: Arguments, wiring: Wiring) -> Result<ExitCode, Failure> {
    let Arguments {
        mut global,
        command,
    } = arguments;
    // These serve a server, which gives them everything. They read no configuration.
    let command = match command {
        Command::CodeWorker => return code_worker::run().map(ExitCode::from),
        Command::Isolated(arguments) => return isolated::run(arguments).map(ExitCode::from),
        command => command,
    };
    // Daemons log their actions. Commands log only problems.
    let usual = match command {
        Command::Server(_) | Command::Agent(_) | Command::Signer(_) => "info",
        _ => "warn",
    };
    logging::start(global.log.as_deref().unwrap_or(usual), global.log_format);
    // These work without a valid configuration.
    match &command {
        Command::Config(command) => return config::run(command, &global).map(ExitCode::from),
        Command::Version(arguments) => {
            return version::run(arguments, global.json).map(ExitCode::from);
        }
        _ => {}
    }
    let command = match command {
        Command::Context(command) => {
            let named = context::Named {
                servers: global.servers,
                credentials: global.credentials,
                json: global.json,
            };
            return context::run(command, named).map(ExitCode::from);
        }
        // These have servers and credentials of their own.
        daemon @ (Command::Server(_) | Command::Agent(_) | Command::Signer(_)) => daemon,
        other => {
            fill_in(&mut global)?;
            other
        }
    };
    let context = Context {
        loaded: Arc::new(load(global.config.as_deref())?),
        global,
        wiring,
    };
    let exit = match command {
        Command::Apply(arguments) => return apply::run(&arguments, &context),
        Command::Restore(arguments) => return Ok(restore::run(&arguments, context.global.json)),
        Command::States(arguments) => return Ok(states::run(&arguments, &context)),
        Command::Stat(arguments) => return once::stat(&arguments, &context),
        Command::Init(arguments) => return once::init(&arguments, &context),
        Command::Lock(command) => return lock::run(command, &context),
        Command::Once(command) => once::run(command, &context),
        Command::Trigger(command) => trigger::run(command, &context),
        Command::Reactor(command) => reactor::run(command, &context),
        Command::Bound(arguments) => return bound::run(&arguments).map(ExitCode::from),
        Command::Module(command) => module::run(command, &context),
        Command::Status(arguments) => status::run(&arguments, &context),
        Command::Doctor(arguments) => doctor::run(&arguments, &context),
        Command::Server(arguments) => server::run(arguments, &context),
        Command::Signer(arguments) => signer::run(&arguments, &context),
        Command::Agent(arguments) => agent::run(arguments, &context),
        Command::Demo(arguments) => demo::run(&arguments, context.global.json),
        Command::Run(arguments) => run::run(*arguments, &context),
        Command::Plan(arguments) => plan::run(&arguments, &context),
        Command::Node(command) => node::run(command, &context),
        Command::Report(command) => report::run(command, &context),
        Command::Environment(command) => environment::run(command, &context),
        Command::Repository(command) => repository::run(command, &context),
        Command::Compile(arguments) => compile::run(arguments, &context),
        Command::Facts(command) => facts::run(command, &context),
        Command::Catalog(command) => catalog::run(command, &context),
        Command::Release(command) => release::run(command, &context),
        Command::Approval(command) => approval::run(command, &context),
        Command::Query(arguments) => query::run(arguments, &context),
        Command::Access(command) => access::run(command, &context),
        Command::Cert(command) => cert::run(command, &context),
        Command::Backup(command) => backup::run(&command, &context),
        Command::Authority(command) => authority::run(command, &context),
        Command::Audit(command) => audit::run(command, &context),
        Command::Token(command) => token::run(command, &context),
        Command::Cluster(command) => cluster::run(command, &context),
        Command::Store(command) => store::run(command, &context),
        Command::Console(arguments) => console::run(&arguments, &context),
        Command::Complete(arguments) => complete::run(&arguments, &context, help::command()),
        Command::Completions(arguments) => completions::run(&arguments, help::command()),
        Command::Man(arguments) => man::run(&arguments, help::command()),
        Command::Config(_)
        | Command::Context(_)
        | Command::Version(_)
        | Command::CodeWorker
        | Command::Isolated(_) => Ok(Exit::Done),
    };
    exit.map(ExitCode::from)
}
