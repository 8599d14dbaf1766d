//! The nodes that a command line names: in full, by a short name, or by a query.

use std::collections::BTreeSet;

use bunraku_model::NodeName;
use bunraku_wire::Client;
use bunraku_wire::api::{NodeSummary, QueryNodes, QueryRequest};
use bunraku_wire::endpoints::{ListNodes, QueryNodeNames};

use crate::connection::failed;
use crate::failure::Failure;

/// The most names in a message.
const MOST: usize = 5;

/// Replaces short names by full ones: `web-1` is `web-1.example.com` if no other node begins with
/// `web-1.`. A name that is already a node's full name stays, and so does one that fits no node: the
/// server explains that.
pub(crate) async fn resolve(
    client: &Client,
    names: Vec<NodeName>,
) -> Result<Vec<NodeName>, Failure> {
    if names.iter().all(|name| name.as_str().contains('.')) {
        return Ok(names);
    }
    let nodes = all(client).await?;
    names.into_iter().map(|name| full(name, &nodes)).collect()
}

/// Replaces one short name.
pub(crate) async fn resolve_one(client: &Client, name: NodeName) -> Result<NodeName, Failure> {
    let mut names = resolve(client, vec![name.clone()]).await?;
    Ok(names.pop().unwrap_or(name))
}

fn full(name: NodeName, nodes: &[NodeName]) -> Result<NodeName, Failure> {
    if name.as_str().contains('.') || nodes.contains(&name) {
        return Ok(name);
    }
    let start = format!("{name}.");
    let fitting: Vec<&NodeName> = (nodes.iter())
        .filter(|node| node.as_str().starts_with(&start))
        .collect();
    match fitting.as_slice() {
        [] => Ok(name),
        [one] => Ok((*one).clone()),
        several => {
            let names: Vec<&str> = several.iter().take(MOST).map(|it| it.as_str()).collect();
            let more = match several.len().saturating_sub(MOST) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!("`{name}` is short for several nodes");
            Err(Failure::new(message).hint(format!("write one of {}{more}", names.join(", "))))
        }
    }
}

/// Returns the names of all nodes.
pub(crate) async fn all(client: &Client) -> Result<Vec<NodeName>, Failure> {
    let nodes = client.call(ListNodes).await;
    let nodes: Vec<NodeSummary> = nodes.map_err(|error| failed(&error))?;
    Ok(nodes.into_iter().map(|node| node.name).collect())
}

/// Returns the nodes that a query finds.
pub(crate) async fn matching(client: &Client, query: &str) -> Result<BTreeSet<NodeName>, Failure> {
    let request = QueryRequest {
        query: query.to_owned(),
    };
    let found = client.call_with(QueryNodeNames, &request).await;
    let found: QueryNodes = found.map_err(|error| failed(&error))?;
    Ok(found.nodes.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(name: &str, expected: Expect) {
        let nodes = [
            "db-1",
            "db-1.a.net",
            "web-1.a.net",
            "web-2.a.net",
            "web-2.b.net",
        ];
        let nodes = nodes.map(|name| NodeName::new(name).expect("a name"));
        let text = match full(NodeName::new(name).expect("a name"), &nodes) {
            Ok(name) => name.to_string(),
            Err(failure) => failure.text(),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn a_short_name_stands_for_the_only_node_that_begins_with_it() {
        check("web-1", expect!["web-1.a.net"]);
        check("db-1", expect!["db-1"]);
        check("web", expect!["web"]);
        check("web-1.a.net", expect!["web-1.a.net"]);
        check(
            "web-2",
            expect!["`web-2` is short for several nodes (write one of web-2.a.net, web-2.b.net)"],
        );
    }
}
