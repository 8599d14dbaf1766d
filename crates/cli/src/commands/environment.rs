//! `bunraku environment`: code from git, and its deploys.

mod deploy;

use bunraku_model::{EnvironmentName, OrderingMode};
use bunraku_wire::Client;
use bunraku_wire::api::approvals::ApprovalPolicy;
use bunraku_wire::api::{
    Deploy, DeployRequest, DeployState, EnvironmentChange, EnvironmentChanged, EnvironmentDetail,
    EnvironmentSummary, NewEnvironment, ReleasePolicy, VolatileChange,
};
use bunraku_wire::endpoints::{
    ChangeEnvironment, CreateEnvironment, Endpoint, ListEnvironments, ReceivePush,
    RemoveEnvironment, ShowEnvironment, UnpinEnvironment,
};
use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;

use crate::compile_view::{place, progress};
use crate::connection::failed;
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::ordering::ordering_mode;
use crate::output::{self, Table, ago};
use deploy::deploy;
pub(crate) use deploy::failures;

#[derive(Subcommand)]
pub(crate) enum EnvironmentCommand {
    /// Create an environment from a git repository
    #[command(
        after_help = "Example:\n  bunraku environment add production https://git.example.com/infra/code.git --branch main\n\nThe URL is `https://…`, `ssh://…`, `user@host:path`, `file:///…` or an absolute path."
    )]
    Add {
        /// Name of the environment
        name: EnvironmentName,
        /// URL or path of the git repository
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
        /// Ordering mode of the nodes' runs [default: file order for states, inferred order for others]
        #[arg(long, value_name = "MODE", value_parser = ordering_mode())]
        order: Option<OrderingMode>,
        /// Look for new commits at this interval, such as `5m` [default: only webhooks]
        #[arg(long, value_name = "INTERVAL")]
        poll: Option<HumanDuration>,
        /// Let the repository run programs on the servers (`compiler: external`)
        #[arg(long)]
        allow_external_compiler: bool,
        /// Whether facts of nodes decide which state files and data they get [default: off]
        #[arg(long, value_enum, value_name = "STATE")]
        fact_targeting: Option<Switch>,
        /// Do not check that the server can read the repository
        #[arg(long)]
        no_check: bool,
    },
    /// List environments
    #[command(after_help = "Example:\n  bunraku environment list")]
    List,
    /// Show an environment: code, deploys and errors
    #[command(after_help = "Example:\n  bunraku environment show production")]
    Show {
        /// Name of the environment
        name: EnvironmentName,
    },
    /// Change the settings of an environment; they apply to the next deploy
    #[command(
        after_help = "Examples:\n  bunraku environment set production --policy auto\n  bunraku environment set production --branch main --poll 5m"
    )]
    Set {
        /// Name of the environment
        name: EnvironmentName,
        /// URL or path of the git repository
        #[arg(long)]
        url: Option<String>,
        /// Branch to deploy
        #[arg(long)]
        branch: Option<String>,
        /// Release catalogs automatically, or hold them
        #[arg(long, value_enum)]
        policy: Option<Policy>,
        /// Volatile facts, as dotted paths (`memory.*.used,load`)
        #[arg(long, value_name = "FACTS", value_delimiter = ',')]
        volatile: Option<Vec<String>>,
        /// Use the volatile facts of the servers' configuration
        #[arg(long, conflicts_with = "volatile")]
        usual_volatile: bool,
        /// Ordering mode of the nodes' runs
        #[arg(long, value_name = "MODE", value_parser = ordering_mode())]
        order: Option<OrderingMode>,
        /// Use the default ordering mode: file order for states, inferred order for others
        #[arg(long, conflicts_with = "order")]
        default_order: bool,
        /// Look for new commits at this interval, such as `5m`; `0s` disables it
        #[arg(long, value_name = "INTERVAL")]
        poll: Option<HumanDuration>,
        /// Let the repository run programs on the servers (`compiler: external`)
        #[arg(long)]
        allow_external_compiler: bool,
        /// Do not let the repository run programs on the servers
        #[arg(long, conflicts_with = "allow_external_compiler")]
        deny_external_compiler: bool,
        /// Whether facts of nodes decide which state files and data they get
        #[arg(long, value_enum, value_name = "STATE")]
        fact_targeting: Option<Switch>,
        /// What someone other than the requester has to approve
        #[arg(long, value_enum, value_name = "WHAT")]
        approval: Option<ApprovalKind>,
        /// How long a request and its approval are valid
        #[arg(
            long,
            value_name = "SPAN",
            default_value = "24h",
            requires = "approval"
        )]
        approval_expires: HumanDuration,
        /// Create a new webhook secret; the old one stops working
        #[arg(long)]
        new_hook_secret: bool,
    },
    /// Remove an environment without nodes
    #[command(after_help = "Example:\n  bunraku environment remove staging")]
    Remove {
        /// Name of the environment
        name: EnvironmentName,
    },
    /// Fetch code and compile all nodes of the environment
    #[command(
        after_help = "Examples:\n  bunraku environment deploy production --wait\n  bunraku environment deploy production --commit v1.4.0 --wait\n\nA commit, tag or branch given with `--commit` pins the environment: pushes do not move it until\n`bunraku environment unpin`.\n\nWith `--wait`: exit code 0 if all nodes are compiled, 3 if some failed, 1 if the deploy failed."
    )]
    Deploy {
        /// Name of the environment
        name: EnvironmentName,
        /// Commit, tag or branch to deploy and pin [default: the newest of the environment's branch]
        #[arg(long, value_name = "REF", visible_alias = "ref")]
        commit: Option<String>,
        /// Do not pin: the next push deploys the newest code
        #[arg(long, requires = "commit")]
        no_pin: bool,
        /// Wait until all nodes are compiled
        #[arg(long)]
        wait: bool,
    },
    /// List the modules of the deployed code, with their commits and versions
    #[command(after_help = "Example:\n  bunraku environment modules production")]
    Modules {
        /// Name of the environment
        name: EnvironmentName,
    },
    /// Lift the pin of an environment, so that pushes deploy again
    #[command(after_help = "Example:\n  bunraku environment unpin production")]
    Unpin {
        /// Name of the environment
        name: EnvironmentName,
    },
}

