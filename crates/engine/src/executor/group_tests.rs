//! One transaction for all resources that may form a group.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::types::testing::{catalog, lines};
use crate::{
    ApplyOptions, ApplyResult, Cancellation, CatalogPlan, Change, Declaration, DisplayValue,
    Observation, OrderingMode, PlanOptions, Provider, ReadAccess, Refusal, Registry, ResourceType,
    StepError, Summary, TypeSpec, apply_plan,
};

/// The members of each transaction, in order.
type Transactions = Arc<Mutex<Vec<Vec<String>>>>;

/// A package of a manager that records its transactions.
struct Pack(Transactions);

static SPEC: TypeSpec = TypeSpec {
    name: "pack",
    aliases: &[],
    summary: "",
    name_parameter: "name",
    parameters: &[
        crate::spec::parameter("manager", ""),
        crate::spec::parameter("broken", ""),
    ],
    states: &[],
    example: "[]",
};

struct DesiredMember {
    name: String,
    manager: String,
    broken: bool,
}

impl ResourceType for Pack {
    type Desired = DesiredMember;
    type Observed = ();

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredMember, Refusal> {
        Ok(DesiredMember {
            name: declaration.name()?,
            manager: declaration.text("manager")?.unwrap_or_default(),
            broken: declaration.boolean("broken")?.unwrap_or(false),
        })
    }

    fn changes(&self, _: &DesiredMember, (): &()) -> Vec<Change> {
        vec![Change::new("ensure", DisplayValue::Absent, "installed")]
    }

    fn batch_key(&self, desired: &DesiredMember) -> Option<String> {
        Some(desired.manager.clone())
    }
}

impl Provider for Pack {
    fn observe(&self, _: &DesiredMember, _: &ReadAccess<'_>) -> Result<(), StepError> {
        Ok(())
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let Observation {
            desired,
            write_access,
            ..
        } = *step;
        write_access.once("metadata", || {
            self.0
                .lock()
                .expect("whole")
                .push(vec!["refresh".to_owned()]);
            Ok(())
        })?;
        self.0
            .lock()
            .expect("whole")
            .push(vec![desired.name.clone()]);
        Ok(ApplyResult::default())
    }

