//! `trigger`: starts a run on other nodes when something notifies it.
//!
//! Declaring it does nothing. A refresh fires it. So does a requisite that decides whether a state
//! runs at all (`onchanges`, `onfail`, `prereq`), when it is met. The run's
//! [`Coordinator`](crate::Coordinator) fires it with the causes of the run.

use bunraku_model::{NodeName, TriggerName};
use serde_json::json;

use crate::coordination::{CueProvider, EtcdKeys, Firing};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, ResourceType,
    StateFunction, StepError, TypeSpec, WriteAccess,
};

/// The `trigger` type.
pub(super) struct Trigger;

/// A trigger as declared.
#[derive(Debug)]
pub(crate) struct DesiredTrigger {
    firing: Firing,
    /// True for a state that runs only if something else changed or failed.
    fires_when_run: bool,
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
    ],
    states: &[StateFunction {
        function: "trigger.fired",
        implies: &[],
        arguments: &[argument("name", "name")],
    }],
    example: r#"[{"type": "Trigger", "title": "refresh load balancers", "parameters": {"hosts": ["lb01.example.com"], "reason": "a vhost is new"}}]"#,
};

const PROVIDERS: [&str; 4] = ["bunraku", "etcd", "mcollective", "dummy"];

impl ResourceType for Trigger {
    type Desired = DesiredTrigger;
    type Observed = ();

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredTrigger, Refusal> {
        let provider = provider(declaration)?;
        let hosts = declaration.texts("hosts")?.unwrap_or_default();
        let query = declaration.text("query")?;
        // Only a server knows the nodes of a trigger when the catalog names none.
        if provider != CueProvider::Bunraku {
            if hosts.is_empty() {
                return Err(declaration.refuse("hosts", "at least one node"));
            }
            if query.is_some() {
                return Err(Refusal::other(
                    "`query` works with the provider `bunraku` only",
                ));
            }
        }
        let name = TriggerName::new(declaration.name()?);
        let hosts = hosts.into_iter().map(NodeName::new);
        let hosts = hosts.collect::<Result<Vec<NodeName>, _>>();
        let firing = Firing {
            name: name.map_err(|error| Refusal::other(error.to_string()))?,
            hosts: hosts.map_err(|error| Refusal::other(format!("`hosts`: {error}")))?,
            query,
            ttl: whole(declaration, "ttl")?,
            reason: declaration.text("reason")?,
            deadline: declaration.span("deadline")?,
            provider,
        };
        Ok(DesiredTrigger {
            firing,
            fires_when_run: declaration.runs_on_condition(),
        })
    }

    fn changes(&self, desired: &DesiredTrigger, (): &()) -> Vec<Change> {
        if desired.fires_when_run {
            vec![fired()]
        } else {
            Vec::new()
        }
    }

    fn refresh_change(&self, _desired: &DesiredTrigger, (): &()) -> Option<Change> {
        Some(fired())
    }

    fn undoes_drift(&self, _desired: &DesiredTrigger, (): &()) -> bool {
        false
    }
}

fn fired() -> Change {
    Change::new("fired", json!("not fired"), json!("fired"))
}

fn provider(declaration: &Declaration) -> Result<CueProvider, Refusal> {
    Ok(match declaration.word("provider", &PROVIDERS)? {
        Some("etcd") => CueProvider::Etcd(EtcdKeys {
            endpoints: declaration.texts("endpoints")?.unwrap_or_default(),
            prefix: declaration.text("keyprefix")?,
            ttl: declaration.seconds("keyttl")?,
        }),
        Some("mcollective") => CueProvider::Mcollective,
        Some("dummy") => CueProvider::Dummy,
        _ => CueProvider::Bunraku,
    })
}

fn whole(declaration: &Declaration, name: &str) -> Result<Option<u32>, Refusal> {
    let number = declaration.integer(name)?.map(u32::try_from).transpose();
    number.map_err(|_| declaration.refuse(name, "a non-negative integer"))
}

impl Provider for Trigger {
    fn observe(&self, _desired: &DesiredTrigger, _sight: &ReadAccess<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        fire(&step.desired.firing, step.write_access)
    }

    fn refresh(
        &self,
        desired: &DesiredTrigger,
        (): &(),
        write_access: &WriteAccess<'_>,
    ) -> Result<ApplyResult, StepError> {
        fire(&desired.firing, write_access)
    }
}

