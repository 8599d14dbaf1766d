//! `bunraku repository`: control repositories whose branches are environments.

use bunraku_model::RepositoryName;
use bunraku_wire::Client;
use bunraku_wire::api::repositories::{
    BranchRules, InvalidBranchNames, NewRepository, RepositoryChange, RepositoryChanged,
    RepositorySummary,
};
use bunraku_wire::endpoints::{
    ChangeRepository, CreateRepository, Endpoint, ListRepositories, ReceiveRepositoryPush,
    RemoveRepository, ShowRepository, SyncRepository,
};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::environment::Policy;
use crate::connection::failed;
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};

#[derive(Subcommand)]
pub(crate) enum RepositoryCommand {
    /// Register a control repository: each of its branches becomes an environment
    #[command(
        after_help = "Examples:\n  bunraku repository add control https://git.example.com/infra/control.git\n  bunraku repository add web git@git.example.com:web/control.git --branches 'main,feature/*' --prefix web --poll 5m"
    )]
    Add {
        /// Name of the repository
        name: RepositoryName,
        /// URL or path of the git repository
        url: String,
        #[command(flatten)]
        rules: RuleArguments,
    },
    /// List control repositories
    #[command(after_help = "Example:\n  bunraku repository list")]
    List,
    /// Show the branches of a repository and their environments
    #[command(after_help = "Example:\n  bunraku repository show control")]
    Show {
        /// Name of the repository
        name: RepositoryName,
    },
    /// Change the settings of a repository; options that are not given stay
    #[command(
        after_help = "Example:\n  bunraku repository set control --branches 'main,feature/*'"
    )]
    Set {
        /// Name of the repository
        name: RepositoryName,
        /// URL or path of the git repository
        #[arg(long)]
        url: Option<String>,
        #[command(flatten)]
        rules: RuleArguments,
        /// Create a new webhook secret; the old one stops working
        #[arg(long)]
        new_hook_secret: bool,
    },
    /// Compare the branches with the environments, and deploy all of them
    #[command(after_help = "Example:\n  bunraku repository sync control --wait")]
    Sync {
        /// Name of the repository
        name: RepositoryName,
        /// Wait until the branches are compared and the deploys requested
        #[arg(long)]
        wait: bool,
    },
    /// Unregister a repository; its environments stay
    #[command(after_help = "Example:\n  bunraku repository remove control")]
    Remove {
        /// Name of the repository
        name: RepositoryName,
    },
}

#[derive(Args)]
pub(crate) struct RuleArguments {
    /// Branches that are environments, with `*` and `?` [default: all]
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    branches: Option<Vec<String>>,
    /// Branches that are not environments
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    exclude: Option<Vec<String>>,
    /// Prefix of the environments' names: `web` gives `web_main`
    #[arg(long)]
    prefix: Option<String>,
    /// Replace characters that names of environments cannot have, or report the branch
    #[arg(long, value_enum)]
    invalid_names: Option<InvalidNames>,
    /// Release catalogs of new environments automatically, or hold them
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// Whether an environment without nodes is removed with its branch [default: true]
    #[arg(long, value_name = "BOOLEAN")]
    purge: Option<bool>,
    /// Look for new commits at this interval, such as `5m`; `0s` disables it
    #[arg(long, value_name = "INTERVAL")]
    poll: Option<HumanDuration>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum InvalidNames {
    Correct,
    Error,
}

impl RuleArguments {
    /// Returns the rules with the given options replaced.
    fn applied_to(self, rules: BranchRules) -> BranchRules {
        BranchRules {
            branches: self.branches.unwrap_or(rules.branches),
            exclude: self.exclude.unwrap_or(rules.exclude),
            prefix: match self.prefix {
                None => rules.prefix,
                Some(prefix) => Some(prefix).filter(|prefix| !prefix.is_empty()),
            },
            invalid_names: match self.invalid_names {
                None => rules.invalid_names,
                Some(InvalidNames::Correct) => InvalidBranchNames::Correct,
                Some(InvalidNames::Error) => InvalidBranchNames::Error,
            },
            policy: self.policy.map_or(rules.policy, Into::into),
            purge: self.purge.unwrap_or(rules.purge),
            poll_seconds: match self.poll {
                None => rules.poll_seconds,
                Some(every) => Some(every.0.as_secs()).filter(|seconds| *seconds > 0),
            },
        }
    }

    fn is_empty(&self) -> bool {
        self.branches.is_none()
            && self.exclude.is_none()
            && self.prefix.is_none()
            && self.invalid_names.is_none()
            && self.policy.is_none()
            && self.purge.is_none()
            && self.poll.is_none()
    }
}

const USUAL: BranchRules = BranchRules {
    branches: Vec::new(),
    exclude: Vec::new(),
    prefix: None,
    invalid_names: InvalidBranchNames::Correct,
    policy: bunraku_wire::api::ReleasePolicy::Manual,
    purge: true,
    poll_seconds: None,
};

pub(crate) fn run(command: RepositoryCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            RepositoryCommand::Add { name, url, rules } => {
                let rules = rules.applied_to(USUAL);
                let new = NewRepository { name, url, rules };
                let added = client.call_with(CreateRepository, &new).await;
                let added = added.map_err(|error| failed(&error))?;
                changed(&added, json, "Registered")
            }
            RepositoryCommand::Set {
                name,
                url,
                rules,
                new_hook_secret,
            } => {
                let rules = if rules.is_empty() {
                    None
                } else {
                    let current = client.call(ShowRepository.at(&name)).await;
                    let current = current.map_err(|error| failed(&error))?;
                    Some(rules.applied_to(current.rules))
                };
                let change = RepositoryChange {
                    url,
                    rules,
                    new_hook_secret,
                };
                let set = client.call_with(ChangeRepository.at(&name), &change).await;
                let set = set.map_err(|error| failed(&error))?;
                changed(&set, json, "Changed")
            }
            RepositoryCommand::List => list(&client, json).await,
            RepositoryCommand::Show { name } => {
                let shown = client.call(ShowRepository.at(&name)).await;
                show(&shown.map_err(|error| failed(&error))?, json)
            }
            RepositoryCommand::Sync { name, wait } => sync(&client, &name, wait, json).await,
            RepositoryCommand::Remove { name } => {
                let removed = client.call(RemoveRepository.at(&name)).await;
                removed.map_err(|error| failed(&error))?;
                note!("Unregistered repository {name}. Its environments stay.");
                Ok(Exit::Done)
            }
        }
    })
}

