//! `bunraku trigger`: define, fire and watch triggers, and show their history.

mod fire;
mod limits;
mod providers;

use bunraku_model::TriggerName;
use bunraku_wire::Client;
use bunraku_wire::api::triggers::{TriggerEvent, TriggerSummary};
use bunraku_wire::endpoints::{
    Endpoint, ListTriggerEvents, ListTriggers, RemoveTriggerLimits, ShowTrigger, TriggerEventsQuery,
};
use clap::Subcommand;
use jiff::Timestamp;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};
use crate::trigger_view::describe_event;
pub(super) use limits::holding_words;

#[derive(Subcommand)]
pub(crate) enum TriggerCommand {
    Fire(fire::FireArguments),
    Watch(crate::cues::WatchArguments),
    Define(limits::DefineArguments),
    Permit(limits::PermitArguments),
    /// Delete the definition of a trigger, and send what it holds back
    #[command(after_help = "Example:\n  bunraku trigger forget 'refresh load balancers'")]
    Forget {
        /// Name of the trigger
        name: TriggerName,
    },
    /// List triggers that are defined or held back
    #[command(after_help = "Example:\n  bunraku trigger list")]
    List,
    /// Show a trigger
    #[command(after_help = "Example:\n  bunraku trigger show 'refresh load balancers'")]
    Show {
        /// Name of the trigger
        name: TriggerName,
    },
    /// Show fired, stopped and expired triggers
    #[command(
        after_help = "Examples:\n  bunraku trigger history\n  bunraku trigger history 'refresh load balancers' --most 5"
    )]
    History {
        /// Only this trigger
        name: Option<TriggerName>,
        /// Maximum number of entries, newest first
        #[arg(long, default_value_t = 20)]
        most: usize,
    },
}

pub(crate) fn run(command: TriggerCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let command = match command {
        TriggerCommand::Fire(arguments) => return fire::run(arguments, context),
        TriggerCommand::Watch(arguments) => return watch(arguments),
        other => other,
    };
    context.with_client(|client| async move {
        match command {
            TriggerCommand::Define(arguments) => limits::define(&client, arguments).await,
            TriggerCommand::Permit(arguments) => limits::permit(&client, arguments).await,
            TriggerCommand::Forget { name } => {
                let forgotten = client.call(RemoveTriggerLimits.at(&name)).await;
                forgotten.map_err(|error| failed(&error))?;
                note!("Deleted the definition of trigger {name}.");
                Ok(Exit::Done)
            }
            TriggerCommand::List => list(&client, json).await,
            TriggerCommand::Show { name } => show(&client, &name, json).await,
            TriggerCommand::History { name, most } => history(&client, name, most, json).await,
            TriggerCommand::Fire(_) | TriggerCommand::Watch(_) => Ok(Exit::Done),
        }
    })
}

fn watch(arguments: crate::cues::WatchArguments) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let shutdown = tokio_util::sync::CancellationToken::new();
        let stop = shutdown.clone();
        tokio::spawn(async move {
            // Without signals it is ended by other means.
            let _ = crate::signals::termination_signal().await;
            stop.cancel();
        });
        crate::cues::watch(arguments, shutdown).await?;
        Ok(Exit::Done)
    })
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let all: Vec<TriggerSummary> = client
        .call(ListTriggers)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&all)?;
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["TRIGGER", "LIMITS", "HELD", "LAST"]);
    for summary in all {
        let last = summary.last.map(|last| format!("{} ago", ago(last, now)));
        table.row(vec![
            summary.name.to_string(),
            limits::describe(&summary.limits),
            summary.held.to_string(),
            last.unwrap_or_else(|| "never".to_owned()),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn show(client: &Client, name: &TriggerName, json: bool) -> Result<Exit, Failure> {
    let summary: TriggerSummary = client
        .call(ShowTrigger.at(name))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&summary)?;
        return Ok(Exit::Done);
    }
    let mut text = format!(
        "trigger  {name}\nlimits   {}\n",
        limits::describe(&summary.limits)
    );
    text.push_str(&format!("held     {}\n", summary.held));
    if let Some(until) = summary.until {
        text.push_str(&format!("until    {until:.0}\n"));
    }
    output::write(&text)?;
    history(client, Some(name.clone()), 10, false).await
}

async fn history(
    client: &Client,
    name: Option<TriggerName>,
    most: usize,
    json: bool,
) -> Result<Exit, Failure> {
    let query = TriggerEventsQuery {
        trigger: name.clone(),
        most: Some(most),
    };
    let events = client.call(ListTriggerEvents.with_query((), &query)).await;
    let events: Vec<TriggerEvent> = events.map_err(|error| failed(&error))?;
    if json {
        output::json(&events)?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for event in &events {
        text.push_str(&format!(
            "{:.0}  {}  {}\n",
            event.at,
            event.trigger,
            describe_event(&event.what)
        ));
    }
    output::write(&text)?;
    Ok(Exit::Done)
}
