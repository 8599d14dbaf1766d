//! The input of planning: applications and their components, as described by a source.

use std::collections::BTreeMap;

use bunraku_model::Excerpt;

/// Applications, and the environment they belong to.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Site {
    pub environment: String,
    pub applications: Vec<Application>,
    /// The revision of the code that it came from, if the source provides it.
    pub code_id: Option<String>,
    /// Notes about the source.
    pub notes: Vec<String>,
    /// Outputs of other nodes that catalogs of these nodes read. No source contains them; a
    /// server knows them.
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
    /// The nodes that it runs on.
    pub nodes: Vec<LocatedName>,
    /// `true` if several nodes are intended. The component runs on each of them.
    pub on_each: bool,
    pub produces: Vec<LocatedName>,
    pub consumes: Vec<LocatedName>,
    /// Capabilities that must come first, without passing values.
    pub requires: Vec<LocatedName>,
    /// Components that must come first without producing anything: `Lamp[a]/Lamp::Mysql[a]`,
    /// or the name alone.
    pub waits_for: Vec<LocatedName>,
    /// The tags that limit a run of this component alone.
    pub tags: Vec<String>,
    /// Its parameters, including values from capabilities. Empty if the source does not
    /// provide them.
    pub parameters: Values,
    /// The values of the capabilities that it produces.
    pub capabilities: BTreeMap<String, Values>,
    pub place: Option<Excerpt>,
}

/// Values by name, without secrets.
pub type Values = serde_json::Map<String, serde_json::Value>;

/// A name and its position in the source.
#[derive(Clone, PartialEq, Debug)]
pub struct LocatedName {
    pub name: String,
    pub place: Option<Excerpt>,
}

impl LocatedName {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            place: None,
        }
    }
}
