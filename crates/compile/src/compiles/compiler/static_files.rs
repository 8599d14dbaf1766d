//! Static catalogs and resource lists, per node and per group.
//!
//! `site.yaml` defines groups of nodes, by name and by facts, and the content
//! of each group: lists of resources, or a whole catalog. A node gets the
//! content of all of its groups, in the order of the file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::catalog::{Resource, ResourceReference};
use bunraku_model::{Catalog, FactSet, Glob, NodeName};
use bunraku_states::{Node, read_document};
use bunraku_wire::api::CompileProblem;
use serde_json::{Value, json};

use super::code_worker::{AnswerWorker, CodeTask, CodeWorkers};
use super::{Compilation, CompileRequest, Compiler};
use crate::code::is_below;
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;
use bunraku_control::code_problems::{problem_at as at, problem_of_states};

/// The compiler for a static site.
pub(crate) struct StaticCompiler {
    pub(super) workers: CodeWorkers,
    pub(super) site: String,
}

/// A site: what its file says.
pub(super) struct StaticSite {
    tree: PathBuf,
    groups: Vec<NodeGroup>,
    file: String,
}

#[derive(Clone, Debug)]
struct NodeGroup {
    nodes: Vec<String>,
    /// Each fact with its accepted values.
    facts: Vec<(String, Vec<String>)>,
    resources: Vec<NamedFile>,
    catalog: Option<NamedFile>,
}

/// A file that the site names, with the place of the reference.
#[derive(Clone, Debug)]
struct NamedFile {
    path: String,
    line: usize,
    column: usize,
}

impl StaticSite {
    /// Reads the site. Blocks.
    pub(super) fn read(tree: &Path, site: &str) -> Result<Self, CompileProblem> {
        let document = read(tree, site)?;
        let groups = match member(&document, "groups").map(|groups| (groups, groups.as_map())) {
            Some((_, Some(groups))) => groups,
            Some((node, None)) => return Err(at(site, node, "`groups` must be a map".to_owned())),
            None => return Err(at(site, &document, "`groups` is missing".to_owned())),
        };
        let groups = groups
            .iter()
            .map(|(_, group)| NodeGroup::read(site, group))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            tree: tree.to_owned(),
            groups,
            file: site.to_owned(),
        })
    }

    /// Returns the catalog of a node. Blocks.
    pub(super) fn catalog(
        &self,
        node: &NodeName,
        facts: &FactSet,
    ) -> Result<Catalog, CompileProblem> {
        let matching = self.groups.iter().filter(|group| group.holds(node, facts));
        assemble(&self.tree, &self.file, node, matching)
    }
}

#[async_trait]
impl Compiler for StaticCompiler {
    fn name(&self) -> &'static str {
        "static"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let task = CodeTask::Static {
            node: request.node.clone(),
            facts: Cow::Borrowed(&request.facts),
            site: Cow::Borrowed(&self.site),
        };
        let answers = Arc::new(NothingToAsk);
        self.workers.compile(task, answers, slots).await
    }
}

/// A site asks nothing.
struct NothingToAsk;

#[async_trait]
impl AnswerWorker for NothingToAsk {
    async fn answer(&self, _: Value) -> Result<Value, String> {
        Err("a static site asks nothing".to_owned())
    }
}

impl NodeGroup {
    fn read(site: &str, node: &Node) -> Result<Self, CompileProblem> {
        let Some(members) = node.as_map() else {
            let message = format!("a group must be a map, not {}", node.kind());
            return Err(at(site, node, message));
        };
        for (key, _) in members {
            if !["nodes", "facts", "resources", "catalog"].contains(&key.key_text().as_str()) {
                let message = format!(
                    "`{}` is unknown in a group; use nodes, facts, resources or catalog",
                    key.key_text()
                );
                return Err(at(site, key, message));
            }
        }
        let facts = match member(node, "facts") {
            None => Vec::new(),
            Some(facts) => facts
                .as_map()
                .ok_or_else(|| at(site, facts, "`facts` must be a map".to_owned()))?
                .iter()
                .map(|(path, wanted)| Ok((path.key_text(), values(site, wanted)?)))
                .collect::<Result<_, _>>()?,
        };
        let nodes = match member(node, "nodes") {
            Some(nodes) => values(site, nodes)?,
            None if facts.is_empty() => {
                let message = "a group needs `nodes` or `facts`".to_owned();
                return Err(at(site, node, message));
            }
            None => vec!["*".to_owned()],
        };
        Ok(Self {
            nodes,
            facts,
            resources: match member(node, "resources") {
                None => Vec::new(),
                Some(resources) => named(site, resources)?,
            },
            catalog: match member(node, "catalog") {
                None => None,
                Some(catalog) => named(site, catalog)?.into_iter().next(),
            },
        })
    }