/// What an environment requires approval for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalKind {
    Off,
    Runs,
    Releases,
    All,
}

impl ApprovalKind {
    fn policy(self, expires: HumanDuration) -> ApprovalPolicy {
        ApprovalPolicy {
            runs: matches!(self, Self::Runs | Self::All),
            releases: matches!(self, Self::Releases | Self::All),
            expires_seconds: expires.0.as_secs().max(1),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
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
                order,
                poll,
                allow_external_compiler,
                fact_targeting,
                no_check,
            } => {
                let new = NewEnvironment {
                    name,
                    url,
                    branch,
                    policy: policy.into(),
                    volatile,
                    order,
                    poll_seconds: poll.map(|every| every.0.as_secs()),
                    allow_external_compiler,
                    fact_targeting: fact_targeting == Some(Switch::On),
                    check_repository: !no_check,
                };
                let added = client.call_with(CreateEnvironment, &new).await;
                changed(&added.map_err(|error| failed(&error))?, json, "Created")
            }
            EnvironmentCommand::Set {
                name,
                url,
                branch,
                policy,
                volatile,
                usual_volatile,
                order,
                default_order,
                poll,
                allow_external_compiler,
                deny_external_compiler,
                fact_targeting,
                approval,
                approval_expires,
                new_hook_secret,
            } => {
                let change = EnvironmentChange {
                    url,
                    branch,
                    policy: policy.map(ReleasePolicy::from),
                    volatile: if usual_volatile {
                        Some(VolatileChange::Usual)
                    } else {
                        volatile.map(VolatileChange::Facts)
                    },
                    order,
                    default_order,
                    poll_seconds: poll.map(|every| every.0.as_secs()),
                    allow_external_compiler: (allow_external_compiler || deny_external_compiler)
                        .then_some(allow_external_compiler),
                    fact_targeting: fact_targeting.map(|switch| switch == Switch::On),
                    approval: approval.map(|kind| kind.policy(approval_expires)),
                    new_hook_secret,
                };
                let at = ChangeEnvironment.at(&name);
                let set = client.call_with(at, &change).await;
                let set = set.map_err(|error| failed(&error))?;
                let done = changed(&set, json, "Changed")?;
                if (order.is_some() || default_order) && set.environment.deployed.is_some() {
                    note!(
                        "\nhint: run `bunraku compile --environment {name}` to compile its nodes with this order"
                    );
                }
                if fact_targeting.is_some() && set.environment.deployed.is_some() {
                    note!("\nhint: run `bunraku compile --environment {name}` to compile its nodes again");
                }
                Ok(done)
            }
            EnvironmentCommand::List => list(&client, json).await,
            EnvironmentCommand::Modules { name } => modules(&client, &name, json).await,
            EnvironmentCommand::Show { name } => show(&client, &name, json).await,
            EnvironmentCommand::Remove { name } => {
                let removed = client.call(RemoveEnvironment.at(&name)).await;
                removed.map_err(|error| failed(&error))?;
                note!("Removed environment {name}.");
                Ok(Exit::Done)
            }
            EnvironmentCommand::Deploy {
                name,
                commit,
                no_pin,
                wait,
            } => {
                let request = DeployRequest {
                    commit,
                    pin: !no_pin,
                };
                deploy(&client, &name, &request, wait, json).await
            }
            EnvironmentCommand::Unpin { name } => {
                let unpinned = client.call(UnpinEnvironment.at(&name)).await;
                unpinned.map_err(|error| failed(&error))?;
                note!(
                    "Environment {name} is not pinned.\n\nhint: deploy the newest code with `bunraku environment deploy {name} --wait`"
                );
                Ok(Exit::Done)
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
    note!("{what} environment {name}.");
    if let Some(secret) = &changed.hook_secret {
        let hook = ReceivePush.at(&name.to_string());
        note!("\nWebhook: POST {hook}, signed with this secret (shown only once):");
        output::write(&format!("{secret}\n"))?;
    }
    if changed.environment.deployed.is_none() {
        note!("\nhint: deploy its code with `bunraku environment deploy {name} --wait`");
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let all: Vec<EnvironmentSummary> = client
        .call(ListEnvironments)
        .await
        .map_err(|error| failed(&error))?;
    let empty = "no environments yet\n\nhint: `bunraku environment add -h` shows how to create one";
    if !output::has_rows(&all, json, empty)? {
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&[
        "ENVIRONMENT",
        "CODE",
        "DEPLOYED",
        "POLICY",
        "ORDER",
        "NODES",
        "URL",
    ]);
    for one in all {
        let (code, when) = match &one.deployed {
            None => ("none".to_owned(), "never".to_owned()),
            Some(deployed) => (
                match &one.pin {
                    None => deployed.code_id.short().to_owned(),
                    Some(_) => format!("{} pinned", deployed.code_id.short()),
                },
                format!("{} ago", ago(deployed.at, now)),
            ),
        };
        table.row(vec![
            one.name.to_string(),
            code,
            when,
            one.policy.as_str().to_owned(),
            order_word(one.order),
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
        None => "not deployed yet".to_owned(),
        Some(deployed) => format!(
            "{}, deploy {}, {} ago, compiler {}",
            deployed.code_id,
            deployed.number,
            ago(deployed.at, now),
            deployed.compiler
        ),
    };
    let branch = summary
        .branch
        .as_deref()
        .unwrap_or("the repository's default");
    let volatile = match &summary.volatile {
        None => "as configured on the servers".to_owned(),
        Some(paths) => paths.join(", "),
    };
    let lines = [
        ("environment", summary.name.to_string()),
        ("url", summary.url.clone()),
        ("branch", branch.to_owned()),
        ("policy", summary.policy.as_str().to_owned()),
        ("volatile", volatile),
        ("order", order_word(summary.order)),
        ("code", deployed),
        ("nodes", progress(&summary.progress)),
    ];
    let owner =
        (summary.repository.as_ref()).map(|repository| ("repository", repository.to_string()));
    let external = (summary.allows_external_compiler)
        .then(|| ("programs", "allowed (`compiler: external`)".to_owned()));
    let facts = (summary.fact_targeting).then(|| {
        (
            "facts",
            "decide which state files and data nodes get".to_owned(),
        )
    });
    let approval = (summary.approval).map(|policy| {
        let what = match policy.as_str() {
            "all" => "runs and releases",
            what => what,
        };
        let hours = policy.expires_seconds as f64 / 3_600.0;
        let text = format!("required for {what}; valid for {hours} h");
        ("approval", text)
    });
    let poll = (summary.poll_seconds).map(|seconds| ("poll", format!("every {seconds} s")));
    let modules = (!detail.modules.is_empty()).then(|| {
        let count = detail.modules.len();
        let shown = format!("{count}; list them with `bunraku environment modules {name}`");
        ("modules", shown)
    });
    let pin = summary.pin.as_ref().map(|pin| {
        let since = ago(pin.since, now);
        (
            "pinned",
            format!("to {} by {}, {since} ago", pin.reference, pin.by),
        )
    });
    let mut text: String = lines
        .iter()
        .chain(&owner)
        .chain(&poll)
        .chain(&external)
        .chain(&facts)
        .chain(&approval)
        .chain(&modules)
        .chain(&pin)
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

fn order_word(order: Option<OrderingMode>) -> String {
    order.map_or_else(|| "default".to_owned(), |mode| mode.to_string())
}

async fn modules(client: &Client, name: &EnvironmentName, json: bool) -> Result<Exit, Failure> {
    let detail: EnvironmentDetail = client
        .call(ShowEnvironment.at(name))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&detail.modules)?;
        return Ok(Exit::Done);
    }
    if detail.modules.is_empty() {
        note!("The code of {name} names no modules.");
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["MODULE", "ASKED", "DEPLOYED", "PATH", "SOURCE"]);
    for module in detail.modules {
        table.row(vec![
            module.name,
            module.reference.unwrap_or_else(|| "newest".to_owned()),
            match module.sha256 {
                // Commit ids are shortened, versions are not.
                None => module.version.chars().take(12).collect(),
                Some(_) => module.version,
            },
            module.path,
            module.source,
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}

fn deploys(deploys: &[Deploy], now: Timestamp) -> Table {
    let mut table = Table::new(&["DEPLOY", "REQUESTED", "BY", "OUTCOME"]);
    for deploy in deploys {
        let outcome = match &deploy.state {
            DeployState::Waiting => "pending".to_owned(),
            DeployState::Queueing { code_id } => {
                format!("{}: queueing its nodes", code_id.short())
            }
            DeployState::Deployed { code_id, nodes, .. } => {
                format!(
                    "{}: {} queued",
                    code_id.short(),
                    output::count(*nodes, "node")
                )
            }
            DeployState::Unchanged { code_id } => {
                format!("{}: already deployed", code_id.short())
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
