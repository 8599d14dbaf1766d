//! `bunraku lock`: acquire, renew and release locks; run a command under one.

use std::process::ExitCode;
use std::time::Duration;

use bunraku_model::{LockName, NodeName, TriggerName};
use bunraku_wire::Client;
use bunraku_wire::api::locks::{
    AcquireLock, BreakLock, DefineLock, Holder, LeaveLine, LockReply, LockStatus, LockToken,
    PermitLock,
};
use bunraku_wire::endpoints::{
    self, Endpoint, LeaveLockLine, ListLocks, ReleaseLock, RenewLock, ShowLock,
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use crate::bound_child::{self, Job, ProgramEnd};
use crate::connection::failed;
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lease::renew_until_lost;
use crate::node_list::{self, NodeList};
use crate::output::{self, Table, ago};
use crate::signals::termination_signal;
use crate::task_log::TaskLog;

/// The exit code if others hold the lock, and the time to wait is over.
const BUSY: u8 = 11;

#[derive(Subcommand)]
pub(crate) enum LockCommand {
    /// Acquire a lock and print its fencing token
    #[command(
        after_help = "The lock is lost if it is not renewed within its lease. Exit code 11: others hold it.

Examples:
  bunraku lock acquire deploy --wait 5m --reason 'deploy of the shop'
  token=$(bunraku lock acquire deploy --wait 5m --lease 10m) && ./deploy; bunraku lock release deploy --token $token"
    )]
    Acquire {
        /// Name of the lock
        name: LockName,
        #[command(flatten)]
        wish: AcquireArguments,
        /// Acquire as this holder; renews the lock if this name already holds it
        #[arg(long = "as", value_name = "SESSION")]
        session: Option<String>,
    },
    /// Renew the lease of a lock; exit code 4 if the token no longer holds it
    #[command(after_help = "Example:\n  bunraku lock renew deploy --token 42")]
    Renew {
        /// Name of the lock
        name: LockName,
        /// Fencing token, as printed by `lock acquire`
        #[arg(long)]
        token: u64,
    },
    /// Release a lock
    #[command(
        after_help = "Examples:\n  bunraku lock release deploy --token 42\n  bunraku lock release deploy --token 42 --break 'its holder hangs'"
    )]
    Release {
        /// Name of the lock
        name: LockName,
        /// Fencing token, as printed by `lock acquire` and `lock show`
        #[arg(long)]
        token: u64,
        /// Take the lock away from its holder, with a reason
        #[arg(long, value_name = "REASON")]
        r#break: Option<String>,
    },
    /// Show who holds a lock and who waits for it
    #[command(after_help = "Example:\n  bunraku lock show deploy")]
    Show {
        /// Name of the lock
        name: LockName,
    },
    /// List all locks
    #[command(after_help = "Example:\n  bunraku lock list")]
    List,
    /// Define the slots of a lock, and a trigger to fire when its holders change
    #[command(
        after_help = "Examples:\n  bunraku lock define db-master --may-hold 'db-*.example.com'\n  bunraku lock define backup --slots 2 --on-change 'refresh load balancers'"
    )]
    Define {
        /// Name of the lock
        name: LockName,
        /// How many can hold the lock at the same time
        #[arg(long, default_value_t = 1)]
        slots: u32,
        /// Trigger to fire when the holders change
        #[arg(long, value_name = "TRIGGER")]
        on_change: Option<TriggerName>,
        /// Hosts for the trigger [default: the old and the new holders]
        #[arg(
            long,
            value_delimiter = ',',
            value_name = "HOST,…",
            requires = "on_change"
        )]
        hosts: Vec<NodeName>,
        /// Nodes that may hold it [default: none; operators always may]
        #[arg(long, value_name = "NODE,…")]
        may_hold: Vec<NodeList>,
        /// Nodes that may see its holders, besides those that may hold it
        #[arg(long, value_name = "NODE,…")]
        may_see: Vec<NodeList>,
    },
    /// Let nodes hold or see a lock, and keep the rest of its definition
    #[command(after_help = format!("{}

