//! Checks a parsed query. Resolves every name, checks that every value has a
//! comparable kind, and compiles every regular expression.

use std::collections::HashSet;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::entity::{Entity, Source};
use super::error::QueryError;
use super::names::near;
use super::syntax::{self, Comparison, Condition, Literal, Name, Operator, OrderBy, Path, Span};
use crate::scalar::Scalar;

pub(crate) use super::syntax::Step;

/// Maximum size of a compiled regular expression in memory, in bytes. Larger
/// ones are refused.
const REGEX_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) entity: Entity,
    pub(crate) columns: Vec<Column>,
    pub(crate) test: Option<Test>,
    /// Rows with equal values in these fields become one.
    pub(crate) group_by: Option<Vec<Field>>,
    pub(crate) order_by: Vec<(Order, bool)>,
    pub(crate) limit: Option<usize>,
    pub(crate) offset: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) label: String,
    pub(crate) function: Option<Function>,
    /// `None` only for `count()`.
    pub(crate) field: Option<Field>,
}

#[derive(Clone, Debug)]
pub(crate) enum Order {
    Field(Field),
    Column(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    Count,
    Sum,
    Average,
    Least,
    Most,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Node(&'static str),
    Facts(Vec<Step>),
    Row(&'static str, Vec<Step>),
    FactName,
    FactPath,
    FactValue(Vec<Step>),
}

#[derive(Clone, Debug)]
pub(crate) enum Test {
    And(Vec<Test>),
    Or(Vec<Test>),
    Not(Box<Test>),
    Compare(Field, Matcher),
    IsNull(Field),
    In(InCondition),
    /// Each step of the fact's path matches the pattern in its place.
    PathMatches(Vec<Regex>),
    /// A condition on the same node.
    Having(Box<Query>),
}

#[derive(Clone, Debug)]
pub(crate) struct InCondition {
    pub(crate) fields: Vec<Field>,
    pub(crate) query: Box<Query>,
}

/// A condition on a value. A missing value never matches.
#[derive(Clone, Debug)]
pub(crate) enum Matcher {
    Compare(Comparison, Scalar),
    Matches(Regex),
    NotMatches(Regex),
    OneOf(HashSet<Scalar>),
}

impl Matcher {
    pub(crate) fn holds(&self, value: &Scalar) -> bool {
        if *value == Scalar::Null {
            return false;
        }
        match self {
            Self::Compare(Comparison::Equal, wanted) => value == wanted,
            Self::Compare(Comparison::NotEqual, wanted) => value != wanted,
            Self::Compare(comparison, wanted) => {
                let Some(order) = value.compare(wanted) else {
                    return false;
                };
                match comparison {
                    Comparison::Less => order.is_lt(),
                    Comparison::LessOrEqual => order.is_le(),
                    Comparison::Greater => order.is_gt(),
                    _ => order.is_ge(),
                }
            }
            Self::Matches(regex) => matches!(value, Scalar::Text(text) if regex.is_match(text)),
            Self::NotMatches(regex) => matches!(value, Scalar::Text(text) if !regex.is_match(text)),
            Self::OneOf(wanted) => wanted.contains(value),
        }
    }

    /// Returns the wanted values, if the condition lists them.
    pub(crate) fn named(&self) -> Option<Vec<&Scalar>> {
        match self {
            Self::Compare(Comparison::Equal, wanted) => Some(vec![wanted]),
            Self::OneOf(wanted) => Some(wanted.iter().collect()),
            _ => None,
        }
    }
}

pub(super) fn check(mut query: syntax::Query) -> Result<Query, QueryError> {
    let entity = entity(&query.entity)?;
    if query.columns.is_empty() {
        // The rows of other columns differ within a group.
        let grouping = query.group_by.iter().cloned();
        query.columns = grouping.map(syntax::Column::Field).collect();
    }
    let columns = if query.columns.is_empty() {
        entity
            .column_names()
            .map(|name| output_column(entity, name))
            .collect()
    } else {
        checked(&query.columns, |column| check_column(entity, column))?
    };
    let test = query
        .condition
        .map(|condition| check_test(entity, condition));
    let grouping = checked(&query.group_by, |path| field(entity, path))?;
    let grouped = !grouping.is_empty() || columns.iter().any(|column| column.function.is_some());
    if !grouping.is_empty() {
        check_grouping(&query.columns, &columns, &grouping)?;
    }
    let group_by = grouped.then(|| {
        if grouping.is_empty() {
            plain_fields(&columns)
        } else {
            grouping
        }
    });
    let order_by = checked(&query.order_by, |order| {
        let checked = check_order(entity, &order.by, &columns, group_by.as_deref())?;
        Ok((checked, order.descending))
    })?;
    Ok(Query {
        entity,
        columns,
        test: test.transpose()?,
        group_by,
        order_by,
        limit: query.limit,
        offset: query.offset.unwrap_or(0),
    })
}

fn checked<T, U>(
    items: &[T],
    check: impl Fn(&T) -> Result<U, QueryError>,
) -> Result<Vec<U>, QueryError> {
    items.iter().map(check).collect()
}

fn entity(name: &Name) -> Result<Entity, QueryError> {
    Entity::named(&name.text).ok_or_else(|| {
        let names = || Entity::NAMES.iter().map(|(name, _)| *name);
        let error = QueryError::new(format!("unknown entity `{}`", name.text), name.span.clone());
        let all = format!("use one of {}", names().collect::<Vec<_>>().join(", "));
        error.hint(match near(&name.text, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => all,
        })
    })
}

fn output_column(entity: Entity, name: &'static str) -> Column {
    let (_, source) = entity.field(name).expect("what is shown is a field");
    Column {
        label: name.to_owned(),
        function: None,
        field: Some(new_field(source, name, Vec::new())),
    }
}

fn new_field(source: Source, name: &'static str, steps: Vec<Step>) -> Field {
    match source {
        Source::Node => Field::Node(name),
        Source::Facts => Field::Facts(steps),
        Source::Row => Field::Row(name, steps),
        Source::FactName => Field::FactName,
        Source::FactPath => Field::FactPath,
        Source::FactValue => Field::FactValue(steps),
    }
}

fn field(entity: Entity, path: &Path) -> Result<Field, QueryError> {
    // PuppetDB's name for any of the tags.
    if entity == Entity::Resources && path.head.text == "tag" && path.steps.is_empty() {
        return Ok(Field::Row("tags", vec![Step::Any]));
    }
    let Some((name, source)) = entity.field(&path.head.text) else {
        return Err(unknown_field(entity, path));
    };
    let into = matches!(source, Source::Facts | Source::Row | Source::FactValue);
    if !into && !path.steps.is_empty() {
        let message = format!("`{name}` has no fields");
        return Err(QueryError::new(message, path.span.clone()));
    }
    Ok(new_field(source, name, path.steps.clone()))
}

fn unknown_field(entity: Entity, path: &Path) -> QueryError {
    let names = || entity.fields().iter().map(|(name, _)| *name);
    let wrong = &path.head.text;
    let message = format!("`{}` have no field `{wrong}`", entity.name());
    let error = QueryError::new(message, path.head.span.clone());
    error.hint(match near(wrong, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if entity == Entity::Nodes => format!("if it is a fact, write `facts.{wrong}`"),
        None => format!("use one of {}", names().collect::<Vec<_>>().join(", ")),
    })
}

/// Returns a path as a user would write it.
fn label(path: &Path) -> String {
    let plain = |text: &str| {
        text.starts_with(|first: char| first.is_alphanumeric() || first == '_')
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || "_-".contains(c))
    };
    let mut text = path.head.text.clone();
    for step in &path.steps {
        text.push('.');
        match step {
            Step::Any => text.push('*'),
            Step::Name(name) if plain(name) => text.push_str(name),
            Step::Name(name) => text.push_str(&Value::from(name.as_str()).to_string()),
        }
    }
    text
}

fn check_column(entity: Entity, column: &syntax::Column) -> Result<Column, QueryError> {
    match column {
        syntax::Column::Field(path) => {
            let field = field(entity, path)?;
            no_wildcard(&field, &path.span)?;
            Ok(Column {
                label: label(path),
                function: None,
                field: Some(field),
            })
        }
        syntax::Column::Function { name, of, span } => {
            let (label, function, field) = check_function(entity, name, of.as_ref(), span)?;
            Ok(Column {
                label,
                function: Some(function),
                field,
            })
        }
    }
}

/// Refuses a wildcard: it names many values, and a column has one.
fn no_wildcard(field: &Field, span: &Span) -> Result<(), QueryError> {
    let steps = match field {
        Field::Facts(steps) | Field::Row(_, steps) | Field::FactValue(steps) => steps,
        _ => return Ok(()),
    };
    if steps.contains(&Step::Any) {
        Err(QueryError::new(
            "`*` is only allowed in conditions",
            span.clone(),
        ))
    } else {
        Ok(())
    }
}

fn check_function(
    entity: Entity,
    name: &Name,
    of: Option<&Path>,
    span: &Span,
) -> Result<(String, Function, Option<Field>), QueryError> {
    let functions = [
        ("count", Function::Count),
        ("sum", Function::Sum),
        ("avg", Function::Average),
        ("min", Function::Least),
        ("max", Function::Most),
    ];
    let found = functions.iter().find(|(known, _)| *known == name.text);
    let Some((known, function)) = found else {
        let names = functions.map(|(known, _)| known);
        let message = format!("unknown function `{}`", name.text);
        let error = QueryError::new(message, name.span.clone());
        return Err(error.hint(format!("use one of {}", names.join(", "))));
    };
    if of.is_none() && *function != Function::Count {
        let message = format!("`{known}` needs a field");
        return Err(QueryError::new(message, span.clone()));
    }
    let inside = of.map(|path| {
        let field = field(entity, path)?;
        no_wildcard(&field, &path.span)?;
        Ok(field)
    });
    let label = format!("{known}({})", of.map(label).unwrap_or_default());
    Ok((label, *function, inside.transpose()?))
}

fn plain_fields(columns: &[Column]) -> Vec<Field> {
    let plain = columns.iter().filter(|column| column.function.is_none());
    plain.filter_map(|column| column.field.clone()).collect()
}

fn check_grouping(
    written: &[syntax::Column],
    columns: &[Column],
    grouping: &[Field],
) -> Result<(), QueryError> {
    for (written, column) in written.iter().zip(columns) {
        if let (syntax::Column::Field(path), Some(field)) = (written, &column.field)
            && !grouping.contains(field)
        {
            let message = format!("`{}` differs within a group", column.label);
            let error = QueryError::new(message, path.span.clone());
            return Err(error.hint(format!(
                "add it to `group by`, or use max({})",
                column.label
            )));
        }
    }
    Ok(())
}

fn check_order(
    entity: Entity,
    by: &OrderBy,
    columns: &[Column],
    group_by: Option<&[Field]>,
) -> Result<Order, QueryError> {
    let (label, span, field) = match by {
        OrderBy::Field(path) => (label(path), &path.span, Some(field(entity, path)?)),
        OrderBy::Function { name, of } => {
            let (label, _, _) = check_function(entity, name, of.as_ref(), &name.span)?;
            (label, &name.span, None)
        }
    };
    if let Some(at) = columns.iter().position(|column| column.label == label) {
        return Ok(Order::Column(at));
    }
    match (field, group_by) {
        (Some(field), None) => {
            no_wildcard(&field, span)?;
            Ok(Order::Field(field))
        }
        _ => {
            let error = QueryError::new(format!("`{label}` is not a column"), span.clone());
            Err(error.hint("order groups by columns in the brackets"))
        }
    }
}

fn check_test(entity: Entity, condition: Condition) -> Result<Test, QueryError> {
    let all = |parts: Vec<Condition>| -> Result<Vec<Test>, QueryError> {
        parts
            .into_iter()
            .map(|part| check_test(entity, part))
            .collect()
    };
    Ok(match condition {
        Condition::And(parts) => Test::And(all(parts)?),
        Condition::Or(parts) => Test::Or(all(parts)?),
        Condition::Not(part) => Test::Not(Box::new(check_test(entity, *part)?)),
        Condition::Compare {
            path,
            operator,
            value,
        } => Test::Compare(field(entity, &path)?, matcher(operator, &value)?),
        Condition::IsNull { path, negated } => {
            let test = Test::IsNull(field(entity, &path)?);
            if negated {
                Test::Not(Box::new(test))
            } else {
                test
            }
        }
        Condition::InList { path, values } => {
            let wanted = values.iter().map(|literal| scalar(&literal.value));
            Test::Compare(field(entity, &path)?, Matcher::OneOf(wanted.collect()))
        }
        Condition::InQuery { paths, query, span } => check_in(entity, &paths, *query, span)?,
        Condition::PathMatches {
            path,
            patterns,
            span,
        } => check_path_matches(entity, &path, &patterns, span)?,
        Condition::Having(query) => Test::Having(Box::new(check_having(*query)?)),
    })
}

/// Checks a condition that a node has such a row. Pages and groups have no meaning in it.
fn check_having(query: syntax::Query) -> Result<Query, QueryError> {
    let span = query.entity.span.clone();
    let query = check(query)?;
    let paged = query.limit.is_some() || query.offset > 0 || !query.order_by.is_empty();
    if paged || query.group_by.is_some() {
        let message = "a condition cannot have an order, pages or groups";
        let error = QueryError::new(message, span);
        Err(error.hint("to use them in a condition, write `certname in reports[certname] { … }`"))
    } else {
        Ok(query)
    }
}

fn scalar(value: &Value) -> Scalar {
    Scalar::of(value).expect("a literal holds no other values")
}

fn matcher(operator: Operator, literal: &Literal) -> Result<Matcher, QueryError> {
    let comparison = match operator {
        Operator::Matches => return regex(literal).map(Matcher::Matches),
        Operator::NotMatches => return regex(literal).map(Matcher::NotMatches),
        Operator::Compare(comparison) => comparison,
    };
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if literal.value.is_boolean() && !equality {
        let message = "booleans have no order";
        return Err(QueryError::new(message, literal.span.clone()));
    }
    Ok(Matcher::Compare(comparison, scalar(&literal.value)))
}

fn regex(literal: &Literal) -> Result<Regex, QueryError> {
    let Value::String(pattern) = &literal.value else {
        let message = "a regular expression must be a string";
        return Err(QueryError::new(message, literal.span.clone()));
    };
    let built = RegexBuilder::new(pattern)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES)
        .nest_limit(50)
        .build();
    built.map_err(|error| {
        let message = match &error {
            regex::Error::CompiledTooBig(_) => "this regular expression is too large".to_owned(),
            error => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                let why = last.trim_start_matches("error: ");
                format!("invalid regular expression: {why}")
            }
        };
        QueryError::new(message, literal.span.clone())
    })
}

