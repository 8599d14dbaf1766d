//! One SLS file: finds it by name, renders it, and parses its YAML.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::jinja::taint::{self, Injection, InjectionKind};
use crate::jinja::{Renderer, Text};
use crate::place::Location;
use crate::problem::Problem;
use crate::world::{Tree, World};
use crate::yaml::{Node, Yaml, YamlError, parse};

/// A rendered file.
pub(crate) struct Sls {
    /// The name, such as `web.nginx`.
    pub(crate) name: String,
    /// True for an `init.sls`: its relative includes start inside the directory.
    pub(crate) is_init: bool,
    pub(crate) root: Node,
    pub(crate) text: Arc<Text>,
}

/// A position in a rendered file; cheap to keep.
#[derive(Clone)]
pub(crate) struct Spot {
    text: Arc<Text>,
    line: usize,
    column: usize,
}

impl Spot {
    pub(crate) fn of(text: &Arc<Text>, node: &Node) -> Self {
        Self {
            text: Arc::clone(text),
            line: node.line,
            column: node.column,
        }
    }

    pub(crate) fn location(&self) -> Location {
        self.text.locate(self.line, self.column)
    }
}

/// The files of a tree: their paths, and access to them.
pub(crate) struct Files<'a> {
    pub(crate) tree: Tree,
    pub(crate) world: &'a dyn World,
    pub(crate) renderer: &'a Renderer,
    /// Renders with stand-ins for facts, if facts are not trusted.
    pub(crate) shadow: Option<Shadow<'a>>,
}

/// The second rendering of each file.
#[derive(Clone, Copy)]
pub(crate) struct Shadow<'a> {
    pub(crate) renderer: &'a Renderer,
    /// Facts may add steps to paths in the tree.
    pub(crate) may_target: bool,
}

impl Files<'_> {
    /// Returns the path of an SLS: `web.sls`, else `web/init.sls`.
    pub(crate) fn find(&self, sls: &str) -> Result<Option<(String, String)>, Problem> {
        let path = sls.replace('.', "/");
        for candidate in [format!("{path}.sls"), format!("{path}/init.sls")] {
            let source = self.world.source(self.tree, &candidate);
            let source = source
                .map_err(|error| Problem::new(error.to_string(), Location::of_file(&candidate)))?;
            if let Some(source) = source {
                return Ok(Some((candidate, source)));
            }
        }
        Ok(None)
    }

    /// Returns the names of all files, for wildcards.
    pub(crate) fn names(&self) -> Result<Vec<String>, Problem> {
        let files = self.world.state_files(self.tree);
        let files = files.map_err(|error| {
            Problem::new(error.to_string(), Location::of_file("the state tree"))
        })?;
        let mut names: Vec<String> = files.iter().filter_map(|path| name_of(path)).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Renders and parses a file.
    pub(crate) fn read(&self, sls: &str, path: &str, source: String) -> Result<Sls, Problem> {
        let variables = variables(sls, path);
        let mut shadowed = None;
        let text = match pipeline(&source) {
            Ok(Pipeline::Jinja) => {
                let text = self.renderer.render_source(path, &source, &variables)?;
                if let Some(shadow) = self.shadow {
                    let other = shadow.renderer.render_source(path, &source, &variables);
                    let other = other.map_err(depends_on_facts)?;
                    if other.text != text.text {
                        shadowed = Some((shadow, other));
                    }
                }
                text
            }
            Ok(Pipeline::Plain) => self.renderer.plain(path, source),
            Err(name) => {
                let at = Location {
                    line: 1,
                    column: 1,
                    ..Location::of_file(path)
                };
                return Err(Problem::new(format!("the renderer `{name}` is not supported"), at)
                    .hint("write the file in YAML with Jinja (`#!jinja|yaml`), or plain YAML (`#!yaml`)"));
            }
        };
        let text = Arc::new(text);
        if let Some((_, other)) = &shadowed
            && let Some(found) = taint::control_character(&other.text)
        {
            return Err(injected(other, found));
        }
        let root = parse(&text.text).map_err(|error| yaml_problem(&text, &error))?;
        if let Some((shadow, other)) = &shadowed {
            let as_content = parse(&other.text)
                .map_err(|error| depends_on_facts(yaml_problem(other, &error)))?;
            if let Some(found) = taint::difference(&root, &as_content, shadow.may_target) {
                return Err(injected(&text, found));
            }
        }
        let is_init = path.ends_with("/init.sls");
        Ok(Sls {
            name: sls.to_owned(),
            is_init,
            root,
            text,
        })
    }
}

