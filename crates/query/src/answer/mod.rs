//! Answers: the matching rows and nodes first, then the columns to show.

mod evaluate;
mod fuel;
mod show;

use std::collections::BTreeSet;

use bunraku_model::NodeName;
use serde_json::{Map, Value};

use crate::index::{Index, NodeSet};
use crate::language::{CheckedQuery, Field, Step, Test, near};
use crate::{Query, QueryError};
use evaluate::Evaluation;
use fuel::Fuel;

/// The cost limits of a query. They are counted, not timed: the same query on
/// the same index always ends the same way.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of values to examine.
    pub steps: usize,
    /// Maximum number of rows to show.
    pub rows: usize,
    /// Approximate maximum number of bytes to show.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 50_000_000,
            rows: 200_000,
            bytes: 32 << 20,
        }
    }
}

/// The reason why a valid query is not answered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("the query is too expensive: it was stopped after {0} steps")]
    TooManySteps(usize),
    #[error("the answer has more than {0} rows")]
    TooManyRows(usize),
    #[error("the answer has more than {0} bytes")]
    TooManyBytes(usize),
    #[error("a query with groups does not select nodes")]
    NamesNoNodes,
}

impl AnswerError {
    /// Returns a hint on what to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooManySteps(_) => "compare with `=` where possible; it is much cheaper",
            Self::TooManyRows(_) => "narrow the query, or add `limit`",
            Self::TooManyBytes(_) => "list the columns that you need in brackets",
            Self::NamesNoNodes => "omit `group by` and functions",
        }
    }
}

/// An answer: rows under columns.
#[derive(Clone, PartialEq, Debug)]
pub struct QueryAnswer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
    /// Parts of the query that are probably mistakes.
    pub warnings: Vec<String>,
}

impl QueryAnswer {
    /// Returns each row as an object.
    pub fn objects(&self) -> Vec<Map<String, Value>> {
        let object = |row: &Vec<Value>| {
            let named = self.columns.iter().cloned().zip(row.iter().cloned());
            named.collect()
        };
        self.rows.iter().map(object).collect()
    }
}

impl Query {
    /// Reads a query that must name nodes: one that groups names none.
    pub fn parse_target(text: &str) -> Result<Self, QueryError> {
        let query = Self::parse(text)?;
        match query.0.group_by {
            None => Ok(query),
            Some(_) => {
                let error = AnswerError::NamesNoNodes;
                let query = QueryError::new(error.to_string(), 0..text.len());
                Err(query.hint(error.hint()))
            }
        }
    }
}

impl Index {
    /// Answers a query.
    pub fn answer(&self, query: &Query, limits: &Limits) -> Result<QueryAnswer, AnswerError> {
        let (columns, rows) = self.rows(query, limits, None)?;
        Ok(QueryAnswer {
            columns,
            rows,
            warnings: self.warnings(&query.0),
        })
    }

    /// Answers a query as if there were only these nodes. Says nothing about others, so it does
    /// not warn about facts that it does not find.
    pub fn answer_within(
        &self,
        query: &Query,
        limits: &Limits,
        exists: impl Fn(&NodeName, Option<&str>) -> bool,
    ) -> Result<QueryAnswer, AnswerError> {
        let (columns, rows) = self.rows(query, limits, Some(&self.nodes_where(exists)))?;
        Ok(QueryAnswer {
            columns,
            rows,
            warnings: Vec::new(),
        })
    }

    fn rows(
        &self,
        query: &Query,
        limits: &Limits,
        within: Option<&NodeSet>,
    ) -> Result<(Vec<String>, Vec<Vec<Value>>), AnswerError> {
        let mut fuel = Fuel::new(limits);
        let matches = Evaluation::new(self, &mut fuel, within).matches(&query.0)?;
        show::show(self, &query.0, matches, &mut fuel)
    }

    /// Returns the nodes for which a test of name and environment holds.
    fn nodes_where(&self, test: impl Fn(&NodeName, Option<&str>) -> bool) -> NodeSet {
        let mut nodes = NodeSet::default();
        for slot in self.slots() {
            let node = self.node(slot);
            let environment = node.fields.get("environment").and_then(Value::as_str);
            if test(&node.name, environment) {
                nodes.insert(slot);
            }
        }
        nodes
    }

