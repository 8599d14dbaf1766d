//! The entities that a query can ask for, and their fields.

/// The subject of a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Entity {
    Nodes,
    /// One row per node and top-level fact.
    Facts,
    /// One row per node and value inside a fact.
    FactContents,
    Resources,
    Classes,
    Reports,
    Events,
}

/// The source of a field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The node that a row belongs to.
    Node,
    /// The node's facts; a path continues into them.
    Facts,
    /// The row; a path may continue into it.
    Row,
    /// The name of the fact.
    FactName,
    /// The whole path of a value inside a fact.
    FactPath,
    /// The fact's value; a path may continue into it.
    FactValue,
}

use Source::{FactName, FactPath, FactValue, Facts, Node, Row};

type Fields = &'static [(&'static str, Source)];

const NODES: Fields = &[
    ("certname", Node),
    ("status", Node),
    ("environment", Node),
    ("fact_set", Node),
    ("facts_changed", Node),
    ("facts_received", Node),
    ("catalog", Node),
    ("code_id", Node),
    ("release", Node),
    ("catalog_changed", Node),
    ("report", Node),
    ("report_status", Node),
    ("report_mode", Node),
    ("report_corrective", Node),
    ("report_time", Node),
    ("joined", Node),
    ("disabled", Node),
    ("facts", Facts),
];

const FACTS: Fields = &[
    ("certname", Node),
    ("name", FactName),
    ("value", FactValue),
    ("environment", Node),
];

const FACT_CONTENTS: Fields = &[
    ("certname", Node),
    ("path", FactPath),
    ("value", FactValue),
    ("name", FactName),
    ("environment", Node),
];

const RESOURCES: Fields = &[
    ("certname", Node),
    ("type", Row),
    ("title", Row),
    ("parameters", Row),
    ("tags", Row),
    ("exported", Row),
    ("file", Row),
    ("line", Row),
    ("environment", Node),
];

const CLASSES: Fields = &[("certname", Node), ("name", Row), ("environment", Node)];

const REPORTS: Fields = &[
    ("certname", Node),
    ("run", Row),
    ("status", Row),
    ("mode", Row),
    ("start_time", Row),
    ("end_time", Row),
    ("duration_seconds", Row),
    ("changed", Row),
    ("pending", Row),
    ("failed", Row),
    ("skipped", Row),
    ("unchanged", Row),
    ("corrective", Row),
    ("environment", Row),
    ("release", Row),
    ("catalog", Row),
    ("code_id", Row),
    ("from_cache", Row),
    ("method", Row),
    ("message", Row),
];

const EVENTS: Fields = &[
    ("certname", Node),
    ("run", Row),
    ("time", Row),
    ("type", Row),
    ("title", Row),
    ("status", Row),
    ("property", Row),
    ("old_value", Row),
    ("new_value", Row),
    ("corrective", Row),
    ("message", Row),
    ("file", Row),
    ("line", Row),
];

/// PuppetDB's names for the same fields.
const ALIASES: &[(Entity, &str, &str)] = &[
    (Entity::Nodes, "facts_timestamp", "facts_received"),
    (Entity::Nodes, "facts_environment", "environment"),
    (Entity::Nodes, "catalog_environment", "environment"),
    (Entity::Nodes, "catalog_timestamp", "catalog_changed"),
    (Entity::Nodes, "report_timestamp", "report_time"),
    (Entity::Nodes, "latest_report_hash", "report"),
    (Entity::Nodes, "latest_report_status", "report_status"),
    (
        Entity::Nodes,
        "latest_report_corrective_change",
        "report_corrective",
    ),
    (Entity::Classes, "title", "name"),
    (Entity::Reports, "hash", "run"),
    (Entity::Reports, "corrective_change", "corrective"),
    (Entity::Events, "report", "run"),
    (Entity::Events, "timestamp", "time"),
    (Entity::Events, "resource_type", "type"),
    (Entity::Events, "resource_title", "title"),
    (Entity::Events, "corrective_change", "corrective"),
];

/// PuppetDB's fields of nodes that are gone. Such nodes are not in the index, so the fields are
/// always null. They are known because most queries of Puppet code ask for it.
const ALWAYS_NULL: Fields = &[("deactivated", Node), ("expired", Node)];

impl Entity {
    pub(crate) const NAMES: &'static [(&'static str, Self)] = &[
        ("nodes", Self::Nodes),
        ("inventory", Self::Nodes),
        ("facts", Self::Facts),
        ("fact_contents", Self::FactContents),
        ("resources", Self::Resources),
        ("classes", Self::Classes),
        ("reports", Self::Reports),
        ("events", Self::Events),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, entity)| *entity)
    }

    pub(crate) fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, entity)| *entity == self);
        found.expect("every entity is in the list").0
    }

    pub(super) fn fields(self) -> Fields {
        match self {
            Self::Nodes => NODES,
            Self::Facts => FACTS,
            Self::FactContents => FACT_CONTENTS,
            Self::Resources => RESOURCES,
            Self::Classes => CLASSES,
            Self::Reports => REPORTS,
            Self::Events => EVENTS,
        }
    }

    /// Returns a field by its name, or by PuppetDB's name.
    pub(super) fn field(self, name: &str) -> Option<(&'static str, Source)> {
        let alias = ALIASES
            .iter()
            .find(|(entity, alias, _)| *entity == self && *alias == name);
        let name = alias.map_or(name, |(_, _, field)| field);
        let more = if self == Self::Nodes {
            ALWAYS_NULL
        } else {
            &[]
        };
        let mut known = self.fields().iter().chain(more);
        known.find(|(known, _)| *known == name).copied()
    }

    /// Returns the columns to show when a query names none.
    pub(super) fn column_names(self) -> impl Iterator<Item = &'static str> {
        let fields = self.fields().iter();
        // All facts of a node are too many to read.
        fields
            .filter(|(_, source)| *source != Facts)
            .map(|(name, _)| *name)
    }

    /// Returns the fields that determine the order of one node's rows.
    pub(crate) fn order(self) -> &'static [&'static str] {
        match self {
            Self::Nodes | Self::Facts | Self::FactContents => &[],
            Self::Resources => &["type", "title", "exported"],
            Self::Classes => &["name"],
            Self::Reports => &["start_time", "run"],
            Self::Events => &["time", "run", "number", "property"],
        }
    }
}
