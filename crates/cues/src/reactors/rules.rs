//! `reactors/*.yaml` in an environment's code: rules, and the position of errors in them.

use std::collections::BTreeMap;
use std::path::Path;

use bunraku_model::{NodeName, TriggerName};
use bunraku_states::{Node, read_document};
use bunraku_wire::api::CompileProblem;
use bunraku_wire::api::reactors::{Reactor, ReactorEventKind, ReactorLimits, ReactorRun};
use serde_json::Value;

use super::labels::is_label_name;
use super::matching::fields_of;
use super::run_rule::check_site;
use bunraku_control::code_problems::{problem_at, problem_of_states};
use bunraku_control::find_nodes::check_node_query;

/// The directory of the files.
const DIRECTORY: &str = "reactors";
/// The most rules in one environment.
const MOST: usize = 500;
/// The size limit of one file, in bytes.
const LARGEST: u64 = 256 * 1024;

/// Reads every rule of a code tree, by name. Blocks.
pub fn read_all(tree: &Path) -> Result<Vec<Reactor>, CompileProblem> {
    let entries = match std::fs::read_dir(tree.join(DIRECTORY)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(problem_in_file(
                DIRECTORY,
                format!("cannot be read: {error}"),
            ));
        }
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".yml"))
        .collect();
    names.sort();
    let mut all: BTreeMap<String, Reactor> = BTreeMap::new();
    for name in names {
        let file = format!("{DIRECTORY}/{name}");
        for reactor in parse(&file, &read(tree, &file)?)? {
            if let Some(first) = all.get(&reactor.name) {
                let message = format!(
                    "`{}` already exists, at {}:{}",
                    reactor.name, first.file, first.line
                );
                return Err(CompileProblem {
                    line: Some(reactor.line),
                    ..problem_in_file(&file, message)
                });
            }
            check_site(tree, &reactor)?;
            all.insert(reactor.name.clone(), reactor);
        }
    }
    if all.len() > MOST {
        let message = format!("{} rules exceed the limit of {MOST}", all.len());
        return Err(problem_in_file(DIRECTORY, message));
    }
    Ok(all.into_values().collect())
}

fn read(tree: &Path, file: &str) -> Result<String, CompileProblem> {
    let path = tree.join(file);
    let failed = |error: std::io::Error| problem_in_file(file, format!("cannot be read: {error}"));
    // A link could lead out of the code.
    let about = std::fs::symlink_metadata(&path).map_err(failed)?;
    if !about.is_file() || about.len() > LARGEST {
        let message = format!("must be a regular file of at most {LARGEST} bytes");
        return Err(problem_in_file(file, message));
    }
    std::fs::read_to_string(&path).map_err(failed)
}

/// Parses the rules of one file.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Reactor>, CompileProblem> {
    let document = read_document(file, text).map_err(|problem| problem_of_states(&problem))?;
    let reader = Reader { file };
    if document.is_null() {
        return Ok(Vec::new());
    }
    let pairs = reader.map(&document, "a file of reactors")?;
    pairs
        .iter()
        .map(|(name, rule)| reader.reactor(name, rule))
        .collect()
}

pub(super) struct Reader<'a> {
    file: &'a str,
}

/// The content of `then`.
#[derive(Default)]
struct RuleAction {
    run: Option<ReactorRun>,
    labels: BTreeMap<String, String>,
    trigger: Option<TriggerName>,
    hosts: Vec<String>,
    query: Option<String>,
    reason: Option<String>,
    ttl: Option<u32>,
    deadline_seconds: Option<u64>,
}

/// The content of `when`.
struct RuleCondition {
    event: ReactorEventKind,
    matches: BTreeMap<String, Vec<Value>>,
    for_seconds: Option<u64>,
}

