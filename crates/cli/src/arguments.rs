//! The command line: all commands, and the options that they share.

use clap::{Parser, Subcommand};

use crate::commands::{
    access, agent, approval, audit, authority, backup, bound, catalog, cert, cluster, compile,
    complete, completions, config, console, context, demo, doctor, environment, facts, isolated,
    lock, man, module, node, once, plan, query, reactor, release, report, repository, restore, run,
    server, signer, states, status, store, token, trigger, version,
};
use crate::global_options::Global;
use crate::local_apply::ApplyArgs;

/// An asynchronous control plane for configuration management.
///
/// One binary: server, node agent and command line.
#[derive(Parser)]
#[command(name = "bunraku", version, arg_required_else_help = true, after_help = HINT, after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const HINT: &str =
    "Run `bunraku --help` for a line about each command, and `bunraku COMMAND -h` for examples.";

const EXAMPLES: &str = "Examples:
  bunraku demo             run a server and four agents on this machine
  bunraku server           start a server with its own store and CA
  bunraku token create     create a token for a new node
  bunraku node list        show the status of all nodes

Exit codes: 0 success, 1 error, 2 changes pending or made (with --detailed-exitcodes),
3 some nodes failed or were lost, 4 refused, 64 usage error.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show whether everything is healthy, what is wrong and what to do
    Status(status::StatusArguments),
    /// Check this machine's configuration, credentials, connection, clock and disk
    Doctor(doctor::DoctorArguments),
    /// Run a server
    Server(server::ServerArguments),
    /// Run the signer, which holds the CA key
    Signer(signer::SignerArguments),
    /// Run the agent of this node
    Agent(agent::AgentArguments),
    /// Run a demo: a server and four agents on this machine
    Demo(demo::DemoArguments),
    Apply(ApplyArgs),
    Restore(restore::RestoreArgs),
    States(states::StatesArgs),
    /// Show what a run over many nodes would do: order, reasons and catalogs
    #[command(
        after_help = "Examples:\n  bunraku plan --site site.pp --offline\n  bunraku plan --site graph.json --graph svg > plan.svg"
    )]
    Plan(plan::PlanArguments),
    /// Run many nodes in the order of a plan; list, watch, stop and resume runs
    #[command(
        after_help = "Examples:\n  bunraku run --site site.pp\n  bunraku run --site site.yaml --yes --canary 2 --batch 20%\n  bunraku run watch 3f9a12cd\n\nExit code 3: a node failed, was lost or did not run. Exit code 4: nothing was run."
    )]
    Run(Box<run::RunArguments>),
    /// Pack, sign, verify, install and publish extension modules
    #[command(subcommand)]
    Module(module::ModuleCommand),
    /// List, run, enable, disable and assign nodes
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// List, show and follow reports of node runs
    #[command(subcommand)]
    Report(report::ReportCommand),
    /// Create and deploy environments from git
    #[command(subcommand)]
    Environment(environment::EnvironmentCommand),
    /// Register control repositories whose branches are environments
    #[command(subcommand)]
    Repository(repository::RepositoryCommand),
    /// Compile nodes and show the compile queue
    Compile(compile::CompileArguments),
    /// Show and compare node facts
    #[command(subcommand)]
    Facts(facts::FactsCommand),
    /// List, show and compare catalogs
    #[command(subcommand)]
    Catalog(catalog::CatalogCommand),
    /// Create, compare, hold and roll back releases
    #[command(subcommand)]
    Release(release::ReleaseCommand),
    /// List, approve and reject runs and releases that others requested
    #[command(subcommand)]
    Approval(approval::ApprovalCommand),
    /// Query nodes, facts, resources, classes, reports and events
    Query(query::QueryArguments),
    /// List, sign, issue and revoke certificates
    #[command(subcommand)]
    Cert(cert::CertCommand),
    /// List, grant, revoke and check access: who may do what, on what
    #[command(subcommand)]
    Access(access::AccessCommand),
    /// Replace the CA and show how far that is
    #[command(subcommand)]
    Authority(authority::AuthorityCommand),
    /// List, follow, verify and export the audit log: every change and who made it
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Review the state after data was restored from a backup
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Create, list and revoke one-time join tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Create, join, inspect, drain and recover a cluster of servers
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Show where data is kept, and move it to another place
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Show the fleet in a browser (read-only)
    Console(console::ConsoleArguments),
    /// Check whether a once task may run, without running it (exit code)
    Stat(once::StatArguments),
    /// Run a once task here, unless another node runs it or it is done
    Init(once::InitArguments),
    /// Define, list and reset once tasks: commands that run once per fleet
    ///
    /// A once task is a command that exactly one node of the fleet runs, once: for example to create
    /// a database schema. `bunraku once define` stores it, every node calls `bunraku init`, and one
    /// of them runs it. `bunraku stat` checks whether it may run, for conditions in Puppet or shell.
    #[command(subcommand)]
    Once(once::OnceCommand),
    /// Acquire, release and define locks
    #[command(subcommand)]
    Lock(lock::LockCommand),
    /// Fire, define and list triggers, which start runs on other nodes
    #[command(subcommand)]
    Trigger(trigger::TriggerCommand),
    /// List and test reactors, which fire triggers on events
    #[command(subcommand)]
    Reactor(reactor::ReactorCommand),
    #[command(hide = true)]
    Bound(bound::BoundArguments),
    #[command(hide = true)]
    CodeWorker,
    #[command(hide = true)]
    Isolated(isolated::IsolatedArguments),
    /// Check the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Switch between several fleets
    #[command(subcommand)]
    Context(context::ContextCommand),
    #[command(hide = true)]
    Complete(complete::CompleteArguments),
    /// Print the version, the commit and the build
    Version(version::VersionArguments),
    /// Print shell completions
    Completions(completions::CompletionsArguments),
    /// Write manual pages
    Man(man::ManArguments),
}
