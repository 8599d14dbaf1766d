//! The messages of the HTTP API under `/v1`.
//!
//! Both ends use these types, and the OpenAPI document is made from them, so
//! that the three cannot drift apart. No behaviour in here.

mod catalogs;
mod certificates;
pub mod cluster;
mod commands;
mod compiles;
mod environments;
mod facts;
mod join;
pub mod locks;
pub mod modules;
mod nodes;
pub mod once;
pub mod ordered_runs;
pub mod outputs;
mod problem;
mod query;
pub mod reactors;
mod releases;
mod reports;
mod runs;
mod server;
mod targets;
pub mod triggers;

/// On a reply that was made without a majority of the datastores: for how many
/// seconds there has been none. What it says may be old.
pub const OLD_DATA_HEADER: &str = "bunraku-old-data";

pub use catalogs::{
    CatalogDiffReply, CatalogState, CatalogSummary, FleetChange, FleetDiff, FleetDiffRequest,
    FleetFailure, PuppetComparison, PuppetComparisonRequest,
};
pub use certificates::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, NewToken, PendingRequest,
    RenewRequest, RevokeRequest, SignRequest, TokenEntry, TokenRequest,
};
pub use commands::{
    Command, CommandOutcome, CommandResult, CommandState, CommandStatus, Envelope, NodeHold,
    SendCommand, SentCommand, StreamMessage,
};
pub use compiles::{
    CompileNote, CompileOutcome, CompileReason, CompileRequested, CompileSelection, CompileStatus,
    CompileStatusRequest, LastCompile, QueuedCompile,
};
pub use environments::{
    AssignRequest, CompileProblem, CompileProgress, Deploy, DeployRequest, DeployState,
    DeployStatus, Deployed, EnvironmentChange, EnvironmentChanged, EnvironmentDetail,
    EnvironmentSummary, FailureGroup, HookReply, NewEnvironment, ReleasePolicy, VolatileChange,
};
pub use facts::{
    FactChange, FactSetEntry, FactsDifference, FactsReceipt, FactsReply, SubmissionOrder,
};
pub use join::{JoinReply, JoinRequest};
pub use nodes::{ActivityReceipt, ActivityReport, DisableRequest, NodeSummary};
pub use problem::{Problem, ProblemBody, ProblemCode};
pub use query::{QueryNodes, QueryReply, QueryRequest};
pub use releases::{
    CreateRelease, HoldRequest, ReleaseDetail, ReleaseEntry, ReleaseHold, ReleaseKind, ReleaseList,
    ReleaseReply, ReleaseState, ReleaseSummary, ReleaseTo, RollbackRequest,
};
pub use reports::{
    EventCounts, EventStatus, FailedResource, LogLine, NumberedEvent, OmittedEvents,
    PropertyChange, ReportBatch, ReportEvent, ReportPage, ReportReceipt, ReportState,
    ReportStreamMessage, ReportSummary, ResourceEvent, RunEnding, RunFailure, RunFinished,
    RunStarted,
};
pub use runs::{
    Cause, NodeQueue, QueueEntry, QueueReport, RunMode, RunRequest, RunSubject, TriggerCause,
    TriggerHop,
};
pub use server::ServerStatus;
pub use targets::Target;
