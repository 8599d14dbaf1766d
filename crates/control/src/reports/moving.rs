//! Moving history from one place to another, while everything goes on.
//!
//! A move begins with one write that names the new place. From then on, new events go there, and
//! both places are read. One server copies report by report, compares each copy with the original,
//! and only then removes the original. So what is left in the former place is the work that
//! remains, and any server can continue after any crash. When nothing is left, the move ends with
//! another write.

use std::collections::BTreeSet;
use std::time::Duration;

use bunraku_store::history::{
    EventChunk, HistoryError, HistoryFilter, HistoryRecord, SharedHistory,
};
use bunraku_store::{Swap, Transaction, compare_and_swap};
use tokio_util::sync::CancellationToken;

use super::history::{HistoryPlace, StoredHistoryPlace};
use super::{Reports, decode_record, event_code};
use crate::leader::Leadership;
use crate::{ServiceError, document, keys};

/// Reports per page.
const PAGE: usize = 100;
/// The time between two looks at history that does nothing else.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// The time after which a server looks for a move even if it noticed no change.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The lease of the server that moves.
const LEADER_TTL: Duration = Duration::from_secs(10);

/// The state of history, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryMove {
    pub active: HistoryPlace,
    pub from: Option<HistoryPlace>,
    pub moved: u64,
    /// The failure that lasts, if there is one, and the seconds since it began.
    pub outage: Option<(String, u64)>,
}

impl Reports {
    /// Chooses the place of history, if none was chosen before.
    pub async fn choose_history(&self) -> Result<(), ServiceError> {
        self.histories.choose(&self.clock).await
    }

    /// Returns where history is, and whether it answers.
    pub async fn history_state(&self) -> Result<HistoryMove, ServiceError> {
        let known = self.histories.current().await?;
        let outage = match known.sources() {
            Err(error) => Some((bunraku_model::error_chain(&error), 0)),
            Ok(sources) => sources.into_iter().find_map(|source| {
                let outage = source.outage()?;
                Some((outage.message, outage.lasting.as_secs()))
            }),
        };
        let stored = known.stored.as_ref();
        Ok(HistoryMove {
            active: stored.map_or(HistoryPlace::Store, |stored| stored.active),
            from: stored.and_then(|stored| stored.from),
            moved: stored.map_or(0, |stored| stored.moved),
            outage,
        })
    }

    /// Returns the place that needs no configuration.
    pub fn default_history(&self) -> HistoryPlace {
        self.histories.backends.default_place()
    }

    /// Begins a move, if history is not there already. A move back while the first one goes on
    /// turns it around.
    pub async fn begin_history_move(&self, to: HistoryPlace) -> Result<HistoryMove, ServiceError> {
        let target = self
            .histories
            .at(to)
            .map_err(|place| ServiceError::Conflict {
                message: format!(
                    "this server is not configured for history in `{}`",
                    place.as_str()
                ),
                hint: Some(
                    "configure [server.history] on every server, and restart them".to_owned(),
                ),
            })?;
        // Nothing is begun that cannot work.
        target.check(self.clock.now()).await?;
        compare_and_swap(&*self.store, |_| async {
            let known = document::read::<StoredHistoryPlace>(&*self.store, keys::HISTORY_PLACE);
            let known = known.await?;
            let stored = known.as_ref().map(|known| known.document.clone());
            let active = stored.as_ref().map_or(HistoryPlace::Store, |it| it.active);
            let from = stored.as_ref().and_then(|it| it.from);
            if active == to {
                return Ok::<_, ServiceError>(Swap::Done(()));
            }
            if from.is_some_and(|from| from != to) {
                return Err(ServiceError::conflict(
                    "history is being moved to another place",
                    "wait until that is finished; see `bunraku store status`",
                ));
            }
            let place = StoredHistoryPlace {
                active: to,
                from: Some(active),
                since: self.clock.now(),
                moved: 0,
            };
            let transaction = Transaction::new()
                .when_unchanged(
                    keys::HISTORY_PLACE,
                    known.as_ref().map(|known| &known.entry),
                )
                .put(keys::HISTORY_PLACE, document::encode(&place));
            Ok(Swap::Write(transaction, ()))
        })
        .await?;
        self.histories.refresh().await?;
        self.history_state().await
    }

    /// Follows the place of history, watches its health, and moves it when asked, until cancelled.
    pub async fn run_history(&self, server: &str, until: CancellationToken) {
        tokio::join!(
            self.histories.follow(&until),
            self.watch_health(&until),
            self.move_when_asked(server, &until),
        );
    }