    fn holds(&self, node: &NodeName, facts: &FactSet) -> bool {
        self.nodes
            .iter()
            .any(|glob| Glob::with_wildcards(glob).matches(node.as_str()))
            && self.facts.iter().all(|(path, wanted)| {
                let found = facts.get(path).map(text_of);
                found.is_some_and(|found| {
                    wanted
                        .iter()
                        .any(|glob| Glob::with_wildcards(glob).matches(&found))
                })
            })
    }
}

fn assemble<'a>(
    tree: &Path,
    site: &str,
    node: &NodeName,
    groups: impl Iterator<Item = &'a NodeGroup>,
) -> Result<Catalog, CompileProblem> {
    let groups: Vec<&NodeGroup> = groups.collect();
    if groups.is_empty() {
        return Err(CompileProblem {
            message: format!("no group in `{site}` matches `{node}`"),
            file: Some(site.to_owned()),
            hint: Some("add a group for it, such as `nodes: \"*\"`".to_owned()),
            ..CompileProblem::default()
        });
    }
    let mut catalogs = groups.iter().filter_map(|group| group.catalog.as_ref());
    let mut catalog = match catalogs.next() {
        Some(named) => read_catalog(tree, &named.path.replace("{node}", node.as_str()))
            .map_err(|problem| named_at(site, named, problem))?,
        None => Catalog::default(),
    };
    if let Some(second) = catalogs.next() {
        let message =
            format!("a second catalog for `{node}`: only one group may provide a catalog");
        return Err(problem_at(site, second, message));
    }
    catalog.name = node.to_string();
    catalog.catalog_format.get_or_insert(json!(2));
    let mut declared: HashMap<ResourceReference, String> = catalog
        .resources
        .iter()
        .map(|resource| (resource.reference(), resource.place().to_string()))
        .collect();
    for named in groups.iter().flat_map(|group| &group.resources) {
        let path = named.path.replace("{node}", node.as_str());
        let list = read_list(tree, &path).map_err(|problem| named_at(site, named, problem))?;
        for resource in list {
            let place = resource.place().to_string();
            if let Some(first) = declared.insert(resource.reference(), place) {
                let message = format!(
                    "`{}` is declared twice, first at {first}",
                    resource.reference()
                );
                return Err(CompileProblem {
                    message,
                    file: resource.file.clone(),
                    line: resource.line,
                    ..CompileProblem::default()
                });
            }
            catalog.resources.push(resource);
        }
    }
    Ok(catalog)
}

fn read_catalog(tree: &Path, path: &str) -> Result<Catalog, CompileProblem> {
    let bytes = read_bytes(tree, path)?;
    Catalog::from_json(&bytes).map_err(|error| {
        let source = std::error::Error::source(&error);
        let json = source.and_then(|source| source.downcast_ref::<serde_json::Error>());
        CompileProblem {
            message: match json {
                Some(json) => format!("not a catalog: {json}"),
                None => error.to_string(),
            },
            file: Some(path.to_owned()),
            line: json.map(|json| json.line() as u64),
            column: json.map(|json| json.column() as u64),
            hint: None,
        }
    })
}

