//! A query as written, before it is checked.

use std::ops::Range;

pub(super) type Span = Range<usize>;

#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) entity: Name,
    /// Empty: what is grouped by, or the entity's default columns.
    pub(super) columns: Vec<Column>,
    pub(super) condition: Option<Condition>,
    pub(super) group_by: Vec<Path>,
    pub(super) order_by: Vec<Order>,
    pub(super) limit: Option<usize>,
    pub(super) offset: Option<usize>,
}

impl Query {
    /// A query for everything of an entity.
    pub(super) fn of(entity: Name) -> Self {
        Self {
            entity,
            columns: Vec::new(),
            condition: None,
            group_by: Vec::new(),
            order_by: Vec::new(),
            limit: None,
            offset: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) span: Span,
}

#[derive(Clone, Debug)]
pub(super) enum Column {
    Field(Path),
    Function {
        name: Name,
        of: Option<Path>,
        span: Span,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) by: OrderBy,
    pub(super) descending: bool,
}

#[derive(Clone, Debug)]
pub(super) enum OrderBy {
    Field(Path),
    Function { name: Name, of: Option<Path> },
}

/// `facts.os."a b".0.*`.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) head: Name,
    pub(super) steps: Vec<Step>,
    pub(super) span: Span,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A key, or an index into a list.
    Name(String),
    /// Any one key or index.
    Any,
}

#[derive(Clone, Debug)]
pub(super) enum Condition {
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    Compare {
        path: Path,
        operator: Operator,
        value: Literal,
    },
    IsNull {
        path: Path,
        negated: bool,
    },
    InList {
        path: Path,
        values: Vec<Literal>,
    },
    InQuery {
        paths: Vec<Path>,
        query: Box<Query>,
        span: Span,
    },
    /// `path ~> ["networking", ".*"]`
    PathMatches {
        path: Path,
        patterns: Vec<Literal>,
        span: Span,
    },
    /// `resources { … }` inside another entity: a condition on the same node.
    Having(Box<Query>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operator {
    Compare(Comparison),
    Matches,
    NotMatches,
}

impl Operator {
    /// Returns the operator that a symbol stands for.
    pub(super) fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "=" => Self::Compare(Comparison::Equal),
            "!=" => Self::Compare(Comparison::NotEqual),
            "<" => Self::Compare(Comparison::Less),
            "<=" => Self::Compare(Comparison::LessOrEqual),
            ">" => Self::Compare(Comparison::Greater),
            ">=" => Self::Compare(Comparison::GreaterOrEqual),
            "~" => Self::Matches,
            "!~" => Self::NotMatches,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Literal {
    pub(super) value: serde_json::Value,
    pub(super) span: Span,
}
