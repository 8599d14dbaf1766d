//! `bunraku environment deploy`: deploys code, and waits for its catalogs.

use bunraku_model::EnvironmentName;
use bunraku_wire::Client;
use bunraku_wire::api::{
    Deploy, DeployRequest, DeployState, DeployStatus, EnvironmentDetail, FailureGroup,
    ReleasePolicy,
};
use bunraku_wire::endpoints::{
    DeployEnvironment, Endpoint, ShowDeploy, ShowEnvironment, WaitQuery,
};

use crate::compile_view::place;
use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;

/// The number of nodes that are listed by name; the others are counted.
const NAMED: usize = 5;

pub(super) async fn deploy(
    client: &Client,
    name: &EnvironmentName,
    request: &DeployRequest,
    wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let asked: Deploy = client
        .call_with(DeployEnvironment.at(name), request)
        .await
        .map_err(|error| failed(&error))?;
    if !wait {
        if json {
            output::json(&asked)?;
        } else {
            note!(
                "Deploy {} of {name} requested.\n\nhint: see its outcome with `bunraku environment show {name}`",
                asked.number
            );
        }
        return Ok(Exit::Done);
    }
    let status = wait_for(client, name, asked.number, json).await?;
    if json {
        output::json(&status)?;
    } else {
        output::write(&result(name, &status))?;
        hint_at_release(client, name, &status).await?;
    }
    Ok(match &status.deploy.state {
        DeployState::Failed { .. } => Exit::Error,
        _ if status.progress.failed > 0 => Exit::SomeNodesFailed,
        _ => Exit::Done,
    })
}

/// Says how compiled catalogs reach their nodes, unless that happens automatically.
async fn hint_at_release(
    client: &Client,
    name: &EnvironmentName,
    status: &DeployStatus,
) -> Result<(), Failure> {
    let has_catalogs =
        matches!(status.deploy.state, DeployState::Deployed { .. }) && status.progress.compiled > 0;
    if !has_catalogs {
        return Ok(());
    }
    let detail: EnvironmentDetail = client
        .call(ShowEnvironment.at(name))
        .await
        .map_err(|error| failed(&error))?;
    if detail.summary.policy == ReleasePolicy::Manual {
        note!(
            "\nhint: nodes keep their catalogs until you release the new ones. See what changes with\n`bunraku release diff {name} --held`, then run `bunraku release create {name}`"
        );
    }
    Ok(())
}

/// Follows a deploy, or the one that supersedes it, to its end.
async fn wait_for(
    client: &Client,
    name: &EnvironmentName,
    mut number: u64,
    quiet: bool,
) -> Result<DeployStatus, Failure> {
    crate::waiting::for_what("deploying, and compiling all nodes");
    let mut printed = 0;
    loop {
        let wait = WaitQuery { wait_seconds: 20 };
        let status: DeployStatus = client
            .call(ShowDeploy.with_query((name, &number), &wait))
            .await
            .map_err(|error| failed(&error))?;
        if let DeployState::Superseded { by } = status.deploy.state {
            number = by;
            continue;
        }
        if status.finished {
            return Ok(status);
        }
        let waiting = status.progress.waiting;
        if !quiet && waiting != printed {
            printed = waiting;
            note!("{} to compile", output::count(waiting, "node"));
        }
    }
}

fn result(name: &EnvironmentName, status: &DeployStatus) -> String {
    let number = status.deploy.number;
    let code = match &status.deploy.state {
        DeployState::Failed { problem, .. } => {
            let hint = problem.hint.as_ref();
            let hint = hint.map_or_else(String::new, |hint| format!("\nhint: {hint}\n"));
            return format!(
                "deploy {number}  {name}  failed; the previous code stays in use\n  ✗ {}\n{hint}",
                place(problem)
            );
        }
        DeployState::Deployed { code_id, .. }
        | DeployState::Queueing { code_id }
        | DeployState::Unchanged { code_id } => code_id.short().to_owned(),
        DeployState::Waiting | DeployState::Superseded { .. } => String::new(),
    };
    let mut text = format!("deploy {number}  {name}  {code}\n");
    if let Some(reference) = status.deploy.commit.as_ref().filter(|_| status.deploy.pin) {
        text.push_str(&format!(
            "  pinned to {reference} until `bunraku environment unpin {name}`\n"
        ));
    }
    let progress = &status.progress;
    text.push_str(&format!(
        "  ✓ {} compiled\n",
        output::count(progress.compiled, "node")
    ));
    if progress.without_facts > 0 {
        text.push_str(&format!(
            "  - {} without facts yet\n",
            output::count(progress.without_facts, "node")
        ));
    }
    if progress.failed > 0 {
        text.push_str(&format!(
            "  ✗ {} failed and kept the previous catalog\n",
            output::count(progress.failed, "node")
        ));
    }
    text.push_str(&failures(&status.failures));
    text
}

/// Groups equal failures, with the nodes that each affects.
pub(crate) fn failures(groups: &[FailureGroup]) -> String {
    let mut text = String::new();
    for group in groups {
        text.push('\n');
        for problem in &group.problems {
            text.push_str(&format!("✗ {}\n", place(problem)));
            if let Some(hint) = &problem.hint {
                text.push_str(&format!("  hint: {hint}\n"));
            }
        }
        let named: Vec<_> = group
            .nodes
            .iter()
            .take(NAMED)
            .map(|node| node.as_str())
            .collect();
        let more = group.nodes.len().saturating_sub(NAMED);
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let count = output::count(group.nodes.len(), "node");
        text.push_str(&format!("  on {count}: {}{more}\n", named.join(", ")));
    }
    text
}
