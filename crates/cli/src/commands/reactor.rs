//! `bunraku reactor`: rules that fire triggers or start runs when something happens.

use std::path::{Path, PathBuf};

use bunraku_model::EnvironmentName;
use bunraku_wire::Client;
use bunraku_wire::api::reactors::{
    Reactor, ReactorEvent, ReactorLimits, ReactorRun, ReactorStatus, ReactorVerdict, TestReactors,
};
use bunraku_wire::api::triggers::TriggerEvent;
use bunraku_wire::endpoints::{
    self, Endpoint, ListReactors, ListTriggerEvents, TriggerEventsQuery,
};
use clap::Subcommand;
use serde_json::Value;

use super::trigger::holding_words;
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};
use crate::run_view;
use crate::trigger_view::describe_event;

#[derive(Subcommand)]
pub(crate) enum ReactorCommand {
    /// List the reactors of all environments
    #[command(after_help = "Example:\n  bunraku reactor list")]
    List,
    /// Show a reactor and what it did last
    #[command(after_help = "Example:\n  bunraku reactor show restart-nginx")]
    Show {
        /// Name of the reactor
        name: String,
        /// Environment, if several have a reactor with this name
        #[arg(long)]
        environment: Option<EnvironmentName>,
    },
    /// Show what reactors did: fired, started, refused, and which events named no known host
    #[command(
        after_help = "Examples:\n  bunraku reactor history\n  bunraku reactor history mend --most 5"
    )]
    History {
        /// Only this reactor
        name: Option<String>,
        /// Only reactors of this environment
        #[arg(long)]
        environment: Option<EnvironmentName>,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 50)]
        most: usize,
    },
    /// Show which reactors match an event, without firing
    #[command(
        after_help = "Exit code 0: a reactor matches. Exit code 3: none matches.

Example:
  bunraku reactor test event.json

An event:
  {\"event\": \"resource\", \"node\": \"web-1\", \"type\": \"Service\", \"title\": \"nginx\", \"status\": \"failed\"}"
    )]
    Test {
        /// File with the event as JSON; `-` reads standard input
        #[arg(value_name = "EVENT.json")]
        event: PathBuf,
        /// Environment, for an event without a node
        #[arg(long)]
        environment: Option<EnvironmentName>,
    },
}

pub(crate) fn run(command: ReactorCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            ReactorCommand::List => list(&client, json).await,
            ReactorCommand::Show { name, environment } => {
                show(&client, &name, environment.as_ref(), json).await
            }
            ReactorCommand::History {
                name,
                environment,
                most,
            } => {
                let of = ReactorFilter {
                    name: name.as_deref(),
                    environment: environment.as_ref(),
                };
                history(&client, &of, most, json).await
            }
            ReactorCommand::Test { event, environment } => {
                let event = read(&event)?;
                test(&client, &TestReactors { event, environment }, json).await
            }
        }
    })
}

fn read(file: &Path) -> Result<ReactorEvent, Failure> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let shown = file.display();
    let text =
        text.map_err(|error| Failure::new(format!("cannot read {shown}")).caused_by(&error))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{shown} is not an event")).caused_by(&error))
}