Example:
  bunraku lock permit db-master --may-hold 'db-*.example.com' --may-see 'app-*.example.com'", node_list::FORMS))]
    Permit {
        /// Name of the lock
        name: LockName,
        /// Nodes that may hold it
        #[arg(long, value_name = "NODE,…")]
        may_hold: Vec<NodeList>,
        /// Nodes that may see its holders, besides those that may hold it
        #[arg(long, value_name = "NODE,…")]
        may_see: Vec<NodeList>,
        /// Number of slots, for a lock that is not defined yet
        #[arg(long)]
        slots: Option<u32>,
        /// Remove the permissions that are not named here
        #[arg(long)]
        replace: bool,
    },
    /// Print all lock holders as an external fact, for a script in facts.d
    #[command(after_help = "Example:\n  bunraku lock facts > /etc/facter/facts.d/locks.yaml")]
    Facts,
    /// Run a command while holding a lock
    #[command(
        after_help = "The command gets BUNRAKU_LOCK and BUNRAKU_LOCK_TOKEN, and is stopped if the lock is lost.
The exit code is that of the command, or 11 if others hold the lock for longer than `--wait`.

Example:
  bunraku lock exec backup --slots 2 --wait 1h -- /usr/local/bin/backup"
    )]
    Exec {
        /// Name of the lock
        name: LockName,
        #[command(flatten)]
        wish: AcquireArguments,
        /// Command to run, with its arguments
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
}

#[derive(Args)]
pub(crate) struct AcquireArguments {
    /// The lock is lost if it is not renewed for this long
    #[arg(long, value_name = "SPAN", default_value = "30s")]
    lease: HumanDuration,
    /// How long to wait for the lock [default: do not wait]
    #[arg(long, value_name = "SPAN")]
    wait: Option<HumanDuration>,
    /// Reason, shown to operators who look at the lock or wait for it
    #[arg(long)]
    reason: Option<String>,
    /// Number of slots, for a lock that is not in use yet
    #[arg(long)]
    slots: Option<u32>,
}

pub(crate) fn run(command: LockCommand, context: &Context) -> Result<ExitCode, Failure> {
    let json = context.global.json;
    let own = match command {
        LockCommand::List if json => Some(crate::connection::own_name(
            &context.global,
            &context.loaded,
        )?),
        _ => None,
    };
    super::once::with_client(context, |client| async move {
        match command {
            LockCommand::Acquire {
                name,
                wish,
                session,
            } => acquire(&client, &name, &wish, session, json).await,
            LockCommand::Exec {
                name,
                wish,
                command,
            } => exec(client, name, wish, command).await,
            LockCommand::Facts => facts(&client).await.map(|exit| exit as u8),
            LockCommand::List => list(&client, own.as_ref()).await.map(|exit| exit as u8),
            other => manage(&client, other, json).await.map(|exit| exit as u8),
        }
    })
    .map(ExitCode::from)
}

async fn manage(client: &Client, command: LockCommand, json: bool) -> Result<Exit, Failure> {
    let outcome = match command {
        LockCommand::Show { name } => return show(client, &name, json).await,
        LockCommand::Renew { name, token } => {
            let request = LockToken { token };
            client.call_with(RenewLock.at(&name), &request).await
        }
        LockCommand::Release {
            name,
            token,
            r#break: Some(reason),
        } => {
            let request = BreakLock { token, reason };
            client
                .call_with(endpoints::BreakLock.at(&name), &request)
                .await
        }
        LockCommand::Release { name, token, .. } => {
            let request = LockToken { token };
            client.call_with(ReleaseLock.at(&name), &request).await
        }
        LockCommand::Define {
            name,
            slots,
            on_change,
            hosts,
            may_hold,
            may_see,
        } => {
            let request = DefineLock {
                slots,
                on_change,
                hosts,
                may_hold: node_list::entries(may_hold),
                may_see: node_list::entries(may_see),
            };
            client
                .call_with(endpoints::DefineLock.at(&name), &request)
                .await
        }
        LockCommand::Permit {
            name,
            may_hold,
            may_see,
            slots,
            replace,
        } => {
            let request = PermitLock {
                may_hold: node_list::entries(may_hold),
                may_see: node_list::entries(may_see),
                slots,
                replace,
            };
            client
                .call_with(endpoints::PermitLock.at(&name), &request)
                .await
        }
        LockCommand::Acquire { .. }
        | LockCommand::Exec { .. }
        | LockCommand::List
        | LockCommand::Facts => Ok(()),
    };
    outcome.map_err(|error| failed(&error))?;
    Ok(Exit::Done)
}