impl Reader<'_> {
    fn reactor(&self, name: &Node, rule: &Node) -> Result<Reactor, CompileProblem> {
        // It becomes part of keys, and the default name of the trigger.
        let own = TriggerName::new(name.key_text())
            .map_err(|error| self.at(name, format!("is not a valid reactor name: {error}")))?;
        let (mut when, mut then, mut limits) = (None, None, ReactorLimits::default());
        for (key, value) in self.map(rule, "a reactor")? {
            match key.key_text().as_str() {
                "when" => when = Some(self.when(value)?),
                "then" => then = Some(self.then(value)?),
                "limits" => limits = self.limits(value)?,
                _ => return Err(self.unknown(key, &["when", "then", "limits"])),
            }
        }
        let missing = |what: &str| self.at(name, format!("`{own}` has no `{what}`"));
        let when = when.ok_or_else(|| missing("when"))?;
        let then = then.ok_or_else(|| missing("then"))?;
        Ok(Reactor {
            name: own.to_string(),
            file: self.file.to_owned(),
            line: name.line as u64,
            event: when.event,
            matches: when.matches,
            for_seconds: when.for_seconds,
            trigger: then.trigger.unwrap_or(own),
            hosts: then.hosts,
            query: then.query,
            reason: then.reason,
            ttl: then.ttl,
            deadline_seconds: then.deadline_seconds,
            limits,
            run: then.run,
            labels: then.labels,
        })
    }

    fn when(&self, node: &Node) -> Result<RuleCondition, CompileProblem> {
        let pairs = self.map(node, "`when`")?;
        let named = pairs.iter().find(|(key, _)| key.as_text() == Some("event"));
        let (_, named) = named.ok_or_else(|| self.at(node, "`event` is missing".to_owned()))?;
        let text = self.text(named, "event")?;
        let known = ReactorEventKind::ALL.iter().find(|(name, _)| *name == text);
        let Some((_, event)) = known else {
            let names: Vec<&str> = ReactorEventKind::ALL
                .iter()
                .map(|(name, _)| *name)
                .collect();
            let message = format!("`{text}` is not an event; use one of {}", names.join(", "));
            return Err(self.at(named, message));
        };
        let mut when = RuleCondition {
            event: *event,
            matches: BTreeMap::new(),
            for_seconds: None,
        };
        for (key, value) in pairs {
            let name = key.key_text();
            let field = name.split('.').next().unwrap_or_default();
            match name.as_str() {
                "event" => {}
                "for" if *event == ReactorEventKind::NodeLost => {
                    when.for_seconds = Some(self.span(value, "for")?);
                }
                _ if fields_of(*event).contains(&field) => {
                    when.matches.insert(name, self.values(value)?);
                }
                _ => return Err(self.unknown(key, fields_of(*event))),
            }
        }
        Ok(when)
    }

    /// Parses one value, or several alternatives.
    fn values(&self, node: &Node) -> Result<Vec<Value>, CompileProblem> {
        let items = match node.as_list() {
            Some(items) => items.iter().collect(),
            None => vec![node],
        };
        let plain = |item: &&Node| match item.to_json() {
            Value::Array(_) | Value::Object(_) => Err(self.at(
                item,
                format!("must be a string, number or boolean, not {}", item.kind()),
            )),
            value => Ok(value),
        };
        items.iter().map(plain).collect()
    }

    fn then(&self, node: &Node) -> Result<RuleAction, CompileProblem> {
        let mut then = RuleAction::default();
        let pairs = self.map(node, "`then`")?;
        for (key, value) in pairs {
            match key.key_text().as_str() {
                "trigger" => {
                    let name = TriggerName::new(self.text(value, "trigger")?);
                    let name = name.map_err(|error| self.at(value, error.to_string()))?;
                    then.trigger = Some(name);
                }
                "run" => then.run = Some(self.run(value)?),
                "hosts" => then.hosts = self.hosts(value)?,
                "query" => {
                    let query = self.text(value, "query")?;
                    let checked = check_node_query(&query);
                    checked.map_err(|error| self.at(value, error.to_string()))?;
                    then.query = Some(query);
                }
                "labels" => then.labels = self.labels(value)?,
                "reason" => then.reason = Some(self.text(value, "reason")?),
                "ttl" => then.ttl = Some(self.number(value, "ttl", 64)?),
                "deadline" => then.deadline_seconds = Some(self.span(value, "deadline")?),
                _ => {
                    let known = [
                        "trigger", "run", "hosts", "query", "labels", "reason", "ttl", "deadline",
                    ];
                    return Err(self.unknown(key, &known));
                }
            }
        }
        let Some(run) = &then.run else {
            return Ok(then);
        };
        let key_of = |name: &str| pairs.iter().find(|(key, _)| key.as_text() == Some(name));
        for other in ["trigger", "deadline"] {
            if let Some((key, _)) = key_of(other) {
                let message = format!("`{other}` cannot be combined with `run`");
                return Err(self.at(key, message));
            }
        }
        if run.site.is_none() && then.hosts.is_empty() && then.query.is_none() {
            let message = "`run` needs a `site`, or `hosts` or a `query` next to it".to_owned();
            return Err(self.at(node, message));
        }
        Ok(then)
    }

    fn labels(&self, node: &Node) -> Result<BTreeMap<String, String>, CompileProblem> {
        let mut labels = BTreeMap::new();
        for (key, value) in self.map(node, "`labels`")? {
            let name = key.key_text();
            if !is_label_name(&name) {
                let message = format!(
                    "`{name}` is not a label: use letters, digits and `_`, and begin with a letter"
                );
                return Err(self.at(key, message));
            }
            let text = self.text(value, &name)?;
            labels.insert(name, text);
        }
        Ok(labels)
    }

    pub(super) fn texts(&self, node: &Node, name: &str) -> Result<Vec<String>, CompileProblem> {
        let items = match node.as_list() {
            Some(items) => items.iter().collect(),
            None => vec![node],
        };
        items.iter().map(|item| self.text(item, name)).collect()
    }

    pub(super) fn boolean(&self, node: &Node, name: &str) -> Result<bool, CompileProblem> {
        let value = node.to_json().as_bool();
        value.ok_or_else(|| self.at(node, format!("`{name}` must be true or false")))
    }

    fn hosts(&self, node: &Node) -> Result<Vec<String>, CompileProblem> {
        let items = match node.as_list() {
            Some(items) => items.iter().collect(),
            None => vec![node],
        };
        let host = |item: &&Node| {
            let text = self.text(item, "hosts")?;
            if !text.contains("${") {
                let checked = NodeName::new(&*text);
                checked.map_err(|error| self.at(item, error.to_string()))?;
            }
            Ok(text)
        };
        items.iter().map(host).collect()
    }

    fn limits(&self, node: &Node) -> Result<ReactorLimits, CompileProblem> {
        let mut limits = ReactorLimits::default();
        for (key, value) in self.map(node, "`limits`")? {
            let name = key.key_text();
            match name.as_str() {
                "quiet" => limits.quiet_seconds = Some(self.span(value, &name)?),
                "interval" => limits.interval_seconds = Some(self.span(value, &name)?),
                "within" => limits.within_seconds = Some(self.span(value, &name)?),
                "occurrences" => {
                    limits.occurrences = Some(self.number(value, &name, 1_000)?.into());
                }
                "per" => match value.as_text() {
                    Some("node") => limits.per_node = true,
                    _ => return Err(self.at(value, "`per` can only be `node`".to_owned())),
                },
                _ => {
                    let known = ["quiet", "interval", "occurrences", "within", "per"];
                    return Err(self.unknown(key, &known));
                }
            }
        }
        Ok(limits)
    }

    pub(super) fn map<'n>(
        &self,
        node: &'n Node,
        what: &str,
    ) -> Result<&'n [(Node, Node)], CompileProblem> {
        node.as_map()
            .ok_or_else(|| self.at(node, format!("{what} must be a map, not {}", node.kind())))
    }

    pub(super) fn text(&self, node: &Node, name: &str) -> Result<String, CompileProblem> {
        let text = node.as_text().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| {
            self.at(
                node,
                format!("`{name}` must be a string, not {}", node.kind()),
            )
        })
    }

    pub(super) fn number(&self, node: &Node, name: &str, most: u32) -> Result<u32, CompileProblem> {
        let number = node.to_json().as_u64().and_then(|n| u32::try_from(n).ok());
        number
            .filter(|number| (1..=most).contains(number))
            .ok_or_else(|| self.at(node, format!("`{name}` must be a number from 1 to {most}")))
    }

    pub(super) fn span(&self, node: &Node, name: &str) -> Result<u64, CompileProblem> {
        let span = node.as_text().and_then(|text| {
            let span: jiff::SignedDuration = text.parse().ok()?;
            u64::try_from(span.as_secs()).ok()
        });
        span.filter(|seconds| (1..=366 * 86_400).contains(seconds))
            .ok_or_else(|| {
                self.at(
                    node,
                    format!("`{name}` must be a duration such as `10s` or `5m`"),
                )
            })
    }

    pub(super) fn unknown(&self, key: &Node, known: &[&str]) -> CompileProblem {
        let message = format!(
            "`{}` is unknown here; use one of {}",
            key.key_text(),
            known.join(", ")
        );
        self.at(key, message)
    }

    pub(super) fn at(&self, node: &Node, message: String) -> CompileProblem {
        problem_at(self.file, node, message)
    }
}