async fn all(client: &Client) -> Result<Vec<ReactorStatus>, Failure> {
    let all = client.call(ListReactors).await;
    all.map_err(|error| failed(&error))
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let all = all(client).await?;
    let empty = "no environment has reactors\n\nhint: see docs/reactors.md for how to write one";
    if !output::has_rows(&all, json, empty)? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["REACTOR", "ENVIRONMENT", "WHEN", "TRIGGER", "HELD", "PLACE"]);
    for status in all {
        let place = format!("{}:{}", status.reactor.file, status.reactor.line);
        table.row(vec![
            status.reactor.name.clone(),
            status.environment.to_string(),
            describe_condition(&status.reactor),
            match &status.reactor.run {
                Some(_) => "(ordered run)".to_owned(),
                None => status.reactor.trigger.to_string(),
            },
            status.held.to_string(),
            place,
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn show(
    client: &Client,
    name: &str,
    environment: Option<&EnvironmentName>,
    json: bool,
) -> Result<Exit, Failure> {
    let mut found = all(client).await?;
    found.retain(|status| {
        status.reactor.name == name
            && environment.is_none_or(|environment| status.environment == *environment)
    });
    let Some(status) = found.pop() else {
        return Err(Failure::new(format!("there is no reactor `{name}`"))
            .hint("list them with `bunraku reactor list`"));
    };
    if !found.is_empty() {
        return Err(
            Failure::new(format!("several environments have a `{name}`"))
                .hint("choose one with `--environment`"),
        );
    }
    let of = ReactorFilter {
        name: Some(name),
        environment: Some(&status.environment),
    };
    let events = events_of(client, &of, 10).await?;
    if json {
        output::json(&serde_json::json!({ "reactor": status, "history": events }))?;
        return Ok(Exit::Done);
    }
    output::write(&page(&status))?;
    write_events(&events)
}

/// The reactors whose history is shown.
struct ReactorFilter<'a> {
    name: Option<&'a str>,
    environment: Option<&'a EnvironmentName>,
}

impl ReactorFilter<'_> {
    /// Returns whether an entry is from such a reactor: `reactor NAME of ENVIRONMENT`.
    fn matches(&self, event: &TriggerEvent) -> bool {
        let by = event.what.by().and_then(|by| by.strip_prefix("reactor "));
        let Some((name, environment)) = by.and_then(|by| by.rsplit_once(" of ")) else {
            return false;
        };
        self.name.is_none_or(|wanted| wanted == name)
            && (self.environment).is_none_or(|wanted| wanted.as_str() == environment)
    }
}

async fn events_of(
    client: &Client,
    of: &ReactorFilter<'_>,
    most: usize,
) -> Result<Vec<TriggerEvent>, Failure> {
    let query = TriggerEventsQuery {
        trigger: None,
        most: Some(1_000),
    };
    let events: Vec<TriggerEvent> = client
        .call(ListTriggerEvents.with_query((), &query))
        .await
        .map_err(|error| failed(&error))?;
    let events = events.into_iter().filter(|event| of.matches(event));
    Ok(events.take(most).collect())
}

fn write_events(events: &[TriggerEvent]) -> Result<Exit, Failure> {
    for event in events {
        output::write(&format!(
            "{:.0}  {}  {}\n",
            event.at,
            event.trigger,
            describe_event(&event.what)
        ))?;
    }
    Ok(Exit::Done)
}

async fn history(
    client: &Client,
    of: &ReactorFilter<'_>,
    most: usize,
    json: bool,
) -> Result<Exit, Failure> {
    let events = events_of(client, of, most).await?;
    if !output::has_rows(&events, json, "no reactor has reacted to anything yet")? {
        return Ok(Exit::Done);
    }
    write_events(&events)
}

fn page(status: &ReactorStatus) -> String {
    let reactor = &status.reactor;
    let mut whom = reactor.hosts.clone();
    whom.extend(reactor.query.clone());
    if whom.is_empty() {
        whom.push(match &reactor.run {
            Some(_) => "all nodes of the site".to_owned(),
            None => "the hosts in the trigger's definition".to_owned(),
        });
    }
    let action = match &reactor.run {
        Some(run) => format!("run          {}", describe_run(run)),
        None => format!("trigger      {}", reactor.trigger),
    };
    let mut text = format!(
        "reactor      {}\nenvironment  {}\nplace        {}:{}\nwhen         {}\n{action}\nfor          {}\n",
        reactor.name,
        status.environment,
        reactor.file,
        reactor.line,
        describe_condition(reactor),
        whom.join(", "),
    );
    if let Some(words) = limits(&reactor.limits) {
        text.push_str(&format!("limits       {words}\n"));
    }
    text.push_str(&format!("held         {}\n", status.held));
    text
}

/// Describes the ordered run of a rule: its site and its limits.
fn describe_run(run: &ReactorRun) -> String {
    let mut words = match &run.site {
        Some(site) => vec![format!("of {site}")],
        None => vec!["without an order".to_owned()],
    };
    words.extend(run.instances.iter().map(|one| format!("only {one}")));
    words.extend(run_view::option_words(&run.options));
    words.join(", ")
}

fn describe_condition(reactor: &Reactor) -> String {
    let mut words = vec![reactor.event.as_str().to_owned()];
    for (field, values) in &reactor.matches {
        let values: Vec<String> = values
            .iter()
            .map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        words.push(format!("{field}={}", values.join("|")));
    }
    if let Some(seconds) = reactor.for_seconds {
        words.push(format!("for {seconds} s"));
    }
    words.join(" ")
}

fn limits(limits: &ReactorLimits) -> Option<String> {
    let mut words = holding_words(&limits.into());
    if limits.per_node {
        words.push("separately for each node".to_owned());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

async fn test(client: &Client, request: &TestReactors, json: bool) -> Result<Exit, Failure> {
    let verdicts: Vec<ReactorVerdict> = client
        .call_with(endpoints::TestReactors, request)
        .await
        .map_err(|error| failed(&error))?;
    let any = verdicts.iter().any(|verdict| verdict.mismatch.is_none());
    if json {
        output::json(&verdicts)?;
    } else {
        for verdict in &verdicts {
            output::write(&line(verdict))?;
        }
        if verdicts.is_empty() {
            note!("no environment has a reactor for this kind of event");
        }
    }
    Ok(if any {
        Exit::Done
    } else {
        Exit::SomeNodesFailed
    })
}

fn line(verdict: &ReactorVerdict) -> String {
    let name = &verdict.name;
    if let Some(why) = &verdict.mismatch {
        return format!("- {name}  {why}\n");
    }
    let hosts: Vec<&str> = verdict.hosts.iter().map(|host| host.as_str()).collect();
    let tried = verdict.tried.join("; ");
    let hosts = match (hosts.is_empty(), &verdict.run) {
        (true, _) if !tried.is_empty() => {
            return format!("✗ {name}  matches, but finds no host: {tried}\n");
        }
        (true, None) => "the hosts in its definition".to_owned(),
        (true, Some(_)) => "all nodes of the site".to_owned(),
        (false, _) => hosts.join(", "),
    };
    let tried = match tried.as_str() {
        "" => String::new(),
        tried => format!(" (not found: {tried})"),
    };
    let reason = verdict.reason.as_deref().unwrap_or_default();
    match &verdict.run {
        None => format!(
            "✓ {name}  fires {} for {hosts}{tried}: {reason}\n",
            verdict.trigger
        ),
        Some(run) => format!(
            "✓ {name}  starts a run {} for {hosts}{tried}: {reason}\n",
            describe_run(run)
        ),
    }
}
