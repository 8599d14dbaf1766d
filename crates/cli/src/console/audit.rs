//! The page of the audit log.

use bunraku_console::{AuditLine, AuditPage, Section, Tone};
use bunraku_wire::api::{AuditOutcome, AuditRecord};
use bunraku_wire::endpoints::{AuditQuery, Endpoint, ListAudit};
use serde::Deserialize;

use super::page::{PageError, Source, local};
use crate::audit_view::{AuditWords, words};

/// The number of records on one page.
const RECORDS: usize = 100;

/// The filter that the user entered, and the place in the list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditFilter {
    who: String,
    action: String,
    object: String,
    outcome: String,
    before: Option<u64>,
}

impl AuditFilter {
    fn query(&self) -> AuditQuery {
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
        AuditQuery {
            who: given(&self.who),
            action: given(&self.action),
            object: given(&self.object),
            outcome: outcome(&self.outcome),
            limit: Some(RECORDS),
            before: self.before,
            ..AuditQuery::default()
        }
    }
}

fn outcome(word: &str) -> Option<AuditOutcome> {
    let all = [
        AuditOutcome::Succeeded,
        AuditOutcome::Refused,
        AuditOutcome::Failed,
        AuditOutcome::Unknown,
    ];
    all.into_iter().find(|outcome| outcome.as_str() == word)
}

pub(super) async fn page(source: &Source, wanted: &AuditFilter) -> Result<AuditPage, PageError> {
    let query = wanted.query();
    let (servers, page) = tokio::try_join!(
        source.servers(),
        source.call(ListAudit.with_query((), &query))
    )?;
    Ok(AuditPage {
        frame: source.frame("Audit log", Section::Audit, &servers),
        who: query.who.unwrap_or_default(),
        action: query.action.unwrap_or_default(),
        object: query.object.unwrap_or_default(),
        outcome: query
            .outcome
            .map_or_else(String::new, |outcome| outcome.as_str().to_owned()),
        before: wanted.before,
        records: page.records.iter().map(line).collect(),
        next: page.next,
    })
}

fn line(record: &AuditRecord) -> AuditLine {
    let AuditWords {
        number,
        from,
        object,
        outcome,
        reason,
    } = words(record);
    let entry = &record.entry;
    AuditLine {
        number,
        at: local(entry.at),
        who: entry.who.clone(),
        from,
        action: entry.action.clone(),
        object,
        outcome,
        tone: match entry.outcome {
            AuditOutcome::Succeeded => Tone::Good,
            AuditOutcome::Refused => Tone::Warn,
            AuditOutcome::Failed => Tone::Bad,
            AuditOutcome::Unknown => Tone::Quiet,
        },
        reason: super::page::plain(&reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_empty_filter_nothing() {
        let filter = AuditFilter {
            who: " alice ".to_owned(),
            action: "  ".to_owned(),
            outcome: "nonsense".to_owned(),
            before: Some(7),
            ..AuditFilter::default()
        };
        let query = filter.query();
        assert_eq!(query.who.as_deref(), Some("alice"));
        assert_eq!((query.action, query.object), (None, None));
        assert_eq!((query.outcome, query.before), (None, Some(7)));
        assert_eq!(outcome("refused"), Some(AuditOutcome::Refused));
    }
}
