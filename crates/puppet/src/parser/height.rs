//! The height of an expression, in levels.

use crate::ast::{Attribute, Definition, Expression, Kind, Lambda, Parameter, Segment};

/// Returns one more than the height of the highest part.
pub(super) fn of(kind: &Kind) -> u16 {
    parts(kind).saturating_add(1)
}

fn parts(kind: &Kind) -> u16 {
    match kind {
        Kind::Array(items) | Kind::Block(items) | Kind::Site(items) => many(items),
        Kind::Hash(pairs) => pairs
            .iter()
            .map(|(key, value)| key.height.max(value.height))
            .max()
            .unwrap_or(0),
        Kind::Selector(target, options) => options
            .iter()
            .map(|(key, value)| key.height.max(value.height))
            .fold(target.height, u16::max),
        Kind::Interpolated(segments) => segments
            .iter()
            .map(|segment| match segment {
                Segment::Text(_) => 0,
                Segment::Expression(expression) => expression.height,
            })
            .max()
            .unwrap_or(0),
        Kind::Unary(_, inner) | Kind::TypeAlias(_, inner) => inner.height,
        Kind::Binary(_, left, right) | Kind::Assign(_, left, right) => {
            left.height.max(right.height)
        }
        Kind::Access(target, keys) => target.height.max(many(keys)),
        Kind::Call(call) => many(&call.arguments)
            .max(call.callee.as_ref().map_or(0, |callee| callee.height))
            .max(call.lambda.as_ref().map_or(0, lambda)),
        Kind::If(choice) => choice
            .condition
            .height
            .max(many(&choice.then))
            .max(many(&choice.otherwise)),
        Kind::Case(target, options) => options
            .iter()
            .map(|option| many(&option.values).max(many(&option.body)))
            .fold(target.height, u16::max),
        Kind::Resource(resource) => resource
            .bodies
            .iter()
            .map(|body| body.title.height.max(attributes(&body.attributes)))
            .fold(resource.type_name.height, u16::max),
        Kind::ResourceDefaults(_, list) => attributes(list),
        Kind::ResourceOverride(target, list) => target.height.max(attributes(list)),
        Kind::Collector(collector) => collector
            .query
            .as_ref()
            .map_or(0, |query| query.height)
            .max(attributes(&collector.attributes)),
        Kind::Class(definition)
        | Kind::Define(definition)
        | Kind::Application(definition)
        | Kind::Function(definition)
        | Kind::Plan(definition) => defined(definition),
        Kind::Node(node) => many(&node.matches).max(many(&node.body)),
        Kind::Mapping(mapping) => attributes(&mapping.attributes),
        Kind::Undef
        | Kind::Default
        | Kind::Boolean(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::String(_)
        | Kind::Regex(_)
        | Kind::Variable(_)
        | Kind::Name(_)
        | Kind::TypeName(_) => 0,
    }
}

fn many(expressions: &[Expression]) -> u16 {
    expressions.iter().map(|one| one.height).max().unwrap_or(0)
}

fn attributes(list: &[Attribute]) -> u16 {
    list.iter().map(|one| one.value.height).max().unwrap_or(0)
}

fn parameters(list: &[Parameter]) -> u16 {
    list.iter()
        .flat_map(|one| one.type_expression.iter().chain(&one.default))
        .map(|one| one.height)
        .max()
        .unwrap_or(0)
}

fn lambda(lambda: &Lambda) -> u16 {
    many(&lambda.body).max(parameters(&lambda.parameters))
}

fn defined(definition: &Definition) -> u16 {
    many(&definition.body).max(parameters(&definition.parameters))
}