    fn apply_group(&self, group: &[Observation<'_, Self>]) -> Vec<Result<ApplyResult, StepError>> {
        assert!(group[0].desired.manager != "bug", "a bug in the provider");
        let refreshed = group[0].write_access.once("metadata", || {
            self.0
                .lock()
                .expect("whole")
                .push(vec!["refresh".to_owned()]);
            Ok(())
        });
        assert!(refreshed.is_ok());
        self.0
            .lock()
            .expect("whole")
            .push(group.iter().map(|one| one.desired.name.clone()).collect());
        let answers = group.iter().map(|one| {
            if one.desired.broken {
                Err(StepError::new("no such package"))
            } else {
                Ok(ApplyResult::default())
            }
        });
        answers.collect()
    }
}

fn pack(title: &str, parameters: Value) -> Value {
    json!({"type": "Pack", "title": title, "parameters": parameters})
}

fn run(mode: OrderingMode, noop: bool, resources: Value) -> (Summary, Vec<Vec<String>>) {
    let transactions = Transactions::default();
    let mut registry = Registry::standard();
    registry.add(Pack(Arc::clone(&transactions)));
    let plan = CatalogPlan::new(
        &catalog(resources),
        &registry,
        PlanOptions {
            mode,
            ..PlanOptions::default()
        },
    )
    .expect("a plan");
    let state = tempfile::tempdir().expect("a directory");
    let how = ApplyOptions {
        noop,
        ..ApplyOptions::new(state.path(), Cancellation::new().expect("a pipe"), &())
    };
    let summary = apply_plan(&plan, how).expect("a summary");
    let transactions = transactions.lock().expect("whole").clone();
    (summary, transactions)
}

fn words(transactions: &[Vec<String>]) -> Vec<String> {
    transactions.iter().map(|one| one.join("+")).collect()
}

#[test]
fn packages_of_one_manager_go_in_one_transaction_after_one_refresh() {
    let resources = json!([
        pack("a", json!({"manager": "apt"})),
        {"type": "Exec", "title": "slow", "parameters": {"command": "/bin/sleep 0.1"}},
        pack("b", json!({"manager": "apt", "require": "Exec[slow]"})),
        pack("c", json!({"manager": "apt"})),
    ]);
    let (summary, transactions) = run(OrderingMode::Genius, false, resources);
    assert!(summary.succeeded(), "{}", lines(&summary));
    assert_eq!(words(&transactions), ["refresh", "a+b+c"]);
}

#[test]
fn what_depends_on_another_of_the_same_manager_goes_in_a_later_one() {
    let resources = json!([
        pack("late", json!({"manager": "apt", "require": "Test[between]"})),
        {"type": "Test", "title": "between", "parameters": {"require": "Pack[a]"}},
        pack("a", json!({"manager": "apt"})),
        pack("b", json!({"manager": "apt"})),
        pack("later", json!({"manager": "apt", "require": "Pack[b]"})),
    ]);
    let (_, transactions) = run(OrderingMode::Genius, false, resources);
    assert_eq!(words(&transactions), ["refresh", "a+b", "late+later"]);
}

#[test]
fn two_managers_that_wait_for_each_other_do_not_lock_up() {
    let resources = json!([
        pack("apt-1", json!({"manager": "apt"})),
        pack("pip-1", json!({"manager": "pip"})),
        pack("apt-2", json!({"manager": "apt", "require": "Pack[pip-1]"})),
        pack("pip-2", json!({"manager": "pip", "require": "Pack[apt-1]"})),
    ]);
    let (summary, _) = run(OrderingMode::Genius, false, resources);
    assert_eq!(
        summary.count(crate::Status::Changed),
        4,
        "{}",
        lines(&summary)
    );
}

#[test]
fn a_member_that_fails_holds_back_only_what_needs_it() {
    let resources = json!([
        pack("good", json!({"manager": "apt"})),
        pack("bad", json!({"manager": "apt", "broken": true})),
        {"type": "Test", "title": "needs good", "parameters": {"require": "Pack[good]"}},
        {"type": "Test", "title": "needs bad", "parameters": {"require": "Pack[bad]"}},
    ]);
    let (summary, _) = run(OrderingMode::Genius, false, resources);
    assert_eq!(
        lines(&summary),
        "Pack[bad] failed: no such package\nPack[good] changed\n\
         Test[needs bad] skipped (Pack[bad] failed)\nTest[needs good] unchanged"
    );
}

#[test]
fn a_member_whose_dependency_failed_is_left_out_of_the_transaction() {
    let resources = json!([
        {"type": "Test", "title": "repository", "parameters": {"result": false}},
        pack("a", json!({"manager": "apt"})),
        pack("b", json!({"manager": "apt", "require": "Test[repository]"})),
        pack("c", json!({"manager": "apt"})),
    ]);
    let (_, transactions) = run(OrderingMode::Genius, false, resources);
    assert_eq!(words(&transactions), ["refresh", "a+c"]);
}

#[test]
fn other_modes_and_noop_make_no_transactions() {
    let resources = json!([
        pack("a", json!({"manager": "apt"})),
        pack("b", json!({"manager": "apt"}))
    ]);
    let (_, transactions) = run(OrderingMode::Ansible, false, resources.clone());
    assert_eq!(words(&transactions), ["refresh", "a", "b"]);
    let (summary, transactions) = run(OrderingMode::Genius, true, resources);
    assert_eq!(summary.count(crate::Status::Pending), 2);
    assert!(transactions.is_empty(), "a noop run reaches no apply");
}

#[test]
fn a_provider_that_breaks_down_fails_its_resources_and_not_the_run() {
    let resources = json!([
        pack("a", json!({"manager": "bug"})),
        pack("b", json!({"manager": "bug"})),
        pack("fine", json!({"manager": "apt"})),
    ]);
    let (summary, _) = run(OrderingMode::Genius, false, resources);
    assert_eq!(
        (
            summary.count(crate::Status::Failed),
            summary.count(crate::Status::Changed)
        ),
        (2, 1),
        "{}",
        lines(&summary)
    );
}
