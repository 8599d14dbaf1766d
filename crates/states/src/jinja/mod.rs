//! Salt's Jinja: renders a file of a tree to text, with limits, and maps a rendered line back to
//! the template's line.

mod conversion;
mod digest;
mod emit;
mod filters;
mod functions;
mod json;
mod list_filters;
mod marks;
mod methods;
mod mutable;
mod percent;
mod python;
mod rewrite;
pub(crate) mod taint;
mod traverse;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde_json::{Map, Value as Json};

pub(crate) use functions::Scope;
use marks::Origin;
use rewrite::{RewrittenTemplate, rewrite};

use crate::place::{Location, RenderedLine};
use crate::problem::Problem;
use crate::world::{Tree, World};

/// The number of steps for rendering one file. Ten thousand states from a loop need about a
/// hundredth of it.
const FUEL: u64 = 50_000_000;
/// The bytes that all expressions of one file may output together.
const MOST_OUTPUT: usize = 256 << 20;
/// The maximum length of a text or list in a variable.
const LONGEST_VALUE: usize = 64 << 20;
/// The maximum length of the result of one filter.
const LONGEST_RESULT: usize = 16 << 20;

/// Renders the files of one tree.
pub(crate) struct Renderer {
    environment: Environment<'static>,
    files: Arc<Mutex<Files>>,
    written: Arc<AtomicUsize>,
}

/// The files that were read, by number.
#[derive(Default)]
struct Files {
    numbers: HashMap<String, usize>,
    read: Vec<File>,
}

struct File {
    name: String,
    source: String,
    lines: Lines,
    rewritten: RewrittenTemplate,
}

/// The start of each line of a text, so that any line is found immediately.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// Returns a line, counted from 1, without its newline.
    fn get<'t>(&self, text: &'t str, line: usize) -> &'t str {
        let Some(begin) = line.checked_sub(1).and_then(|index| self.0.get(index)) else {
            return "";
        };
        let end = self.0.get(line).copied().unwrap_or(text.len());
        text[*begin..end].trim_end_matches(['\n', '\r'])
    }
}

/// The output of a template.
pub(crate) struct Text {
    pub(crate) text: String,
    lines: Lines,
    origins: Vec<Origin>,
    files: Arc<Mutex<Files>>,
}

impl Renderer {
    /// Creates a renderer that shows which characters of its text come from facts. Its scope has
    /// encoded facts.
    pub(crate) fn shadow(tree: Tree, scope: Arc<Scope>, facts: &Map<String, Json>) -> Self {
        let mut renderer = Self::new(tree, scope);
        let texts = taint::texts(&Json::Object(facts.clone()));
        taint::make_transparent(&mut renderer.environment, texts);
        renderer.set_facts(&taint::encoded(facts));
        renderer
    }

    pub(crate) fn new(tree: Tree, scope: Arc<Scope>) -> Self {
        let files: Arc<Mutex<Files>> = Arc::default();
        let written: Arc<AtomicUsize> = Arc::default();
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(methods::unknown);
        environment.set_path_join_callback(|name, parent| join(name, parent).into());
        let counter = Arc::clone(&written);
        environment.set_formatter(move |out, state, value| {
            let before = counter.load(Ordering::Relaxed);
            let length = value.as_str().map_or(16, str::len);
            counter.store(before + length, Ordering::Relaxed);
            if before + length > MOST_OUTPUT {
                return Err(Error::new(
                    ErrorKind::OutOfFuel,
                    "the output of the template is too large",
                ));
            }
            python::format(out, state, value)
        });
        minijinja_contrib::add_to_environment(&mut environment);
        filters::add(&mut environment);
        add_imports(&mut environment);
        add_variables(&mut environment, &scope);
        let (loaded, world) = (Arc::clone(&files), Arc::clone(&scope.world));
        environment.set_loader(move |name| load(&loaded, &*world, tree, name));
        Self {
            environment,
            files,
            written,
        }
    }

    /// Sets the variable `facts`, with Facter's names.
    pub(crate) fn set_facts(&mut self, facts: &Map<String, Json>) {
        self.environment
            .add_global("facts", conversion::from_json(&Json::Object(facts.clone())));
    }

    /// Renders a file of the tree.
    pub(crate) fn render(
        &self,
        path: &str,
        variables: &Map<String, Json>,
    ) -> Result<Text, Problem> {
        let template = self
            .environment
            .get_template(path)
            .map_err(|error| self.problem(path, &error))?;
        self.written.store(0, Ordering::Relaxed);
        let context = conversion::from_json(&Json::Object(variables.clone()));
        let rendered = template
            .render(context)
            .map_err(|error| self.problem(path, &error))?;
        let (text, origins) = marks::take(&rendered);
        Ok(Text {
            lines: Lines::of(&text),
            text,
            origins,
            files: Arc::clone(&self.files),
        })
    }

