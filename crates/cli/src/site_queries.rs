//! Answers the queries of a plan, from the server or from a facts file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bunraku_model::NodeName;
use bunraku_query::{Index, Limits, Query};
use bunraku_wire::api::{NodeSummary, QueryNodes, QueryReply, QueryRequest};
use bunraku_wire::endpoints::{QueryNodeNames, RunQuery};
use bunraku_wire::{Client, ClientError};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::connection::failed;
use crate::failure::Failure;
use crate::site_modules::{FactsByNode, RowsByQuery};

/// The nodes that match each query.
pub(crate) type Answers = BTreeMap<String, Vec<NodeName>>;

/// The source of information about nodes.
pub(crate) enum NodeSource<'a> {
    /// A server, and its summary of every node.
    Server(&'a Client, &'a [NodeSummary]),
    /// Facts from a file.
    File(Box<FactsFile>),
    /// No source.
    Nobody,
}

impl NodeSource<'_> {
    /// Answers all of these queries.
    pub(crate) async fn answers(
        &self,
        queries: impl IntoIterator<Item = String>,
    ) -> Result<Answers, Failure> {
        let mut answers = Answers::new();
        for query in queries {
            let nodes = match self {
                Self::Server(client, _) => ask(client, &query).await?,
                Self::File(facts) => facts.nodes_matching(&query)?,
                // The code that needs the answer reports that it is missing, and where.
                Self::Nobody => continue,
            };
            answers.insert(query, nodes);
        }
        Ok(answers)
    }

    /// Returns the facts of these nodes, as far as they are known.
    pub(crate) async fn facts(
        &self,
        nodes: impl Iterator<Item = &str>,
    ) -> Result<FactsByNode, Failure> {
        let nodes: BTreeSet<&str> = nodes.collect();
        match self {
            Self::Server(client, _) => query_facts(client, &nodes).await,
            Self::File(file) => {
                let known = nodes.into_iter().filter_map(|node| {
                    let facts = file.facts.get(node)?;
                    Some((node.to_owned(), facts.clone()))
                });
                Ok(known.collect())
            }
            Self::Nobody => Ok(FactsByNode::new()),
        }
    }

    /// Returns the rows of these queries, as code gets them.
    pub(crate) async fn rows(
        &self,
        queries: impl IntoIterator<Item = String>,
    ) -> Result<RowsByQuery, Failure> {
        let mut found = RowsByQuery::new();
        for query in queries {
            let rows = match self {
                Self::Server(client, _) => ask_rows(client, &query).await?,
                Self::File(facts) => facts.rows(&query),
                Self::Nobody => continue,
            };
            found.insert(query, rows);
        }
        Ok(found)
    }

    /// Returns the names of all nodes.
    pub(crate) fn names(&self) -> Option<Vec<NodeName>> {
        match self {
            Self::Server(_, nodes) => Some(nodes.iter().map(|node| node.name.clone()).collect()),
            Self::File(facts) => Some(facts.names.clone()),
            Self::Nobody => None,
        }
    }
}

async fn ask(client: &Client, query: &str) -> Result<Vec<NodeName>, Failure> {
    let request = QueryRequest {
        query: query.to_owned(),
    };
    let reply: QueryNodes = client
        .call_with(QueryNodeNames, &request)
        .await
        .map_err(|error| failed(&error))?;
    Ok(reply.nodes)
}

/// Asks for the rows of a query. A query that the server refuses is a problem of the code.
async fn ask_rows(client: &Client, query: &str) -> Result<Result<Value, String>, Failure> {
    let request = QueryRequest {
        query: query.to_owned(),
    };
    match client.call_with(RunQuery, &request).await {
        Ok(QueryReply { rows, .. }) => {
            Ok(Ok(rows.into_iter().map(Value::Object).collect::<Value>()))
        }
        Err(ClientError::Api {
            status: 400 | 422,
            problem,
            ..
        }) => Ok(Err(problem.message)),
        Err(error) => Err(failed(&error)),
    }
}

/// The number of nodes in one request.
const NODES_PER_QUESTION: usize = 200;

async fn query_facts(client: &Client, nodes: &BTreeSet<&str>) -> Result<FactsByNode, Failure> {
    let nodes: Vec<&str> = nodes.iter().copied().collect();
    let mut known = FactsByNode::new();
    for some in nodes.chunks(NODES_PER_QUESTION) {
        let names: Vec<String> = some
            .iter()
            .map(|node| format!("certname = {}", Value::from(*node)))
            .collect();
        let request = QueryRequest {
            query: format!("nodes[certname, facts] {{ {} }}", names.join(" or ")),
        };
        let reply: QueryReply = client
            .call_with(RunQuery, &request)
            .await
            .map_err(|error| failed(&error))?;
        for row in reply.rows {
            let row: Row = serde_json::from_value(row.into())?;
            known.extend(row.facts.map(|facts| (row.certname.to_string(), facts)));
        }
    }
    Ok(known)
}

/// Facts in the format of `bunraku query --json 'nodes[certname, facts]'`.
pub(crate) struct FactsFile {
    index: Index,
    names: Vec<NodeName>,
    facts: FactsByNode,
}

#[derive(Deserialize)]
struct Row {
    certname: NodeName,
    facts: Option<Map<String, Value>>,
}

impl FactsFile {
    pub(crate) fn read(path: &Path, text: &str) -> Result<Self, Failure> {
        let rows: Vec<Row> = serde_json::from_str(text).map_err(|error| {
            Failure::new(format!("{} is not a list of facts", path.display()))
                .caused_by(&error)
                .hint("create one with `bunraku query --json 'nodes[certname, facts]'`")
        })?;
        let mut facts = Self {
            index: Index::new(),
            names: Vec::with_capacity(rows.len()),
            facts: FactsByNode::new(),
        };
        for row in rows {
            let fields = Map::from_iter([("certname".to_owned(), row.certname.to_string().into())]);
            facts.index.set_fields(&row.certname, fields);
            // A node without facts has not reported yet.
            if let Some(known) = row.facts {
                facts.index.set_facts(&row.certname, &known);
                facts.facts.insert(row.certname.to_string(), known);
            }
            facts.names.push(row.certname);
        }
        Ok(facts)
    }

    fn rows(&self, text: &str) -> Result<Value, String> {
        let query = Query::parse_in_code(&text.into()).map_err(|error| error.render(text))?;
        let answer = self.index.answer(&query, &Limits::default());
        let answer = answer.map_err(|error| error.to_string())?;
        Ok(answer.objects().into_iter().map(Value::Object).collect())
    }

    fn nodes_matching(&self, text: &str) -> Result<Vec<NodeName>, Failure> {
        let query = Query::parse_target(text)
            .map_err(|error| Failure::new(error.render(text)).hint_if(error.hint.clone()))?;
        self.index
            .nodes_matching(&query, &Limits::default())
            .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))
    }
}
