//! From the parser's events to nodes, within limits.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Node, Yaml, resolve};

/// The maximum number of nodes: enough for ten thousand states with many requisites, and far below
/// what would harm the machine.
const MOST_NODES: usize = 5_000_000;
/// The maximum number of nodes that all anchors and aliases together may repeat.
const MOST_ALIASED: usize = 1_000_000;
/// The maximum number of bytes of text that they may repeat.
const MOST_ALIASED_BYTES: usize = 32 << 20;
/// The maximum nesting, counted through aliases: an alias adds the height of its target. Values are
/// built, cloned, hashed and dropped recursively, so this bounds the stack that they need.
const DEEPEST: usize = 128;

/// The reason why text is not usable YAML. The position is in the parsed text.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct YamlError {
    pub(crate) message: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// For a duplicate key: the position of its first occurrence.
    pub(crate) first: Option<(usize, usize)>,
}

impl YamlError {
    fn new(message: impl Into<String>, at: (usize, usize)) -> Self {
        Self {
            message: message.into(),
            line: at.0,
            column: at.1,
            first: None,
        }
    }
}

/// Parses the single document of a text. An empty text is `Null`.
pub(crate) fn parse(text: &str) -> Result<Node, YamlError> {
    refuse_tabs(text)?;
    let mut composer = Composer {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        open: HashSet::new(),
        nodes: 0,
        aliased: 0,
        aliased_bytes: 0,
    };
    composer.document()
}

/// Refuses tabs in the indentation, as Salt does. The scanner accepts some of them.
fn refuse_tabs(text: &str) -> Result<(), YamlError> {
    for (index, line) in text.lines().enumerate() {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(at) = line[..indentation].find('\t')
            && indentation < line.len()
            && !line[indentation..].starts_with('#')
        {
            return Err(YamlError::new(
                "a tab in the indentation; use spaces",
                (index + 1, at + 1),
            ));
        }
    }
    Ok(())
}

type Events<'a> = Parser<'a, granit_parser::StrInput<'a>>;

struct Composer<'a> {
    events: Events<'a>,
    anchors: HashMap<usize, (Node, Extent)>,
    /// The anchors whose node is not complete yet.
    open: HashSet<usize>,
    nodes: usize,
    /// What anchors and aliases repeat.
    aliased: usize,
    aliased_bytes: usize,
}

/// The size of a node, including everything that its aliases stand for.
#[derive(Clone, Copy)]
struct Extent {
    nodes: usize,
    /// The bytes of its text.
    bytes: usize,
    /// The levels of lists and maps below the node; 0 for a scalar.
    height: usize,
}

impl Extent {
    /// A list or map without anything below it.
    const EMPTY: Self = Self {
        nodes: 1,
        bytes: 0,
        height: 0,
    };

    fn of_scalar(value: &Yaml) -> Self {
        let bytes = match value {
            Yaml::Text(text) => text.len(),
            _ => 0,
        };
        Self {
            bytes,
            ..Self::EMPTY
        }
    }

    /// Adds a node one level below.
    fn add(&mut self, inner: Self) {
        self.nodes += inner.nodes;
        self.bytes += inner.bytes;
        self.height = self.height.max(inner.height + 1);
    }
}

