//! Whether a backend works, as its users noticed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bunraku_model::error_chain;
use tokio::time::Instant;

use super::{HistoryError, HistoryOutage};

/// Remembers since when everything fails.
#[derive(Default)]
pub(super) struct OutageNote(Mutex<Option<(Instant, String)>>);

impl OutageNote {
    /// Notes an outcome, and returns it.
    pub(super) fn note<T>(&self, outcome: Result<T, HistoryError>) -> Result<T, HistoryError> {
        match &outcome {
            Ok(_) => {
                if let Some((since, _)) = self.lock().take() {
                    let seconds = since.elapsed().as_secs();
                    tracing::info!(seconds, "history is available again");
                }
            }
            // That all connections are in use says nothing about the backend.
            Err(HistoryError::Busy { .. } | HistoryError::Store(_)) => {}
            Err(error) => {
                let message = error_chain(error);
                let mut known = self.lock();
                if known.is_none() {
                    tracing::warn!(error = message, "history is unavailable");
                }
                let since = known.take().map_or_else(Instant::now, |(since, _)| since);
                *known = Some((since, message));
            }
        }
        outcome
    }

    pub(super) fn current(&self) -> Option<HistoryOutage> {
        let known = self.lock();
        known.as_ref().map(|(since, message)| HistoryOutage {
            lasting: since.elapsed(),
            message: message.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        // The note is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
