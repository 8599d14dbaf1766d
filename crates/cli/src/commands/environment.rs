//! `bunraku environment`: code from git, and taking it into use.

use bunraku_model::EnvironmentName;
use bunraku_wire::Client;
use bunraku_wire::api::{
    Deploy, DeployRequest, DeployState, DeployStatus, EnvironmentChange, EnvironmentChanged,
    EnvironmentDetail, EnvironmentSummary, FailureGroup, NewEnvironment, ReleasePolicy,
    VolatileChange,
};
use bunraku_wire::endpoints::{
    ChangeEnvironment, CreateEnvironment, DeployEnvironment, Endpoint, ListEnvironments,
    ReceivePush, RemoveEnvironment, ShowDeploy, ShowEnvironment, WaitQuery,
};
use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;

use crate::compile_view::{counted, place, progress};
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};

/// Nodes that are named; the rest is counted.
const NAMED: usize = 5;

#[derive(Subcommand)]
pub(crate) enum EnvironmentCommand {
    /// Create an environment from a git repository
    #[command(
        after_help = "Example:\n  bunraku environment add production https://git.example.com/infra/code.git --branch main\n\nThe URL is `https://…`, `ssh://…`, `user@host:path`, `file:///…` or an absolute path."
    )]
    Add {
        name: EnvironmentName,
        url: String,
        /// Branch [default: the repository's default branch]
        #[arg(long)]
        branch: Option<String>,
        /// Release catalogs automatically, or hold them
        #[arg(long, value_enum, default_value_t = Policy::Manual)]
        policy: Policy,
        /// Volatile facts, as dotted paths (`memory.*.used,load`)
        #[arg(long, value_name = "FACTS", value_delimiter = ',')]
        volatile: Option<Vec<String>>,
    },
    /// List environments
    List,
    /// Show an environment: code, deploys and errors
    Show { name: EnvironmentName },
    /// Change the settings of an environment; they apply to the next deploy
    Set {
        name: EnvironmentName,
        #[arg(long)]
        url: Option<String>,
        #[arg(long)]
        branch: Option<String>,
        #[arg(long, value_enum)]
        policy: Option<Policy>,
        /// Volatile facts, as dotted paths (`memory.*.used,load`)
        #[arg(long, value_name = "FACTS", value_delimiter = ',')]
        volatile: Option<Vec<String>>,
        /// Use the volatile facts of the servers' configuration
        #[arg(long, conflicts_with = "volatile")]
        usual_volatile: bool,
        /// Create a new webhook secret; the old one stops working
        #[arg(long)]
        new_hook_secret: bool,
    },
    /// Remove an environment without nodes
    Remove { name: EnvironmentName },
    /// Fetch code and compile all nodes of the environment
    #[command(
        after_help = "Example:\n  bunraku environment deploy production --wait\n\nWith `--wait`: exit code 0 if all nodes are compiled, 3 if some failed, 1 if the deploy failed."
    )]
    Deploy {
        name: EnvironmentName,
        /// Commit [default: the newest of the branch]
        #[arg(long)]
        commit: Option<String>,
        /// Wait until all nodes are compiled
        #[arg(long)]
        wait: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Policy {
    Auto,
    Manual,
}

impl From<Policy> for ReleasePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Auto => Self::Auto,
            Policy::Manual => Self::Manual,
        }
    }
}

pub(crate) fn run(command: EnvironmentCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            EnvironmentCommand::Add {
                name,
                url,
                branch,
                policy,
                volatile,
            } => {
                let new = NewEnvironment {
                    name,
                    url,
                    branch,
                    policy: policy.into(),
                    volatile,
                };
                let added = client.call_with(CreateEnvironment, &new).await;
                changed(&added.map_err(|error| failed(&error))?, json, "made")
            }
            EnvironmentCommand::Set {
                name,
                url,
                branch,
                policy,
                volatile,
                usual_volatile,
                new_hook_secret,
            } => {
                let change = EnvironmentChange {
                    url,
                    branch,
                    policy: policy.map(ReleasePolicy::from),
                    volatile: match usual_volatile {
                        true => Some(VolatileChange::Usual),
                        false => volatile.map(VolatileChange::Facts),
                    },
                    new_hook_secret,
                };
                let at = ChangeEnvironment.at(&name);
                let set = client.call_with(at, &change).await;
                changed(&set.map_err(|error| failed(&error))?, json, "changed")
            }
            EnvironmentCommand::List => list(&client, json).await,
            EnvironmentCommand::Show { name } => show(&client, &name, json).await,
            EnvironmentCommand::Remove { name } => {
                let removed = client.call(RemoveEnvironment.at(&name)).await;
                removed.map_err(|error| failed(&error))?;
                eprintln!("environment {name} is removed");
                Ok(Exit::Done)
            }
            EnvironmentCommand::Deploy { name, commit, wait } => {
                deploy(&client, &name, commit, wait, json).await
            }
        }
    })
}

