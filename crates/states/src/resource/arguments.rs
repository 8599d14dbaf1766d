//! A state's arguments as parameters of a resource type.

use serde_json::{Map, Value, json};

use super::salt_arguments::{self, SaltMeaning};
use super::{TypedParameters, Writer};
use crate::low::Chunk;
use crate::place::Location;
use crate::problem::Problem;
use crate::world::{Function, Tree};

/// The arguments that Salt reads itself and passes to no state function.
pub(super) const SALTS_OWN: [&str; 16] = [
    "aggregate",
    "fire_event",
    "fun",
    "name_order",
    "no_log",
    "onfail_stop",
    "order",
    "parallel",
    "provider",
    "reload_grains",
    "reload_modules",
    "reload_pillar",
    "saltenv",
    "__env__",
    "cmd_opts_exclude",
    "state",
];
/// The arguments that every state may have and that the engine reads.
pub(super) const EVERYWHERE: [&str; 8] = [
    "onlyif",
    "unless",
    "creates",
    "check_cmd",
    "retry",
    "failhard",
    "register",
    "noop",
];
/// Arguments that only control how Salt works. They have no effect here.
const WITHOUT_EFFECT: [(&str, &[&str]); 6] = [
    (
        "file.",
        &[
            "encoding",
            "encoding_errors",
            "hash_type",
            "skip_verify",
            "tmp_dir",
            "tmp_ext",
            "keep_source",
            "use_etag",
            "ignore_ordering",
            "ignore_whitespace",
            "ignore_comment_characters",
            "allow_empty",
            "contents_delimiter",
        ],
    ),
    (
        "cmd.",
        &[
            "output_loglevel",
            "hide_output",
            "use_vt",
            "python_shell",
            "ignore_timeout",
            "redirect_stderr",
        ],
    ),
    (
        "pkg.",
        &[
            "skip_suggestions",
            "reinstall",
            "only_upgrade",
            "normalize",
            "ignore_types",
            "ignore_epoch",
            "refresh_modules",
        ],
    ),
    ("service.", &["init_delay", "no_block", "unmask_runtime"]),
    ("user.", &["enforce_password", "hash_password"]),
    ("git.", &["output_encoding", "update_head"]),
];

