//! `bunraku trigger fire`.

use bunraku_model::{FiringId, NodeName, TriggerName};
use bunraku_wire::api::Cause;
use bunraku_wire::api::triggers::{FireReply, FireTrigger};
use bunraku_wire::endpoints::{self, Endpoint};
use bunraku_wire::{Client, ClientError};
use clap::Args;
use uuid::Uuid;

use super::providers::{self, Provider, ProviderArguments};
use super::{counted, hops};
use crate::connection::failed;
use crate::context::Context;
use crate::cues;
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
        return Err(Failure::usage("a trigger needs hosts").hint("give `--hosts`"));
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
        Ok(told(name, &reply))
    };
    if providers.provider == Provider::Bunraku {
        return context
            .with_client(|client| async move { finish(send(&client, name, request).await?) });
    }
    if request.query.is_some() {
        return Err(Failure::usage("only the `bunraku` provider takes a query"));
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
            providers::mcollective(name, &request.hosts).await?;
            Ok(fired)
        }
        Provider::Dummy | Provider::Bunraku => Ok(fired),
    }
}

/// What started the run that this command is part of.
fn causes_of_this_run() -> Result<Vec<Cause>, Failure> {
    let Some(text) = std::env::var_os("BUNRAKU_CAUSES") else {
        return Ok(Vec::new());
    };
    // Going on without them would let a loop run for ever.
    serde_json::from_str(&text.to_string_lossy())
        .map_err(|error| Failure::new("BUNRAKU_CAUSES is not what a run sets").caused_by(&error))
}

/// The same firing twice counts once, so it may be sent again.
async fn send(
    client: &Client,
    name: &TriggerName,
    request: &FireTrigger,
) -> Result<FireReply, Failure> {
    let at = endpoints::FireTrigger.at(name);
    let reply = match client.call_with(&at, request).await {
        Err(ClientError::Lost { .. }) => client.call_with(at, request).await,
        other => other,
    };
    reply.map_err(|error| failed(&error))
}

fn told(name: &TriggerName, reply: &FireReply) -> Exit {
    match reply {
        FireReply::Fired { hosts, unknown } => {
            if hosts.is_empty() && unknown.is_empty() {
                eprintln!("{name} was fired at every watcher");
            } else {
                eprintln!("{name} was fired at {}", counted(hosts.len(), "host"));
            }
            for host in unknown {
                eprintln!("✗ {host}  unknown");
            }
            if unknown.is_empty() {
                Exit::Done
            } else {
                Exit::SomeNodesFailed
            }
        }
        FireReply::Held { occurrences, until } => {
            match until {
                Some(until) => eprintln!("{name} is held back until {until:.0}"),
                None => {
                    let so_far = counted(
                        usize::try_from(*occurrences).unwrap_or(usize::MAX),
                        "occurrence",
                    );
                    eprintln!("{name} is held back after {so_far}");
                }
            }
            Exit::Done
        }
        FireReply::Stopped { why, chain } => {
            eprintln!("{name} was stopped: {}\n  {}", why.as_str(), hops(chain));
            Exit::Refused
        }
    }
}
