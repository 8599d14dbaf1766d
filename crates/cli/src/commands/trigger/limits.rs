//! `bunraku trigger define`: the limits of a trigger.

use bunraku_model::TriggerName;
use bunraku_wire::Client;
use bunraku_wire::api::triggers::{PermitTrigger, TriggerLimits, TriggerSummary};
use bunraku_wire::endpoints::{self, Endpoint, LimitTrigger, ShowTrigger};
use clap::Args;

use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_list::{self, NodeList};

/// Define the limits and hosts of a trigger, and who may fire it
#[derive(Args)]
#[command(
    after_help = "A trigger that is defined already keeps the options that you omit only if you repeat them: this
replaces the whole definition. If that removes something, pass `--replace`.

Example:
  bunraku trigger define 'refresh load balancers' --quiet 10s --interval 1m"
)]
pub(crate) struct DefineArguments {
    /// Name of the trigger
    name: TriggerName,

    /// Send when the trigger was not fired for this long
    #[arg(long, value_name = "SPAN")]
    quiet: Option<HumanDuration>,

    /// Send at most once in this time
    #[arg(long, value_name = "SPAN")]
    interval: Option<HumanDuration>,

    /// Send only after this many occurrences
    #[arg(long)]
    occurrences: Option<u64>,

    /// Count only occurrences within this time
    #[arg(long, value_name = "SPAN", requires = "occurrences")]
    within: Option<HumanDuration>,

    /// Nodes that may fire it [default: none; operators always may]
    #[arg(long, value_name = "NODE,…")]
    fired_by: Vec<NodeList>,

    /// Hosts at which nodes may fire it, besides those of `--query` [default: none]
    #[arg(long, value_name = "HOST,…")]
    hosts: Vec<NodeList>,

    /// How often each node may fire it per hour [default: 30]
    #[arg(long, value_name = "COUNT")]
    budget: Option<u64>,

    /// Query for the hosts, if a firing names none
    #[arg(long)]
    query: Option<String>,

    /// Remove the options of the earlier definition that are not named here
    #[arg(long)]
    replace: bool,
}

pub(super) async fn define(client: &Client, arguments: DefineArguments) -> Result<Exit, Failure> {
    let seconds = |span: Option<HumanDuration>| span.map(|span| span.0.as_secs());
    let limits = TriggerLimits {
        quiet_seconds: seconds(arguments.quiet),
        interval_seconds: seconds(arguments.interval),
        occurrences: arguments.occurrences,
        within_seconds: seconds(arguments.within),
        fired_by: node_list::entries(arguments.fired_by),
        hosts: node_list::entries(arguments.hosts),
        budget: arguments.budget,
        query: arguments.query,
    };
    let name = &arguments.name;
    if !arguments.replace {
        refuse_loss(client, name, &limits).await?;
    }
    let defined = client.call_with(LimitTrigger.at(name), &limits).await;
    defined.map_err(|error| failed(&error))?;
    note!("Defined trigger {name}: {}.", describe(&limits));
    Ok(Exit::Done)
}

/// Refuses to remove parts of an earlier definition silently.
async fn refuse_loss(
    client: &Client,
    name: &TriggerName,
    limits: &TriggerLimits,
) -> Result<(), Failure> {
    let earlier = match client.call(ShowTrigger.at(name)).await {
        Ok(TriggerSummary { limits, .. }) => limits,
        Err(error) if error.status() == Some(404) => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    let removed: Vec<&str> = [
        (
            "--quiet",
            earlier.quiet_seconds.is_some() && limits.quiet_seconds.is_none(),
        ),
        (
            "--interval",
            earlier.interval_seconds.is_some() && limits.interval_seconds.is_none(),
        ),
        (
            "--occurrences",
            earlier.occurrences.is_some() && limits.occurrences.is_none(),
        ),
        (
            "--within",
            earlier.within_seconds.is_some() && limits.within_seconds.is_none(),
        ),
        (
            "--fired-by",
            !earlier.fired_by.is_empty() && limits.fired_by.is_empty(),
        ),
        (
            "--hosts",
            !earlier.hosts.is_empty() && limits.hosts.is_empty(),
        ),
        (
            "--budget",
            earlier.budget.is_some() && limits.budget.is_none(),
        ),
        ("--query", earlier.query.is_some() && limits.query.is_none()),
    ]
    .into_iter()
    .filter_map(|(option, is_lost)| is_lost.then_some(option))
    .collect();
    if removed.is_empty() {
        return Ok(());
    }
    let message = format!(
        "trigger `{name}` is defined already ({}), and this would remove {}",
        describe(&earlier),
        removed.join(", ")
    );
    Err(Failure::new(message)
        .exit(Exit::Refused)
        .hint("repeat these options to keep them, or pass `--replace` to remove them"))
}

/// Let nodes fire a trigger, and keep the rest of its definition
#[derive(Args)]
#[command(
    after_help = format!("{}

Example:
  bunraku trigger permit 'refresh load balancers' --fired-by 'web-*.example.com' --hosts 'lb*.example.com'", node_list::FORMS)
)]
pub(crate) struct PermitArguments {
    /// Name of the trigger
    name: TriggerName,

    /// Nodes that may fire it
    #[arg(long, value_name = "NODE,…")]
    fired_by: Vec<NodeList>,

    /// Hosts at which nodes may fire it
    #[arg(long, value_name = "HOST,…")]
    hosts: Vec<NodeList>,

    /// Remove the permissions that are not named here
    #[arg(long)]
    replace: bool,
}

pub(super) async fn permit(client: &Client, arguments: PermitArguments) -> Result<Exit, Failure> {
    let request = PermitTrigger {
        fired_by: node_list::entries(arguments.fired_by),
        hosts: node_list::entries(arguments.hosts),
        replace: arguments.replace,
    };
    let permitted = client
        .call_with(endpoints::PermitTrigger.at(&arguments.name), &request)
        .await;
    permitted.map_err(|error| failed(&error))?;
    note!("Changed the permissions of trigger {}.", arguments.name);
    Ok(Exit::Done)
}

/// Summarizes limits.
pub(super) fn describe(limits: &TriggerLimits) -> String {
    let mut words = holding_words(limits);
    if limits.fired_by.is_empty() {
        words.push("only operators may fire it".to_owned());
    } else {
        words.push(format!(
            "{} may fire it",
            node_list::words(&limits.fired_by)
        ));
        if !limits.hosts.is_empty() {
            words.push(format!("at {}", node_list::words(&limits.hosts)));
        }
    }
    if let Some(budget) = limits.budget {
        words.push(format!("{budget} times per hour and node"));
    }
    if let Some(query) = &limits.query {
        words.push(format!("for {query}"));
    }
    words.join(", ")
}

/// Describes the limits that hold firings back. Reactors use the same words.
pub(crate) fn holding_words(limits: &TriggerLimits) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(seconds) = limits.quiet_seconds {
        words.push(format!("after {seconds} s of quiet"));
    }
    if let Some(seconds) = limits.interval_seconds {
        words.push(format!("at most once in {seconds} s"));
    }
    if let Some(count) = limits.occurrences {
        let within = limits
            .within_seconds
            .map(|seconds| format!(" within {seconds} s"));
        words.push(format!(
            "after {count} occurrences{}",
            within.unwrap_or_default()
        ));
    }
    words
}