/// Reads a list such as `resources: { "File[/etc/motd]": { content: hello } }`.
fn read_list(tree: &Path, path: &str) -> Result<Vec<Resource>, CompileProblem> {
    let document = read(tree, path)?;
    let resources = match member(&document, "resources") {
        Some(resources) => resources,
        None => return Err(at(path, &document, "`resources` is missing".to_owned())),
    };
    let pairs = resources
        .as_map()
        .ok_or_else(|| at(path, resources, "`resources` must be a map".to_owned()))?;
    pairs
        .iter()
        .map(|(key, value)| {
            let reference: ResourceReference = key
                .key_text()
                .parse()
                .map_err(|error| at(path, key, format!("{error}")))?;
            let parameters = match value.to_json() {
                Value::Object(parameters) => parameters,
                Value::Null => serde_json::Map::new(),
                _ => {
                    let message = format!("the parameters of `{reference}` must be a map");
                    return Err(at(path, value, message));
                }
            };
            Ok(Resource {
                type_name: reference.type_name().to_owned(),
                title: reference.title().to_owned(),
                file: Some(path.to_owned()),
                line: Some(key.line as u64),
                parameters,
                ..Resource::default()
            })
        })
        .collect()
}

fn read(tree: &Path, path: &str) -> Result<Node, CompileProblem> {
    let bytes = read_bytes(tree, path)?;
    let text = String::from_utf8(bytes).map_err(|_| CompileProblem {
        message: "not valid UTF-8".to_owned(),
        file: Some(path.to_owned()),
        ..CompileProblem::default()
    })?;
    read_document(path, &text).map_err(|problem| problem_of_states(&problem))
}

fn read_bytes(tree: &Path, path: &str) -> Result<Vec<u8>, CompileProblem> {
    let refused = |message: String| CompileProblem {
        message,
        file: Some(path.to_owned()),
        ..CompileProblem::default()
    };
    if !is_below(Path::new(path)) {
        return Err(refused(format!(
            "`{path}` must be a path below the environment's root"
        )));
    }
    std::fs::read(tree.join(path)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refused(format!("`{path}` is not in the environment")),
        _ => refused(format!("cannot read `{path}`: {error}")),
    })
}

/// Reports a missing file at the line that names it.
fn named_at(site: &str, named: &NamedFile, problem: CompileProblem) -> CompileProblem {
    match problem.line {
        Some(_) => problem,
        None => problem_at(site, named, problem.message),
    }
}

fn problem_at(site: &str, named: &NamedFile, message: String) -> CompileProblem {
    CompileProblem {
        message,
        file: Some(site.to_owned()),
        line: Some(named.line as u64),
        column: Some(named.column as u64),
        hint: None,
    }
}

fn member<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let pairs = node.as_map()?;
    let found = pairs.iter().find(|(key, _)| key.as_text() == Some(name));
    found.map(|(_, value)| value)
}

fn items<'a>(site: &str, node: &'a Node) -> Result<&'a [Node], CompileProblem> {
    match (node.as_list(), node.as_map()) {
        (Some(items), _) => Ok(items),
        (None, None) => Ok(std::slice::from_ref(node)),
        (None, Some(_)) => Err(at(site, node, "must be a value or a list".to_owned())),
    }
}

fn values(site: &str, node: &Node) -> Result<Vec<String>, CompileProblem> {
    let all = items(site, node)?.iter();
    Ok(all.map(|item| text_of(&item.to_json())).collect())
}

