//! Keeps the ordered datastore running.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::data;
use super::installed::Inspector;
use super::process::Process;
use crate::directory::Directory;
use crate::failover::Program;
use crate::order::DatastoreOrder;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A process that ran this long counts as good: the next failure counts as the first.
const GOOD: Duration = Duration::from_secs(60);

/// The state of this server's datastore.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DatastoreState {
    /// The server does not have the datastore role.
    #[default]
    None,
    Running {
        generation: String,
        pid: Option<u32>,
        /// The program that was started.
        program: Option<Program>,
    },
    /// The process exited and is restarted soon.
    Failing { generation: String, why: String },
}

/// Runs the datastore of the newest order.
pub struct Supervisor {
    pub program: super::process::Program,
    pub inspector: Inspector,
    pub directory: Directory,
    pub orders: watch::Receiver<Option<DatastoreOrder>>,
    pub state: watch::Sender<DatastoreState>,
}

/// An event that ends one iteration of the loop.
enum SupervisorEvent {
    Ordered,
    Stopped,
    Failed(String),
}

impl Supervisor {
    /// Runs until cancelled, then ends the datastore as well.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pause = FIRST_PAUSE;
        loop {
            let order = self.orders.borrow_and_update().clone();
            let begun = Instant::now();
            let turn = match &order {
                None => self.rest(&stop).await,
                Some(order) => self.one(order, &stop).await,
            };
            let why = match turn {
                SupervisorEvent::Stopped => return,
                SupervisorEvent::Ordered => {
                    pause = FIRST_PAUSE;
                    continue;
                }
                SupervisorEvent::Failed(why) => why,
            };
            if begun.elapsed() > GOOD {
                pause = FIRST_PAUSE;
            }
            tracing::warn!(why, ?pause, "the datastore is not running; retrying");
            let generation = order.map(|order| order.generation).unwrap_or_default();
            self.state
                .send_replace(DatastoreState::Failing { generation, why });
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.orders.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn rest(&mut self, stop: &CancellationToken) -> SupervisorEvent {
        if let Err(error) = data::retire_others(&self.directory, None) {
            tracing::warn!(error = %error, "cannot set aside old data");
        }
        self.state.send_replace(DatastoreState::None);
        tokio::select! {
            () = stop.cancelled() => SupervisorEvent::Stopped,
            changed = self.orders.changed() => match changed {
                Ok(()) => SupervisorEvent::Ordered,
                Err(_) => SupervisorEvent::Stopped,
            },
        }
    }

    async fn one(&mut self, order: &DatastoreOrder, stop: &CancellationToken) -> SupervisorEvent {
        let program = self.inspector.read().await;
        let mut process = match self.start(order) {
            Ok(process) => process,
            Err(why) => return SupervisorEvent::Failed(why),
        };
        tracing::info!(
            generation = order.generation,
            pid = process.pid(),
            "the datastore is running"
        );
        self.state.send_replace(DatastoreState::Running {
            generation: order.generation.clone(),
            pid: process.pid(),
            program: program.clone(),
        });
        let mut restart = order.restart;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    process.end().await;
                    return SupervisorEvent::Stopped;
                }
                changed = self.orders.changed() => {
                    let newer = self.orders.borrow_and_update().clone();
                    let same = newer.filter(|newer| newer.generation == order.generation);
                    if let (Ok(()), Some(same)) = (&changed, same) {
                        // It may already have been started with the new one.
                        let asked = std::mem::replace(&mut restart, same.restart) < same.restart;
                        if !asked || self.inspector.read().await == program {
                            continue;
                        }
                        tracing::info!("restarting the datastore with the installed version");
                    }
                    process.end().await;
                    return if changed.is_ok() { SupervisorEvent::Ordered } else { SupervisorEvent::Stopped };
                }
                ended = process.ended() => {
                    return SupervisorEvent::Failed(match ended {
                        Ok(status) => format!("etcd exited ({status}); see {}", self.directory.datastore_log().display()),
                        Err(error) => error.to_string(),
                    });
                }
            }
        }
    }

    fn start(&self, order: &DatastoreOrder) -> Result<Process, String> {
        data::retire_others(&self.directory, Some(order)).map_err(|error| error.to_string())?;
        let place = data::open(&self.directory, order).map_err(|error| error.to_string())?;
        self.program
            .start(&self.directory, order, &place)
            .map_err(|error| match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            })
    }
}
