//! One file per kind of thing that the API speaks of.

pub(super) mod catalogs;
pub(super) mod certificates;
pub(super) mod cluster;
pub(super) mod commands;
pub(super) mod compiles;
pub(super) mod content;
pub(super) mod environments;
pub(super) mod facts;
pub(super) mod join;
pub(super) mod locks;
pub(super) mod modules;
pub(super) mod nodes;
pub(super) mod once;
pub(super) mod outputs;
pub(super) mod query;
pub(super) mod reactors;
pub(super) mod releases;
pub(super) mod reports;
pub(super) mod runs;
pub(super) mod server;
pub(super) mod targets;
pub(super) mod tokens;
pub(super) mod triggers;

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bunraku_model::{NodeName, ServerId};
use bunraku_store::SharedStore;
use bunraku_wire::Revocations;
use http::request::Parts;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::reply::Refusal;
use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::compiles::Compiles;
use bunraku_compile::environments::Environments;
use bunraku_compile::modules::Modules;
use bunraku_compile::{CatalogDiffs, CommandHub, Contents, Queries, Releases, TargetBoard};
use bunraku_control::certificates::Certificates;
use bunraku_control::metrics::Metrics;
use bunraku_control::{Clock, Commands, Facts, Nodes, Presence, Reports};
use bunraku_cues::{Locks, Once, Triggers};
use bunraku_orchestrate::Orchestration;

/// Everything that handlers reach. One pointer: every open stream holds it.
#[derive(Clone)]
pub(crate) struct Services(Arc<ServiceSet>);

impl std::ops::Deref for Services {
    type Target = ServiceSet;

    fn deref(&self) -> &ServiceSet {
        &self.0
    }
}

impl From<ServiceSet> for Services {
    fn from(set: ServiceSet) -> Self {
        Self(Arc::new(set))
    }
}

/// What [`Services`] points at.
pub(crate) struct ServiceSet {
    pub(crate) store: SharedStore,
    pub(crate) nodes: Nodes,
    pub(crate) facts: Facts,
    pub(crate) queries: Queries,
    pub(crate) catalogs: Catalogs,
    pub(crate) compiles: Compiles,
    pub(crate) environments: Environments,
    pub(crate) modules: Modules,
    pub(crate) once: Once,
    pub(crate) orchestration: Orchestration,
    pub(crate) outputs: bunraku_orchestrate::Outputs,
    pub(crate) triggers: Triggers,
    pub(crate) reactors: bunraku_cues::Reactors,
    pub(crate) locks: Locks,
    pub(crate) commands: Commands,
    pub(crate) reports: Reports,
    pub(crate) hub: CommandHub,
    pub(crate) contents: Contents,
    pub(crate) diffs: CatalogDiffs,
    pub(crate) releases: Releases,
    pub(crate) board: TargetBoard,
    pub(crate) presence: Presence,
    pub(crate) certificates: Certificates,
    pub(crate) cluster: crate::Cluster,
    pub(crate) revocations: Revocations,
    pub(crate) clock: Clock,
    /// How often a silent command stream gets an empty line.
    pub(crate) heartbeat: std::time::Duration,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) identity: Arc<ServerIdentity>,
    /// What open streams still have to write down when they end.
    pub(crate) closing: tokio_util::task::TaskTracker,
    /// Cancelled when the server shuts down: streams end, nothing new starts.
    pub(crate) shutdown: tokio_util::sync::CancellationToken,
}

/// What this server says of itself.
pub(crate) struct ServerIdentity {
    pub(crate) id: ServerId,
    pub(crate) started: Timestamp,
    pub(crate) store: &'static str,
}

type Answer<T> = Result<axum::Json<T>, Refusal>;

/// A JSON body, refused with a problem document that says where it is wrong.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let bytes = whole_body(request, state).await?;
        let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
        let value = T::deserialize(&mut deserializer)
            .and_then(|value| deserializer.end().map(|()| value))
            .map_err(|error| {
                Refusal::invalid(format!("the body is not what this takes: {error}"))
            })?;
        Ok(Self(value))
    }
}

pub(crate) async fn whole_body<S: Send + Sync>(
    request: Request,
    state: &S,
) -> Result<bytes::Bytes, Refusal> {
    use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
    let limit = request
        .extensions()
        .get::<super::router::BodyLimit>()
        .map_or(0, |limit| limit.0);
    bytes::Bytes::from_request(request, state)
        .await
        .map_err(|error| match error {
            BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
                Refusal::too_large(limit)
            }
            _ => Refusal::invalid("the body was cut off".to_owned()),
        })
}

/// The node in the path.
pub(crate) struct PathNode(pub(crate) NodeName);

impl<S: Send + Sync> FromRequestParts<S> for PathNode {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        path_parameter(parts, state, &["node", "name"])
            .await
            .map(Self)
    }
}

/// The command in the path.
pub(crate) struct PathCommand(pub(crate) bunraku_model::CommandId);

impl<S: Send + Sync> FromRequestParts<S> for PathCommand {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        path_parameter(parts, state, &["id"]).await.map(Self)
    }
}

/// The id in the path, of whichever kind the route speaks of.
pub(crate) struct PathId<T>(pub(crate) T);

impl<S: Send + Sync, T> FromRequestParts<S> for PathId<T>
where
    T: std::str::FromStr + Send,
    T::Err: std::fmt::Display,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        path_parameter(parts, state, &["id"]).await.map(Self)
    }
}

/// The environment in the path.
pub(crate) struct PathEnvironment(pub(crate) bunraku_model::EnvironmentName);

impl<S: Send + Sync> FromRequestParts<S> for PathEnvironment {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let environment = path_parameter(parts, state, &["environment"]);
        environment.await.map(Self)
    }
}

/// The release in the path: its number, or `current` for the newest.
pub(crate) struct PathNumber(pub(crate) Option<bunraku_model::ReleaseNumber>);

impl<S: Send + Sync> FromRequestParts<S> for PathNumber {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let text: String = path_parameter(parts, state, &["number"]).await?;
        if text == "current" {
            return Ok(Self(None));
        }
        let number = text.parse().map_err(|_| {
            Refusal::invalid(format!(
                "`{text}` is neither a release's number nor `current`"
            ))
        })?;
        Ok(Self(Some(number)))
    }
}

async fn path_parameter<S: Send + Sync, T>(
    parts: &mut Parts,
    state: &S,
    names: &[&str],
) -> Result<T, Refusal>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let parameters = axum::extract::RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|error| Refusal::invalid(error.to_string()))?;
    let text = parameters
        .iter()
        .find(|(name, _)| names.contains(name))
        .map(|(_, value)| value)
        .ok_or_else(|| Refusal::not_found("the path names nothing".to_owned()))?;
    text.parse()
        .map_err(|error: T::Err| Refusal::invalid(error.to_string()))
}
