//! The messages of the HTTP API under `/v1`.
//!
//! Clients and servers use these types, and the OpenAPI document is generated from them, so the
//! three cannot drift apart. This module contains no behaviour.

mod access;
pub mod approvals;
mod audit;
mod authority;
mod catalogs;
mod certificates;
pub mod cluster;
mod commands;
mod compiles;
mod environments;
mod facts;
mod history;
mod join;
pub mod locks;
pub mod modules;
mod nodes;
pub mod once;
pub mod ordered_runs;
pub mod outputs;
pub mod page;
mod plugins;
mod problem;
mod query;
pub mod reactors;
mod releases;
mod reports;
pub mod repositories;
mod restore;
mod runs;
mod server;
mod space;
mod store;
mod targets;
pub mod triggers;

/// A header on replies given without a majority of the datastores: the number of seconds without
/// one. The reply may be stale.
pub const OLD_DATA_HEADER: &str = "bunraku-old-data";
/// A header on requests and replies: the id of the request, for logs and the audit log. A server
/// chooses one for requests without it.
pub const REQUEST_ID_HEADER: &str = "x-request-id";
/// A header on requests: the caller's reason for a change, in UTF-8.
pub const REASON_HEADER: &str = "bunraku-reason";

pub use access::{
    AccessDecision, AccessRuleEntry, CheckAccessRequest, GrantAccessReply, GrantAccessRequest,
    OwnAccess, RejectedRule, RevokeAccessReply,
};
pub use audit::{
    AuditCertificate, AuditCheckpoint, AuditEntry, AuditHead, AuditOutcome, AuditPage, AuditRecord,
    AuditSource,
};
pub use authority::{
    AuthorityView, FinishRotationRequest, RotateRequest, RotationPhase, RotationStatus,
};
pub use catalogs::{
    CatalogDiffReply, CatalogState, CatalogSummary, FleetChange, FleetDiff, FleetDiffRequest,
    FleetFailure, PuppetComparison, PuppetComparisonRequest,
};
pub use certificates::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, NewToken, PendingRequest,
    RenewRequest, RevokeRequest, SignRequest, TokenEntry, TokenRequest,
};
pub use commands::{
    Command, CommandOutcome, CommandResult, CommandState, CommandStatus, Envelope, LostNotice,
    NodeHold, SendCommand, SentCommand, StreamMessage,
};
pub use compiles::{
    CompileNote, CompileOutcome, CompileReason, CompileRequested, CompileSelection, CompileStatus,
    CompileStatusRequest, LastCompile, QueuedCompile,
};
pub use environments::{
    AssignRequest, CompileProblem, CompileProgress, Deploy, DeployRequest, DeployState,
    DeployStatus, DeployedCode, DeployedModule, EnvironmentChange, EnvironmentChanged,
    EnvironmentDetail, EnvironmentPin, EnvironmentSummary, FailureGroup, HookReply, NewEnvironment,
    ReleasePolicy, VolatileChange,
};
pub use facts::{
    FactChange, FactSetEntry, FactsDifference, FactsReceipt, FactsReply, SubmissionOrder,
};
pub use history::{HistoryStatus, HistoryTarget, MoveHistoryRequest};
pub use join::{JoinReply, JoinRequest};
pub use nodes::{ActivityReceipt, ActivityReport, DisableRequest, LastRun, NodeSummary};
pub use page::{NEXT_PAGE_HEADER, Page, PageQuery, TOTAL_HEADER};
pub use plugins::{NodePlugins, PluginsFile};
pub use problem::{Problem, ProblemBody, ProblemCode};
pub use query::{QueryNodes, QueryReply, QueryRequest};
pub use releases::{
    CreateRelease, HoldRequest, NodeWithoutCatalog, OverrideRelease, ReleaseDetail, ReleaseEntry,
    ReleaseGroup, ReleaseHold, ReleaseJoinRule, ReleaseKind, ReleaseList, ReleaseReply,
    ReleaseState, ReleaseSummary, ReleaseTo, RollbackRequest,
};
pub use reports::{
    EventCounts, EventStatus, FailedResource, LogLine, NoopReason, NumberedEvent, OmittedEvents,
    PropertyChange, ReportBatch, ReportEvent, ReportPage, ReportReceipt, ReportRepeats,
    ReportState, ReportStreamMessage, ReportSummary, ResourceEvent, RunEnding, RunFailure,
    RunFinished, RunStarted,
};
pub use restore::{OfferedLists, RestoreReview, UnknownCertificate};
pub use runs::{
    Cause, NodeQueue, QueueEntry, QueueReport, RunMode, RunRequest, RunSubject, TriggerCause,
    TriggerHop,
};
pub use server::{FleetCapacity, ServerStatus};
pub use space::{MemberSpaceStatus, SpaceStatus};
pub use store::{ContentPlaceStatus, ContentStatus, MoveContentRequest, StoreStatus, StuckContent};
pub use targets::Target;