fn changed(changed: &RepositoryChanged, json: bool, what: &str) -> Result<Exit, Failure> {
    if json {
        output::json(changed)?;
        return Ok(Exit::Done);
    }
    let name = &changed.repository.name;
    note!("{what} repository {name}.");
    if let Some(secret) = &changed.hook_secret {
        let hook = ReceiveRepositoryPush.at(&name.to_string());
        note!("\nIts webhook is POST {hook}, signed with this secret, shown once:");
        output::write(&format!("{secret}\n"))?;
    }
    note!("\nhint: see its branches with `bunraku repository show {name}`");
    Ok(Exit::Done)
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let all: Vec<RepositorySummary> = client
        .call(ListRepositories)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&all)?;
        return Ok(Exit::Done);
    }
    if all.is_empty() {
        note!("No repositories.\n\nhint: `bunraku repository add -h` shows how to register one");
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["REPOSITORY", "BRANCHES", "SYNCHRONIZED", "STATE", "URL"]);
    for one in all {
        let (branches, when) = match &one.last {
            None => ("0".to_owned(), "never".to_owned()),
            Some(last) => (
                last.branches.len().to_string(),
                format!("{} ago", ago(last.at, now)),
            ),
        };
        let state = state(&one);
        table.row(vec![one.name.to_string(), branches, when, state, one.url]);
    }
    table.print()?;
    Ok(Exit::Done)
}

fn state(repository: &RepositorySummary) -> String {
    if repository.waiting {
        return "synchronizing".to_owned();
    }
    let problem = repository
        .last
        .as_ref()
        .and_then(|last| last.problem.as_ref());
    problem.map_or_else(|| "ok".to_owned(), |problem| format!("failed: {problem}"))
}

fn show(repository: &RepositorySummary, json: bool) -> Result<Exit, Failure> {
    if json {
        output::json(repository)?;
        return Ok(Exit::Done);
    }
    let rules = &repository.rules;
    let branches = if rules.branches.is_empty() {
        "all".to_owned()
    } else {
        rules.branches.join(", ")
    };
    let mut lines = vec![
        ("repository", repository.name.to_string()),
        ("url", repository.url.clone()),
        ("branches", branches),
    ];
    if !rules.exclude.is_empty() {
        lines.push(("excluded", rules.exclude.join(", ")));
    }
    if let Some(prefix) = &rules.prefix {
        lines.push(("prefix", prefix.clone()));
    }
    lines.push(("names", rules.invalid_names.as_str().to_owned()));
    lines.push(("policy", rules.policy.as_str().to_owned()));
    lines.push(("purge", rules.purge.to_string()));
    if let Some(seconds) = rules.poll_seconds {
        lines.push(("poll", format!("every {seconds} s")));
    }
    lines.push(("state", state(repository)));
    let text: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<12} {value}\n"))
        .collect();
    output::write(&text)?;
    let branches = repository.last.iter().flat_map(|last| &last.branches);
    let mut table = Table::new(&["BRANCH", "COMMIT", "ENVIRONMENT", "NOTE"]);
    let mut is_empty = true;
    for branch in branches {
        is_empty = false;
        let head = branch.head.as_deref().unwrap_or("gone");
        table.row(vec![
            branch.branch.clone(),
            head.chars().take(8).collect(),
            (branch.environment.as_ref()).map_or_else(|| "none".to_owned(), ToString::to_string),
            branch.note.clone().unwrap_or_default(),
        ]);
    }
    if !is_empty {
        output::write("\n")?;
        table.print()?;
    }
    Ok(Exit::Done)
}

async fn sync(
    client: &Client,
    name: &RepositoryName,
    wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let requested = client.call(SyncRepository.at(name)).await;
    let requested = requested.map_err(|error| failed(&error))?;
    if !wait {
        if json {
            output::json(&requested)?;
        } else {
            note!(
                "Synchronization of {name} requested.\n\nhint: see its branches with `bunraku repository show {name}`"
            );
        }
        return Ok(Exit::Done);
    }
    loop {
        let shown = client.call(ShowRepository.at(name)).await;
        let shown = shown.map_err(|error| failed(&error))?;
        let last = shown.last.as_ref();
        let done = last.filter(|last| last.request >= requested.number);
        if let Some(done) = done {
            let exit = match done.problem {
                None => Exit::Done,
                Some(_) => Exit::Error,
            };
            show(&shown, json)?;
            return Ok(exit);
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}
