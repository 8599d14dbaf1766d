//! The services of a server without its network: for simulations and benches.
//!
//! Built by the same wiring as [`crate::Server`], on any store and clock, with a compiler that
//! needs no code on disk. Dropping it has the effect of `kill -9` on a server: all work stops
//! immediately, and leases stay until they expire.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use bunraku_compile::compiles::{
    Compilation, CompileFailure, CompileOptions, CompileQueue, CompileRequest, Compiler, Compiles,
    EnvironmentSlots,
};
use bunraku_control::ServiceError;

pub use crate::http::{CommandStream, ConnectedAgent};
use crate::service_options::ServiceOptions;
use crate::services::Services;
use crate::wiring::{Wiring, WiringParts};

/// A server's running services.
pub struct RunningServices {
    services: Services,
    /// All background work. Aborted when this is dropped.
    _tasks: JoinSet<()>,
}

impl RunningServices {
    /// Builds the services, and starts their background work on the current runtime.
    pub async fn start(options: &ServiceOptions, parts: WiringParts) -> Result<Self, ServiceError> {
        let wiring = Wiring::build(options, parts).await?;
        let services = wiring.services.clone();
        // Never cancelled: dropping the tasks ends them.
        let forever = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for task in wiring.into_background(Arc::new(Notify::new()), &forever) {
            tasks.spawn(task);
        }
        Ok(Self {
            services,
            _tasks: tasks,
        })
    }

    pub fn services(&self) -> &Services {
        &self.services
    }
}
