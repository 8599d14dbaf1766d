//! `bunraku trigger watch`: runs a command when a cue for this host arrives.

use std::path::PathBuf;
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_store::etcd::{EtcdStore, EtcdV2Changes};
use bunraku_store::{Change, KeyValue, Range, Revision, Store, StoreError, WatchStart};
use bunraku_wire::api::Cause;
use clap::Args;
use futures::StreamExt;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::message::{Message, cue_for};
use super::state::{Cue, State, StateFile};
use super::v2::Follower;
use super::{EtcdApi, EtcdArguments, own_name};
use crate::failure::Failure;

/// The delay before the next request to an etcd that was unreachable.
const RETRY: Duration = Duration::from_secs(1);

/// The maximum number of causes passed to a run, because they share one environment variable.
const MOST_CAUSES: usize = 50;

/// Run a command when a trigger for this host arrives through etcd
#[derive(Args)]
#[command(
    after_help = "Runs are executed one at a time; triggers that arrive meanwhile cause one run afterwards. After a
restart, the watcher continues where it stopped. The command gets BUNRAKU_CAUSES, so that loops end.

Examples:
  bunraku trigger watch --etcd http://etcd.example.com:2379 -- puppet agent --onetime --no-daemonize
  bunraku trigger watch -- puppet apply /etc/puppet/manifest.pp"
)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    etcd: EtcdArguments,

    /// Name of this host in triggers [default: the host name]
    #[arg(long)]
    name: Option<NodeName>,

    /// Watch only the key of this host; less traffic in large fleets
    #[arg(long)]
    own_key_only: bool,

    /// File for the position of the watcher
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/bunraku/trigger-watch.json"
    )]
    state: PathBuf,

    /// Command to run
    #[arg(required = true, last = true)]
    run_cmd: Vec<String>,
}

/// Watches until asked to end. Lets an active run finish.
pub(crate) async fn watch(
    arguments: WatchArguments,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let host = own_name(arguments.name.clone())?;
    let mut watcher = Watcher {
        file: StateFile::open(arguments.state.clone())?,
        host,
        child: None,
        v2: None,
        arguments,
    };
    while !shutdown.is_cancelled() {
        watcher.start_if_due()?;
        watcher.follow_v2().await;
        if watcher.arguments.etcd.etcd_api == EtcdApi::V2 {
            watcher.pause(&shutdown).await?;
            continue;
        }
        let store = match watcher.arguments.etcd.connect().await {
            Ok(store) => store,
            Err(failure) => {
                tracing::warn!(error = failure.message(), "cannot reach etcd; retrying");
                watcher.pause(&shutdown).await?;
                continue;
            }
        };
        if let Err(error) = watcher.follow(&store, &shutdown).await? {
            tracing::warn!(error = %error, "watching etcd failed; retrying");
            watcher.pause(&shutdown).await?;
        }
    }
    watcher.finish().await
}

struct Watcher {
    file: StateFile,
    host: NodeName,
    child: Option<Child>,
    v2: Option<Follower>,
    arguments: WatchArguments,
}

impl Watcher {
    fn prefix(&self) -> String {
        if self.arguments.own_key_only {
            format!("hosts/{}", self.host)
        } else {
            String::new()
        }
    }

    /// Starts to follow the v2 API, if it is wanted and served.
    async fn follow_v2(&mut self) {
        if self.v2.is_some() {
            return;
        }
        match self.arguments.etcd.connect_v2().await {
            Ok(None) => {}
            Ok(Some((client, newest))) => {
                // At the very first start, existing keys are not for this watcher.
                let from = *self.file.state.next_v2.get_or_insert(newest + 1);
                self.v2 = Some(Follower::start(client, from));
                tracing::info!(host = %self.host, "watching the v2 API");
            }
            Err(failure) => {
                tracing::warn!(
                    error = failure.message(),
                    "cannot watch the v2 API of etcd; retrying"
                );
            }
        }
    }

    fn note_v2(&mut self, changes: EtcdV2Changes) -> Result<(), Failure> {
        let own = format!("hosts/{}", self.host);
        let wanted = |key: &str| !self.arguments.own_key_only || key == own;
        for entry in changes.entries.iter().filter(|one| wanted(&one.key)) {
            note(
                &mut self.file.state,
                &self.host,
                &entry.key,
                entry.value.as_bytes(),
            );
        }
        self.file.state.next_v2 = Some(changes.next);
        self.file.save()
    }

