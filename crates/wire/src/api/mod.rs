//! The messages of the HTTP API under `/v1`.
//!
//! Both ends use these types, and the OpenAPI document is made from them, so
//! that the three cannot drift apart. No behaviour in here.

mod certificates;
pub mod cluster;
mod commands;
mod facts;
mod join;
mod nodes;
mod problem;
mod reports;
mod runs;
mod server;
mod targets;

pub use certificates::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, NewToken, PendingRequest,
    RenewRequest, RevokeRequest, SignRequest, TokenEntry, TokenRequest,
};
pub use commands::{
    Command, CommandOutcome, CommandResult, CommandState, CommandStatus, Envelope, SendCommand,
    SentCommand, StreamMessage,
};
pub use facts::{FactsReceipt, FactsReply};
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