fn named(site: &str, node: &Node) -> Result<Vec<NamedFile>, CompileProblem> {
    items(site, node)?
        .iter()
        .map(|item| match item.as_text() {
            Some(path) => Ok(NamedFile {
                path: path.to_owned(),
                line: item.line,
                column: item.column,
            }),
            None => Err(at(site, item, "must be the path of a file".to_owned())),
        })
        .collect()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(files: &[(&str, &str)], node: &str, facts: Value) -> Result<Catalog, String> {
        let tree = tempfile::TempDir::new().expect("a directory");
        for (path, text) in files {
            let place = tree.path().join(path);
            std::fs::create_dir_all(place.parent().expect("below")).expect("a directory");
            std::fs::write(place, text).expect("a file");
        }
        let shown = |problem: CompileProblem| {
            format!(
                "{}:{} {}",
                problem.file.unwrap_or_default(),
                problem.line.unwrap_or(0),
                problem.message
            )
        };
        let facts: FactSet = facts.try_into().expect("an object");
        let node = NodeName::new(node).expect("a name");
        let site = StaticSite::read(tree.path(), "site.yaml").map_err(shown)?;
        site.catalog(&node, &facts).map_err(shown)
    }

    const SITE: &str = "groups:
  base:
    nodes: '*'
    resources: base.yaml
  web:
    nodes: [web-*, 'www?']
    facts:
      os.family: [Debian, Ubuntu]
    resources: [web.yaml]
  own:
    nodes: db-1
    catalog: catalogs/{node}.json
";
    const BASE: &str = "resources:\n  File[/etc/motd]:\n    content: hello\n";
    const WEB: &str = "resources:\n  Package[nginx]:\n  Service[nginx]: {ensure: running, require: 'Package[nginx]'}\n";

    fn titles(catalog: &Catalog) -> Vec<String> {
        let all = catalog.resources.iter();
        all.map(|resource| resource.reference().to_string())
            .collect()
    }

    #[test]
    fn a_node_gets_what_its_groups_have_in_order() {
        let files = [("site.yaml", SITE), ("base.yaml", BASE), ("web.yaml", WEB)];
        let debian = json!({"os": {"family": "Debian"}});
        let catalog = compile(&files, "web-1", debian.clone());
        let catalog = catalog.expect("a catalog");
        assert_eq!(
            titles(&catalog),
            ["File[/etc/motd]", "Package[nginx]", "Service[nginx]"]
        );
        assert_eq!(catalog.resources[1].place().to_string(), "web.yaml:2");
        assert_eq!(catalog.resources[2].parameters["ensure"], json!("running"));
        let redhat = compile(&files, "web-1", json!({"os": {"family": "RedHat"}}));
        assert_eq!(titles(&redhat.expect("a catalog")), ["File[/etc/motd]"]);
        let other = compile(&files, "mail", debian);
        assert_eq!(titles(&other.expect("a catalog")), ["File[/etc/motd]"]);
    }

    #[test]
    fn a_whole_catalog_is_taken_and_added_to() {
        let whole = r#"{"name": "any", "resources": [{"type": "File", "title": "/own"}]}"#;
        let files = [
            ("site.yaml", SITE),
            ("base.yaml", BASE),
            ("catalogs/db-1.json", whole),
        ];
        let catalog = compile(&files, "db-1", json!({})).expect("a catalog");
        assert_eq!(catalog.name, "db-1");
        assert_eq!(titles(&catalog), ["File[/own]", "File[/etc/motd]"]);
    }

    #[test]
    fn problems_are_reported_with_file_and_line() {
        let check = |files: &[(&str, &str)], node: &str, expected: &str| {
            let error = compile(files, node, json!({})).expect_err("wrong");
            assert_eq!(error, expected);
        };
        check(
            &[("site.yaml", "groups: {a: {nodes: x, resources: gone.yaml}}")],
            "x",
            "site.yaml:1 `gone.yaml` is not in the environment",
        );
        check(
            &[("site.yaml", "groups: {a: {nodes: x}}")],
            "y",
            "site.yaml:0 no group in `site.yaml` matches `y`",
        );
        check(
            &[
                ("site.yaml", SITE),
                ("base.yaml", "resources:\n  File: {}\n"),
            ],
            "x",
            "base.yaml:2 `File` is not a reference of the form `Type[title]`",
        );
        let twice = "groups:\n  a: {nodes: x, resources: [base.yaml, more.yaml]}\n";
        check(
            &[
                ("site.yaml", twice),
                ("base.yaml", BASE),
                ("more.yaml", BASE),
            ],
            "x",
            "more.yaml:2 `File[/etc/motd]` is declared twice, first at base.yaml:2",
        );
        check(
            &[("site.yaml", "groups: {a: {nodes: x, catalog: /etc/passwd}}")],
            "x",
            "site.yaml:1 `/etc/passwd` must be a path below the environment's root",
        );
        check(
            &[("site.yaml", "groups:\n  a: {node: x}\n")],
            "x",
            "site.yaml:2 `node` is unknown in a group; use nodes, facts, resources or catalog",
        );
        let broken = "{\"name\": \"db-1\",\n\"resources\": [}";
        check(
            &[
                ("site.yaml", SITE),
                ("base.yaml", BASE),
                ("catalogs/db-1.json", broken),
            ],
            "db-1",
            "catalogs/db-1.json:2 not a catalog: expected value at line 2 column 15",
        );
    }
}
