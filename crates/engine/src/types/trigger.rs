//! `trigger`: starts a run on other nodes when something notifies it.
//!
//! Nothing happens when it is declared; only a refresh fires it. Firing is the
//! `bunraku` program's business, which knows the servers and the credentials;
//! this type hands on the causes of the run that it is part of.

use std::time::Duration;

use serde_json::json;

use super::surroundings::Surroundings;
use crate::spec::{argument, parameter};
use crate::{
    Applied, Change, Declaration, Hands, Observation, Provider, Refusal, ResourceType, Sight,
    StateFunction, StepError, TypeSpec,
};

/// The program says so when a chain of causes ends: told, and no failure.
const STOPPED: i32 = 4;

/// A server that does not answer must not hold a run up for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// The type, with what its run is surrounded by.
#[derive(Default)]
pub struct Trigger {
    surroundings: Surroundings,
}

impl Trigger {
    /// Hands on the causes in there; without, those in the environment are.
    pub fn within(surroundings: Surroundings) -> Self {
        Self { surroundings }
    }
}

static SPEC: TypeSpec = TypeSpec {
    name: "trigger",
    aliases: &[],
    summary: "Starts a run on other nodes when it is notified. Declaring it does nothing.",
    name_parameter: "name",
    parameters: &[
        parameter(
            "hosts",
            "the nodes to start; by default, those of the trigger's definition",
        ),
        parameter("query", "start the nodes that this query finds"),
        parameter(
            "ttl",
            "how many triggers can follow from this one in a chain",
        ),
        parameter("reason", "shown wherever the trigger appears"),
        parameter(
            "deadline",
            "how long to wait for a disconnected node, such as `4h`",
        ),
        parameter("provider", "`bunraku`, `etcd`, `mcollective` or `dummy`"),
        parameter(
            "endpoints",
            "client addresses of etcd, for the provider `etcd`",
        ),
        parameter("keyprefix", "the prefix of etcd keys"),
        parameter("keyttl", "the lifetime of an etcd key, in seconds"),
        parameter("program", "the program that fires it: `bunraku`"),
    ],
    states: &[StateFunction {
        function: "trigger.fired",
        implies: &[],
        arguments: &[argument("name", "name")],
    }],
    example: r#"[{"type": "Trigger", "title": "refresh load balancers", "parameters": {"hosts": ["lb01.example.com"], "reason": "a vhost is new"}}]"#,
};

pub struct Cue {
    name: String,
    program: Option<String>,
    words: Vec<String>,
}

impl ResourceType for Trigger {
    type Desired = Cue;
    type Observed = ();

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Cue, Refusal> {
        let name = declaration.name()?;
        let mut words = vec![
            "trigger".to_owned(),
            "fire".to_owned(),
            name.clone(),
            "--changed".to_owned(),
        ];
        let hosts = declaration.texts("hosts")?.unwrap_or_default();
        let provider = declaration.text("provider")?;
        // Only a server knows whom a trigger is for when nobody says.
        if hosts.is_empty() && provider.is_some_and(|provider| provider != "bunraku") {
            return Err(declaration.refuse("hosts", "at least one node"));
        }
        if !hosts.is_empty() {
            words.extend(["--hosts".to_owned(), hosts.join(",")]);
        }
        for (parameter, flag) in [
            ("query", "--query"),
            ("reason", "--reason"),
            ("deadline", "--deadline"),
            ("provider", "--provider"),
            ("keyprefix", "--prefix"),
        ] {
            if let Some(text) = declaration.text(parameter)? {
                words.extend([flag.to_owned(), text]);
            }
        }
        if let Some(ttl) = declaration.integer("ttl")? {
            words.extend(["--ttl".to_owned(), ttl.to_string()]);
        }
        if let Some(seconds) = declaration.integer("keyttl")? {
            words.extend(["--key-ttl".to_owned(), format!("{seconds}s")]);
        }
        if let Some(endpoints) = declaration.texts("endpoints")? {
            words.extend(["--etcd".to_owned(), endpoints.join(",")]);
        }
        Ok(Cue {
            name,
            program: declaration.text("program")?,
            words,
        })
    }

    fn changes(&self, _desired: &Cue, (): &()) -> Vec<Change> {
        Vec::new()
    }

    fn refresh_change(&self, _desired: &Cue, (): &()) -> Option<Change> {
        Some(Change::new("fired", json!("not fired"), json!("fired")))
    }
}

impl Provider for Trigger {
    fn observe(&self, _desired: &Cue, _sight: &Sight<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn apply(&self, _: &Observation<'_, Self>) -> Result<Applied, StepError> {
        Ok(Applied::default())
    }

    fn refresh(&self, desired: &Cue, (): &(), hands: &Hands<'_>) -> Result<Applied, StepError> {
        let run = self
            .surroundings
            .call(desired.program.as_ref(), &desired.words);
        let done = run.timeout(PATIENCE).run(hands)?;
        let said = done.stderr_text().trim().to_owned();
        match done.code {
            Some(0 | STOPPED) => Ok(Applied {
                message: Some(said),
                ..Applied::default()
            }),
            _ => Err(StepError::new(format!(
                "`{}` was not fired, {}: {said}",
                desired.name,
                done.ending()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::types::testing::{apply, noop};
    use crate::{Status, Summary};

    fn resources(directory: &std::path::Path, changes: bool) -> serde_json::Value {
        let log = directory.join("log");
        let program = directory.join("fire");
        // The program's own behaviour is tested where it is; this is what it is called with.
        let text = format!("#!/bin/sh\necho \"$*\" >> {}\n", log.display());
        std::fs::write(&program, text).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("executable");
        serde_json::json!([
            {"type": "Test", "title": "source", "parameters": {"changes": changes, "notify": "Trigger[go]"}},
            {"type": "Trigger", "title": "go", "parameters": {"hosts": ["a", "b"], "ttl": 3, "program": program}},
        ])
    }

    fn log(directory: &std::path::Path) -> String {
        std::fs::read_to_string(directory.join("log")).unwrap_or_default()
    }

    fn has_no_failure(summary: &Summary) {
        assert!(
            summary
                .finished
                .iter()
                .all(|one| one.outcome.status != Status::Failed)
        );
    }

    #[test]
    fn a_change_that_notifies_it_fires_it_once() {
        let directory = tempfile::tempdir().expect("a directory");
        has_no_failure(&apply(directory.path(), resources(directory.path(), true)));
        assert_eq!(
            log(directory.path()),
            "trigger fire go --changed --hosts a,b --ttl 3\n"
        );
    }

    #[test]
    fn without_a_change_and_in_noop_nothing_is_fired() {
        let directory = tempfile::tempdir().expect("a directory");
        has_no_failure(&apply(directory.path(), resources(directory.path(), false)));
        has_no_failure(&noop(directory.path(), resources(directory.path(), true)));
        assert_eq!(log(directory.path()), "");
    }
}
