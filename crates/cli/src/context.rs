//! The values that every command receives.

use std::future::Future;
use std::sync::Arc;

use bunraku_wire::Client;

use crate::config::LoadedConfig;
use crate::connection::{Connection, open};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::global_options::Global;
use crate::trust_refresh::refresh_if_due;
use crate::waiting;
use crate::wiring::Wiring;

/// The options, configuration and wiring of this invocation.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) loaded: Arc<LoadedConfig>,
    pub(crate) wiring: Wiring,
}

impl Context {
    /// Runs work that talks to a server. One thread is enough, and starts immediately.
    pub(crate) fn with_client<F, R>(&self, work: F) -> Result<Exit, Failure>
    where
        F: FnOnce(Client) -> R,
        R: Future<Output = Result<Exit, Failure>>,
    {
        let Connection {
            client,
            tls,
            credentials,
        } = open(&self.global, &self.loaded)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(async {
            waiting::shown(async {
                refresh_if_due(&client, &tls, &credentials).await;
                work(client.clone()).await
            })
            .await
        });
        if let Some(lasting) = client.old_data() {
            note!(
                "warning: the datastores have had no majority for {} s: this output may be stale, and nothing can be changed; see `bunraku cluster status`",
                lasting.as_secs()
            );
        }
        outcome
    }
}
