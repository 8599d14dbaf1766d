//! The end of a rotation that nobody finishes by hand: its period is over, or an abort is complete.
//!
//! Every server looks for it. One of them ends the rotation, and records that, in one transaction.

use bunraku_store::{Transaction, settle};
use bunraku_wire::api::RotationPhase;

use super::Certificates;
use super::rotation::Rotation;
use crate::audit::AuditAction;
use crate::{ServiceError, document, keys};

impl Certificates {
    /// Ends the period, and an abort whose nodes are back.
    pub(super) async fn end_if_due(&self) -> Result<(), ServiceError> {
        let (_, Some(rotation)) = self.authority.both() else {
            return Ok(());
        };
        match rotation.phase {
            RotationPhase::Finished => Ok(()),
            RotationPhase::Renewing if self.clock.now() >= rotation.until => {
                let status = self.rotation_status().await?;
                if !status.servers_waiting.is_empty() {
                    tracing::error!(servers = ?status.servers_waiting, "the CA's rotation is due, but servers lack the new CA");
                    return Ok(());
                }
                if !status.waiting.is_empty() {
                    tracing::error!(nodes = ?status.waiting, "these nodes have not renewed in time, and must join again");
                }
                self.finish_at_the_end().await
            }
            RotationPhase::Renewing => Ok(()),
            RotationPhase::Aborting => {
                let status = self.rotation_status().await?;
                if status.waiting.is_empty() || self.clock.now() >= rotation.until {
                    let known = self.store.get(keys::ROTATION).await?;
                    let transaction = Transaction::new()
                        .when_unchanged(keys::ROTATION, known.as_ref())
                        .delete(keys::ROTATION);
                    let action = AuditAction::new("end-aborted-rotation");
                    let transaction = self.audit.record_in(transaction, action);
                    self.store.commit(transaction).await?;
                }
                Ok(())
            }
        }
    }

    /// Finishes the rotation at the end of its period. Of several servers that do that at the same
    /// time, one does it, and records it.
    async fn finish_at_the_end(&self) -> Result<(), ServiceError> {
        let known = document::read::<Rotation>(&*self.store, keys::ROTATION).await?;
        let Some(known) = known.filter(|it| it.document.phase == RotationPhase::Renewing) else {
            return Ok(());
        };
        let finished = Rotation {
            phase: RotationPhase::Finished,
            sealed: None,
            ..known.document
        };
        let transaction = Transaction::new()
            .when_unchanged(keys::ROTATION, Some(&known.entry))
            .put(keys::ROTATION, document::encode(&finished));
        let action = AuditAction::new("finish-rotation").because(Some("the end of its period"));
        let transaction = self.audit.record_in(transaction, action);
        if settle(&*self.store, transaction).await?.is_committed() {
            tracing::warn!("the former CA is no longer trusted");
        }
        Ok(())
    }
}
