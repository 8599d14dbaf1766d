//! Queries as nested lists, PuppetDB's "AST" form: `["from", "nodes", ["=", "certname", "web-1"]]`.
//!
//! They become the same syntax tree as a text, and are checked in the same way.

use serde_json::Value;

use super::error::QueryError;
use super::parser::{DEEPEST, parse_path};
use super::syntax::{
    Column, Condition, Literal, Name, Operator, Order, OrderBy, Path, Query, Step,
};

/// The place of everything in a query that has no text.
const NOWHERE: std::ops::Range<usize> = 0..0;

type Result<T> = std::result::Result<T, QueryError>;

/// Reads a whole query.
pub(super) fn read(value: &Value) -> Result<Query> {
    from(list(value, "a query")?, 0)
}

fn invalid(message: impl Into<String>) -> QueryError {
    QueryError::new(message, NOWHERE)
}

/// Shows a part of a query in an error.
fn value_text(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn list<'a>(value: &'a Value, what: &str) -> Result<&'a [Value]> {
    let items = value.as_array().filter(|items| !items.is_empty());
    let items = items
        .ok_or_else(|| invalid(format!("{what} must be a list, not {}", value_text(value))))?;
    Ok(items)
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str> {
    value.as_str().ok_or_else(|| {
        invalid(format!(
            "{what} must be a string, not {}",
            value_text(value)
        ))
    })
}

fn name(text: &str) -> Name {
    Name {
        text: text.to_owned(),
        span: NOWHERE,
    }
}

/// Reads `["from", entity, expression, paging …]`.
fn from(items: &[Value], depth: usize) -> Result<Query> {
    match items {
        [Value::String(word), Value::String(entity), rest @ ..] if word == "from" => {
            let mut query = Query::of(name(entity));
            for part in rest {
                clause(&mut query, part, depth)?;
            }
            Ok(query)
        }
        [Value::String(word), ..] => Err(invalid(format!(
            "a query must begin with [\"from\", ENTITY, …], not with \"{word}\""
        ))),
        _ => Err(invalid("a query must begin with [\"from\", ENTITY, …]")),
    }
}

fn clause(query: &mut Query, part: &Value, depth: usize) -> Result<()> {
    let items = list(part, "a part of a query")?;
    let word = text(&items[0], "an operator")?;
    let count = |items: &[Value]| {
        let number = items.get(1).and_then(Value::as_u64);
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| invalid(format!("`{word}` needs an integer")))
    };
    match word {
        "extract" => extract(query, &items[1..], depth)?,
        "limit" => query.limit = Some(count(items)?),
        "offset" => query.offset = Some(count(items)?),
        "order_by" => {
            let by = items
                .get(1)
                .ok_or_else(|| invalid("`order_by` needs fields"))?;
            let by = list(by, "the fields of `order_by`")?;
            query.order_by = by.iter().map(order).collect::<Result<_>>()?;
        }
        "group_by" => query.group_by = items[1..].iter().map(path).collect::<Result<_>>()?,
        _ if query.condition.is_none() => query.condition = Some(condition(part, depth)?),
        _ => {
            return Err(invalid(
                "a query has one condition: combine several with `and`",
            ));
        }
    }
    Ok(())
}

/// Reads the columns and the rest of `["extract", columns, expression, …]`.
fn extract(query: &mut Query, items: &[Value], depth: usize) -> Result<()> {
    let (columns, rest) = items
        .split_first()
        .ok_or_else(|| invalid("`extract` needs columns"))?;
    query.columns = match columns {
        Value::Array(several) if !is_function(columns) && !is_inside(columns) => {
            several.iter().map(column).collect::<Result<_>>()?
        }
        one => vec![column(one)?],
    };
    for part in rest {
        clause(query, part, depth + 1)?;
    }
    Ok(())
}

fn is_function(value: &Value) -> bool {
    value.get(0).and_then(Value::as_str) == Some("function")
}

/// Returns whether a list is one field, such as `["fact", "kernel"]`.
fn is_inside(value: &Value) -> bool {
    let head = value.get(0).and_then(Value::as_str);
    matches!(head, Some("fact" | "parameter")) && value.as_array().is_some_and(|all| all.len() == 2)
}

fn function(value: &Value) -> Result<(Name, Option<Path>)> {
    let called = value
        .get(1)
        .ok_or_else(|| invalid("`function` needs a name"))?;
    let called = name(text(called, "the name of a function")?);
    Ok((called, value.get(2).map(path).transpose()?))
}

fn column(value: &Value) -> Result<Column> {
    if is_function(value) {
        let (name, of) = function(value)?;
        let span = NOWHERE;
        return Ok(Column::Function { name, of, span });
    }
    path(value).map(Column::Field)
}

