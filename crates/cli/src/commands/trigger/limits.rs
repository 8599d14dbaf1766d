//! `bunraku trigger define`: how a trigger is limited.

use bunraku_model::{NodeName, TriggerName};
use bunraku_wire::Client;
use bunraku_wire::api::triggers::TriggerLimits;
use bunraku_wire::endpoints::{Endpoint, LimitTrigger};
use clap::Args;

use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;

/// Define the limits and hosts of a trigger, and who may fire it
#[derive(Args)]
#[command(
    after_help = "This replaces the whole definition: options that you omit are removed.

Example:
  bunraku trigger define 'refresh load balancers' --quiet 10s --interval 1m"
)]
pub(crate) struct DefineArguments {
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

    /// Nodes that may fire it; operators always may
    #[arg(long, value_delimiter = ',', value_name = "NODE,…")]
    fired_by: Vec<NodeName>,

    /// Query for the hosts, if a firing names none
    #[arg(long)]
    query: Option<String>,
}

pub(super) async fn define(client: &Client, arguments: DefineArguments) -> Result<Exit, Failure> {
    let seconds = |span: Option<HumanDuration>| span.map(|span| span.0.as_secs());
    let limits = TriggerLimits {
        quiet_seconds: seconds(arguments.quiet),
        interval_seconds: seconds(arguments.interval),
        occurrences: arguments.occurrences,
        within_seconds: seconds(arguments.within),
        fired_by: arguments.fired_by,
        query: arguments.query,
    };
    let defined = client
        .call_with(LimitTrigger.at(&arguments.name), &limits)
        .await;
    defined.map_err(|error| failed(&error))?;
    Ok(Exit::Done)
}

/// Limits in a few words.
pub(super) fn words(limits: &TriggerLimits) -> String {
    let mut words = holding_words(limits);
    if !limits.fired_by.is_empty() {
        let names: Vec<&str> = limits.fired_by.iter().map(NodeName::as_str).collect();
        words.push(match names.len() {
            0..=3 => format!("fired by {} only", names.join(", ")),
            count => format!("fired by {count} nodes only"),
        });
    }
    if let Some(query) = &limits.query {
        words.push(format!("for {query}"));
    }
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}

/// What holds something back; a reactor's limits say it in the same words.
pub(crate) fn holding_words(limits: &TriggerLimits) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(seconds) = limits.quiet_seconds {
        words.push(format!("after {seconds} s of quiet"));
    }
    if let Some(seconds) = limits.interval_seconds {
        words.push(format!("once in {seconds} s"));
    }
    if let Some(count) = limits.occurrences {
        let within = limits
            .within_seconds
            .map(|seconds| format!(" within {seconds} s"));
        words.push(format!("after {count} times{}", within.unwrap_or_default()));
    }
    words
}
