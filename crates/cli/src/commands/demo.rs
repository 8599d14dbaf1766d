//! `bunraku demo`: a server and four agents, real processes, on loopback.
//!
//! Everything is in one directory that is removed afterwards. The child processes
//! end with this process, however it ends.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::ClusterSection;
use crate::demo::{DemoFleet, Stage};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::needed_programs::{require, require_file};
use crate::signals::termination_signal;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku demo           # stops automatically and leaves nothing behind
  bunraku demo --servers 3   # a cluster: a server with a datastore is killed
  bunraku demo --keep    # keeps running and suggests commands to try")]
pub(crate) struct DemoArguments {
    /// Keep running until Ctrl-C, and suggest commands to try
    #[arg(long)]
    keep: bool,

    /// Number of servers with a datastore, 3 or 5; one more is started as a spare
    #[arg(long = "servers", value_name = "COUNT")]
    cluster: Option<usize>,

    /// Working directory; must be empty or new [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Long enough for a busy machine; an ordinary one needs a few seconds.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(arguments: &DemoArguments) -> Result<Exit, Failure> {
    if let Some(servers) = arguments.cluster {
        bunraku_cluster::setup::check_datastores(servers)
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    check_programs(arguments.cluster.is_some())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut stage = Stage::new();
        let mut fleet = DemoFleet::new(arguments.dir.as_deref())?;
        let outcome = tokio::select! {
            outcome = perform(&mut fleet, &mut stage, arguments) => outcome,
            signal = termination_signal() => {
                stage.note(&format!("{} received, cleaning up", signal?));
                Ok(Exit::Error)
            }
        };
        fleet.end().await;
        match &outcome {
            Ok(_) => {
                fleet.clean_up();
                stage.note("all processes stopped, directory removed");
            }
            // The logs of the servers and agents explain the failure.
            Err(_) => stage.note(&fleet.where_the_logs_are()),
        }
        outcome
    })
}

/// Says at once which program is missing, and how to get it.
fn check_programs(is_cluster: bool) -> Result<(), Failure> {
    require("git", "the demo deploys code from a git repository", "git")?;
    if is_cluster {
        let section = ClusterSection::default();
        let why = "the servers of a cluster store their data in etcd";
        require_file(&section.etcd, why, "etcd-server")?;
        require_file(&section.etcdctl, why, "etcd-client")?;
    }
    Ok(())
}

/// The demo of a cluster.
async fn perform_cluster(
    fleet: &mut DemoFleet,
    stage: &mut Stage,
    servers: usize,
) -> Result<(), Failure> {
    stage.act("The servers form a cluster with a shared datastore");
    fleet.start_cluster(servers, stage).await?;
    stage.act("Four agents join; each is configured with one server and learns about the others");
    fleet.start_agents(stage).await?;
    fleet.wait_until_all_answer(stage).await?;
    stage.act("Code is deployed from git, compiled in advance and released");
    fleet.deploy_and_release_slowly(stage).await?;
    stage.act("The site runs in order; the server that leads the run is killed (kill -9)");
    fleet.run_through_a_kill(stage).await?;
    stage.act("A server with a datastore is killed (kill -9)");
    fleet.lose_a_datastore(stage).await?;
    fleet.show_nodes(stage).await
}

async fn perform(
    fleet: &mut DemoFleet,
    stage: &mut Stage,
    arguments: &DemoArguments,
) -> Result<Exit, Failure> {
    let keep = arguments.keep;
    let play = async {
        if let Some(servers) = arguments.cluster {
            return perform_cluster(fleet, stage, servers).await;
        }
        stage.act("A server starts with its own store and CA");
        fleet.start_server(stage).await?;
        stage.act("Four agents join, each with a one-time token and the CA fingerprint");
        fleet.start_agents(stage).await?;
        fleet.wait_until_all_answer(stage).await?;
        stage.act("Code is deployed from git; catalogs are compiled in advance and held");
        fleet.deploy(stage).await?;
        stage.act("A release to half of the nodes; they apply it and stream every event back");
        fleet.release(stage).await?;
        stage.act("A bad change is released and rolled back");
        fleet.roll_back(stage).await?;
        stage.act("The site's two applications run in order, the database first");
        fleet.run_site(stage).await?;
        stage.act("An operator disables a node and gives a reason");
        fleet.disable_one(stage).await?;
        stage.act("The server is killed (kill -9) while a command waits for a disconnected node");
        fleet.lose_the_server(stage).await?;
        fleet.show_nodes(stage).await?;
        stage.act("The node is enabled again; web nodes trigger the load balancer, which runs once for all of them");
        fleet.cue(stage).await
    };
    tokio::time::timeout(PATIENCE, play).await.map_err(|_| {
        Failure::new(format!(
            "the demo did not finish within {} s",
            PATIENCE.as_secs()
        ))
    })??;
    if keep {
        fleet.show_what_to_try(stage);
        std::future::pending::<()>().await;
    }
    Ok(Exit::Done)
}