    /// Renders a source that is not a file of the tree, under its own name.
    pub(crate) fn render_source(
        &self,
        name: &str,
        source: &str,
        variables: &Map<String, Json>,
    ) -> Result<Text, Problem> {
        put(&self.files, name, source.to_owned(), variables);
        self.render(name, variables)
    }

    /// Renders the template of a managed file.
    pub(crate) fn render_file_template(
        &self,
        name: &str,
        source: &str,
        variables: &Map<String, Json>,
    ) -> Result<Text, Problem> {
        let name = format!("{}{name}", filters::FILE_TEMPLATE);
        self.render_source(&name, source, variables)
    }

    /// Returns a file that must not be rendered, as text with locations.
    pub(crate) fn plain(&self, name: &str, source: String) -> Text {
        let number = put(&self.files, name, source.clone(), &Map::new());
        let lines = source.lines().count().max(1);
        let origins = (1..=lines)
            .map(|line| Origin {
                file: number,
                line,
                own: true,
            })
            .collect();
        Text {
            lines: Lines::of(&source),
            text: source,
            origins,
            files: Arc::clone(&self.files),
        }
    }

    /// Returns the innermost error and its location.
    fn problem(&self, path: &str, error: &Error) -> Problem {
        let mut chain = vec![error];
        let mut next = std::error::Error::source(error);
        while let Some(source) = next {
            if let Some(inner) = source.downcast_ref::<Error>() {
                chain.push(inner);
            }
            next = source.source();
        }
        let innermost = chain
            .iter()
            .rev()
            .find(|error| error.line().is_some())
            .unwrap_or(&error);
        let last = chain.last().unwrap_or(&error);
        let message = match (last.kind(), last.detail()) {
            (ErrorKind::OutOfFuel, None) => "the template exceeds its limit of steps".to_owned(),
            (kind, Some(detail)) => format!("{kind}: {detail}"),
            (kind, None) => kind.to_string(),
        };
        let mut problem = Problem::new(message, self.location(path, innermost));
        for outer in chain.iter().rev().skip(1) {
            let at = self.location(path, outer);
            if at.line > 0 && at != problem.at && problem.also.iter().all(|(_, known)| *known != at)
            {
                problem = problem.also("while rendering this", at);
            }
        }
        problem
    }

    fn location(&self, path: &str, error: &Error) -> Location {
        let name = error.name().unwrap_or(path);
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.numbers.get(name).map(|number| &files.read[*number]);
        let line = error.line().unwrap_or(0);
        let column = error.range().zip(file).map_or(0, |(range, file)| {
            let at = file.rewritten.original(range.start).min(file.source.len());
            column_of(&file.source, at)
        });
        Location {
            file: without_prefix(name).to_owned(),
            line,
            column,
            rendered: None,
        }
    }
}

fn without_prefix(name: &str) -> &str {
    name.strip_prefix(filters::FILE_TEMPLATE).unwrap_or(name)
}

fn column_of(source: &str, at: usize) -> usize {
    let before = source.get(..at).unwrap_or_default();
    before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1
}