impl Writer<'_> {
    pub(super) fn arguments(
        &self,
        chunk: &Chunk,
        full: &str,
        function: &Function,
        notes: &mut Vec<Problem>,
    ) -> Result<TypedParameters, Problem> {
        let mut given = chunk.arguments.clone();
        if full == "file.managed" {
            self.contents(chunk, function, &mut given)?;
        }
        settle_values(full, &mut given);
        settle_common(&mut given);
        let mut parameters = Map::new();
        for (name, value) in &function.implies {
            parameters.insert(name.clone(), json!(value));
        }
        let said_name = renamed(function, "name");
        let name_parameter = if function.parameters.contains(&said_name) {
            said_name
        } else {
            function.name_parameter.clone()
        };
        parameters.insert(name_parameter, json!(chunk.name));
        let mut unsupported = Vec::new();
        for (name, value) in given {
            let ours = renamed(function, &name);
            let known = function.parameters.contains(&ours) || EVERYWHERE.contains(&ours.as_str());
            if known {
                parameters.insert(ours, value);
            } else if !SALTS_OWN.contains(&name.as_str()) && !without_effect(full, &name) {
                match salt_arguments::meaning(full, &name, &value) {
                    SaltMeaning::Default => {}
                    SaltMeaning::Unsupported => unsupported.push(name),
                    SaltMeaning::Ignored => notes.push(Problem::new(
                        format!(
                            "`{full}` of `{}` ignores the argument `{name}`, as in Salt",
                            chunk.id
                        ),
                        chunk.spot.location(),
                    )),
                    SaltMeaning::Unknown => return Err(unknown(chunk, full, function, &name)),
                }
            }
        }
        if !unsupported.is_empty() {
            return Ok(not_supported(chunk, full, &unsupported, notes));
        }
        let sensitive = self.sensitive(chunk, &mut parameters);
        if chunk.arguments.contains_key("fire_event") {
            notes.push(Problem::new(
                "`fire_event` has no effect: every change is reported",
                chunk.spot.location(),
            ));
        }
        Ok(TypedParameters {
            type_name: function.type_name.clone(),
            parameters,
            sensitive,
        })
    }

    /// Returns the sensitive parameters. `no_log` hides the content that a state receives, its
    /// output, and its `outputs`.
    fn sensitive(&self, chunk: &Chunk, parameters: &mut Map<String, Value>) -> Vec<String> {
        if chunk.arguments.get("no_log") != Some(&Value::Bool(true)) {
            return Vec::new();
        }
        let secret = ["content", "command", "environment", "password", "stdin"];
        secret
            .iter()
            .filter(|name| parameters.contains_key(**name))
            .map(|name| (*name).to_owned())
            .chain(["outputs".to_owned()])
            .collect()
    }

    /// Handles `contents`, `contents_pillar`, `contents_grains` and templates.
    fn contents(
        &self,
        chunk: &Chunk,
        function: &Function,
        given: &mut Map<String, Value>,
    ) -> Result<(), Problem> {
        let refuse = |text: String| Problem::new(text, chunk.spot.location());
        for (argument, data) in [
            ("contents_pillar", &self.scope.pillar),
            ("contents_grains", &self.scope.grains),
        ] {
            if let Some(path) = given.remove(argument) {
                let path = path.as_str().unwrap_or_default().to_owned();
                let found = look_up(data, &path).ok_or_else(|| {
                    refuse(format!(
                        "`{argument}` refers to `{path}`, which does not exist"
                    ))
                })?;
                given.insert("contents".to_owned(), found.clone());
            }
        }
        let newline = given.remove("contents_newline") != Some(Value::Bool(false));
        if let Some(contents) = given.get_mut("contents") {
            *contents = json!(joined(contents, newline));
        }
        let template = given
            .get("template")
            .and_then(Value::as_str)
            .map(str::to_owned);
        match template.as_deref() {
            None => {}
            Some("jinja") => self.template(chunk, function, given)?,
            Some(other) => {
                return Err(
                    refuse(format!("the template engine `{other}` is not supported"))
                        .hint("use `template: jinja`"),
                );
            }
        }
        Ok(())
    }

    /// Renders a template now, because it needs data and functions that the applying machine does
    /// not have.
    fn template(
        &self,
        chunk: &Chunk,
        function: &Function,
        given: &mut Map<String, Value>,
    ) -> Result<(), Problem> {
        given.remove("template");
        let mut variables = self.template_variables(chunk, function, given);
        for argument in ["defaults", "context"] {
            if let Some(Value::Object(members)) = given.remove(argument) {
                variables.extend(members);
            }
        }
        let (name, source) = match (
            given.get("contents").and_then(Value::as_str),
            given.get("source"),
        ) {
            (Some(contents), _) => (
                format!("{} (contents of `{}`)", chunk.sls, chunk.id),
                contents.to_owned(),
            ),
            (None, Some(source)) => self.template_source(chunk, source)?,
            (None, None) => return Ok(()),
        };
        let rendered = self
            .renderer
            .render_file_template(&name, &source, &variables)
            .map_err(|problem| {
                problem.also(
                    format!("the template of `{}`", chunk.id),
                    chunk.spot.location(),
                )
            })?;
        let mut text = rendered.text;
        if source.ends_with('\n') && !text.ends_with('\n') {
            text.push('\n');
        }
        given.remove("source");
        given.remove("source_hash");
        given.insert("contents".to_owned(), json!(text));
        Ok(())
    }

    /// Returns the variables that Salt gives to the template of a managed file: some arguments, and
    /// every argument that the function does not have. Those are removed.
    fn template_variables(
        &self,
        chunk: &Chunk,
        function: &Function,
        given: &mut Map<String, Value>,
    ) -> Map<String, Value> {
        let mut variables = crate::sls::variables(&chunk.sls, &chunk.spot.location().file);
        variables.insert("name".to_owned(), json!(chunk.name));
        let source = match given.get("source") {
            Some(Value::Array(candidates)) => candidates
                .iter()
                .filter_map(Value::as_str)
                .find(|candidate| self.is_in_tree(candidate))
                .map(Value::from),
            other => other.cloned(),
        };
        variables.insert("source".to_owned(), source.unwrap_or(Value::Null));
        for argument in ["user", "group", "mode", "source_hash", "attrs"] {
            let value = given.get(argument).cloned();
            variables.insert(argument.to_owned(), value.unwrap_or(Value::Null));
        }
        let is_variable = |name: &str| {
            let ours = renamed(function, name);
            !function.parameters.contains(&ours)
                && !EVERYWHERE.contains(&name)
                && !SALTS_OWN.contains(&name)
                && !["context", "defaults", "template", "contents", "source"].contains(&name)
                && !salt_arguments::has("file.managed", name)
        };
        let names: Vec<String> = (given.keys())
            .filter(|name| is_variable(name))
            .cloned()
            .collect();
        for name in names {
            let value = given.remove(&name).unwrap_or_default();
            variables.insert(name, value);
        }
        variables
    }

    fn is_in_tree(&self, candidate: &str) -> bool {
        let path = candidate.strip_prefix("salt://");
        path.is_some_and(|path| matches!(self.world.source(Tree::States, path), Ok(Some(_))))
    }

    fn template_source(&self, chunk: &Chunk, source: &Value) -> Result<(String, String), Problem> {
        let candidates: Vec<&str> = match source {
            Value::String(one) => vec![one],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        for candidate in &candidates {
            let Some(path) = candidate.strip_prefix("salt://") else {
                continue;
            };
            let found = self.world.source(Tree::States, path);
            let found =
                found.map_err(|error| Problem::new(error.to_string(), Location::of_file(path)))?;
            if let Some(source) = found {
                return Ok((path.to_owned(), source));
            }
        }
        let message = format!(
            "the template {} is not in the state tree",
            candidates.join(" or ")
        );
        Err(Problem::new(message, chunk.spot.location()).hint("templates are read from `salt://`"))
    }
}