impl<'a> Composer<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        loop {
            match self.events.next_event() {
                None => return Err(YamlError::new("unexpected end of the text", (0, 0))),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(next)) => return Ok(next),
                Some(Err(error)) => {
                    let marker = error.marker();
                    return Err(YamlError::new(
                        error.info(),
                        (marker.line(), marker.col() + 1),
                    ));
                }
            }
        }
    }

    fn document(&mut self) -> Result<Node, YamlError> {
        let mut found = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                Event::DocumentStart(..) if found.is_some() => {
                    return Err(YamlError::new(
                        "expected a single document, but found another one",
                        at(&span),
                    ));
                }
                Event::DocumentStart(..) => {
                    let (event, span) = self.next()?;
                    found = Some(self.node(event, span, 0)?.0);
                }
                _ => return Err(YamlError::new("expected a document", at(&span))),
            }
        }
        Ok(found.unwrap_or(Node {
            value: Yaml::Null,
            line: 1,
            column: 1,
        }))
    }

    /// Reads a node and its extent.
    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        depth: usize,
    ) -> Result<(Node, Extent), YamlError> {
        let place = at(&span);
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            return Err(YamlError::new("too many nodes", place));
        }
        if depth > DEEPEST {
            return Err(YamlError::new("nested too deeply", place));
        }
        let anchor = event.anchor_id();
        if let Some(anchor) = anchor {
            self.open.insert(anchor);
        }
        let (value, extent) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place, depth),
            Event::Scalar(text, style, _, tag) => {
                let value = scalar(&text, style, tag.as_deref(), place)?;
                let extent = Extent::of_scalar(&value);
                (value, extent)
            }
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.map(depth)?,
            _ => return Err(YamlError::new("expected a value", place)),
        };
        let node = Node {
            value,
            line: place.0,
            column: place.1,
        };
        if let Some(anchor) = anchor {
            self.open.remove(&anchor);
            // Anchors within each other keep a copy each.
            self.repeat(extent, place)?;
            self.anchors.insert(anchor, (node.clone(), extent));
        }
        Ok((node, extent))
    }

    fn alias(
        &mut self,
        anchor: usize,
        place: (usize, usize),
        depth: usize,
    ) -> Result<(Node, Extent), YamlError> {
        if self.open.contains(&anchor) {
            return Err(YamlError::new("an alias to a node that contains it", place));
        }
        let undefined = || YamlError::new("an undefined alias", place);
        let (_, extent) = self.anchors.get(&anchor).ok_or_else(undefined)?;
        let extent = *extent;
        if depth + extent.height > DEEPEST {
            return Err(YamlError::new("nested too deeply through an alias", place));
        }
        self.repeat(extent, place)?;
        let (node, _) = self.anchors.get(&anchor).ok_or_else(undefined)?;
        Ok((node.clone(), extent))
    }

    /// Accounts for a copy of a node, before it is made.
    fn repeat(&mut self, extent: Extent, place: (usize, usize)) -> Result<(), YamlError> {
        self.aliased += extent.nodes;
        self.aliased_bytes += extent.bytes;
        if self.aliased > MOST_ALIASED {
            return Err(YamlError::new("aliases expand to too many nodes", place));
        }
        if self.aliased_bytes > MOST_ALIASED_BYTES {
            return Err(YamlError::new("aliases expand to too much text", place));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<(Yaml, Extent), YamlError> {
        let mut items = Vec::new();
        let mut extent = Extent::EMPTY;
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok((Yaml::List(items), extent));
            }
            let (item, inner) = self.node(event, span, depth + 1)?;
            extent.add(inner);
            items.push(item);
        }
    }

    fn map(&mut self, depth: usize) -> Result<(Yaml, Extent), YamlError> {
        let mut pairs: Vec<(Node, Node)> = Vec::new();
        let mut merged: Vec<(Node, Node)> = Vec::new();
        let mut merged_keys: HashSet<String> = HashSet::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut extent = Extent::EMPTY;
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, _) if text == "<<");
            let (key, key_extent) = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let (value, value_extent) = self.node(event, span, depth + 1)?;
            extent.add(key_extent);
            extent.add(value_extent);
            if merge {
                merge_in(&mut merged, &mut merged_keys, value)?;
                continue;
            }
            if matches!(key.value, Yaml::List(_) | Yaml::Map(_)) {
                return Err(YamlError::new(
                    format!("{} cannot be a key", key.kind()),
                    (key.line, key.column),
                ));
            }
            if let Some(first) = seen.insert(key.key_text(), pairs.len()) {
                let first = &pairs[first].0;
                return Err(YamlError {
                    first: Some((first.line, first.column)),
                    ..YamlError::new(
                        format!("the key `{}` is set twice", key.key_text()),
                        (key.line, key.column),
                    )
                });
            }
            pairs.push((key, value));
        }
        // A map's own keys win over merged ones.
        merged.retain(|(key, _)| !seen.contains_key(&key.key_text()));
        merged.extend(pairs);
        Ok((Yaml::Map(merged), extent))
    }
}

/// Merges `<<: *other` or `<<: [*one, *two]`; the earlier one of a list wins. `known` has the keys
/// of `merged`.
fn merge_in(
    merged: &mut Vec<(Node, Node)>,
    known: &mut HashSet<String>,
    value: Node,
) -> Result<(), YamlError> {
    let place = (value.line, value.column);
    match value.value {
        Yaml::Map(pairs) => {
            for (key, value) in pairs {
                if known.insert(key.key_text()) {
                    merged.push((key, value));
                }
            }
            Ok(())
        }
        Yaml::List(items) => items.into_iter().try_for_each(|item| match item.value {
            Yaml::Map(_) => merge_in(merged, known, item),
            _ => Err(YamlError::new("`<<` can only merge maps", place)),
        }),
        _ => Err(YamlError::new("`<<` needs a map or a list of maps", place)),
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: (usize, usize),
) -> Result<Yaml, YamlError> {
    let Some(tag) = tag else {
        return Ok(match style {
            ScalarStyle::Plain => resolve(text),
            _ => Yaml::Text(text.to_owned()),
        });
    };
    match (tag.suffix(), resolve(text)) {
        ("str" | "binary", _) | ("", _) => Ok(Yaml::Text(text.to_owned())),
        ("null", _) => Ok(Yaml::Null),
        ("float", Yaml::Int(number)) => Ok(Yaml::Float(number as f64)),
        ("int" | "float" | "bool", value) if !matches!(value, Yaml::Text(_) | Yaml::Null) => {
            Ok(value)
        }
        (suffix, _) => Err(YamlError::new(
            format!("the tag `{suffix}` cannot be used here"),
            place,
        )),
    }
}

fn at(span: &Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}
