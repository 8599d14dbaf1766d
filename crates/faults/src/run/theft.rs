//! Somebody who renews a stolen certificate in a loop at all servers, while an operator revokes it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bunraku_wire::ClientError;
use bunraku_wire::api::RevokeRequest;
use bunraku_wire::endpoints::{Endpoint, RevokeCertificates};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::history::{Micros, Server};
use crate::incident::Theft;
use crate::own_node::OwnNode;
use crate::setup::{PATIENCE, SiteError};
use crate::site::Site;
use crate::workload::Recorder;

/// The time between two attempts.
const LOOK: Duration = Duration::from_millis(200);

/// The certificates that the thief got, each with the time of its request.
type Loot = Arc<Mutex<Vec<(Micros, OwnNode)>>>;

/// A theft that is underway, or over.
pub(super) struct RunningTheft {
    stolen: Arc<OwnNode>,
    loot: Loot,
    revoked: Option<Micros>,
    stop: CancellationToken,
    loops: JoinSet<()>,
}

impl RunningTheft {
    /// Starts to renew at every server.
    pub(super) fn start(
        stolen: OwnNode,
        site: &Site,
        recorder: &Recorder,
    ) -> Result<Self, SiteError> {
        let mut theft = Self {
            stolen: Arc::new(stolen),
            loot: Arc::default(),
            revoked: None,
            stop: CancellationToken::new(),
            loops: JoinSet::new(),
        };
        for machine in &site.machines {
            let client = theft.stolen.client(&machine.api())?;
            let (stolen, loot) = (Arc::clone(&theft.stolen), Arc::clone(&theft.loot));
            let (stop, recorder) = (theft.stop.clone(), recorder.clone());
            theft.loops.spawn(async move {
                while !stop.is_cancelled() {
                    let begun = recorder.now();
                    if let Ok(Ok(renewed)) = stolen.renew(&client).await {
                        let mut loot = loot.lock().unwrap_or_else(PoisonError::into_inner);
                        loot.push((begun, renewed));
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        Ok(theft)
    }

    /// Tries once to revoke the certificate. Operators repeat what was not acknowledged.
    pub(super) async fn revoke(&mut self, site: &Site, at: Server, recorder: &Recorder) {
        if self.revoked.is_some() {
            return;
        }
        let request = RevokeRequest {
            reason: "stolen".to_owned(),
            serial: None,
        };
        let client = site.client(at);
        let reply = client.call_with(RevokeCertificates.at(&self.stolen.name), &request);
        if reply.await.is_ok() {
            self.revoked = Some(recorder.now());
        }
    }

    /// Lets the thief continue for a while after the revocation, then stops.
    pub(super) async fn end(&mut self, site: &Site, recorder: &Recorder) {
        let deadline = Instant::now() + PATIENCE;
        let mut server = 0;
        while self.revoked.is_none() && Instant::now() < deadline {
            self.revoke(site, server % site.machines.len(), recorder)
                .await;
            server += 1;
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(LOOK).await;
        self.stop.cancel();
        while self.loops.join_next().await.is_some() {}
    }

    /// Presents every certificate to every server, until all refuse or patience ends.
    pub(super) async fn outcome(&self, site: &Site) -> Result<Theft, SiteError> {
        let loot = std::mem::take(&mut *self.loot.lock().unwrap_or_else(PoisonError::into_inner));
        let deadline = Instant::now() + PATIENCE;
        let mut accepted_by = Vec::new();
        for machine in &site.machines {
            let renewed = loot.iter().map(|(_, certificate)| certificate);
            for certificate in std::iter::once(&*self.stolen).chain(renewed) {
                let client = certificate.client(&machine.api())?;
                while !is_refused(client.fetch("/v1/crl", &[]).await) {
                    if Instant::now() > deadline {
                        accepted_by.push(machine.name.clone());
                        break;
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
        Ok(Theft {
            node: self.stolen.name.to_string(),
            revoked: self.revoked,
            renewals: loot.iter().map(|(begun, _)| *begun).collect(),
            accepted_by,
        })
    }
}

/// Returns true for a clear refusal of the certificate. Anything else may be a server in trouble.
fn is_refused<T>(reply: Result<T, ClientError>) -> bool {
    match reply {
        Ok(_) => false,
        Err(error) => {
            matches!(error, ClientError::Refused { .. })
                || matches!(error.status(), Some(401 | 403))
        }
    }
}
