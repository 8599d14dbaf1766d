//! The progress of the nodes of a run, from the event stream of all nodes.
//!
//! It is only for people who watch: a run continues without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bunraku_model::NodeRunId;
use bunraku_wire::Client;
use bunraku_wire::api::{EventStatus, ReportEvent, ReportStreamMessage};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::{Endpoint, FollowReports, ReportStreamQuery};

use crate::run_view::{NodeProgress, Progress};

/// The delay before a broken stream is reopened.
const RETRY: Duration = Duration::from_secs(1);

/// A task that follows until it is dropped.
pub(crate) struct ProgressFollower {
    progress: Arc<Mutex<Progress>>,
    task: tokio::task::JoinHandle<()>,
}

impl ProgressFollower {
    /// Starts to follow these node runs.
    pub(crate) fn start(client: Client, runs: impl IntoIterator<Item = NodeRunId>) -> Self {
        let of = |run| (run, NodeProgress::default());
        let progress: Progress = runs.into_iter().map(of).collect();
        let progress = Arc::new(Mutex::new(progress));
        let shared = Arc::clone(&progress);
        let task = tokio::spawn(async move {
            let mut cursor = None;
            loop {
                follow(&client, &shared, &mut cursor).await;
                tokio::time::sleep(RETRY).await;
            }
        });
        Self { progress, task }
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProgressFollower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Processes events until the stream breaks.
async fn follow(client: &Client, progress: &Mutex<Progress>, cursor: &mut Option<String>) {
    let query = ReportStreamQuery {
        node: None,
        cursor: cursor.clone(),
    };
    let at = FollowReports.with_query((), &query);
    let Ok(mut lines): Result<Lines<ReportStreamMessage>, _> = client.follow(at).await else {
        return;
    };
    while let Some(Ok(message)) = lines.next().await {
        match message {
            ReportStreamMessage::Open { cursor: open } => *cursor = Some(open),
            ReportStreamMessage::Gap => {}
            ReportStreamMessage::Events {
                cursor: next,
                run,
                events,
                ..
            } => {
                *cursor = Some(next);
                let mut all = progress.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(node) = all.get_mut(&run) {
                    for event in events {
                        take(node, event.event);
                    }
                }
            }
        }
    }
}

fn take(node: &mut NodeProgress, event: ReportEvent) {
    match event {
        ReportEvent::Started(started) => node.all = started.resources,
        ReportEvent::Resource(resource) => {
            node.done += 1;
            node.failed += u64::from(resource.status == EventStatus::Failed);
            node.resource = Some(format!("{}[{}]", resource.type_name, resource.title));
        }
        ReportEvent::Omitted(omitted) => node.done += omitted.count,
        ReportEvent::Log(_) | ReportEvent::Finished(_) => {}
    }
}