/// Returns a state that fails when its turn comes: Salt would do something that the engine cannot.
fn not_supported(
    chunk: &Chunk,
    full: &str,
    names: &[String],
    notes: &mut Vec<Problem>,
) -> TypedParameters {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let (noun, names) = match names.as_slice() {
        [one] => ("argument", one.clone()),
        many => ("arguments", many.join(", ")),
    };
    let message = format!(
        "`{full}` of `{}` does not support the {noun} {names}",
        chunk.id
    );
    let problem = Problem::new(&message, chunk.spot.location());
    notes.push(problem.hint("the state will fail; remove the argument, or use `cmd.run`"));
    TypedParameters::failure(message)
}

fn renamed(function: &Function, name: &str) -> String {
    let found = function.arguments.iter().find(|(salt, _)| salt == name);
    found.map_or_else(|| name.to_owned(), |(_, ours)| ours.clone())
}

fn without_effect(full: &str, name: &str) -> bool {
    WITHOUT_EFFECT
        .iter()
        .any(|(module, names)| full.starts_with(module) && names.contains(&name))
}

fn unknown(chunk: &Chunk, full: &str, function: &Function, name: &str) -> Problem {
    let salts = function.arguments.iter().map(|(salt, _)| salt.as_str());
    let known = function
        .parameters
        .iter()
        .map(String::as_str)
        .chain(salts)
        .chain(EVERYWHERE)
        .chain(SALTS_OWN)
        .chain(crate::high::REQUISITES)
        .chain(crate::high::REQUISITES_IN);
    let known: Vec<&str> = known.collect();
    Problem::new(
        format!("`{full}` of `{}` has no argument `{name}`", chunk.id),
        chunk.spot.location(),
    )
    .near(name, known.into_iter())
}

fn look_up<'a>(data: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split(':');
    let first = data.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

fn joined(contents: &Value, newline: bool) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    };
    let mut whole = match contents {
        Value::Array(lines) => lines
            .iter()
            .map(|line| text(line).trim_end_matches('\n').to_owned())
            .collect::<Vec<_>>()
            .join("\n"),
        other => text(other),
    };
    if newline && !whole.is_empty() && !whole.ends_with('\n') {
        whole.push('\n');
    }
    whole
}

/// Converts values that Salt accepts in more forms than the engine.
fn settle_values(full: &str, given: &mut Map<String, Value>) {
    for name in ["mode", "dir_mode", "file_mode"] {
        match given.get(name) {
            // `mode: 0644` and `mode: 644` are the number 644: its digits are octal.
            Some(Value::Number(number)) => {
                let mode = json!(format!("{:0>4}", number.to_string()));
                given.insert(name.to_owned(), mode);
            }
            Some(Value::String(word)) if word == "keep" => {
                given.remove(name);
            }
            _ => {}
        }
    }
    if full.starts_with("file.") {
        // A backup copy is the default. Only `false` turns it off.
        if let Some(backup) = given.remove("backup")
            && matches!(&backup, Value::Bool(false))
        {
            given.insert("backup".to_owned(), json!(false));
        }
        if full == "file.managed"
            && let Some(check) = given.remove("check_cmd")
        {
            let command = check.as_str().unwrap_or_default();
            given.insert("validate_cmd".to_owned(), json!(format!("{command} %")));
        }
        if full == "file.directory"
            && let Some(recurse @ Value::Array(_)) = given.get_mut("recurse")
        {
            *recurse = json!(true);
        }
        if let Some(Value::String(hash)) = given.get_mut("source_hash")
            && let Some(bare) = hash
                .strip_prefix("sha256=")
                .or_else(|| hash.strip_prefix("sha256:"))
        {
            *hash = bare.to_owned();
        }
    }
    if full.starts_with("pkg.")
        && let Some(version) = given.remove("version")
        && !version.is_null()
    {
        given.insert("ensure".to_owned(), version);
    }
    if let Some(Value::Array(items)) = given.get("env") {
        // A list of one-key maps is one map.
        if items.iter().all(Value::is_object) {
            let members: Map<String, Value> = (items.iter().filter_map(Value::as_object).flatten())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            given.insert("env".to_owned(), Value::Object(members));
        }
    }
}

