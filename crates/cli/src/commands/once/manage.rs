//! `bunraku once`: define, list, show and reset once tasks.

use std::path::PathBuf;

use bunraku_model::{AppName, NodeName};
use bunraku_wire::Client;
use bunraku_wire::api::once::{
    AttemptOutcome, ContributeFragment, DefineOnce, OnceAttempt, OnceEvent, OncePermissions,
    OnceReport, OnceStatus, OnceSummary, PermitOnce, ResetOnce,
};
use bunraku_wire::endpoints::{
    AddOnceFragment, DefineOnceTask, Endpoint, ListOnceTasks, PermitOnceTask, RemoveOnceFragment,
    ResetOnceTask, ShowOnceTask,
};
use clap::Subcommand;
use jiff::Timestamp;

use super::read_object;
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::node_list::{self, NodeList};
use crate::output::{self, Table, ago};

#[derive(Subcommand)]
pub(crate) enum OnceCommand {
    /// List all once tasks and their state
    #[command(after_help = "Example:\n  bunraku once list")]
    List,
    /// Show a once task: definition, fragments, history and the end of its log
    #[command(after_help = "Example:\n  bunraku once show app_1")]
    Show {
        /// Name of the once task
        app: AppName,
    },
    /// Store a definition
    #[command(after_help = "Example:\n  bunraku once define app_1 -f app_1.json")]
    Define {
        /// Name of the once task
        app: AppName,
        /// File with a JSON object; `-` reads standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Let nodes take part in a task, whether it is defined yet or not
    #[command(after_help = format!("{}

Example:
  bunraku once permit app_1 --init-on deploy.example.com --contributors 'web-*.example.com'", node_list::FORMS))]
    Permit {
        /// Name of the once task
        app: AppName,
        /// Nodes that may define it and run it
        #[arg(long, value_name = "NODE,…")]
        init_on: Vec<NodeList>,
        /// Nodes that may contribute a fragment
        #[arg(long, value_name = "NODE,…")]
        contributors: Vec<NodeList>,
        /// Remove the permissions that are not named here
        #[arg(long)]
        replace: bool,
    },
    /// Contribute a host's fragment of a definition
    #[command(
        after_help = "Examples:\n  bunraku once fragment app_1 -f fragment.json\n  echo '{\"datacentre\": \"chicago\"}' | bunraku once fragment app_1 -f -"
    )]
    Fragment {
        /// Name of the once task
        app: AppName,
        /// File with a JSON object; `-` reads standard input
        #[arg(short, long, value_name = "FILE", required_unless_present = "remove")]
        file: Option<PathBuf>,
        /// Host [default: the name in the credentials]
        #[arg(long)]
        host: Option<NodeName>,
        /// Remove the fragment
        #[arg(long, conflicts_with = "file")]
        remove: bool,
    },
    /// Allow a task to run again
    #[command(
        after_help = "Example:\n  bunraku once reset app_1 --reason 'the database was restored'"
    )]
    Reset {
        /// Name of the once task
        app: AppName,
        /// Reason, kept in the history
        #[arg(long)]
        reason: String,
    },
}

pub(crate) fn run(command: OnceCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    if let OnceCommand::Fragment {
        app,
        file,
        host,
        remove,
    } = command
    {
        let host = match host {
            Some(host) => host,
            None => crate::connection::own_name(&context.global, &context.loaded)?,
        };
        return context.with_client(|client| fragment(client, app, host, file, remove));
    }
    context.with_client(|client| async move {
        match command {
            OnceCommand::List => list(&client, json).await,
            OnceCommand::Show { app } => show(&client, &app, json).await,
            OnceCommand::Define { app, file } => {
                let request = DefineOnce {
                    definition: read_object(&file)?,
                };
                let at = DefineOnceTask.at(&app);
                let defined = client.call_with(at, &request).await;
                defined.map_err(|error| failed(&error))?;
                note!("Defined {app}.");
                Ok(Exit::Done)
            }
            OnceCommand::Permit {
                app,
                init_on,
                contributors,
                replace,
            } => {
                let permissions = OncePermissions {
                    init_on: node_list::entries(init_on),
                    contributors: node_list::entries(contributors),
                };
                let request = PermitOnce {
                    permissions,
                    replace,
                };
                let permitted = client.call_with(PermitOnceTask.at(&app), &request).await;
                permitted.map_err(|error| failed(&error))?;
                Ok(Exit::Done)
            }
            OnceCommand::Reset { app, reason } => {
                let at = ResetOnceTask.at(&app);
                let reset = client.call_with(at, &ResetOnce { reason }).await;
                reset.map_err(|error| failed(&error))?;
                note!("Reset {app}. It can run again.");
                Ok(Exit::Done)
            }
            OnceCommand::Fragment { .. } => Ok(Exit::Done),
        }
    })
}

