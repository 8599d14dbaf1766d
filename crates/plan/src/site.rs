//! What there is to plan: applications and their components, as some source says.

use std::collections::BTreeMap;

use bunraku_model::Excerpt;

/// Applications, and the environment they belong to.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Site {
    pub environment: String,
    pub applications: Vec<Application>,
    /// The revision of the code that it came from, if the source says so.
    pub code_id: Option<String>,
    /// What is worth knowing about the source.
    pub notes: Vec<String>,
    /// What catalogs of these nodes read of others, which no source says: a
    /// server knows it.
    pub reads: Vec<NodeRead>,
}

/// A node whose catalog reads an output of another: `${ node("db1").token… }`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRead {
    pub reader: String,
    pub source: String,
    /// The name under which the source registers it.
    pub name: String,
}

/// One instance of an application: `Lamp[app1]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Application {
    pub name: String,
    pub components: Vec<Component>,
}

/// One part of an application: `Lamp::Mysql[app1]`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Component {
    pub name: String,
    /// Where it runs.
    pub nodes: Vec<Named>,
    /// More than one node is meant: the component runs on each of them.
    pub on_each: bool,
    pub produces: Vec<Named>,
    pub consumes: Vec<Named>,
    /// Capabilities that come first, without passing values.
    pub requires: Vec<Named>,
    /// Components that come first without producing anything: `Lamp[a]/Lamp::Mysql[a]`,
    /// or the name alone.
    pub waits_for: Vec<Named>,
    /// What a run of this component alone is limited to.
    pub tags: Vec<String>,
    /// Its parameters, with what capabilities brought; empty where the source does not say.
    pub parameters: Values,
    /// The values of the capabilities that it produces.
    pub capabilities: BTreeMap<String, Values>,
    pub place: Option<Excerpt>,
}

/// Values by name. Secrets are not in them.
pub type Values = serde_json::Map<String, serde_json::Value>;

/// A name and where it was said.
#[derive(Clone, PartialEq, Debug)]
pub struct Named {
    pub name: String,
    pub place: Option<Excerpt>,
}

impl Named {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            place: None,
        }
    }
}
