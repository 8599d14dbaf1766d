//! Audit records in words, for the command line and the console.

use bunraku_wire::api::{AuditOutcome, AuditRecord};

/// The parts of a record that need words.
pub(crate) struct AuditWords {
    /// The place in the log; `-` until the record is linked.
    pub(crate) number: String,
    /// The address of the caller, or the kind of source.
    pub(crate) from: String,
    pub(crate) object: String,
    pub(crate) outcome: String,
    /// Why it was done, or why it was not.
    pub(crate) reason: String,
}

pub(crate) fn words(record: &AuditRecord) -> AuditWords {
    let entry = &record.entry;
    let outcome = match (entry.count, entry.outcome, entry.status) {
        (1, AuditOutcome::Succeeded, _) | (1, _, None) => entry.outcome.as_str().to_owned(),
        (1, outcome, Some(status)) => format!("{} ({status})", outcome.as_str()),
        (count, outcome, _) => format!("{} {count} times", outcome.as_str()),
    };
    let (reason, message) = (entry.reason.as_deref(), entry.message.as_deref());
    let why = match (entry.outcome, reason, message) {
        (AuditOutcome::Succeeded, Some(reason), Some(message)) => format!("{message}: {reason}"),
        (_, reason, message) => message.or(reason).unwrap_or_default().to_owned(),
    };
    let number = record.number.map(|number| number.to_string());
    let source = || entry.source.as_str().to_owned();
    AuditWords {
        number: number.unwrap_or_else(|| "-".to_owned()),
        from: entry.address.clone().unwrap_or_else(source),
        object: entry.object.clone().unwrap_or_else(|| "-".to_owned()),
        outcome,
        reason: why,
    }
}