async fn fragment(
    client: Client,
    app: AppName,
    host: NodeName,
    file: Option<PathBuf>,
    remove: bool,
) -> Result<Exit, Failure> {
    let outcome = match file {
        Some(file) if !remove => {
            let request = ContributeFragment {
                fragment: read_object(&file)?,
            };
            let at = AddOnceFragment.at((&app, &host));
            client.call_with(at, &request).await
        }
        _ => client.call(RemoveOnceFragment.at((&app, &host))).await,
    };
    outcome.map_err(|error| failed(&error))?;
    let done = if remove { "Removed" } else { "Stored" };
    note!("{done} the fragment of {host} for {app}.");
    Ok(Exit::Done)
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let all: Vec<OnceSummary> = client
        .call(ListOnceTasks)
        .await
        .map_err(|error| failed(&error))?;
    let empty = "no once tasks yet\n\nhint: `bunraku once define -h` shows how to define one";
    if !output::has_rows(&all, json, empty)? {
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["NAME", "STATE", "ATTEMPTS", "FRAGMENTS", "NOTE"]);
    for summary in all {
        let (word, note) = match &summary.standing {
            OnceStatus::Ready => ("ready", String::new()),
            OnceStatus::Done { attempt } => ("done", line(attempt, now)),
            OnceStatus::Busy { attempt } => ("busy", line(attempt, now)),
            OnceStatus::NotReady { missing, .. } => {
                ("not ready", format!("needs {}", missing.join(", ")))
            }
        };
        table.row(vec![
            summary.app.to_string(),
            word.to_owned(),
            summary.attempts.to_string(),
            summary.fragments.to_string(),
            note,
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn show(client: &Client, app: &AppName, json: bool) -> Result<Exit, Failure> {
    let report: OnceReport = client
        .call(ShowOnceTask.at(app))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&report)?;
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut text = format!(
        "{}\n",
        super::describe_status(app, &report.summary.standing)
    );
    if let (Some(definition), Some(by)) = (&report.definition, &report.defined_by) {
        let definition = serde_json::to_string_pretty(definition)?;
        text.push_str(&format!("\ndefined by {by}\n{definition}\n"));
    }
    let permitted = &report.permissions;
    for (what, list) in [
        ("init", &permitted.init_on),
        ("contribute", &permitted.contributors),
    ] {
        if !list.is_empty() {
            text.push_str(&format!("may {what}: {}\n", node_list::words(list)));
        }
    }
    for (host, part) in &report.parts {
        text.push_str(&format!("fragment of {host}: {part}\n"));
    }
    if !report.history.is_empty() {
        text.push_str("\nhistory\n");
    }
    for event in &report.history {
        text.push_str(&match event {
            OnceEvent::Attempt(attempt) => {
                format!("  attempt {}  {}\n", attempt.token, line(attempt, now))
            }
            OnceEvent::Reset { by, reason, at } => {
                format!("  reset by {by} {} ago: {reason}\n", ago(*at, now))
            }
        });
    }
    if let Some(log) = report.log.filter(|log| !log.is_empty()) {
        text.push_str(&format!("\nlog\n{log}"));
        if !log.ends_with('\n') {
            text.push('\n');
        }
    }
    output::write(&text)?;
    Ok(Exit::Done)
}

fn line(attempt: &OnceAttempt, now: Timestamp) -> String {
    let by = &attempt.by;
    match &attempt.outcome {
        AttemptOutcome::Running => format!("run by {by} for {}", ago(attempt.started, now)),
        AttemptOutcome::Done { ended } => format!("done by {by} {} ago", ago(*ended, now)),
        AttemptOutcome::Failed { ended, exit_code } => {
            format!(
                "failed on {by} {} ago with exit code {exit_code}",
                ago(*ended, now)
            )
        }
        AttemptOutcome::Abandoned => format!(
            "abandoned by {by}, started {} ago",
            ago(attempt.started, now)
        ),
    }
}
