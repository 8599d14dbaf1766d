//! The messages of the HTTP API under `/v1`.
//!
//! Both ends use these types, and the OpenAPI document is made from them, so
//! that the three cannot drift apart. No behaviour in here.

mod certificates;
mod commands;
mod facts;
mod join;
pub mod locks;
mod nodes;
pub mod once;
mod problem;
mod reports;
mod runs;
mod server;
mod targets;
pub mod triggers;

pub use certificates::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, NewToken, PendingRequest,
    RenewRequest, RevokeRequest, SignRequest, TokenEntry, TokenRequest,
};
pub use commands::{
    Command, CommandOutcome, CommandResult, CommandState, CommandStatus, Envelope, SendCommand,
    SentCommand, StreamMessage,
};
pub use facts::{
    FactChange, FactSetEntry, FactsDifference, FactsReceipt, FactsReply, SubmissionOrder,
};
pub use join::{JoinReply, JoinRequest};
pub use nodes::{ActivityReport, DisableRequest, NodeSummary};
pub use problem::{Problem, ProblemBody, ProblemCode};
pub use reports::{
    EventStatus, LogLine, PropertyChange, ReportBatch, ReportEvent, ReportReceipt, ResourceEvent,
    RunEnding, RunFinished, RunStarted,
};
pub use runs::{Cause, RunMode, RunRequest, RunSubject, TriggerCause, TriggerHop};
pub use server::ServerStatus;
pub use targets::Target;
