//! Selection of resources by tag, as with Puppet's `--tags`.
//!
//! A resource has the tags that its compiler wrote. Puppet's compiler writes all
//! relevant tags (type, title, classes). If another compiler did not, they are added
//! here: the type and the title with their segments, and the tags of the containers of
//! the resource.
//!
//! A resource that is left out is skipped: it is not reported, its dependents continue,
//! a change before it refreshes nothing behind it, and a failure before it still blocks
//! its dependents. The order stays that of the whole catalog.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bunraku_model::Catalog;
use bunraku_model::catalog::Resource;
use serde_json::Value;

use super::CatalogPlan;

/// A tag that no resource can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a valid tag")]
pub struct InvalidTag(pub String);

type Tags = Arc<BTreeSet<String>>;

impl CatalogPlan {
    /// Leaves out resources with none of these tags. Without tags, keeps everything.
    pub fn only_tagged(mut self, catalog: &Catalog, tags: &[String]) -> Result<Self, InvalidTag> {
        if tags.is_empty() {
            return Ok(self);
        }
        let mut wanted = BTreeSet::new();
        for tag in tags {
            if !is_tag(tag) {
                return Err(InvalidTag(tag.clone()));
            }
            wanted.insert(tag.to_lowercase());
        }
        let mut reader = Reader::new(catalog);
        let mut selected: HashMap<String, bool> = HashMap::new();
        for resource in &catalog.resources {
            let reference = resource.reference().to_string();
            let is_selected = !reader.tags_of(&reference, 0).is_disjoint(&wanted);
            selected.insert(reference, is_selected);
        }
        self.left_out = (0..self.node_count() as u32)
            .map(|node| {
                let reference = self.reference_of(node).to_string();
                !selected.get(&reference).copied().unwrap_or(false)
            })
            .collect();
        Ok(self)
    }

    /// Returns true if a node is left out. It then only connects the nodes around it.
    pub(crate) fn is_left_out(&self, node: u32) -> bool {
        self.left_out.get(node as usize).copied().unwrap_or(false)
    }

    /// Returns true if nothing is left out.
    pub(crate) fn is_whole(&self) -> bool {
        self.left_out.is_empty()
    }
}

/// Returns true for a valid tag: letters, digits, `_`, and after the first character
/// also `:`, `.` and `-`.
fn is_tag(text: &str) -> bool {
    let word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.starts_with(word)
        && text
            .chars()
            .all(|letter| word(letter) || matches!(letter, ':' | '.' | '-'))
}

/// Adds a name and each of its segments.
fn add(text: &str, tags: &mut BTreeSet<String>) {
    if is_tag(text) {
        let text = text.to_lowercase();
        tags.extend(
            text.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned),
        );
        tags.insert(text);
    }
}

/// Deeper than any containment: only a limit for the stack.
const DEEPEST: usize = 1_000;

struct Reader<'a> {
    resources: HashMap<String, &'a Resource>,
    /// The containers of each resource.
    holders: HashMap<&'a str, Vec<&'a str>>,
    known: HashMap<String, Tags>,
}

impl<'a> Reader<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        let mut holders: HashMap<&str, Vec<&str>> = HashMap::new();
        for edge in &catalog.edges {
            let of_target = holders.entry(&edge.target).or_default();
            of_target.push(&edge.source);
        }
        let resources = catalog.resources.iter();
        Self {
            resources: resources
                .map(|resource| (resource.reference().to_string(), resource))
                .collect(),
            holders,
            known: HashMap::new(),
        }
    }

    fn tags_of(&mut self, reference: &str, depth: usize) -> Tags {
        if let Some(known) = self.known.get(reference) {
            return Arc::clone(known);
        }
        let Some(resource) = self.resources.get(reference).copied() else {
            return Tags::default();
        };
        let mut tags: BTreeSet<String> =
            resource.tags.iter().map(|tag| tag.to_lowercase()).collect();
        let is_complete = tags.contains(&resource.type_name.to_lowercase());
        if !is_complete {
            add(&resource.type_name, &mut tags);
            add(&resource.title, &mut tags);
            for tag in texts(resource.parameters.get("tag")) {
                add(tag, &mut tags);
            }
            let holders = self.holders.get(reference).cloned().unwrap_or_default();
            for holder in holders.into_iter().filter(|_| depth < DEEPEST) {
                tags.extend(self.tags_of(holder, depth + 1).iter().cloned());
            }
        }
        let tags = Arc::new(tags);
        self.known.insert(reference.to_owned(), Arc::clone(&tags));
        tags
    }
}

fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