async fn acquire(
    client: &Client,
    name: &LockName,
    wish: &AcquireArguments,
    session: Option<String>,
    json: bool,
) -> Result<u8, Failure> {
    let session = session.unwrap_or_else(|| Uuid::new_v4().to_string());
    let reply = wait_in_line(client, name, wish, &session).await?;
    if json {
        output::json(&reply)?;
    }
    match reply {
        LockReply::Held { token, .. } => {
            if !json {
                output::write(&format!("{token}\n"))?;
            }
            Ok(0)
        }
        LockReply::Waiting { holders, .. } | LockReply::Taken { holders } => {
            note!("{name} is held by {}", owners(&holders));
            Ok(BUSY)
        }
    }
}

/// Repeats the request until the lock is held, or the time to wait is over.
async fn wait_in_line(
    client: &Client,
    name: &LockName,
    wish: &AcquireArguments,
    session: &str,
) -> Result<LockReply, Failure> {
    crate::waiting::for_what("waiting for the lock");
    let deadline = Instant::now() + wish.wait.map_or(Duration::ZERO, |span| span.0);
    let at = endpoints::AcquireLock.at(name);
    let line = async {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = AcquireLock {
                session: session.to_owned(),
                lease_seconds: wish.lease.0.as_secs().max(1),
                wait_seconds: left.as_secs_f64().ceil().clamp(0.0, 50.0) as u64,
                only_now: wish.wait.is_none(),
                reason: wish.reason.clone(),
                slots: wish.slots,
            };
            match client.call_with(&at, &request).await {
                Ok(LockReply::Waiting { .. }) if !left.is_zero() => {}
                Ok(reply) => return Ok(reply),
                // The same session finds its place again, on any server.
                Err(error) if error.is_passing() && !left.is_zero() => {
                    tracing::warn!(error = %error, "still waiting for the lock");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(failed(&error)),
            }
        }
    };
    let reply = tokio::select! {
        reply = line => reply?,
        signal = termination_signal() => {
            leave(client, name, session).await;
            let signal = signal?;
            return Err(Failure::new(format!("{signal} while waiting for {name}")));
        }
    };
    if matches!(reply, LockReply::Waiting { .. }) {
        leave(client, name, session).await;
    }
    Ok(reply)
}

/// Gives up the place in the queue. If the request is lost, the place ends with its lease.
async fn leave(client: &Client, name: &LockName, session: &str) {
    let request = LeaveLine {
        session: session.to_owned(),
    };
    if let Err(error) = client.call_with(LeaveLockLine.at(name), &request).await {
        tracing::debug!(error = %error, "could not leave the queue of the lock");
    }
}

