//! Queries, answered from an index that each server derives from the store.
//!
//! The index holds only data from the store. It is built when the server starts
//! and follows changes (`feed.rs`), so it lags slightly. Queries wait until it
//! is built.

mod code_answers;
mod feed;
mod node_reports;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{EnvironmentName, NodeName};
use bunraku_query::{AnswerError, Index, Limits, Query, QueryAnswer, VisibleFacts};
use bunraku_store::SharedStore;
use bunraku_store::blobs::SharedBlobs;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use bunraku_control::find_nodes::query_refused;
use bunraku_control::metrics::FleetMetrics;
use bunraku_control::reports::Reports;
use bunraku_control::{FindNodes, Reach, ServiceError};

/// Time that a query waits for an index that is being built.
const PATIENCE: Duration = Duration::from_secs(30);

/// Handle for the query service.
#[derive(Clone)]
pub struct Queries {
    store: SharedStore,
    blobs: SharedBlobs,
    reports: Reports,
    index: Arc<RwLock<Index>>,
    built: Arc<watch::Sender<bool>>,
    /// Counts changes of the index.
    changes: Arc<watch::Sender<u64>>,
    limits: Limits,
    /// The facts that nodes may see of each other.
    visible: Arc<VisibleFacts>,
    fleet: Arc<FleetMetrics>,
}

impl Queries {
    pub fn new(store: SharedStore, blobs: SharedBlobs, reports: Reports, limits: Limits) -> Self {
        Self {
            store,
            blobs,
            reports,
            index: Arc::default(),
            built: Arc::new(watch::Sender::new(false)),
            changes: Arc::new(watch::Sender::new(0)),
            limits,
            visible: Arc::default(),
            fleet: Arc::default(),
        }
    }

    /// Lets nodes see these facts of each other.
    #[must_use]
    pub fn with_visible_facts(mut self, visible: VisibleFacts) -> Self {
        self.visible = Arc::new(visible);
        self
    }

    /// Counts the nodes of the index in these metrics.
    #[must_use]
    pub fn with_metrics(mut self, fleet: Arc<FleetMetrics>) -> Self {
        self.fleet = fleet;
        self
    }

    /// Builds the index, and keeps it up to date until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut feed = feed::Feed::new(self.clone());
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = feed.run() => {}
        }
    }

    /// Answers a query.
    pub async fn answer(&self, text: &str) -> Result<QueryAnswer, ServiceError> {
        let query = Query::parse(text).map_err(|error| query_refused(&error, text))?;
        self.read_index(move |index, limits| index.answer(&query, limits))
            .await
    }

    /// Answers a query of a node, within what nodes may see of each other.
    pub async fn answer_for_node(&self, text: &str) -> Result<QueryAnswer, ServiceError> {
        if self.visible.is_empty() {
            return Err(ServiceError::Forbidden {
                message: "nodes may not query".to_owned(),
                hint: Some("list the facts that nodes may see under [server.queries]".to_owned()),
            });
        }
        let query = Query::parse_visible(text, &self.visible);
        let query = query.map_err(|error| query_refused(&error, text))?;
        self.read_index(move |index, limits| index.answer(&query, limits))
            .await
    }

    /// Answers a query as if there were only the nodes that the caller may view.
    pub async fn answer_within(
        &self,
        text: &str,
        view: Reach,
    ) -> Result<QueryAnswer, ServiceError> {
        let query = Query::parse(text).map_err(|error| query_refused(&error, text))?;
        self.read_index(move |index, limits| index.answer_within(&query, limits, is_in(&view)))
            .await
    }

    /// Like [`Queries::nodes_matching`], as if there were only the nodes that the caller may view.
    pub async fn nodes_matching_within(
        &self,
        text: &str,
        view: Reach,
    ) -> Result<Vec<NodeName>, ServiceError> {
        let query = Query::parse_target(text).map_err(|error| query_refused(&error, text))?;
        self.read_index(move |index, limits| {
            index.nodes_matching_within(&query, limits, is_in(&view))
        })
        .await
    }

    /// Returns the nodes that a query matches, by name, for services that act on nodes.
    pub async fn nodes_matching(&self, text: &str) -> Result<Vec<NodeName>, ServiceError> {
        let query = Query::parse_target(text).map_err(|error| query_refused(&error, text))?;
        self.read_index(move |index, limits| index.nodes_matching(&query, limits))
            .await
    }

    /// Runs outside the serving threads: a query may take long.
    async fn read_index<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Index, &Limits) -> Result<T, AnswerError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        self.wait_until_built().await?;
        let (index, limits) = (Arc::clone(&self.index), self.limits);
        let looked = tokio::task::spawn_blocking(move || {
            let index = index.read().unwrap_or_else(PoisonError::into_inner);
            work(&index, &limits)
        });
        match looked.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(ServiceError::Invalid {
                message: error.to_string(),
                hint: Some(error.hint().to_owned()),
            }),
            Err(error) => Err(ServiceError::internal("a query failed", error)),
        }
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_until_built(&self) -> Result<(), ServiceError> {
        let mut built = self.built.subscribe();
        let waited = tokio::time::timeout(PATIENCE, built.wait_for(|built| *built)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ServiceError::Busy {
                message: "the index is still being built".to_owned(),
            }),
        }
    }
}

/// Returns a test for the nodes that a reach covers.
fn is_in(reach: &Reach) -> impl Fn(&NodeName, Option<&str>) -> bool {
    |node, environment| {
        let environment = environment.and_then(|name| EnvironmentName::new(name).ok());
        reach.covers_node(node, environment.as_ref())
    }
}

#[async_trait]
impl FindNodes for Queries {
    async fn nodes_matching(&self, query: &str) -> Result<Vec<NodeName>, ServiceError> {
        Self::nodes_matching(self, query).await
    }
}