fn injected(text: &Text, found: Injection) -> Problem {
    let at = text.locate(found.line, found.column);
    match found.what {
        InjectionKind::Control(character) => Problem::new(
            format!("a fact contains a control character ({})", named(character)),
            at,
        )
        .hint("facts are what the node says: write it with `| json` or `| yaml_encode`"),
        InjectionKind::Structure => Problem::new("a fact changes the structure of this file", at)
            .hint("facts are what the node says: write them with `| json` or `| yaml_encode`"),
        InjectionKind::Path => Problem::new("a fact adds steps to this path", at).hint(
            "a fact may fill one step of a path. Run `bunraku environment set NAME --fact-targeting on` to let facts decide which files nodes get",
        ),
    }
}

fn named(character: char) -> String {
    match character {
        '\n' => "line break".to_owned(),
        '\r' => "carriage return".to_owned(),
        '\t' => "tab".to_owned(),
        other => format!("U+{:04X}", u32::from(other)),
    }
}

/// The problem of a file that cannot be read if facts are content.
fn depends_on_facts(problem: Problem) -> Problem {
    let at = problem.at.clone();
    Problem::new("a fact changes the structure of this file", at)
        .also(problem.message.clone(), problem.at)
        .hint("facts are what the node says: write them with `| json` or `| yaml_encode`")
}

/// Returns the name for a path: `web/init.sls` is `web`; `top.sls` is `top`.
fn name_of(path: &str) -> Option<String> {
    let path = path.strip_suffix(".sls")?;
    let path = path.strip_suffix("/init").unwrap_or(path);
    Some(path.replace('/', "."))
}

pub(crate) fn variables(sls: &str, path: &str) -> Map<String, Value> {
    let is_init = path.ends_with("/init.sls");
    let directory = if is_init {
        sls.replace('.', "/")
    } else {
        sls.rsplit_once('.')
            .map_or(String::new(), |(above, _)| above.replace('.', "/"))
    };
    let object = json!({
        "sls": sls,
        "slspath": directory,
        "slsdotpath": directory.replace('/', "."),
        "slscolonpath": directory.replace('/', ":"),
        "sls_path": directory.replace('/', "_"),
    });
    object.as_object().cloned().unwrap_or_default()
}

enum Pipeline {
    Jinja,
    Plain,
}

/// Reads the pipeline from the first line: `#!jinja|yaml`, `#!yaml`, `#!py`. JSON is YAML.
fn pipeline(source: &str) -> Result<Pipeline, String> {
    let first = source.lines().next().unwrap_or_default();
    let Some(line) = first
        .strip_prefix("#!")
        .filter(|line| !line.starts_with('/'))
    else {
        return Ok(Pipeline::Jinja);
    };
    let names: Vec<&str> = line
        .trim()
        .split('|')
        .map(|name| name.split_whitespace().next().unwrap_or(""))
        .collect();
    match names.as_slice() {
        ["jinja", "yaml" | "json"] | ["jinja"] => Ok(Pipeline::Jinja),
        ["yaml" | "json"] => Ok(Pipeline::Plain),
        names => {
            let unknown = names
                .iter()
                .find(|name| !matches!(**name, "jinja" | "yaml" | "json"));
            Err(unknown.copied().unwrap_or(line.trim()).to_owned())
        }
    }
}

pub(crate) fn yaml_problem(text: &Text, error: &YamlError) -> Problem {
    let problem = Problem::new(error.message.clone(), text.locate(error.line, error.column));
    match error.first {
        Some((line, column)) => problem.also("first defined here", text.locate(line, column)),
        None => problem,
    }
}

/// Returns the pairs of the root. An empty file has none.
pub(crate) fn root_map(sls: &Sls) -> Result<&[(Node, Node)], Problem> {
    match &sls.root.value {
        Yaml::Map(pairs) => Ok(pairs),
        Yaml::Null => Ok(&[]),
        _ => Err(Problem::new(
            format!("a state file must be a map, not {}", sls.root.kind()),
            Spot::of(&sls.text, &sls.root).location(),
        )),
    }
}
