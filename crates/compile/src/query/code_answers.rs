//! Answers the questions of code from the index.

use std::sync::PoisonError;

use async_trait::async_trait;
use bunraku_control::ServiceError;
use bunraku_model::NodeName;
use bunraku_query::{ExportFilter, Index, Limits, Query};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Queries;
use crate::code_questions::{
    AnswerCode, AnswerDigests, AskedQuestion, CodeAnswer, CodeLookup, CodeQuestion, LookupResult,
};

#[async_trait]
impl AnswerCode for Queries {
    async fn answer(&self, lookup: CodeLookup) -> Result<LookupResult, ServiceError> {
        self.read_index_for_code(move |index, limits| {
            let now = index.version();
            let is_same = |asked: &AskedQuestion| {
                let digests = digests(index, limits, &asked.question);
                digests.for_reader(&lookup.reader) == asked.digest
            };
            LookupResult {
                version: now,
                is_outdated: lookup.version != Some(now) && !lookup.earlier.iter().all(is_same),
                answer: answer(index, limits, &lookup.reader, &lookup.question),
            }
        })
        .await
    }

    async fn digests(
        &self,
        question: CodeQuestion,
        since: Option<u64>,
    ) -> Result<(u64, Option<AnswerDigests>), ServiceError> {
        self.read_index_for_code(move |index, limits| {
            let now = match &question {
                CodeQuestion::Collect { type_name, .. } => index.exports_version(type_name),
                CodeQuestion::Query(_) => index.version(),
            };
            let changed = since != Some(now);
            (now, changed.then(|| digests(index, limits, &question)))
        })
        .await
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Queries {
    async fn read_index_for_code<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Index, &Limits) -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        self.wait_until_built().await?;
        let (index, limits) = (std::sync::Arc::clone(&self.index), self.limits);
        let looked = tokio::task::spawn_blocking(move || {
            let index = index.read().unwrap_or_else(PoisonError::into_inner);
            work(&index, &limits)
        });
        (looked.await)
            .map_err(|error| ServiceError::internal("a query in code was interrupted", error))
    }
}

fn answer(
    index: &Index,
    limits: &Limits,
    reader: &NodeName,
    question: &CodeQuestion,
) -> CodeAnswer {
    match question {
        CodeQuestion::Collect { type_name, filter } => {
            let digest = digests(index, limits, question).for_reader(reader);
            let filter = filter.as_ref().map(ExportFilter::read).transpose();
            let answer = filter.and_then(|filter| {
                let found = index.collect(type_name, filter.as_ref());
                collected(found.filter(|one| one.node != *reader), limits)
            });
            CodeAnswer { answer, digest }
        }
        CodeQuestion::Query(query) => {
            let (answer, reads_catalogs) = queried(index, limits, query);
            let digest = AnswerDigests::same(&answer, reads_catalogs).for_reader(reader);
            CodeAnswer { answer, digest }
        }
    }
}

fn collected<'a>(
    found: impl Iterator<Item = &'a bunraku_query::ExportedResource>,
    limits: &Limits,
) -> Result<Value, String> {
    let mut bytes = 0;
    let mut resources = Vec::new();
    for one in found {
        let resource = &one.resource;
        let value = json!({
            "certname": one.node,
            "type": resource.type_name,
            "title": resource.title,
            "tags": resource.tags,
            "parameters": resource.parameters,
            "state": resource.state.as_ref().map(|state| &state.function),
            "name": resource.state.as_ref().map(|state| &state.name),
            "arguments": resource.other.get("arguments"),
        });
        bytes += size(&value);
        if bytes > limits.bytes {
            return Err(format!(
                "a collector finds more than {} MiB of resources",
                limits.bytes >> 20
            ));
        }
        resources.push(value);
    }
    Ok(Value::Array(resources))
}

/// Returns the approximate size of a value in bytes.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| name.len() + 4 + size(value));
            members.sum::<usize>() + 2
        }
    }
}

fn queried(index: &Index, limits: &Limits, query: &Value) -> (Result<Value, String>, bool) {
    let parsed = match Query::parse_in_code(query) {
        Ok(parsed) => parsed,
        Err(error) => {
            let mut message = match query {
                Value::String(text) => error.render(text),
                _ => error.to_string(),
            };
            if let Some(hint) = &error.hint {
                message.push_str(&format!(" ({hint})"));
            }
            return (Err(message), false);
        }
    };
    let answer = match index.answer(&parsed, limits) {
        Ok(answer) => {
            let rows = answer.objects().into_iter().map(Value::Object);
            Ok(Value::Array(rows.collect()))
        }
        Err(error) => Err(format!("{error} ({})", error.hint())),
    };
    (answer, parsed.reads_catalogs())
}

fn digests(index: &Index, limits: &Limits, question: &CodeQuestion) -> AnswerDigests {
    match question {
        CodeQuestion::Collect { type_name, filter } => {
            match filter.as_ref().map(ExportFilter::read).transpose() {
                Ok(filter) => {
                    let (total, by_node) = index.collected_sums(type_name, filter.as_ref());
                    AnswerDigests::Collected { total, by_node }
                }
                Err(message) => AnswerDigests::same(&Err(message), false),
            }
        }
        CodeQuestion::Query(query) => {
            let (answer, reads_catalogs) = queried(index, limits, query);
            AnswerDigests::same(&answer, reads_catalogs)
        }
    }
}