    /// Follows until asked to end or until etcd fails.
    async fn follow(
        &mut self,
        store: &EtcdStore,
        shutdown: &CancellationToken,
    ) -> Result<Result<(), StoreError>, Failure> {
        let start = match self.file.state.next {
            Some(next) => WatchStart::At(Revision(next)),
            None => match self.begin(store).await? {
                Ok(next) => WatchStart::At(next),
                Err(error) => return Ok(Err(error)),
            },
        };
        let mut changes = match store.watch(&self.prefix(), start).await {
            Ok(changes) => changes,
            Err(error) => return self.catch_up(store, error).await,
        };
        tracing::info!(host = %self.host, "watching");
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(Ok(())),
                ended = ended(&mut self.child) => self.note_end(ended)?,
                changes = Follower::next(&mut self.v2) => self.note_v2(changes)?,
                batch = changes.next() => match batch {
                    None => return Ok(Ok(())),
                    Some(Err(error)) => return self.catch_up(store, error).await,
                    Some(Ok(batch)) => {
                        let put = batch.changes.iter().filter_map(|change| match change {
                            Change::Put(entry) => Some(entry),
                            // A deleted or expired key is not a cue.
                            Change::Delete { .. } => None,
                        });
                        note_all(&mut self.file.state, &self.host, put);
                        self.file.state.next = Some(batch.revision.0 + 1);
                        self.file.save()?;
                    }
                },
            }
            self.start_if_due()?;
        }
    }

    /// Handles the very first start: existing keys are not for this watcher.
    async fn begin(&mut self, store: &EtcdStore) -> Result<Result<Revision, StoreError>, Failure> {
        let page = match store
            .range(Range {
                limit: 1,
                ..Range::prefix("")
            })
            .await
        {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let next = Revision(page.revision.0 + 1);
        self.file.state.next = Some(next.0);
        self.file.save()?;
        Ok(Ok(next))
    }

    /// Catches up after an absence longer than etcd's history: every remaining key that was not
    /// seen is a cue.
    async fn catch_up(
        &mut self,
        store: &EtcdStore,
        error: StoreError,
    ) -> Result<Result<(), StoreError>, Failure> {
        if !matches!(error, StoreError::Compacted { .. }) {
            return Ok(Err(error));
        }
        let mut range = Range::prefix(self.prefix());
        loop {
            let page = match store.range(range.clone()).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            note_all(&mut self.file.state, &self.host, page.items.iter());
            if range.after.is_none() {
                self.file.state.next = Some(page.revision.0 + 1);
            }
            range.after = page.items.last().map(|entry| entry.key.clone());
            if !page.more {
                break;
            }
        }
        self.file.save()?;
        Ok(Ok(()))
    }

    fn start_if_due(&mut self) -> Result<(), Failure> {
        if self.child.is_some() {
            return Ok(());
        }
        let Some(cues) = self.file.state.start() else {
            return Ok(());
        };
        self.file.save()?;
        let triggers: Vec<&str> = cues.iter().map(|cue| &*cue.trigger).collect();
        tracing::info!(?triggers, "starting a run");
        let causes: Vec<Cause> = cues
            .iter()
            .flat_map(|cue| cue.causes.iter().cloned().map(Cause::Trigger))
            .take(MOST_CAUSES)
            .collect();
        let (program, words) = self
            .arguments
            .run_cmd
            .split_first()
            .expect("the command line requires one");
        let started = Command::new(program)
            .args(words)
            .env("BUNRAKU_CAUSES", serde_json::to_string(&causes)?)
            .env("BUNRAKU_TRIGGERS", triggers.join(","))
            .stdin(std::process::Stdio::null())
            .spawn();
        match started {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                return Err(Failure::new(format!("cannot run `{program}`")).caused_by(&error));
            }
        }
        Ok(())
    }

    fn note_end(
        &mut self,
        ended: std::io::Result<std::process::ExitStatus>,
    ) -> Result<(), Failure> {
        self.child = None;
        match ended {
            Ok(status) if status.success() => tracing::info!("the run has ended"),
            Ok(status) => tracing::warn!(%status, "the run failed"),
            Err(error) => tracing::warn!(error = %error, "the result of the run is unknown"),
        }
        self.file.state.ended();
        self.file.save()
    }

    async fn pause(&mut self, shutdown: &CancellationToken) -> Result<(), Failure> {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(RETRY) => {}
            ended = ended(&mut self.child) => self.note_end(ended)?,
            changes = Follower::next(&mut self.v2) => self.note_v2(changes)?,
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), Failure> {
        if self.child.is_some() {
            let ended = ended(&mut self.child).await;
            self.note_end(ended)?;
        }
        Ok(())
    }
}

/// Waits for the end of the active run. Never resolves if none is active.
async fn ended(child: &mut Option<Child>) -> std::io::Result<std::process::ExitStatus> {
    match child {
        Some(child) => child.wait().await,
        None => std::future::pending().await,
    }
}

fn note_all<'a>(state: &mut State, host: &NodeName, entries: impl Iterator<Item = &'a KeyValue>) {
    for entry in entries {
        note(state, host, &entry.key, &entry.value);
    }
}

/// Records a key's value if it is a cue for this host.
fn note(state: &mut State, host: &NodeName, key: &str, value: &[u8]) {
    let message: Message = match serde_json::from_slice(value) {
        Ok(message) => message,
        Err(error) => {
            tracing::warn!(key, error = %error, "ignoring a key that is not a trigger");
            return;
        }
    };
    if let Some(trigger) = cue_for(host, key, &message) {
        let cue = Cue {
            trigger,
            hostname: message.hostname,
            causes: message.causes,
        };
        state.note(&message.uuid, cue);
    }
}
