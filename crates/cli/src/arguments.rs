//! The command line: all commands, and the options that they share.

use clap::{Parser, Subcommand};

use crate::commands::{
    agent, apply, bound, catalog, cert, cluster, compile, completions, config, console, demo,
    environment, facts, lock, man, module, node, once, plan, query, reactor, release, report,
    restore, run, server, states, token, trigger,
};
use crate::global_options::Global;

/// An asynchronous control plane for configuration management.
///
/// One binary: server, node agent and command line.
#[derive(Parser)]
#[command(name = "bunraku", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "Examples:
  bunraku demo                          watch a server and four agents on this machine
  bunraku server                        start a server with its own store and authority
  bunraku token create                  let a node in, once
  bunraku node list                     see where every node stands

Exit codes: 0 done, 1 error, 2 changes pending or made (where asked for),
3 some nodes failed or were lost, 4 refused, 64 usage.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a server
    Server(server::ServerArguments),
    /// Run the agent of this node
    Agent(agent::AgentArguments),
    /// Watch a server and four agents work together, on this machine only
    Demo(demo::DemoArguments),
    Apply(apply::ApplyArgs),
    Restore(restore::RestoreArgs),
    States(states::StatesArgs),
    /// Show what a run over many nodes would do, in which order, and why
    #[command(
        after_help = "Examples:\n  bunraku plan --site site.pp --offline\n  bunraku plan --site graph.json --graph svg > plan.svg"
    )]
    Plan(plan::PlanArguments),
    /// Carry out a plan over many nodes in its order; list, watch, stop and resume such runs
    #[command(
        after_help = "Examples:\n  bunraku run --site site.pp\n  bunraku run --site site.yaml --yes --canary 2 --batch 20%\n  bunraku run watch 3f9a12cd\n\nExit code 3 says that a node failed, was lost or did not run; 4 that nothing was run."
    )]
    Run(Box<run::RunArguments>),
    /// Extension modules: pack, sign, verify, install
    #[command(subcommand)]
    Module(module::ModuleCommand),
    /// Nodes: where they stand, and whether they may run
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// What nodes did
    #[command(subcommand)]
    Report(report::ReportCommand),
    /// Environments: code from git, and taking it into use
    #[command(subcommand)]
    Environment(environment::EnvironmentCommand),
    /// Have nodes compiled, and see what waits
    Compile(compile::CompileArguments),
    /// What nodes say of themselves
    #[command(subcommand)]
    Facts(facts::FactsCommand),
    /// What is compiled for nodes, and what differs
    #[command(subcommand)]
    Catalog(catalog::CatalogCommand),
    /// Releases: which compiled catalogs nodes get, and when
    #[command(subcommand)]
    Release(release::ReleaseCommand),
    /// Ask about nodes, facts, resources, classes, reports and events
    Query(query::QueryArguments),
    /// Certificates: list, sign, issue, revoke
    #[command(subcommand)]
    Cert(cert::CertCommand),
    /// One-time tokens that let nodes in
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// The servers among themselves: make a cluster, join, look, drain, recover
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Look at all of it in a browser, on this machine
    Console(console::ConsoleArguments),
    /// Would an init be accepted now? The exit code says
    Stat(once::StatArguments),
    /// Do a thing that is done once per fleet, unless somebody does or did
    Init(once::InitArguments),
    /// Things that are done once per fleet
    #[command(subcommand)]
    Once(once::OnceCommand),
    /// Locks that nodes and people share
    #[command(subcommand)]
    Lock(lock::LockCommand),
    /// Cues that start runs on other nodes
    #[command(subcommand)]
    Trigger(trigger::TriggerCommand),
    /// Rules that fire triggers when something happens
    #[command(subcommand)]
    Reactor(reactor::ReactorCommand),
    #[command(hide = true)]
    Bound(bound::BoundArguments),
    /// The configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Completions for a shell
    Completions(completions::CompletionsArguments),
    /// Manual pages
    Man(man::ManArguments),
}
