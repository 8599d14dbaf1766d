//! The checks of gates that a server performs: HTTP probes and queries.
//!
//! Only the leader of a run performs them, and only after the log says that the gate is open. A
//! check is repeated until it passes or its time is over, so a takeover may repeat it as well.
//!
//! Absent: commands. A server never executes a command that an operator names: it would run as the
//! server's user, next to its keys. The command line that started the run executes it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bunraku_control::clock::Clock;
use bunraku_control::{FindNodes, ServiceError};
use bunraku_model::NodeName;
use bunraku_plan::run::{Event, RolloutCheck, Run, RunWait};
use bunraku_process::{OutputLimits, Program};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;

/// The time between two attempts.
const INTERVAL: Duration = Duration::from_secs(3);
/// The time limit of one probe.
const PROBE_LIMIT: Duration = Duration::from_secs(15);
/// The number of nodes that a failed query names.
const NAMED_NODES: usize = 5;
/// The `by` of checks that a server performed.
const BY_SERVER: &str = "server";

/// The checks that this server is performing.
#[derive(Default)]
pub(super) struct OpenChecks {
    known: BTreeSet<(u32, u32)>,
    running: FuturesUnordered<BoxFuture<'static, Event>>,
}

impl OpenChecks {
    /// Begins a check, unless it is under way.
    pub(super) fn begin(
        &mut self,
        run: &Run,
        gate: u32,
        check: u32,
        find: Arc<dyn FindNodes>,
        clock: Clock,
    ) {
        let open = run.waits().into_iter().find_map(|wait| match wait {
            RunWait::Check {
                gate: open,
                check: number,
                what,
                until,
            } if (open, number) == (gate, check) => Some((what, until)),
            _ => None,
        });
        let Some((what, until)) = open else {
            return;
        };
        if !self.known.insert((gate, check)) {
            return;
        }
        let attempts = Attempts {
            nodes: run.nodes_that_ran().into_iter().cloned().collect(),
            what,
            until,
            find,
            clock,
        };
        let performed = async move {
            match attempts.until_passed().await {
                Ok(()) => Event::CheckPassed {
                    gate,
                    check,
                    by: BY_SERVER.to_owned(),
                    message: None,
                },
                Err(reason) => Event::CheckFailed {
                    gate,
                    check,
                    by: BY_SERVER.to_owned(),
                    reason,
                },
            }
        };
        self.running.push(performed.boxed());
    }

    /// Returns the result of the next check that is done.
    pub(super) async fn next(&mut self) -> Event {
        match self.running.next().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

struct Attempts {
    nodes: BTreeSet<NodeName>,
    what: RolloutCheck,
    until: Timestamp,
    find: Arc<dyn FindNodes>,
    clock: Clock,
}

impl Attempts {
    /// Repeats the check until it passes. Returns the last reason when the time is over.
    async fn until_passed(&self) -> Result<(), String> {
        loop {
            let outcome = match &self.what {
                RolloutCheck::Http { url } => probe(url).await,
                RolloutCheck::Query { query } => self.no_match(query).await,
                RolloutCheck::Manual | RolloutCheck::Command { .. } => {
                    return std::future::pending().await;
                }
            };
            let Err(reason) = outcome else {
                return Ok(());
            };
            let left = self.until.duration_since(self.clock.now());
            if Duration::try_from(left).unwrap_or_default() <= INTERVAL {
                return Err(reason);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Passes if the query finds none of the nodes that have run.
    async fn no_match(&self, query: &str) -> Result<(), String> {
        let found = match self.find.nodes_matching(query).await {
            Ok(found) => found,
            Err(error) => return Err(bunraku_model::error_chain(&error)),
        };
        let mut bad: Vec<&str> = (found.iter())
            .filter(|node| self.nodes.contains(*node))
            .map(NodeName::as_str)
            .collect();
        if bad.is_empty() {
            return Ok(());
        }
        let all = bad.len();
        bad.truncate(NAMED_NODES);
        Err(match all.saturating_sub(NAMED_NODES) {
            0 => format!("it finds {}", bad.join(", ")),
            more => format!("it finds {} and {more} more", bad.join(", ")),
        })
    }
}

/// Requests a URL once. Does not follow redirects: they could lead anywhere.
async fn probe(url: &str) -> Result<(), String> {
    let seconds = PROBE_LIMIT.as_secs().to_string();
    let output = Program::new("curl")
        .args(["--silent", "--show-error", "--proto", "=http,https"])
        .args(["--max-time", &seconds, "--max-filesize", "10000000"])
        .args(["--output", "/dev/null", "--write-out", "%{http_code}", "--"])
        .arg(url)
        .output(OutputLimits::with_timeout(PROBE_LIMIT + INTERVAL))
        .await;
    let output = output.map_err(|error| format!("curl {error}"))?;
    let status = output.stdout_text();
    match (output.status.success(), status.trim()) {
        (true, status) if status.len() == 3 && status.starts_with('2') => Ok(()),
        (true, status) => Err(format!("HTTP status {status}")),
        (false, _) => Err(output.stderr_text().trim().to_owned()),
    }
}

/// Refuses checks that can never pass.
pub(super) fn refuse_impossible(checks: &[RolloutCheck]) -> Result<(), ServiceError> {
    for check in checks {
        match check {
            RolloutCheck::Query { query } => bunraku_control::find_nodes::check_node_query(query)?,
            RolloutCheck::Http { url } => {
                let rest = url
                    .split_once("://")
                    .map(|(_, rest)| rest)
                    .unwrap_or_default();
                let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let known = url.starts_with("http://") || url.starts_with("https://");
                if !known || host.is_empty() || host.contains('@') {
                    return Err(ServiceError::invalid(format!(
                        "`{url}` is not an HTTP address without a user name"
                    )));
                }
            }
            RolloutCheck::Manual | RolloutCheck::Command { .. } => {}
        }
    }
    Ok(())
}
