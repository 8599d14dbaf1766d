//! Functions that declare applications: those of the module `app_modeling`, which are written in
//! Ruby there, and `create_resources`.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{Arguments, Function};
use crate::evaluate::{DeclaredResource, EvalResult, Evaluator, error};
use crate::reference::Reference;
use crate::value::types::Type;
use crate::value::{Hash, Value};

pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("collect_component_titles", titles),
    ("collect_component_nodes", nodes),
    ("create_component_app", component_app),
    ("create_node_order", node_order),
    ("create_resources", create_resources),
];

/// Components by node, as `nodes` maps them. `mapped` also returns the requested type.
type ComponentsByNode = Vec<(Value, Vec<Reference>)>;

fn mapped(mut arguments: Arguments<'_>) -> EvalResult<(ComponentsByNode, String)> {
    let [nodes, wanted] = arguments.exactly()?;
    let wanted = match &wanted {
        Value::Type(of) => match &**of {
            Type::Resource(Some(name)) => name.to_string(),
            _ => return arguments.unfit(&wanted),
        },
        _ => return arguments.unfit(&wanted),
    };
    let Value::Hash(table) = &nodes else {
        return arguments.unfit(&nodes);
    };
    let mut found = Vec::with_capacity(table.entries.len());
    for (node, components) in &table.entries {
        let what = "`nodes`";
        let components = crate::evaluate::references_in(components, what, arguments.span)?;
        found.push((node.clone(), components));
    }
    Ok((found, wanted))
}

fn titles(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let span = arguments.span;
    let (mapped, wanted) = mapped(arguments)?;
    let all = mapped.into_iter().flat_map(|(_, components)| components);
    let titles = all
        .filter(|one| one.type_name == wanted)
        .map(|one| Value::text(one.title));
    evaluator.array(titles.collect(), span)
}

fn nodes(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    let span = arguments.span;
    let (mapped, wanted) = mapped(arguments)?;
    let nodes = mapped
        .into_iter()
        .filter(|(_, components)| components.iter().any(|one| one.type_name == wanted))
        .map(|(node, _)| match node {
            Value::Reference(node) => Value::text(&node.title),
            other => other,
        });
    evaluator.array(nodes.collect(), span)
}

/// `create_component_app('app', 'title', { 'components' => { 'App::Web' => ['node1'] } })`
fn component_app(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [application, title, parameters] = arguments.exactly()?;
    let span = arguments.span;
    let (Value::String(application), Value::Hash(parameters)) = (&application, &parameters) else {
        return error(
            "`create_component_app` takes an application, a title and a hash",
            span,
        );
    };
    let mut parameters = parameters.entries.clone();
    let components = parameters.shift_remove(&Value::text("components"));
    let Some(Value::Hash(components)) = components else {
        return error(
            "`create_component_app` needs `components`: a hash of types and nodes",
            span,
        );
    };
    let mut by_node: IndexMap<String, Vec<Value>> = IndexMap::new();
    for (component, nodes) in &components.entries {
        for node in texts(nodes) {
            let reference = Reference::new(&component.to_string(), format!("{title}-{node}"));
            let components = by_node.entry(node).or_default();
            components.push(Value::Reference(Arc::new(reference)));
        }
    }
    let mut nodes = Hash::new();
    for (node, components) in by_node {
        let node = Value::Reference(Arc::new(Reference::new("Node", node)));
        nodes.insert(node, evaluator.array(components, span)?);
    }
    let nodes = evaluator.hash(nodes, span)?;
    parameters.insert(Value::text("nodes"), nodes);
    let title = title.to_string();
    declare(evaluator, application, &title, &parameters, span)
}

/// `create_node_order('title', ['node1', ['node2', 'node3']])`
fn node_order(evaluator: &mut Evaluator<'_>, mut arguments: Arguments<'_>) -> EvalResult {
    let [title, order] = arguments.exactly()?;
    let span = arguments.span;
    let mut nodes = Hash::new();
    for node in texts(&order) {
        let component = Reference::new("App_modeling::Dependency", format!("{title}-{node}"));
        let component = Value::Reference(Arc::new(component));
        let key = Value::Reference(Arc::new(Reference::new("Node", node.clone())));
        if nodes.insert(key, component).is_some() {
            return error(format!("`{node}` is in the order twice"), span);
        }
    }
    let nodes = evaluator.hash(nodes, span)?;
    let parameters =
        Hash::from_iter([(Value::text("order"), order), (Value::text("nodes"), nodes)]);
    let (application, title) = ("app_modeling::node_order", title.to_string());
    declare(evaluator, application, &title, &parameters, span)
}

/// `create_resources('app', { 'title' => { … } }, { defaults })`
fn create_resources(evaluator: &mut Evaluator<'_>, arguments: Arguments<'_>) -> EvalResult {
    arguments.at_least(2)?;
    let (Value::String(name), Value::Hash(instances)) =
        (&arguments.values[0], &arguments.values[1])
    else {
        return error("`create_resources` takes a type and a hash", arguments.span);
    };
    let defaults = match arguments.values.get(2) {
        Some(Value::Hash(table)) => table.entries.clone(),
        _ => Hash::new(),
    };
    for (title, own) in &instances.entries {
        let mut parameters = defaults.clone();
        if let Value::Hash(own) = own {
            parameters.extend(own.entries.clone());
        }
        declare(
            evaluator,
            name,
            &title.to_string(),
            &parameters,
            arguments.span,
        )?;
    }
    Ok(Value::Undef)
}

/// Collects all texts in nested arrays.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.items.iter().flat_map(texts).collect(),
        Value::Undef => Vec::new(),
        other => vec![other.to_string()],
    }
}

fn declare(
    evaluator: &mut Evaluator<'_>,
    name: &str,
    title: &str,
    parameters: &Hash,
    span: crate::source::Span,
) -> EvalResult {
    evaluator.work(parameters.len() + 1, span)?;
    evaluator.sized(evaluator.declared.len(), span)?;
    let attributes = parameters
        .iter()
        .map(|(name, value)| (name.to_string(), (value.clone(), span)));
    evaluator.declared.push(DeclaredResource {
        reference: Reference::new(name, title),
        attributes: attributes.collect(),
        span,
    });
    Ok(Value::Undef)
}