fn check_in(
    entity: Entity,
    paths: &[Path],
    query: syntax::Query,
    span: Span,
) -> Result<Test, QueryError> {
    let fields = checked(paths, |path| field(entity, path))?;
    for (field, path) in fields.iter().zip(paths) {
        no_wildcard(field, &path.span)?;
    }
    let bare = query.columns.is_empty();
    let mut query = check(query)?;
    if bare && fields == [Field::Node("certname")] {
        query.columns.truncate(1);
    }
    if query.columns.len() != fields.len() {
        let message = format!(
            "{} on the left and {} on the right",
            counted(fields.len()),
            counted(query.columns.len())
        );
        let hint = "list the columns: `certname in resources[certname] { … }`";
        return Err(QueryError::new(message, span).hint(hint));
    }
    let query = Box::new(query);
    Ok(Test::In(InCondition { fields, query }))
}

fn counted(number: usize) -> String {
    match number {
        1 => "1 column".to_owned(),
        number => format!("{number} columns"),
    }
}

fn check_path_matches(
    entity: Entity,
    path: &Path,
    patterns: &[Literal],
    span: Span,
) -> Result<Test, QueryError> {
    if field(entity, path)? != Field::FactPath {
        let message = "`~>` matches the path of a fact, step by step";
        let hint = "write `fact_contents { path ~> [\"networking\", \".*\", \"ip\"] }`";
        return Err(QueryError::new(message, span).hint(hint));
    }
    let whole = |literal: &Literal| match &literal.value {
        Value::String(pattern) => regex(&Literal {
            value: Value::from(format!("^(?:{pattern})$")),
            span: literal.span.clone(),
        }),
        Value::Number(place) => regex(&Literal {
            value: Value::from(format!("^{place}$")),
            span: literal.span.clone(),
        }),
        _ => regex(literal),
    };
    Ok(Test::PathMatches(checked(patterns, whole)?))
}
