//! Queries in code, as PuppetDB's function `puppetdb_query` accepts them: a text, or nested lists.

use serde_json::Value;

use super::check::{Field, Query as CheckedQuery, Test};
use super::syntax::{self, Column, Name, Path};
use super::{Entity, Query, QueryError, ast, check, parser};

impl Query {
    /// Reads a query of code: a text, or nested lists.
    pub fn parse_in_code(query: &Value) -> Result<Self, QueryError> {
        let mut syntax = match query {
            Value::String(text) => parser::parse(text)?,
            other => ast::read(other)?,
        };
        if syntax.entity.text == "inventory" && syntax.columns.is_empty() {
            syntax.columns = inventory_columns();
        }
        let mut query = check::check(syntax)?;
        for column in &mut query.columns {
            // PuppetDB calls `count()` just `count`.
            if column.function.is_some()
                && let Some((name, _)) = column.label.split_once('(')
            {
                column.label = name.to_owned();
            }
        }
        Ok(Self(query))
    }

    /// Returns whether the answer depends on catalogs, and so can change because of a compile.
    pub fn reads_catalogs(&self) -> bool {
        reads_catalogs(&self.0)
    }
}

/// Code that asks for an inventory expects the facts; people would not read them.
fn inventory_columns() -> Vec<syntax::Column> {
    let names = ["certname", "environment", "facts"];
    let columns = names.into_iter().map(|name| {
        Column::Field(Path {
            head: Name {
                text: name.to_owned(),
                span: 0..0,
            },
            steps: Vec::new(),
            span: 0..0,
        })
    });
    columns.collect()
}

fn reads_catalogs(query: &CheckedQuery) -> bool {
    let columns = query
        .columns
        .iter()
        .filter_map(|column| column.field.as_ref());
    matches!(query.entity, Entity::Resources | Entity::Classes)
        || columns.into_iter().any(is_of_catalog)
        || query.test.as_ref().is_some_and(test_reads_catalogs)
}

fn is_of_catalog(field: &Field) -> bool {
    matches!(
        field,
        Field::Node("catalog" | "code_id" | "release" | "catalog_changed")
    )
}

fn test_reads_catalogs(test: &Test) -> bool {
    match test {
        Test::And(parts) | Test::Or(parts) => parts.iter().any(test_reads_catalogs),
        Test::Not(part) => test_reads_catalogs(part),
        Test::Compare(field, _) | Test::IsNull(field) => is_of_catalog(field),
        Test::In(inside) => {
            inside.fields.iter().any(is_of_catalog) || reads_catalogs(&inside.query)
        }
        Test::Having(query) => reads_catalogs(query),
        Test::PathMatches(_) => false,
    }
}
