//! Queries of callers that may see only a part: the names and environments of
//! nodes, and chosen facts.
//!
//! Every field of a query counts, also those in conditions: a condition on a
//! hidden fact would reveal it, value by value.

use super::check::{Field, Order, Query as CheckedQuery, Step, Test};
use super::syntax::{Column, Name, Path};
use super::{Entity, Query, QueryError, check, parser};

/// The facts that a caller may see of all nodes, as paths.
#[derive(Clone, Debug, Default)]
pub struct VisibleFacts(Vec<Vec<String>>);

impl VisibleFacts {
    /// Reads dotted paths: `role`, `os.family`.
    pub fn new(paths: &[String]) -> Self {
        let steps = |path: &String| path.split('.').map(str::to_owned).collect();
        Self(paths.iter().map(steps).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a path is one of the visible ones, or below one.
    fn shows(&self, path: &[Step]) -> bool {
        let is_name =
            |(wanted, step): (&String, &Step)| matches!(step, Step::Name(name) if name == wanted);
        self.0
            .iter()
            .any(|visible| visible.len() <= path.len() && visible.iter().zip(path).all(is_name))
    }
}

impl Query {
    /// Reads a query, and refuses it if it asks for anything that is not
    /// visible. Without columns, it asks for the names of nodes.
    pub fn parse_visible(text: &str, facts: &VisibleFacts) -> Result<Self, QueryError> {
        let mut syntax = parser::parse(text)?;
        if syntax.columns.is_empty() {
            let head = Name {
                text: "certname".to_owned(),
                span: 0..0,
            };
            syntax.columns = vec![Column::Field(Path {
                head,
                steps: Vec::new(),
                span: 0..0,
            })];
        }
        let query = check::check(syntax)?;
        match hidden(&query, facts) {
            None => Ok(Self(query)),
            Some(what) => {
                let error = QueryError::new(format!("a node may not ask for {what}"), 0..0);
                Err(error.hint("nodes may ask for `nodes` by certname, environment, and the facts in `node_facts`"))
            }
        }
    }
}

/// Returns the first part of a query that is not visible.
fn hidden(query: &CheckedQuery, facts: &VisibleFacts) -> Option<String> {
    if query.entity != Entity::Nodes {
        return Some("anything but nodes".to_owned());
    }
    let columns = query
        .columns
        .iter()
        .filter_map(|column| column.field.as_ref());
    let orders = query.order_by.iter().filter_map(|(order, _)| match order {
        Order::Field(field) => Some(field),
        Order::Column(_) => None,
    });
    let mut fields = columns.chain(query.group_by.iter().flatten()).chain(orders);
    fields
        .find_map(|field| hidden_field(field, facts))
        .or_else(|| query.test.as_ref().and_then(|test| hidden_in(test, facts)))
}

fn hidden_in(test: &Test, facts: &VisibleFacts) -> Option<String> {
    match test {
        Test::And(parts) | Test::Or(parts) => parts.iter().find_map(|part| hidden_in(part, facts)),
        Test::Not(part) => hidden_in(part, facts),
        Test::Compare(field, _) | Test::IsNull(field) => hidden_field(field, facts),
        Test::In(condition) => (condition.fields.iter())
            .find_map(|field| hidden_field(field, facts))
            .or_else(|| hidden(&condition.query, facts)),
        Test::PathMatches(_) => Some("the paths of facts".to_owned()),
        Test::Having(query) => hidden(query, facts),
    }
}

fn hidden_field(field: &Field, facts: &VisibleFacts) -> Option<String> {
    match field {
        Field::Node("certname" | "environment") => None,
        Field::Facts(path) if facts.shows(path) => None,
        Field::Facts(path) => {
            let steps = path.iter().map(|step| match step {
                Step::Name(name) => name.as_str(),
                Step::Any => "*",
            });
            let path: Vec<&str> = std::iter::once("facts").chain(steps).collect();
            Some(format!("`{}`", path.join(".")))
        }
        Field::Node(name) | Field::Row(name, _) => Some(format!("`{name}`")),
        Field::FactName | Field::FactPath | Field::FactValue(_) => Some("all facts".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        let facts = VisibleFacts::new(&["role".to_owned(), "os.family".to_owned()]);
        let parsed = Query::parse_visible(text, &facts);
        parsed.err().map(|error| error.to_string())
    }

    #[test]
    fn names_environments_and_chosen_facts_are_visible() {
        for text in [
            "nodes",
            "nodes { facts.role = 'lb' }",
            "nodes[certname, facts.role.name, environment] { facts.os.family = 'Debian' or not certname ~ '^web' }",
            "nodes[facts.role, count()] { group by facts.role order by facts.role }",
            "nodes { certname in nodes[certname] { facts.role is not null } }",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_else_is_visible_wherever_it_is_named() {
        for (text, what) in [
            ("resources { type = 'File' }", "anything but nodes"),
            ("facts", "anything but nodes"),
            ("nodes[facts]", "`facts`"),
            ("nodes[facts.os]", "`facts.os`"),
            ("nodes { facts.* = 'x' }", "`facts.*`"),
            ("nodes[facts.roles]", "`facts.roles`"),
            ("nodes[status]", "`status`"),
            (
                "nodes { facts.role = 'lb' and facts.secret ~ '^a' }",
                "`facts.secret`",
            ),
            ("nodes { not facts.secret is null }", "`facts.secret`"),
            (
                "nodes[certname] { order by facts.secret }",
                "`facts.secret`",
            ),
            (
                "nodes[facts.role, count()] { group by facts.role, facts.secret }",
                "`facts.secret`",
            ),
            ("nodes[max(facts.secret)]", "`facts.secret`"),
            ("nodes { resources { title = 'x' } }", "anything but nodes"),
            (
                "nodes { certname in resources[certname] { title = 'x' } }",
                "anything but nodes",
            ),
            (
                "nodes { certname in nodes[certname] { facts.secret = 1 } }",
                "`facts.secret`",
            ),
            ("nodes { facts.secret in ['a'] }", "`facts.secret`"),
        ] {
            let expected = format!("a node may not ask for {what}");
            assert_eq!(refused(text), Some(expected), "{text}");
        }
    }
}
