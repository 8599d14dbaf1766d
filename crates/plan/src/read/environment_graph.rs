//! The environment graph that Puppet 4 to 6 servers return.

use serde_json::{Map, Value};

use super::ReadError;
use crate::site::{Application, Component, LocatedName, Site};

/// Reads `{"environment": …, "applications": {"Lamp[a]": {"Lamp::Mysql[a]": {…}}}}`.
pub fn environment_graph(file: &str, text: &str) -> Result<Site, ReadError> {
    let refuse = |why: String| ReadError::Graph {
        file: file.to_owned(),
        why,
    };
    let root: Value = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
    let applications = match root.get("applications") {
        Some(Value::Object(applications)) => applications,
        Some(_) => return Err(refuse("`applications` is not an object".to_owned())),
        None => return Err(refuse("it has no `applications`".to_owned())),
    };
    let environment = match root.get("environment") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Object(about)) => match about.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => return Err(refuse("`environment` has no `name`".to_owned())),
        },
        None => "production".to_owned(),
        Some(_) => {
            return Err(refuse(
                "`environment` is neither a name nor an object".to_owned(),
            ));
        }
    };
    let mut site = Site {
        environment,
        code_id: root
            .get("code_id")
            .and_then(Value::as_str)
            .map(str::to_owned),
        ..Site::default()
    };
    for (name, components) in applications {
        let Value::Object(components) = components else {
            return Err(refuse(format!("`{name}` is not an object")));
        };
        site.applications.push(Application {
            name: name.clone(),
            components: components
                .iter()
                .map(|(component, about)| read_component(name, component, about))
                .collect::<Result<_, _>>()
                .map_err(refuse)?,
        });
    }
    Ok(site)
}

fn read_component(application: &str, name: &str, about: &Value) -> Result<Component, String> {
    let Value::Object(about) = about else {
        return Err(format!("`{name}` of `{application}` is not an object"));
    };
    let nodes = match about.get("node") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(node)) => vec![LocatedName::new(node)],
        Some(Value::Array(_)) => names(about, "node", name)?,
        Some(_) => return Err(format!("`node` of `{name}` is not a name")),
    };
    let type_name = name.split('[').next().unwrap_or(name);
    Ok(Component {
        name: name.to_owned(),
        nodes,
        produces: names(about, "produces", name)?,
        consumes: names(about, "consumes", name)?,
        tags: vec![type_name.to_lowercase()],
        ..Component::default()
    })
}

fn names(
    about: &Map<String, Value>,
    key: &str,
    component: &str,
) -> Result<Vec<LocatedName>, String> {
    match about.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| match item {
                Value::String(name) => Ok(LocatedName::new(name)),
                _ => Err(format!(
                    "`{key}` of `{component}` contains something that is not a name"
                )),
            })
            .collect(),
        Some(_) => Err(format!("`{key}` of `{component}` is not a list")),
    }
}