async fn exec(
    client: Client,
    name: LockName,
    wish: AcquireArguments,
    command: Vec<String>,
) -> Result<u8, Failure> {
    let session = Uuid::new_v4().to_string();
    let waiting = Instant::now();
    let reply = wait_in_line(&client, &name, &wish, &session).await?;
    let token = match reply {
        LockReply::Held { token, .. } => token,
        LockReply::Waiting { holders, .. } | LockReply::Taken { holders } => {
            note!("{name} is held by {}", owners(&holders));
            return Ok(BUSY);
        }
    };
    // The lease was renewed during the wait; the time of the last renewal is not known here.
    let lease = RenewLock.at(&name);
    let granted = match wish.wait {
        None => waiting,
        Some(_) => {
            let asked = Instant::now();
            let renewed = client.call_with(&lease, &LockToken { token }).await;
            renewed.map_err(|error| failed(&error))?;
            asked
        }
    };
    let job = Job {
        work: None,
        words: command,
        environment: vec![
            ("BUNRAKU_LOCK".to_owned(), name.to_string()),
            ("BUNRAKU_LOCK_TOKEN".to_owned(), token.to_string()),
        ],
        document: None,
    };
    let keeper = client.clone();
    let renew = move || {
        let (client, lease) = (keeper.clone(), lease.clone());
        async move { client.call_with(lease, &LockToken { token }).await }
    };
    let ttl = Duration::from_secs(wish.lease.0.as_secs().max(1));
    let lost = renew_until_lost(ttl, granted, renew);
    match bound_child::run(job, &TaskLog::default(), lost).await? {
        ProgramEnd::Exit(code) => {
            let at = ReleaseLock.at(&name);
            let released = client.call_with(at, &LockToken { token }).await;
            if let Err(error) = released {
                tracing::warn!(error = %error, "could not release the lock; it expires with its lease");
            }
            Ok(code)
        }
        ProgramEnd::Lost(why) => {
            Err(Failure::new(format!("{name} was lost: {why}")).exit(Exit::Refused))
        }
    }
}

fn owners(holders: &[Holder]) -> String {
    let each: Vec<String> = holders
        .iter()
        .map(|holder| match &holder.reason {
            Some(reason) => format!("{} ({reason})", holder.owner),
            None => holder.owner.clone(),
        })
        .collect();
    each.join(", ")
}

async fn show(client: &Client, name: &LockName, json: bool) -> Result<Exit, Failure> {
    let status: LockStatus = client
        .call(ShowLock.at(name))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&status)?;
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["WHO", "STATE", "TOKEN", "FOR", "REASON"]);
    for (word, list) in [("holds", &status.holders), ("waits", &status.waiters)] {
        for holder in list {
            let token = match holder.token {
                0 => String::new(),
                token => token.to_string(),
            };
            table.row(vec![
                holder.owner.clone(),
                word.to_owned(),
                token,
                ago(holder.since, now),
                holder.reason.clone().unwrap_or_default(),
            ]);
        }
    }
    if status.holders.is_empty() && status.waiters.is_empty() {
        note!("{name} is free");
    } else {
        table.print()?;
    }
    if !status.may_hold.is_empty() {
        note!(
            "Nodes that may hold it: {}",
            node_list::words(&status.may_hold)
        );
    }
    Ok(Exit::Done)
}

/// The holders of each lock, as a fact for Puppet, states and queries.
async fn facts(client: &Client) -> Result<Exit, Failure> {
    let all: Vec<LockStatus> = client
        .call(ListLocks)
        .await
        .map_err(|error| failed(&error))?;
    let locks: serde_json::Map<String, serde_json::Value> = all
        .into_iter()
        .filter(|status| !status.holders.is_empty())
        .map(|status| {
            let owners = status.holders.into_iter().map(|holder| holder.owner);
            (status.name.to_string(), owners.collect())
        })
        .collect();
    output::json(&serde_json::json!({ "bunraku_locks": locks }))?;
    Ok(Exit::Done)
}

/// Lists all locks. With a name, prints JSON in which each holder has a flag that tells
/// whether it is that node.
async fn list(client: &Client, own: Option<&NodeName>) -> Result<Exit, Failure> {
    let all: Vec<LockStatus> = client
        .call(ListLocks)
        .await
        .map_err(|error| failed(&error))?;
    if let Some(own) = own {
        let mut all = serde_json::to_value(&all)?;
        let locks = all.as_array_mut().into_iter().flatten();
        let holders = locks.flat_map(|lock| lock["holders"].as_array_mut().into_iter().flatten());
        for holder in holders {
            holder["own"] = (holder["owner"] == own.as_str()).into();
        }
        output::json(&all)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["LOCK", "SLOTS", "HELD BY", "WAITING"]);
    for status in all {
        table.row(vec![
            status.name.to_string(),
            status.slots.to_string(),
            owners(&status.holders),
            status.waiters.len().to_string(),
        ]);
    }
    table.print()?;
    Ok(Exit::Done)
}
