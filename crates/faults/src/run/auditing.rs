//! Reads the audit log: what it ends with during the faults, and all of it at the end.
//!
//! Every end that was seen has to be in the log for ever, whichever server showed it, and
//! whichever died since.

use std::time::Duration;

use bunraku_model::{AuditChainCheck, AuditChainPlace};
use bunraku_wire::api::{AuditHead, AuditRecord};
use bunraku_wire::client::Lines;
use bunraku_wire::endpoints::{ExportAudit, ShowAuditHead};
use bunraku_wire::{Client, ClientError};

use crate::history::{AuditTrail, AuditedAction};
use crate::site::Site;

/// The time limit for one answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The ends of the log that were seen.
#[derive(Default)]
pub(super) struct AuditWitness {
    seen: Vec<AuditChainPlace>,
}

impl AuditWitness {
    /// Notes what the log ends with, as every server that answers says.
    pub(super) async fn look(&mut self, site: &Site) {
        let clients = (0..site.machines.len()).map(|server| site.client(server));
        let asked: Vec<_> = clients.map(|client| tokio::spawn(newest(client))).collect();
        for answer in asked {
            self.seen.extend(answer.await.ok().flatten());
        }
    }

    /// Returns the whole log, or `None` if nobody shows it now.
    pub(super) async fn trail(&self, site: &Site) -> Option<AuditTrail> {
        let client = site.client(0);
        let head = newest(client.clone()).await?;
        let lines = all_lines(&client).await.ok()?;
        let names = site.machines.iter().map(|machine| machine.name.clone());
        let mut trail = AuditTrail {
            servers: names.collect(),
            ..AuditTrail::default()
        };
        trail.broken = self.broken(&lines, &head);
        for line in lines {
            let record = serde_json::from_slice::<AuditRecord>(&line).ok();
            trail.records.extend(record.map(action));
        }
        Some(trail)
    }

    fn broken(&self, lines: &[Vec<u8>], head: &AuditChainPlace) -> Option<String> {
        let seen = self.seen.iter().cloned();
        let mut check = seen.fold(AuditChainCheck::default(), AuditChainCheck::with_anchor);
        for line in lines {
            if let Err(error) = check.add(line) {
                return Some(error.to_string());
            }
        }
        check
            .finish(Some(head))
            .err()
            .map(|error| error.to_string())
    }
}

/// Returns the newest record, unless the answer may be old.
async fn newest(client: Client) -> Option<AuditChainPlace> {
    let asked = tokio::time::timeout(ANSWER, client.call(ShowAuditHead)).await;
    let head: AuditHead = asked.ok()?.ok()?;
    (client.old_data().is_none() && head.number > 0).then_some(AuditChainPlace {
        number: head.number,
        hash: head.hash,
    })
}

async fn all_lines(client: &Client) -> Result<Vec<Vec<u8>>, ClientError> {
    let mut lines: Lines<AuditRecord> = client.follow(ExportAudit).await?;
    let mut all = Vec::new();
    while let Some(line) = lines.next_line().await {
        all.push(line?.to_vec());
    }
    Ok(all)
}

fn action(record: AuditRecord) -> AuditedAction {
    let entry = record.entry;
    AuditedAction {
        number: record.number.unwrap_or_default(),
        id: entry.id.to_string(),
        who: entry.who,
        role: entry.role,
        request: entry.request_id,
        action: entry.action,
        object: entry.object,
        outcome: entry.outcome.as_str().to_owned(),
    }
}