/// Fires the trigger. A firing that the loop protection stopped changes nothing.
fn fire(desired: &Firing, write_access: &WriteAccess<'_>) -> Result<ApplyResult, StepError> {
    let fired = write_access.fire(desired)?;
    if fired.unknown.is_empty() {
        return Ok(ApplyResult {
            message: Some(fired.message),
            no_change: fired.stopped,
            ..ApplyResult::default()
        });
    }
    let names: Vec<&str> = fired.unknown.iter().map(NodeName::as_str).collect();
    Err(StepError::new(format!(
        "{}; unknown: {}",
        fired.message,
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::types::testing::{FakeFleet, lines, run_in};

    fn resources(changes: bool, parameters: Value) -> Value {
        json!([
            {"type": "Test", "title": "source", "parameters": {"changes": changes, "notify": "Trigger[go]"}},
            {"type": "Trigger", "title": "go", "parameters": parameters},
        ])
    }

    fn check(changes: bool, noop: bool, parameters: Value) -> (Vec<Firing>, String) {
        let fleet = Arc::new(FakeFleet::default());
        let summary = run_in(&fleet, resources(changes, parameters), noop);
        (fleet.fired(), lines(&summary))
    }

    #[test]
    fn a_change_that_notifies_it_fires_it_once() {
        let parameters = json!({"hosts": ["a", "b"], "ttl": 3, "deadline": "4h", "reason": "new"});
        let (fired, lines) = check(true, false, parameters);
        assert!(!lines.contains("failed"), "{lines}");
        let node = |name: &str| NodeName::new(name).expect("a name");
        let expected = Firing {
            name: TriggerName::new("go").expect("a name"),
            hosts: vec![node("a"), node("b")],
            query: None,
            ttl: Some(3),
            reason: Some("new".to_owned()),
            deadline: Some(Duration::from_secs(4 * 3_600)),
            provider: CueProvider::Bunraku,
        };
        assert_eq!(fired, [expected]);
    }

    #[test]
    fn a_firing_that_was_stopped_is_not_reported_as_a_change() {
        let (fired, lines) = check(true, false, json!({"hosts": ["a"], "reason": "a loop"}));
        assert_eq!(fired.len(), 1);
        assert!(lines.contains("Trigger[go] unchanged"), "{lines}");
    }

    #[test]
    fn a_state_that_runs_on_changes_fires() {
        for (changes, count) in [(true, 1), (false, 0)] {
            let resources = json!([
                {"type": "Test", "title": "source", "parameters": {"changes": changes}},
                {"type": "Trigger", "title": "go", "parameters": {"hosts": ["a"]},
                 "requisites": [{"kind": "onchanges", "targets": ["Test[source]"]}],
                 "state": {"id": "go", "name": "go", "function": "trigger.fired"}},
            ]);
            let fleet = Arc::new(FakeFleet::default());
            let summary = run_in(&fleet, resources, false);
            assert_eq!(fleet.fired().len(), count, "{}", lines(&summary));
        }
    }

    #[test]
    fn without_a_change_and_in_noop_nothing_is_fired() {
        for (changes, noop) in [(false, false), (true, true)] {
            let (fired, lines) = check(changes, noop, json!({"hosts": "a"}));
            assert_eq!(fired, [], "{lines}");
            assert!(!lines.contains("failed"), "{lines}");
        }
    }

    #[test]
    fn an_unknown_host_is_a_failure_that_names_it() {
        let (fired, lines) = check(true, false, json!({"hosts": ["a", "nobody"]}));
        assert_eq!(fired.len(), 1);
        assert!(
            lines.contains("go was fired for 1 host; unknown: nobody"),
            "{lines}"
        );
    }

    #[test]
    fn a_run_without_other_nodes_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let summary =
            crate::types::testing::apply(directory.path(), resources(true, json!({"hosts": "a"})));
        assert!(
            lines(&summary).contains("no connection to other nodes"),
            "{}",
            lines(&summary)
        );
    }

    #[test]
    fn keys_in_etcd_are_read_with_their_place_and_life() {
        let (fired, _) = check(
            true,
            false,
            json!({"hosts": "a", "provider": "etcd", "endpoints": "http://e:2379", "keyprefix": "/t", "keyttl": 60}),
        );
        let expected = CueProvider::Etcd(EtcdKeys {
            endpoints: vec!["http://e:2379".to_owned()],
            prefix: Some("/t".to_owned()),
            ttl: Some(Duration::from_secs(60)),
        });
        assert_eq!(fired[0].provider, expected);
    }

    #[test]
    fn parameters_that_cannot_work_are_refused_before_anything_changes() {
        for (parameters, part) in [
            (json!({"provider": "etcd"}), "`hosts` must be"),
            (
                json!({"provider": "dummy", "hosts": "a", "query": "nodes {}"}),
                "provider `bunraku` only",
            ),
            (json!({"hosts": "a", "provider": "smoke"}), "one of bunraku"),
            (json!({"hosts": "a", "deadline": "soon"}), "a duration"),
            (json!({"hosts": "a", "ttl": -1}), "non-negative"),
            (json!({"hosts": "a/b"}), "`hosts`"),
        ] {
            let resource = bunraku_model::catalog::Resource {
                type_name: "Trigger".to_owned(),
                title: "go".to_owned(),
                parameters: parameters.as_object().expect("an object").clone(),
                ..Default::default()
            };
            let declaration = Declaration::new(&resource, "name");
            let refusal = Trigger.desire(&declaration).expect_err(part).to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
    }
}