    /// A backend that nobody uses at the moment is looked at, too, so that its failure shows.
    async fn watch_health(&self, until: &CancellationToken) {
        loop {
            if let Ok(known) = self.histories.current().await
                && !known.is_in_store()
                && let Ok(active) = known.active()
            {
                // The backend remembers its failure.
                let _ = active.check(self.clock.now()).await;
            }
            tokio::select! {
                () = until.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
        }
    }

    async fn move_when_asked(&self, server: &str, until: &CancellationToken) {
        while !until.is_cancelled() {
            let changed = self.histories.changed.notified();
            let moving = self.histories.current().await;
            let mut pause = LOOK_EVERY;
            if moving.is_ok_and(|known| known.from.is_some()) {
                pause = super::RETRY;
                let led = tokio::select! {
                    () = until.cancelled() => return,
                    led = self.lead_move(server) => led,
                };
                if let Err(error) = led {
                    let error = bunraku_model::error_chain(&error);
                    tracing::warn!(error, "cannot move history at the moment; retrying");
                }
            }
            tokio::select! {
                () = until.cancelled() => return,
                () = changed => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn lead_move(&self, server: &str) -> Result<(), ServiceError> {
        let store = self.store.clone();
        let key = keys::HISTORY_MOVER;
        let leadership = Leadership::campaign(store, key, server, LEADER_TTL).await?;
        let moved = tokio::select! {
            () = leadership.keep_alive() => Ok(()),
            moved = self.finish_move() => moved,
        };
        leadership.resign().await;
        moved
    }

    /// Moves everything that is left, and ends the move.
    pub async fn finish_move(&self) -> Result<(), ServiceError> {
        loop {
            let known = self.histories.refresh().await?;
            let Some(place) = known.stored.clone().filter(|place| place.from.is_some()) else {
                return Ok(());
            };
            let from = match &known.from {
                Some(Ok(from)) => from.clone(),
                Some(Err(place)) => {
                    let place = place.as_str().to_owned();
                    return Err(HistoryError::NotConfigured(place).into());
                }
                None => return Ok(()),
            };
            let to = known.active()?.clone();
            let moved = self.move_page(&from, &to).await?;
            self.note_progress(&place, moved).await?;
        }
    }

    /// Moves some reports. Returns their number.
    async fn move_page(
        &self,
        from: &SharedHistory,
        to: &SharedHistory,
    ) -> Result<u64, ServiceError> {
        let filter = HistoryFilter {
            limit: PAGE,
            ..HistoryFilter::default()
        };
        let page = from.list(&filter).await?;
        let (mut moved, mut nodes) = (0, BTreeSet::new());
        for record in page.records {
            nodes.insert(decode_record(&record)?.node);
            move_record(from, to, record).await?;
            moved += 1;
        }
        // The state store keeps all heads of reports that it has.
        let nodes = nodes
            .into_iter()
            .filter(|_| to.kind() != HistoryPlace::Store.as_str());
        for node in nodes {
            self.remove_superseded(&node).await?;
        }
        Ok(moved)
    }

    /// Counts what was moved; ends the move if nothing was left.
    async fn note_progress(
        &self,
        place: &StoredHistoryPlace,
        moved: u64,
    ) -> Result<(), ServiceError> {
        let is_over = moved == 0;
        document::update(&*self.store, keys::HISTORY_PLACE, |known| {
            let known: Option<StoredHistoryPlace> = known;
            // Another move has begun.
            let Some(known) = known.filter(|it| it.since == place.since) else {
                return Ok(document::Decision::Keep);
            };
            Ok(document::Decision::Write(StoredHistoryPlace {
                from: known.from.filter(|_| !is_over),
                moved: known.moved + moved,
                ..known
            }))
        })
        .await?;
        if is_over {
            tracing::info!(place = place.active.as_str(), "history is moved");
        }
        Ok(())
    }
}

/// Copies a report, compares the copy, and removes the original.
async fn move_record(
    from: &SharedHistory,
    to: &SharedHistory,
    record: HistoryRecord,
) -> Result<(), ServiceError> {
    let id = record.id.clone();
    let chunks = from.events(&id, record.at, 0).await?;
    let also = from.aliases(&record).await?;
    // The copy of a head does not say where the events were.
    let head = decode_record(&record)?;
    let copy = HistoryRecord {
        is_closed: record.is_closed || head.finished.is_some(),
        ..head.moved_elsewhere().record()
    };
    to.import(copy.clone(), also, chunks.clone()).await?;
    verify(to, &copy, &chunks).await?;
    from.remove(&id).await?;
    Ok(())
}

/// Fails unless the new place has the report, and every event of it.
async fn verify(
    to: &SharedHistory,
    copy: &HistoryRecord,
    chunks: &[EventChunk],
) -> Result<(), ServiceError> {
    let damaged = |what: &str| {
        let what = format!("run {} was not copied correctly: {what}", copy.id.id);
        ServiceError::internal(what, std::io::Error::other("the original is kept"))
    };
    let Some(found) = to.record(&copy.id).await? else {
        // Older than anything that is kept there.
        return Ok(());
    };
    if found.version < copy.version {
        return Err(damaged("its head is older"));
    }
    let since = to.events_since().await?;
    if since.is_some_and(|since| found.at < since) {
        return Ok(());
    }
    let copied = to.events(&copy.id, found.at, 0).await?;
    let end = chunks.last().map_or(0, |chunk| chunk.end);
    let original = event_code::assemble(chunks, 0, end)?;
    let copied = event_code::assemble(&copied, 0, end)?;
    if original == copied {
        Ok(())
    } else {
        Err(damaged("its events differ"))
    }
}
