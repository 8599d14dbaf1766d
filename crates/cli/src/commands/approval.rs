//! `bunraku approval`: list, approve and reject requests of other operators.

use bunraku_wire::Client;
use bunraku_wire::api::approvals::{Approval, ApprovalSubject, DecideApproval, DecisionKind};
use bunraku_wire::endpoints::{self, Endpoint, ListApprovals, ShowApproval};
use clap::Subcommand;
use jiff::Timestamp;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago, count};

#[derive(Subcommand)]
pub(crate) enum ApprovalCommand {
    /// List requests for approval, newest first
    #[command(after_help = "Example:\n  bunraku approval list --pending")]
    List {
        /// Only requests that nobody has decided yet
        #[arg(long)]
        pending: bool,
    },
    /// Show a request for approval
    #[command(after_help = "Example:\n  bunraku approval show 8f0c51d2")]
    Show {
        /// Id of the request, or the beginning or end of it
        id: String,
    },
    /// Approve a request of someone else
    #[command(
        after_help = "Example:\n  bunraku approval approve 8f0c51d2 --reason 'change 4711'\n\nAn approved run begins. An approved release is created, unless it would be another one by now."
    )]
    Approve {
        /// Id of the request, or the beginning or end of it
        id: String,
        /// Reason, shown with the request
        #[arg(long)]
        reason: Option<String>,
    },
    /// Reject a request: the run or release does not happen
    #[command(
        after_help = "Example:\n  bunraku approval reject 8f0c51d2 --reason 'not during the sale'"
    )]
    Reject {
        /// Id of the request, or the beginning or end of it
        id: String,
        /// Reason, shown with the request
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(crate) fn run(command: ApprovalCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            ApprovalCommand::List { pending } => list(&client, pending, json).await,
            ApprovalCommand::Show { id } => {
                let shown = client.call(ShowApproval.at(&id)).await;
                print(&shown.map_err(|error| failed(&error))?, json)
            }
            ApprovalCommand::Approve { id, reason } => {
                decide(&client, &id, true, reason, json).await
            }
            ApprovalCommand::Reject { id, reason } => {
                decide(&client, &id, false, reason, json).await
            }
        }
    })
}

async fn decide(
    client: &Client,
    id: &str,
    approve: bool,
    reason: Option<String>,
    json: bool,
) -> Result<Exit, Failure> {
    let request = DecideApproval { approve, reason };
    let at = endpoints::DecideApproval.at(&id.to_owned());
    let decided: Approval = client
        .call_with(at, &request)
        .await
        .map_err(|error| failed(&error))?;
    print(&decided, json)?;
    let refused = (decided.result.as_deref()).is_some_and(|result| result.starts_with("refused"));
    Ok(if refused { Exit::Refused } else { Exit::Done })
}

async fn list(client: &Client, pending: bool, json: bool) -> Result<Exit, Failure> {
    let all: Vec<Approval> = client
        .call(ListApprovals)
        .await
        .map_err(|error| failed(&error))?;
    let now = Timestamp::now();
    let is_listed = |one: &&Approval| !pending || one.state(now) == "pending";
    let all: Vec<Approval> = all.iter().filter(is_listed).cloned().collect();
    if !output::has_rows(&all, json, "no requests for approval")? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        "ID",
        "STATE",
        "ENVIRONMENT",
        "WHAT",
        "REQUESTED BY",
        "AGE",
        "REASON",
    ]);
    for one in &all {
        table.row(vec![
            short(&one.id).to_owned(),
            one.state(now).to_owned(),
            one.environment.clone(),
            subject(&one.subject),
            one.requested_by.clone(),
            ago(one.requested, now),
            reason(one),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

/// Returns the reason of an override, which matters most, or that of the request.
fn reason(approval: &Approval) -> String {
    let overridden = (approval.decision.as_ref())
        .filter(|decision| decision.kind == DecisionKind::Overridden)
        .and_then(|decision| decision.reason.clone());
    let reason = overridden.or_else(|| approval.reason.clone());
    reason.unwrap_or_default()
}

/// Returns the last eight characters of an id, as for runs.
pub(crate) fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(8)..).unwrap_or(id)
}

fn subject(subject: &ApprovalSubject) -> String {
    match subject {
        ApprovalSubject::Run { plan, nodes, .. } => {
            format!(
                "run of plan {} on {}",
                plan.0.short(),
                count(*nodes, "node")
            )
        }
        ApprovalSubject::Release { nodes, parent, .. } => format!(
            "release after {parent} that changes {}",
            count(*nodes, "node")
        ),
    }
}

fn print(approval: &Approval, json: bool) -> Result<Exit, Failure> {
    if json {
        output::json(approval)?;
        return Ok(Exit::Done);
    }
    let state = approval.state(Timestamp::now());
    let mut text = format!(
        "approval     {}\nstate        {state}\nenvironment  {}\nwhat         {}\nrequested    {:.0} by {}\nexpires      {:.0}\n",
        approval.id,
        approval.environment,
        subject(&approval.subject),
        approval.requested,
        approval.requested_by,
        approval.expires,
    );
    if let Some(reason) = &approval.reason {
        text.push_str(&format!("reason       {reason}\n"));
    }
    if let Some(decision) = &approval.decision {
        let why = decision
            .reason
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        text.push_str(&format!(
            "decision     {state} by {} at {:.0}{why}\n",
            decision.by, decision.at
        ));
    }
    if let Some(result) = &approval.result {
        text.push_str(&format!("result       {result}\n"));
    }
    output::write(&text)?;
    if state == "pending" {
        let id = short(&approval.id);
        let what = match approval.subject {
            ApprovalSubject::Run { .. } => format!("see its plan with `bunraku run show {id}`"),
            ApprovalSubject::Release { .. } => format!(
                "see what it changes with `bunraku release diff {} --held`",
                approval.environment
            ),
        };
        note!("\nhint: {what}, then run `bunraku approval approve {id}`");
    }
    Ok(Exit::Done)
}