pub(super) fn problem_in_file(file: &str, message: String) -> CompileProblem {
    CompileProblem {
        message,
        file: Some(file.to_owned()),
        ..CompileProblem::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let problem = parse("reactors/web.yaml", text).expect_err("a wrong rule");
        let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
        format!("{line}:{column} {}", problem.message)
    }

    #[test]
    fn a_rule_has_everything_that_it_says() {
        let text = "
mend:
  when: {event: resource, type: Service, title: 'nginx*', status: [failed, skipped]}
  then: {trigger: refresh, hosts: [lb-1, '${node}'], ttl: 3, deadline: 1h, reason: 'see ${title}'}
  limits: {quiet: 10s, interval: 1m, occurrences: 3, within: 5m, per: node}
gone:
  when: {event: node_lost, for: 2m}
  then: {query: 'nodes { certname ~ \"^lb\" }'}
";
        let rules = parse("reactors/web.yaml", text).expect("two rules");
        let (mend, gone) = (&rules[0], &rules[1]);
        assert_eq!(mend.hosts, ["lb-1", "${node}"]);
        assert_eq!(mend.matches["status"].len(), 2);
        assert_eq!((mend.ttl, mend.deadline_seconds), (Some(3), Some(3_600)));
        assert_eq!(mend.limits.within_seconds, Some(300));
        assert!(mend.limits.per_node);
        assert_eq!(
            (gone.trigger.as_str(), gone.for_seconds),
            ("gone", Some(120))
        );
        assert_eq!((gone.file.as_str(), gone.line), ("reactors/web.yaml", 6));
    }

    #[test]
    fn problems_are_reported_with_their_location() {
        for (text, expected) in [
            ("a: {}", "1:1 `a` has no `when`"),
            ("[]", "1:1 a file of reactors must be a map, not a list"),
            (
                "a:\n  when: {event: magic}\n",
                "2:17 `magic` is not an event; use one of resource, run, node_lost, fact_changed, webhook, alert, node_joined, run_finished, release_made",
            ),
            (
                "a:\n  when:\n    event: resource\n    titel: x\n",
                "4:5 `titel` is unknown here; use one of node, type, title, status, message, corrective",
            ),
            (
                "a:\n  when: {event: run, for: 2m}\n",
                "2:22 `for` is unknown here; use one of node, ending, changed, failed, method",
            ),
            ("a:\n  then: {hosts: ['..']}\n", "2:18 "),
            (
                "a:\n  limits: {quiet: soon}\n",
                "2:19 `quiet` must be a duration such as `10s` or `5m`",
            ),
            ("a:\n  then: {query: 'nodes {'}\n", "2:17 "),
            (
                "a:\n  then: {ttl: 0}\n",
                "2:15 `ttl` must be a number from 1 to 64",
            ),
            (
                "a:\n  then: {run: {site: ../site.yaml}}\n",
                "2:22 `../site.yaml` must be a path in this repository to a site file (.yaml) or an \
                 environment graph (.json)",
            ),
            (
                "a:\n  then: {run: {batch: many}, hosts: b}\n",
                "2:23 `batch`: `many` is neither a number nor a percentage such as `20%`",
            ),
            (
                "a:\n  then: {run: {noop: true}}\n",
                "2:9 `run` needs a `site`, or `hosts` or a `query` next to it",
            ),
            (
                "a:\n  then: {run: {site: s.yaml}, trigger: b}\n",
                "2:31 `trigger` cannot be combined with `run`",
            ),
            (
                "a:\n  then: {labels: {a-b: x}}\n",
                "2:19 `a-b` is not a label: use letters, digits and `_`, and begin with a letter",
            ),
            ("a,b: {}", "1:1 is not a valid reactor name"),
        ] {
            let shown = refused(text);
            assert!(shown.starts_with(expected), "{text}: {shown}");
        }
    }

    #[test]
    fn files_that_lead_out_of_the_code_or_are_too_much_are_refused() {
        let tree = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (tree.path().join("code"), tree.path().join("secret.yaml"));
        let directory = inside.join(DIRECTORY);
        std::fs::create_dir_all(&directory).expect("a directory");
        let write = |text: &str| std::fs::write(directory.join("a.yaml"), text).expect("written");
        let rules = |count: usize| -> String {
            (0..count)
                .map(|number| format!("r{number}: {{when: {{event: run}}, then: {{}}}}\n"))
                .collect()
        };
        write(&rules(MOST));
        assert_eq!(read_all(&inside).expect("rules").len(), MOST);
        write(&rules(MOST + 1));
        assert!(read_all(&inside).is_err(), "one too many");
        write(&"#".repeat(300_000));
        assert!(read_all(&inside).is_err(), "too large");
        write("");
        std::fs::write(&outside, rules(1)).expect("written");
        std::os::unix::fs::symlink(&outside, directory.join("b.yaml")).expect("a link");
        assert!(read_all(&inside).is_err(), "a link");
        std::fs::remove_file(directory.join("b.yaml")).expect("removed");
        assert_eq!(read_all(&inside).expect("none").len(), 0);
    }
}
