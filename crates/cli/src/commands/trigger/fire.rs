//! `bunraku trigger fire`.

use bunraku_agent::{firing_text, send_firing};
use bunraku_model::{FiringId, NodeName, TriggerName};
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use clap::Args;
use uuid::Uuid;

use super::providers::{Provider, ProviderArguments};
use crate::connection::failed;
use crate::context::Context;
use crate::cues;
use crate::cues::causes_of_this_run;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// Start a run on other nodes
#[derive(Args)]
#[command(
    after_help = "Inside a run, the causes of the run (BUNRAKU_CAUSES) are passed on, so that loops end.
Exit code 3: some hosts are unknown. Exit code 4: the chain of causes was stopped.

Examples:
  bunraku trigger fire 'refresh load balancers' --hosts lb01.example.com,lb02.example.com
  bunraku trigger fire rebuild --query 'nodes { facts.role = \"build\" }' --reason 'new compiler'"
)]
pub(crate) struct FireArguments {
    /// Name of the trigger
    name: TriggerName,

    /// Hosts to start a run on [default: those of the trigger's definition; with `--provider etcd` every watcher]
    #[arg(long, value_delimiter = ',', value_name = "HOST,…")]
    hosts: Vec<NodeName>,

    /// Start a run on the nodes that this query finds
    #[arg(long)]
    query: Option<String>,

    /// How many triggers can follow in a chain [default: 8]
    #[arg(long)]
    ttl: Option<u32>,

    /// Reason, shown with the trigger
    #[arg(long)]
    reason: Option<String>,

    /// How long to wait for disconnected hosts [default: 1d]
    #[arg(long, value_name = "SPAN")]
    deadline: Option<HumanDuration>,

    /// The firing run has made changes
    #[arg(long)]
    changed: bool,

    #[command(flatten)]
    providers: ProviderArguments,
}

pub(super) fn run(arguments: FireArguments, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let needs_hosts = arguments.providers.provider == Provider::Mcollective;
    if arguments.hosts.is_empty() && arguments.query.is_none() && needs_hosts {
        return Err(Failure::usage("a trigger needs hosts").hint("pass `--hosts`"));
    }
    let request = FireTrigger {
        id: FiringId(Uuid::now_v7()),
        hosts: arguments.hosts,
        query: arguments.query,
        ttl: arguments.ttl,
        reason: arguments.reason,
        deadline_seconds: arguments.deadline.map(|span| span.0.as_secs()),
        causes: causes_of_this_run()?,
        changed: arguments.changed,
    };
    let (name, providers) = (arguments.name, arguments.providers);
    let (name, request) = (&name, &request);
    let finish = |reply: FireReply| {
        if json {
            output::json(&reply)?;
        }
        Ok(print_reply(name, &reply))
    };
    if providers.provider == Provider::Bunraku {
        return context.with_client(|client| async move {
            let reply = send_firing(&client, name, request).await;
            finish(reply.map_err(|error| failed(&error))?)
        });
    }
    if request.query.is_some() {
        return Err(Failure::usage(
            "only the `bunraku` provider supports queries",
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let reply = runtime.block_on(without_a_server(name, &providers, request))?;
    finish(reply)
}

async fn without_a_server(
    name: &TriggerName,
    providers: &ProviderArguments,
    request: &FireTrigger,
) -> Result<FireReply, Failure> {
    let fired = FireReply::Fired {
        hosts: request.hosts.clone(),
        unknown: Vec::new(),
    };
    match providers.provider {
        Provider::Etcd => {
            let from = cues::own_name(providers.name_of_this_host.clone())?;
            cues::fire(&providers.etcd, name, &from, &providers.tags, request).await
        }
        Provider::Mcollective => {
            cues::mcollective::fire(name, &request.hosts).await?;
            Ok(fired)
        }
        Provider::Dummy | Provider::Bunraku => Ok(fired),
    }
}

fn print_reply(name: &TriggerName, reply: &FireReply) -> Exit {
    note!("{}", firing_text(name, reply));
    match reply {
        FireReply::Fired { unknown, .. } => {
            for host in unknown {
                note!("✗ {host}  unknown");
            }
            if unknown.is_empty() {
                Exit::Done
            } else {
                Exit::SomeNodesFailed
            }
        }
        FireReply::Held { .. } => Exit::Done,
        FireReply::Stopped { .. } => Exit::Refused,
    }
}