fn changed(changed: &EnvironmentChanged, json: bool, what: &str) -> Result<Exit, Failure> {
    if json {
        output::json(changed)?;
        return Ok(Exit::Done);
    }
    let name = &changed.environment.name;
    eprintln!("environment {name} is {what}");
    if let Some(secret) = &changed.hook_secret {
        let hook = ReceivePush.at(&name.to_string());
        eprintln!("\nits webhook is POST {hook}, signed with this secret, shown once:");
        output::write(&format!("{secret}\n"))?;
    }
    if changed.environment.deployed.is_none() {
        eprintln!("\nhint: take its code into use with `bunraku environment deploy {name} --wait`");
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let all: Vec<EnvironmentSummary> = client
        .call(ListEnvironments)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&all)?;
        return Ok(Exit::Done);
    }
    if all.is_empty() {
        eprintln!("no environments yet\n\nhint: make one with `bunraku environment add NAME URL`");
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["ENVIRONMENT", "CODE", "DEPLOYED", "POLICY", "NODES", "URL"]);
    for one in all {
        let (code, when) = match &one.deployed {
            None => ("none".to_owned(), "never".to_owned()),
            Some(deployed) => (
                deployed.code_id.short().to_owned(),
                format!("{} ago", ago(deployed.at, now)),
            ),
        };
        table.row(vec![
            one.name.to_string(),
            code,
            when,
            one.policy.as_str().to_owned(),
            progress(&one.progress),
            one.url,
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn show(client: &Client, name: &EnvironmentName, json: bool) -> Result<Exit, Failure> {
    let detail: EnvironmentDetail = client
        .call(ShowEnvironment.at(name))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&detail)?;
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let summary = &detail.summary;
    let deployed = match &summary.deployed {
        None => "nothing yet".to_owned(),
        Some(deployed) => format!(
            "{}, deploy {}, {} ago, compiler {}",
            deployed.code_id,
            deployed.number,
            ago(deployed.at, now),
            deployed.compiler
        ),
    };
    let branch = summary.branch.as_deref().unwrap_or("the repository's own");
    let volatile = match &summary.volatile {
        None => "as the servers' settings say".to_owned(),
        Some(paths) => paths.join(", "),
    };
    let lines = [
        ("environment", summary.name.to_string()),
        ("url", summary.url.clone()),
        ("branch", branch.to_owned()),
        ("policy", summary.policy.as_str().to_owned()),
        ("volatile", volatile),
        ("code", deployed),
        ("nodes", progress(&summary.progress)),
    ];
    let mut text: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<12} {value}\n"))
        .collect();
    text.push_str(&failures(&detail.failures));
    output::write(&text)?;
    if !detail.deploys.is_empty() {
        output::write("\n")?;
        deploys(&detail.deploys, now).print()?;
    }
    Ok(Exit::Done)
}

fn deploys(deploys: &[Deploy], now: Timestamp) -> Table {
    let mut table = Table::new(&["DEPLOY", "ASKED", "BY", "OUTCOME"]);
    for deploy in deploys {
        let outcome = match &deploy.state {
            DeployState::Waiting => "waits".to_owned(),
            DeployState::Queueing { code_id } => {
                format!("{}: its nodes are being queued", code_id.short())
            }
            DeployState::Deployed { code_id, nodes, .. } => {
                format!("{}: {} queued", code_id.short(), counted(*nodes))
            }
            DeployState::Unchanged { code_id } => {
                format!("{}: in use already", code_id.short())
            }
            DeployState::Failed { problem, .. } => format!("failed: {}", place(problem)),
            DeployState::Superseded { by } => format!("superseded by deploy {by}"),
        };
        table.row(vec![
            deploy.number.to_string(),
            format!("{} ago", ago(deploy.requested, now)),
            deploy.by.clone(),
            outcome,
        ]);
    }
    table
}

async fn deploy(
    client: &Client,
    name: &EnvironmentName,
    commit: Option<String>,
    wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let request = DeployRequest { commit };
    let asked: Deploy = client
        .call_with(DeployEnvironment.at(name), &request)
        .await
        .map_err(|error| failed(&error))?;
    if !wait {
        if json {
            output::json(&asked)?;
        } else {
            eprintln!(
                "deploy {} of {name} is on its way\n\nhint: see what became of it with `bunraku environment show {name}`",
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
    }
    Ok(match &status.deploy.state {
        DeployState::Failed { .. } => Exit::Error,
        _ if status.progress.failed > 0 => Exit::SomeNodesFailed,
        _ => Exit::Done,
    })
}

/// Follows a deploy to its end, and the one that took its place.
async fn wait_for(
    client: &Client,
    name: &EnvironmentName,
    mut number: u64,
    quiet: bool,
) -> Result<DeployStatus, Failure> {
    let mut told = 0;
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
        if !quiet && waiting != told {
            told = waiting;
            eprintln!("{} to compile", counted(waiting));
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
                "deploy {number}  {name}  failed, the code before stays in use\n  ✗ {}\n{hint}",
                place(problem)
            );
        }
        DeployState::Deployed { code_id, .. }
        | DeployState::Queueing { code_id }
        | DeployState::Unchanged { code_id } => code_id.short().to_owned(),
        DeployState::Waiting | DeployState::Superseded { .. } => String::new(),
    };
    let mut text = format!("deploy {number}  {name}  {code}\n");
    let progress = &status.progress;
    text.push_str(&format!("  ✓ {} compiled\n", counted(progress.compiled)));
    if progress.without_facts > 0 {
        text.push_str(&format!(
            "  - {} without facts yet\n",
            counted(progress.without_facts)
        ));
    }
    if progress.failed > 0 {
        text.push_str(&format!(
            "  ✗ {} failed, what they had stays\n",
            counted(progress.failed)
        ));
    }
    text.push_str(&failures(&status.failures));
    text
}

/// Equal failures together, with the nodes that each touches.
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
        let count = counted(group.nodes.len());
        text.push_str(&format!("  on {count}: {}{more}\n", named.join(", ")));
    }
    text
}