/// Converts guards and `retry` to the one form that the engine reads.
pub(super) fn settle_common(given: &mut Map<String, Value>) {
    for name in ["onlyif", "unless"] {
        let Some(value) = given.remove(name) else {
            continue;
        };
        let items = match value {
            Value::Array(items) => items,
            one => vec![one],
        };
        let commands: Vec<Value> = items.iter().filter_map(guard_command).collect();
        if !commands.is_empty() {
            given.insert(name.to_owned(), Value::Array(commands));
        }
    }
    settle_retry(given);
}

/// Returns the first function of a guard that has no equivalent here. Its state must fail: neither
/// running nor skipping it would be right.
pub(super) fn unknown_guard(arguments: &Map<String, Value>) -> Option<(&'static str, String)> {
    ["onlyif", "unless"].into_iter().find_map(|name| {
        let items = match arguments.get(name)? {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        let bad = items
            .iter()
            .find(|item| item.is_object() && guard_command(item).is_none())?;
        let function = bad.get("fun").and_then(Value::as_str).unwrap_or("none");
        Some((name, function.to_owned()))
    })
}

/// Converts a guard to a command. A few functions have an equivalent command.
fn guard_command(item: &Value) -> Option<Value> {
    let Value::Object(members) = item else {
        return item.is_string().then(|| item.clone());
    };
    let argument = |position: usize, name: &str| {
        let listed = members.get("args").and_then(|args| args.get(position));
        let given = listed.or_else(|| members.get(name));
        given.and_then(Value::as_str)
    };
    let path = || argument(0, "path").map(quoted);
    let name = || argument(0, "name").map(quoted);
    let command = match members.get("fun").and_then(Value::as_str)? {
        "file.file_exists" => format!("test -f {}", path()?),
        "file.directory_exists" => format!("test -d {}", path()?),
        "file.is_link" => format!("test -L {}", path()?),
        "file.search" | "file.contains_regex" | "file.contains" => {
            let text = argument(1, "pattern").or_else(|| argument(1, "regex"));
            let text = text.or_else(|| argument(1, "text")).map(quoted)?;
            let is_text = members.get("fun").and_then(Value::as_str) == Some("file.contains");
            let how = if is_text { "-qF" } else { "-qE" };
            format!("grep {how} -- {text} {}", path()?)
        }
        "cmd.has_exec" | "cmd.which" => format!("command -v {}", argument(0, "cmd").map(quoted)?),
        "service.status" | "service.running" => format!("systemctl is-active --quiet {}", name()?),
        "service.enabled" => format!("systemctl is-enabled --quiet {}", name()?),
        "user.info" => format!("getent passwd {}", name()?),
        "group.info" => format!("getent group {}", name()?),
        "test.true" => "true".to_owned(),
        "test.false" => "false".to_owned(),
        "pkg.version" => {
            let name = name()?;
            format!(
                "dpkg-query -W -f='${{db:Status-Status}}' {name} 2>/dev/null | grep -qx installed || rpm -q {name} >/dev/null 2>&1"
            )
        }
        // Its result is its output: a command that prints nothing is false.
        "cmd.run" => format!("output=$({}) && test -n \"$output\"", argument(0, "cmd")?),
        _ => return None,
    };
    Some(Value::String(command))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\"'\"'"))
}

fn settle_retry(given: &mut Map<String, Value>) {
    let Some(retry) = given.remove("retry") else {
        return;
    };
    let members = match retry {
        Value::Bool(false) => return,
        Value::Object(members) => members,
        Value::Array(items) => items
            .into_iter()
            .filter_map(|item| item.as_object().cloned())
            .flatten()
            .collect(),
        _ => Map::new(),
    };
    let attempts = members.get("attempts").and_then(Value::as_u64).unwrap_or(2);
    if attempts == 0 {
        return;
    }
    let interval = members
        .get("interval")
        .and_then(Value::as_u64)
        .unwrap_or(30);
    let until = members
        .get("until")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    given.insert(
        "retry".to_owned(),
        json!({"attempts": attempts, "interval": interval, "until": until}),
    );
}
