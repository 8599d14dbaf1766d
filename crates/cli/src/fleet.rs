//! The fleet for `bunraku apply` and `bunraku states`.
//!
//! Most states need no server. So the connection is opened when a resource or a template first
//! needs it, and kept for the rest of the run.

use std::sync::{Arc, OnceLock};

use bunraku_agent::{RunCues, ServerCoordinator};
use bunraku_engine::{
    Cancellation, Coordinator, CueProvider, FireResult, Firing, FleetLocks, StepError,
};
use bunraku_wire::Client;
use bunraku_wire::api::locks::LockStatus;
use bunraku_wire::endpoints::ListLocks;
use tokio::runtime::Runtime;

use crate::config::LoadedConfig;
use crate::connection::{connect, failed, own_name};
use crate::context::Context;
use crate::cues::{OtherTransports, causes_of_this_run};
use crate::failure::Failure;
use crate::global_options::Global;

/// A connection that opens at its first use.
pub(crate) struct Fleet {
    global: Global,
    loaded: Arc<LoadedConfig>,
    local: OnceLock<Result<LocalParts, String>>,
    connected: OnceLock<Result<FleetConnection, String>>,
}

/// The parts that do not need a server.
struct LocalParts {
    cues: RunCues,
    runtime: Runtime,
}

struct FleetConnection {
    client: Client,
    coordinator: ServerCoordinator,
}

impl Fleet {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            global: context.global.clone(),
            loaded: Arc::clone(&context.loaded),
            local: OnceLock::new(),
            connected: OnceLock::new(),
        }
    }

    /// Returns every lock that the servers know.
    pub(crate) fn lock_statuses(&self) -> Result<Vec<LockStatus>, String> {
        let (client, runtime) = (&self.connected()?.client, &self.local()?.runtime);
        let asked = runtime.block_on(client.call(ListLocks));
        asked.map_err(|error| failed(&error).text())
    }

    fn local(&self) -> Result<&LocalParts, String> {
        let opened = self
            .local
            .get_or_init(|| open().map_err(|failure| failure.text()));
        opened.as_ref().map_err(Clone::clone)
    }

    fn connected(&self) -> Result<&FleetConnection, String> {
        let cues = &self.local()?.cues;
        let opened = self.connected.get_or_init(|| {
            let opened = self.open_connection(cues.clone());
            opened.map_err(|failure| failure.text())
        });
        opened.as_ref().map_err(Clone::clone)
    }

    fn open_connection(&self, cues: RunCues) -> Result<FleetConnection, Failure> {
        let client = connect(&self.global, &self.loaded)?;
        let name = own_name(&self.global, &self.loaded)?;
        Ok(FleetConnection {
            coordinator: ServerCoordinator::new(client.clone(), name, cues),
            client,
        })
    }

    fn coordinator(&self) -> Result<&ServerCoordinator, StepError> {
        let connected = self.connected().map_err(StepError::new)?;
        Ok(&connected.coordinator)
    }
}

/// Opens the connection. The engine's threads block on requests, so requests run on their own
/// thread.
fn open() -> Result<LocalParts, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let cues = RunCues {
        causes: causes_of_this_run()?,
        transport: Some(Arc::new(OtherTransports)),
        runtime: runtime.handle().clone(),
    };
    Ok(LocalParts { cues, runtime })
}

impl Coordinator for Fleet {
    fn fire(&self, firing: &Firing, cancellation: &Cancellation) -> Result<FireResult, StepError> {
        if firing.provider == CueProvider::Bunraku {
            return self.coordinator()?.fire(firing, cancellation);
        }
        let cues = &self.local().map_err(StepError::new)?.cues;
        cues.fire_elsewhere(firing, cancellation)
    }

    fn locks(&self) -> Result<&dyn FleetLocks, StepError> {
        self.coordinator()?.locks()
    }
}
