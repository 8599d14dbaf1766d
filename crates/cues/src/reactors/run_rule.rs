//! The key `run` of a rule: an ordered run, with its site and its limits.

use std::path::{Component, Path};

use bunraku_states::Node;
use bunraku_wire::api::CompileProblem;
use bunraku_wire::api::ordered_runs::{NodeLimit, OnFailure, OrderedRunSubject, RolloutCheck};
use bunraku_wire::api::reactors::{Reactor, ReactorRun};
use serde_json::Value;

use super::rules::{Reader, problem_in_file};

/// The keys of `run`.
const RUN_KEYS: [&str; 18] = [
    "site",
    "instance",
    "released",
    "noop",
    "batch",
    "canary",
    "soak",
    "check",
    "check_timeout",
    "batch_by",
    "each_batch",
    "max_unavailable",
    "max_drift",
    "max_failures",
    "continue_independent",
    "by_group",
    "timeout",
    "total_timeout",
];

/// Refuses a rule whose site is not in the code.
pub(super) fn check_site(tree: &Path, reactor: &Reactor) -> Result<(), CompileProblem> {
    let Some(site) = reactor.run.as_ref().and_then(|run| run.site.as_ref()) else {
        return Ok(());
    };
    let found = std::fs::symlink_metadata(tree.join(site));
    if found.is_ok_and(|about| about.is_file()) {
        return Ok(());
    }
    let message = format!(
        "the site `{site}` of `{}` is not in this code",
        reactor.name
    );
    Err(CompileProblem {
        line: Some(reactor.line),
        ..problem_in_file(&reactor.file, message)
    })
}

impl Reader<'_> {
    /// Parses an ordered run: its site, its limits, and what its nodes apply.
    pub(super) fn run(&self, node: &Node) -> Result<ReactorRun, CompileProblem> {
        let mut run = ReactorRun {
            subject: OrderedRunSubject::Configured { environment: None },
            ..ReactorRun::default()
        };
        for (key, value) in self.map(node, "`run`")? {
            let name = key.key_text();
            let options = &mut run.options;
            match name.as_str() {
                "site" => run.site = Some(self.site(value)?),
                "instance" => run.instances = self.texts(value, &name)?,
                "released" => {
                    if self.boolean(value, &name)? {
                        run.subject = OrderedRunSubject::Released;
                    }
                }
                "noop" => options.noop = self.boolean(value, &name)?,
                "batch" => options.batch = Some(self.share(value, &name)?),
                "canary" => options.canary = self.number(value, &name, 100_000)?,
                "soak" => options.soak_seconds = self.span(value, &name)?,
                "check" => options.checks = self.checks(value)?,
                "check_timeout" => options.check_timeout_seconds = self.span(value, &name)?,
                "batch_by" => options.batch_by = Some(self.text(value, &name)?),
                "each_batch" => options.gate_each_batch = self.boolean(value, &name)?,
                "max_unavailable" => options.max_unavailable = Some(self.share(value, &name)?),
                "max_drift" => options.max_drift = Some(self.share(value, &name)?),
                "max_failures" => options.max_failures = Some(self.share(value, &name)?),
                "continue_independent" => {
                    if self.boolean(value, &name)? {
                        options.on_failure = OnFailure::ContinueIndependent;
                    }
                }
                "by_group" => options.by_group = self.boolean(value, &name)?,
                "timeout" => options.node_timeout_seconds = Some(self.span(value, &name)?),
                "total_timeout" => {
                    options.total_timeout_seconds = Some(self.span(value, &name)?);
                }
                _ => return Err(self.unknown(key, &RUN_KEYS)),
            }
        }
        match run.options.problem() {
            Some(problem) => Err(self.at(node, problem.to_owned())),
            None => Ok(run),
        }
    }

    /// Parses the checks of a run. Nobody watches it, so a command has nowhere to run.
    fn checks(&self, node: &Node) -> Result<Vec<RolloutCheck>, CompileProblem> {
        let mut checks = Vec::new();
        for text in self.texts(node, "check")? {
            match text.parse() {
                Ok(RolloutCheck::Command { .. }) => {
                    let message = "a command runs where `bunraku run` was started: use a URL, a \
                                   query or `manual`";
                    return Err(self.at(node, message.to_owned()));
                }
                Ok(check) => checks.push(check),
                Err(error) => return Err(self.at(node, error.to_string())),
            }
        }
        Ok(checks)
    }

    /// Parses the path of a site in the code. Whether it exists is checked with the whole tree.
    fn site(&self, node: &Node) -> Result<String, CompileProblem> {
        let path = self.text(node, "site")?;
        let parts = Path::new(&path).components();
        let inside = parts
            .into_iter()
            .all(|part| matches!(part, Component::Normal(_)));
        let known = [".yaml", ".yml", ".json"];
        if !inside || !known.iter().any(|kind| path.ends_with(kind)) {
            let message = format!(
                "`{path}` must be a path in this repository to a site file (.yaml) or an environment \
                 graph (.json)"
            );
            return Err(self.at(node, message));
        }
        Ok(path)
    }

    fn share(&self, node: &Node, name: &str) -> Result<NodeLimit, CompileProblem> {
        let text = match node.to_json() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let parsed = text.parse::<NodeLimit>();
        parsed.map_err(|error| self.at(node, format!("`{name}`: {error}")))
    }
}