fn order(value: &Value) -> Result<Order> {
    let (by, descending) = match value {
        Value::Array(items) if items.len() == 2 && !is_function(value) && !is_inside(value) => {
            (&items[0], items[1] == "desc")
        }
        other => (other, false),
    };
    let by = if is_function(by) {
        let (name, of) = function(by)?;
        OrderBy::Function { name, of }
    } else {
        OrderBy::Field(path(by)?)
    };
    Ok(Order { by, descending })
}

/// Reads a field: `"facts.os.family"`, `["fact", "kernel"]` or `["parameter", "ensure"]`.
fn path(value: &Value) -> Result<Path> {
    if is_inside(value) {
        let head = if value[0] == "fact" {
            "facts"
        } else {
            "parameters"
        };
        return Ok(Path {
            head: name(head),
            steps: vec![Step::Name(text(&value[1], "a field")?.to_owned())],
            span: NOWHERE,
        });
    }
    let mut found = parse_path(text(value, "a field")?)?;
    found.span = NOWHERE;
    found.head.span = NOWHERE;
    Ok(found)
}

fn literal(value: &Value) -> Result<Literal> {
    match value {
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Literal {
            value: value.clone(),
            span: NOWHERE,
        }),
        other => Err(invalid(format!(
            "{} is not a value to compare with",
            value_text(other)
        ))),
    }
}

fn condition(value: &Value, depth: usize) -> Result<Condition> {
    if depth >= DEEPEST {
        return Err(invalid(format!(
            "this is nested more than {DEEPEST} levels deep"
        )));
    }
    let items = list(value, "a condition")?;
    let word = text(&items[0], "an operator")?;
    let all = |items: &[Value]| -> Result<Vec<Condition>> {
        let parts = items.iter().map(|part| condition(part, depth + 1));
        parts.collect()
    };
    match (word, &items[1..]) {
        ("and" | "or", [one]) => condition(one, depth + 1),
        ("and", parts @ [_, ..]) => Ok(Condition::And(all(parts)?)),
        ("or", parts @ [_, ..]) => Ok(Condition::Or(all(parts)?)),
        ("not", [one]) => Ok(Condition::Not(Box::new(condition(one, depth + 1)?))),
        ("null?", [field, Value::Bool(null)]) => Ok(Condition::IsNull {
            path: path(field)?,
            negated: !null,
        }),
        ("~>", [field, Value::Array(patterns)]) => Ok(Condition::PathMatches {
            path: path(field)?,
            patterns: patterns.iter().map(literal).collect::<Result<_>>()?,
            span: NOWHERE,
        }),
        ("in", [fields, within]) => inside(fields, within, depth),
        ("subquery", [Value::String(entity), part]) => {
            let mut query = Query::of(name(entity));
            query.condition = Some(condition(part, depth + 1)?);
            Ok(Condition::Having(Box::new(query)))
        }
        (word, [field, wanted]) => match Operator::of(word) {
            Some(operator) => Ok(Condition::Compare {
                path: path(field)?,
                operator,
                value: literal(wanted)?,
            }),
            None => Err(unknown(word)),
        },
        (word, _) => Err(unknown(word)),
    }
}

fn unknown(word: &str) -> QueryError {
    let error = invalid(format!(
        "`{word}` is not an operator, or has the wrong number of arguments"
    ));
    error.hint("use and, or, not, =, <, <=, >, >=, ~, ~>, null?, in or subquery")
}

/// Reads what follows `in`: values, or another query.
fn inside(fields: &Value, within: &Value, depth: usize) -> Result<Condition> {
    let paths = match fields {
        Value::Array(several) if !is_inside(fields) => {
            several.iter().map(path).collect::<Result<Vec<_>>>()?
        }
        one => vec![path(one)?],
    };
    let items = list(within, "what follows `in`")?;
    let query = match items {
        [Value::String(word), Value::Array(values)] if word == "array" => {
            let Ok([path]) = <[Path; 1]>::try_from(paths) else {
                return Err(invalid("a list of values needs exactly one field"));
            };
            let values = values.iter().map(literal).collect::<Result<_>>()?;
            return Ok(Condition::InList { path, values });
        }
        // `["extract", columns, ["select_facts", condition]]`
        [Value::String(word), columns, selected, ..] if word == "extract" => {
            let selected = list(selected, "the source of `extract`")?;
            let entity = text(&selected[0], "the source of `extract`")?;
            let entity = entity
                .strip_prefix("select_")
                .ok_or_else(|| unknown(entity))?;
            let mut query = Query::of(name(entity));
            extract(&mut query, std::slice::from_ref(columns), depth + 1)?;
            if let Some(part) = selected.get(1) {
                query.condition = Some(condition(part, depth + 1)?);
            }
            query
        }
        items => from(items, depth + 1)?,
    };
    Ok(Condition::InQuery {
        paths,
        query: Box::new(query),
        span: NOWHERE,
    })
}