impl Text {
    /// Returns the location in the source file for a location in this text (both from 1).
    pub(crate) fn locate(&self, line: usize, column: usize) -> Location {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(origin) = self
            .origins
            .get(line.saturating_sub(1))
            .or(self.origins.last())
        else {
            return Location {
                line,
                column,
                ..Location::default()
            };
        };
        let Some(file) = files.read.get(origin.file) else {
            return Location {
                line,
                column,
                ..Location::default()
            };
        };
        let rendered = self.lines.get(&self.text, line);
        let written = file.lines.get(&file.source, origin.line);
        if origin.own && rendered == written {
            return Location {
                file: file.name.clone(),
                line: origin.line,
                column,
                rendered: None,
            };
        }
        let first = written.chars().take_while(|c| c.is_whitespace()).count() + 1;
        Location {
            file: file.name.clone(),
            line: origin.line,
            column: first,
            rendered: Some(Box::new(RenderedLine {
                line,
                text: shortened(rendered),
            })),
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn load(
    files: &Mutex<Files>,
    world: &dyn World,
    tree: Tree,
    name: &str,
) -> Result<Option<String>, Error> {
    let path = normal(name);
    {
        let files = files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = files.numbers.get(name) {
            return Ok(Some(files.read[*number].rewritten.text.clone()));
        }
    }
    let source = world
        .source(tree, &path)
        .map_err(|error| filters::invalid(error.to_string()))?;
    let Some(source) = source else {
        return Ok(None);
    };
    let number = put(files, name, source, &Map::new());
    let files = files.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Some(files.read[number].rewritten.text.clone()))
}

/// Adds a file. Variables with the names of its own location replace them.
fn put(files: &Mutex<Files>, name: &str, source: String, given: &Map<String, Json>) -> usize {
    let mut files = files.lock().unwrap_or_else(PoisonError::into_inner);
    let number = files.read.len();
    let rewritten = rewrite(&source, &preamble(&normal(name), given), Some(number));
    files.numbers.insert(name.to_owned(), number);
    files.read.push(File {
        lines: Lines::of(&source),
        name: normal(name),
        source,
        rewritten,
    });
    number
}

/// Normalizes a path: `salt://a/b` and `a/b` are the same file.
fn normal(name: &str) -> String {
    let name = without_prefix(name);
    let path = name.strip_prefix("salt://").unwrap_or(name);
    path.split('?')
        .next()
        .unwrap_or(path)
        .trim_start_matches('/')
        .to_owned()
}

/// Returns the variables that tell a template its own location.
fn preamble(path: &str, given: &Map<String, Json>) -> String {
    let directory = path
        .rsplit_once('/')
        .map_or(".", |(directory, _)| directory);
    let root = directory.split('/').next().unwrap_or(".");
    let variables = [
        ("tplfile", path),
        ("tplpath", path),
        ("tpldir", directory),
        ("tpldot", &directory.replace('/', ".")),
        ("tplroot", root),
    ];
    let own = variables
        .iter()
        .filter(|(name, _)| !given.contains_key(*name));
    own.map(|(name, value)| format!("{{% set {name} = {} %}}", Json::from(*value)))
        .collect()
}

/// Joins paths: `./x` and `../x` are relative to the template that names them.
fn join(name: &str, parent: &str) -> String {
    if !name.starts_with("./") && !name.starts_with("../") {
        return name.to_owned();
    }
    let mut parts: Vec<&str> = parent.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The variables of a file that every file it imports sees.
const SEEN_BY_IMPORTS: [&str; 5] = ["sls", "slspath", "slsdotpath", "slscolonpath", "sls_path"];

/// Renders another file of the tree. It sees all variables of this one, or only those above.
fn rendered_file(
    state: &minijinja::State<'_, '_>,
    path: &str,
    with_context: bool,
) -> Result<String, Error> {
    let mut names: Vec<String> = SEEN_BY_IMPORTS.map(str::to_owned).into();
    if with_context {
        let known = state.known_variables();
        names.extend(known.into_iter().map(std::borrow::Cow::into_owned));
    }
    let pairs = names.into_iter().filter_map(|name| {
        let value = state.lookup(&name)?;
        (!value.is_undefined()).then(|| (Value::from(name), value))
    });
    let context = mutable::Dict::value(pairs);
    let text = state.get_template(path)?.render(context)?;
    Ok(marks::without(&text).into_owned())
}

/// Adds the functions that `{% import_yaml 'x' as y %}` is rewritten to.
fn add_imports(environment: &mut Environment<'_>) {
    use rendered_file as rendered;
    environment.add_function(
        "__import_yaml",
        |state: &minijinja::State<'_, '_>, path: &str, context: bool| {
            filters::load_yaml(&rendered(state, path, context)?)
        },
    );
    environment.add_function(
        "__import_json",
        |state: &minijinja::State<'_, '_>, path: &str, context: bool| {
            filters::load_json(&rendered(state, path, context)?)
        },
    );
    environment.add_function(
        "__import_text",
        |state: &minijinja::State<'_, '_>, path: &str, context: bool| {
            rendered(state, path, context)
        },
    );
}

fn add_variables(environment: &mut Environment<'_>, scope: &Arc<Scope>) {
    environment.add_global(
        "salt",
        Value::from_object(functions::Salt(Arc::clone(scope))),
    );
    environment.add_global("grains", scope.grains_value.clone());
    environment.add_global("pillar", scope.pillar_value.clone());
    environment.add_global("data", scope.pillar_value.clone());
    environment.add_global("opts", scope.opts.clone());
    let node = scope.node.clone();
    environment.add_filter("random", move |list: &Value| filters::random(&node, list));
    environment.add_global("saltenv", "base");
    environment.add_global("env", "base");
}

#[cfg(test)]
mod tests;
