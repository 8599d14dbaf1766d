//! `bunraku demo`: a server and four agents, real processes, on loopback.
//!
//! Everything is in one directory that is removed afterwards. The child processes
//! end with this process, however it ends.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::ClusterSection;
use crate::demo::{DemoFleet, Stage, StageOptions};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::needed_programs::{require, require_file};
use crate::signals::termination_signal;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku demo               # waits for Enter before each act, and leaves nothing behind
  bunraku demo --fast        # the same without waiting
  bunraku demo --servers 3   # a cluster: a server with a datastore is killed
  bunraku demo --keep        # keeps running and suggests commands to try")]
pub(crate) struct DemoArguments {
    /// Keep running until Ctrl-C, and suggest commands to try
    #[arg(long)]
    keep: bool,

    /// Do not wait for Enter between the acts
    #[arg(long)]
    fast: bool,

    /// Number of servers with a datastore, 3 or 5; one more is started as a spare
    #[arg(long = "servers", value_name = "COUNT")]
    cluster: Option<usize>,

    /// Working directory; must be empty or new [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Long enough for a busy machine; an ordinary one needs a few seconds.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(arguments: &DemoArguments, json: bool) -> Result<Exit, Failure> {
    if let Some(servers) = arguments.cluster {
        bunraku_cluster::setup::check_datastores(servers)
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    check_programs(arguments.cluster.is_some())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut stage = Stage::new(StageOptions {
            fast: arguments.fast,
            json,
            acts: if arguments.cluster.is_some() { 5 } else { 9 },
        });
        let mut fleet = DemoFleet::new(arguments.dir.as_deref())?;
        fleet.introduce(&mut stage);
        let outcome = tokio::select! {
            outcome = perform(&mut fleet, &mut stage, arguments) => outcome,
            signal = termination_signal() => {
                stage.close();
                note!("\n{} received, cleaning up", signal?);
                Ok(Exit::Error)
            }
        };
        stage.close();
        fleet.end().await;
        match &outcome {
            Ok(_) => {
                fleet.clean_up();
                note!("\nAll processes stopped, directory removed.");
            }
            // The logs of the servers and agents explain the failure.
            Err(_) => note!("\n{}", fleet.where_the_logs_are()),
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

async fn perform(
    fleet: &mut DemoFleet,
    stage: &mut Stage,
    arguments: &DemoArguments,
) -> Result<Exit, Failure> {
    let mut play = Play { fleet, stage };
    match arguments.cluster {
        Some(servers) => play.cluster(servers).await?,
        None => play.single_server().await?,
    }
    if arguments.keep {
        fleet.show_what_to_try(stage)?;
        std::future::pending::<()>().await;
    }
    Ok(Exit::Done)
}

/// The demo as a sequence of acts.
struct Play<'a> {
    fleet: &'a mut DemoFleet,
    stage: &'a mut Stage,
}

impl Play<'_> {
    /// Announces an act with one sentence, and performs it.
    async fn act(
        &mut self,
        sentence: &str,
        perform: impl AsyncFnOnce(&mut DemoFleet, &mut Stage) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.stage.act(sentence).await?;
        limited(perform(self.fleet, self.stage)).await
    }

    /// The act in which the four machines join.
    async fn nodes_join(&mut self, sentence: &str) -> Result<(), Failure> {
        self.act(sentence, async |fleet, stage| {
            fleet.start_agents(stage).await?;
            fleet.wait_until_all_answer(stage).await
        })
        .await
    }

    async fn single_server(&mut self) -> Result<(), Failure> {
        let sentence = "A server starts, with its own database and its own certificate authority.";
        self.act(sentence, async |fleet, stage| {
            fleet.start_server(stage).await?;
            fleet.start_console(stage).await
        })
        .await?;
        self.nodes_join("Four machines join with one-time tokens, and report their facts.")
            .await?;
        let sentence = "Code comes from git. Catalogs are compiled ahead of time, and held.";
        self.act(sentence, async |fleet, stage| fleet.deploy(stage).await)
            .await?;
        let sentence = "Half of the nodes get the release, and apply it at once.";
        self.act(sentence, async |fleet, stage| {
            fleet.release_to_half(stage).await
        })
        .await?;
        let sentence = "It works, so the other half follows.";
        self.act(sentence, async |fleet, stage| {
            fleet.release_to_all(stage).await
        })
        .await?;
        let sentence = "A bad change goes out, and one command rolls it back.";
        self.act(sentence, async |fleet, stage| fleet.roll_back(stage).await)
            .await?;
        let sentence = "Two applications run in order: every web node waits for its database.";
        self.act(sentence, async |fleet, stage| fleet.run_site(stage).await)
            .await?;
        let sentence =
            "The server is killed (kill -9) while a command waits for a node that is away.";
        self.act(sentence, async |fleet, stage| {
            fleet.disable_one(stage).await?;
            fleet.lose_the_server(stage).await
        })
        .await?;
        let sentence =
            "Three web nodes ask the load balancer to refresh: it runs once for all of them.";
        self.act(sentence, async |fleet, stage| fleet.cue(stage).await)
            .await?;
        let next = "bunraku demo --servers 3, or docs/getting-started.md";
        self.fleet.summarise(self.stage, next).await
    }

    async fn cluster(&mut self, servers: usize) -> Result<(), Failure> {
        let members = servers + 1;
        let sentence =
            format!("{members} servers form a cluster; {servers} of them store the data.");
        self.act(&sentence, async |fleet, stage| {
            fleet.start_cluster(servers, stage).await?;
            fleet.start_console(stage).await
        })
        .await?;
        self.nodes_join("Four machines join. Each knows one server, and learns about the others.")
            .await?;
        let sentence =
            "Code comes from git. It is compiled ahead of time, and released to all nodes.";
        self.act(sentence, async |fleet, stage| {
            fleet.deploy_and_release_slowly(stage).await
        })
        .await?;
        let sentence = "An ordered run starts, and the server that leads it is killed (kill -9).";
        self.act(sentence, async |fleet, stage| {
            fleet.run_through_a_kill(stage).await
        })
        .await?;
        let sentence = "A server that stores data is killed (kill -9), and the spare replaces it.";
        self.act(sentence, async |fleet, stage| {
            fleet.lose_a_datastore(stage).await
        })
        .await?;
        let next = "bunraku demo --keep, or docs/cluster.md";
        self.fleet.summarise(self.stage, next).await
    }
}

/// Limits the time of one act. The time in which the reader reads does not count.
async fn limited(act: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::time::timeout(PATIENCE, act).await.map_err(|_| {
        Failure::new(format!(
            "this act did not finish within {} s",
            PATIENCE.as_secs()
        ))
    })?
}