    /// Returns the nodes of all rows of the answer, by name.
    pub fn nodes_matching(
        &self,
        query: &Query,
        limits: &Limits,
    ) -> Result<Vec<NodeName>, AnswerError> {
        self.matching(query, limits, None)
    }

    /// Like [`Index::nodes_matching`], as if there were only these nodes.
    pub fn nodes_matching_within(
        &self,
        query: &Query,
        limits: &Limits,
        exists: impl Fn(&NodeName, Option<&str>) -> bool,
    ) -> Result<Vec<NodeName>, AnswerError> {
        self.matching(query, limits, Some(&self.nodes_where(exists)))
    }

    fn matching(
        &self,
        query: &Query,
        limits: &Limits,
        within: Option<&NodeSet>,
    ) -> Result<Vec<NodeName>, AnswerError> {
        if query.0.group_by.is_some() {
            return Err(AnswerError::NamesNoNodes);
        }
        let mut fuel = Fuel::new(limits);
        let matches = Evaluation::new(self, &mut fuel, within).matches(&query.0)?;
        let nodes: BTreeSet<NodeName> = if query.0.limit.is_none() && query.0.offset == 0 {
            let all = matches.nodes();
            all.iter()
                .map(|slot| self.node(slot).name.clone())
                .collect()
        } else {
            let slots = show::pages(self, &query.0, matches, &mut fuel)?;
            slots.map(|slot| self.node(slot).name.clone()).collect()
        };
        Ok(nodes.into_iter().collect())
    }

    /// Warns about facts in the query that no node has.
    fn warnings(&self, query: &CheckedQuery) -> Vec<String> {
        let mut warnings = Vec::new();
        let columns = query
            .columns
            .iter()
            .filter_map(|column| column.field.as_ref());
        for field in columns {
            self.warn_of(field, &mut warnings);
        }
        if let Some(test) = &query.test {
            self.warn_in(test, &mut warnings);
        }
        warnings.sort_unstable();
        warnings.dedup();
        warnings
    }

    fn warn_in(&self, test: &Test, warnings: &mut Vec<String>) {
        match test {
            Test::And(parts) | Test::Or(parts) => {
                parts.iter().for_each(|part| self.warn_in(part, warnings));
            }
            Test::Not(part) => self.warn_in(part, warnings),
            Test::Compare(field, _) | Test::IsNull(field) => self.warn_of(field, warnings),
            Test::In(inside) => {
                inside
                    .fields
                    .iter()
                    .for_each(|field| self.warn_of(field, warnings));
                warnings.extend(self.warnings(&inside.query));
            }
            Test::Having(query) => warnings.extend(self.warnings(query)),
            Test::PathMatches(_) => {}
        }
    }

    fn warn_of(&self, field: &Field, warnings: &mut Vec<String>) {
        let Field::Facts(steps) = field else {
            return;
        };
        if steps.is_empty() || self.size().nodes == 0 || !self.facts.resolve(None, steps).is_empty()
        {
            return;
        }
        // The longest prefix that some node has, and its possible continuations.
        let known = (0..steps.len())
            .rev()
            .find(|length| *length == 0 || !self.facts.resolve(None, &steps[..*length]).is_empty())
            .unwrap_or(0);
        let parents = match known {
            0 => vec![None],
            known => self
                .facts
                .resolve(None, &steps[..known])
                .into_iter()
                .map(Some)
                .collect(),
        };
        let names: Vec<String> = parents
            .into_iter()
            .flat_map(|path| self.facts.names_below(path))
            .collect();
        let written = |steps: &[Step]| {
            let names = steps.iter().map(|step| match step {
                Step::Name(name) => name.as_str(),
                Step::Any => "*",
            });
            names.collect::<Vec<_>>().join(".")
        };
        let Step::Name(wrong) = &steps[known] else {
            return;
        };
        let mut warning = format!("no node has a fact `{}`", written(steps));
        if let Some(near) = near(wrong, names.iter().map(String::as_str)) {
            let mut right = steps[..known].to_vec();
            right.push(Step::Name(near.to_owned()));
            right.extend_from_slice(&steps[known + 1..]);
            warning.push_str(&format!("; did you mean `{}`?", written(&right)));
        }
        warnings.push(warning);
    }
}
