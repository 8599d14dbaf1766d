//! Requisites, refreshes and failures, compared as text.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::types::testing::{apply, catalog, lines, noop};
use crate::{
    ApplyOptions, Cancellation, CatalogPlan, Event, EventSink, OrderingMode, PlanOptions, Registry,
    Status, Summary, apply_plan,
};

fn check(resources: Value, expected: Expect) {
    let state = tempfile::tempdir().expect("a directory");
    expected.assert_eq(&lines(&apply(state.path(), resources)));
}

fn check_noop(resources: Value, expected: Expect) {
    let state = tempfile::tempdir().expect("a directory");
    expected.assert_eq(&lines(&noop(state.path(), resources)));
}

/// A Puppet-style resource of the type `test`.
fn test(title: &str, parameters: Value) -> Value {
    json!({"type": "Test", "title": title, "parameters": parameters})
}

/// A Salt-style state of the type `test`.
fn state(title: &str, parameters: Value, requisites: Value) -> Value {
    json!({"type": "Test", "title": title, "parameters": parameters, "requisites": requisites,
           "state": {"id": title, "name": title, "function": "test.configurable_test_state"}})
}

/// A plan that applies the resources in the order of the catalog.
fn plan_in_order(resources: Value) -> CatalogPlan {
    let options = PlanOptions {
        mode: OrderingMode::Ansible,
        ..PlanOptions::default()
    };
    CatalogPlan::new(&catalog(resources), &Registry::standard(), options).expect("a plan")
}

/// A state with one requisite that otherwise does nothing.
fn linked(title: &str, requisite: Value) -> Value {
    state(title, json!({}), json!([requisite]))
}

fn requisite(kind: &str, targets: &[&str]) -> Value {
    let targets: Vec<String> = targets
        .iter()
        .map(|target| format!("Test[{target}]"))
        .collect();
    json!({"kind": kind, "targets": targets})
}

fn group(kind: &str, group: &str, targets: &[&str]) -> Value {
    let mut requisite = requisite(kind, targets);
    requisite["group"] = json!(group);
    requisite
}

#[test]
fn a_failure_holds_back_what_depends_on_it_and_nothing_else() {
    check(
        json!([
            test("root", json!({"result": false})),
            test("child", json!({"require": "Test[root]"})),
            test("grandchild", json!({"require": "Test[child]"})),
            test("other", json!({"changes": true})),
        ]),
        expect![[r#"
            Test[child] skipped (Test[root] failed)
            Test[grandchild] skipped (Test[root] failed)
            Test[other] changed
            Test[root] failed: failed as configured"#]],
    );
}

#[test]
fn a_change_refreshes_those_that_subscribe_and_those_it_notifies() {
    check(
        json!([
            test(
                "source",
                json!({"changes": true, "notify": "Test[notified]"})
            ),
            test("notified", json!({})),
            test("subscriber", json!({"subscribe": ["Test[notified]"]})),
            test("behind", json!({"require": "Test[source]"})),
        ]),
        expect![[r#"
            Test[behind] unchanged
            Test[notified] changed (refreshed by Test[source])
            Test[source] changed
            Test[subscriber] changed (refreshed by Test[notified])"#]],
    );
}

#[test]
fn containers_pass_on_order_failure_and_refresh() {
    let state = tempfile::tempdir().expect("a directory");
    let mut catalog = catalog(json!([
        {"type": "Class", "title": "A", "kind": "class"},
        {"type": "Class", "title": "B", "kind": "class", "parameters": {"subscribe": "Class[A]"}},
        {"type": "Class", "title": "C", "kind": "class", "parameters": {"require": "Class[B]"}},
        test("a", json!({"changes": true})),
        test("b1", json!({})),
        test("b2", json!({"changes": true, "result": false})),
        test("c", json!({})),
    ]));
    for (source, target) in [
        ("Class[A]", "Test[a]"),
        ("Class[B]", "Test[b1]"),
        ("Class[B]", "Test[b2]"),
        ("Class[C]", "Test[c]"),
    ] {
        let edge = json!({"source": source, "target": target});
        catalog
            .edges
            .push(serde_json::from_value(edge).expect("an edge"));
    }
    let plan =
        CatalogPlan::new(&catalog, &Registry::standard(), PlanOptions::default()).expect("a plan");
    let how = ApplyOptions::new(state.path(), Cancellation::new().expect("a pipe"), &());
    let summary = apply_plan(&plan, how).expect("a summary");
    expect![[r#"
        Test[a] changed
        Test[b1] changed (refreshed by Test[a])
        Test[b2] failed: failed as configured
        Test[c] skipped (Test[b2] failed)"#]]
    .assert_eq(&lines(&summary));
}

#[test]
fn a_watcher_of_salt_is_refreshed_only_if_it_had_no_changes_of_its_own() {
    check(
        json!([
            state("source", json!({"changes": true}), json!([])),
            linked("quiet", requisite("watch", &["source"])),
            state(
                "busy",
                json!({"changes": true}),
                json!([requisite("watch", &["source"])])
            ),
        ]),
        expect![[r#"
            Test[busy] changed
            Test[quiet] changed (refreshed by Test[source])
            Test[source] changed"#]],
    );
}

#[test]
fn onchanges_runs_on_a_change_and_not_on_a_failure_with_changes() {
    check(
        json!([
            state("changed", json!({"changes": true}), json!([])),
            state("same", json!({}), json!([])),
            state(
                "broken",
                json!({"changes": true, "result": false}),
                json!([])
            ),
            linked("runs", requisite("onchanges", &["changed", "same"])),
            linked("not all", group("onchanges", "all", &["changed", "same"])),
            linked("not", requisite("onchanges", &["same"])),
            linked("not on failure", requisite("onchanges", &["broken"])),
            linked("satisfied by a skipped one", requisite("require", &["not"])),
        ]),
        expect![[r#"
            Test[broken] failed: failed as configured
            Test[changed] changed
            Test[not all] skipped (onchanges: nothing changed)
            Test[not on failure] skipped (onchanges: nothing changed)
            Test[not] skipped (onchanges: nothing changed)
            Test[runs] unchanged
            Test[same] unchanged
            Test[satisfied by a skipped one] unchanged"#]],
    );
}

#[test]
fn onfail_runs_when_any_or_all_targets_failed_and_a_blocked_one_counts_as_failed() {
    check(
        json!([
            state("good", json!({}), json!([])),
            state("bad", json!({"result": false}), json!([])),
            linked("blocked", requisite("require", &["bad"])),
            linked("any", requisite("onfail", &["good", "bad"])),
            linked("all", group("onfail", "all", &["good", "bad"])),
            linked("all failed", group("onfail", "all", &["blocked", "bad"])),
            linked("none", requisite("onfail", &["good"])),
        ]),
        expect![[r#"
            Test[all failed] unchanged
            Test[all] skipped (onfail: nothing failed)
            Test[any] unchanged
            Test[bad] failed: failed as configured
            Test[blocked] skipped (Test[bad] failed)
            Test[good] unchanged
            Test[none] skipped (onfail: nothing failed)"#]],
    );
}

#[test]
fn require_any_needs_one_that_did_not_fail() {
    check(
        json!([
            state("good", json!({}), json!([])),
            state("bad", json!({"result": false}), json!([])),
            linked("one is enough", group("require", "any", &["bad", "good"])),
            linked("none left", group("require", "any", &["bad"])),
        ]),
        expect![[r#"
            Test[bad] failed: failed as configured
            Test[good] unchanged
            Test[none left] skipped (Test[bad] failed)
            Test[one is enough] unchanged"#]],
    );
}

#[test]
fn prereq_runs_before_what_would_change_and_holds_it_back_when_it_fails() {
    check(
        json!([
            state("target", json!({"changes": true}), json!([])),
            linked("before", requisite("prereq", &["target"])),
            state("still", json!({}), json!([])),
            linked("not needed", requisite("prereq", &["still"])),
            state("held back", json!({"changes": true}), json!([])),
            state(
                "fails",
                json!({"result": false}),
                json!([requisite("prereq", &["held back"])])
            ),
        ]),
        expect![[r#"
            Test[before] unchanged
            Test[fails] failed: failed as configured
            Test[held back] skipped (its prerequisite Test[fails] failed)
            Test[not needed] skipped (prereq: nothing would change)
            Test[still] unchanged
            Test[target] changed"#]],
    );
}

fn apply_in_new_root(resources: serde_json::Value) -> Summary {
    let directory = tempfile::tempdir().expect("a directory");
    apply(directory.path(), resources)
}

#[test]
fn a_listener_is_refreshed_once_at_the_end() {
    let summary = apply_in_new_root(json!([
        state(
            "listener",
            json!({}),
            json!([
                requisite("listen", &["one", "two"]),
                requisite("listen", &["two"])
            ])
        ),
        state("one", json!({"changes": true}), json!([])),
        state("two", json!({"changes": true}), json!([])),
    ]));
    let refreshed: Vec<_> = summary
        .finished
        .iter()
        .filter(|one| one.outcome.refreshed)
        .collect();
    assert_eq!(refreshed.len(), 1);
    assert_eq!(
        summary.finished.last().expect("some").reference.title(),
        "listener"
    );
}

#[test]
fn a_noop_run_shows_pending_changes_refreshes_and_what_could_not_succeed() {
    check_noop(
        json!([
            test("source", json!({"changes": true})),
            test("refreshed", json!({"subscribe": "Test[source]"})),
            test("broken", json!({"result": false})),
            test(
                "held back",
                json!({"changes": true, "require": "Test[broken]"})
            ),
        ]),
        expect![[r#"
            Test[broken] failed: failed as configured
            Test[held back] skipped (Test[broken] failed)
            Test[refreshed] pending (refreshed by Test[source])
            Test[source] pending"#]],
    );
}

#[test]
fn failhard_ends_the_run_at_the_first_failure() {
    let directory = tempfile::tempdir().expect("a directory");
    let resources = json!([
        test("bad", json!({"result": false, "failhard": true})),
        test("later", json!({})),
    ]);
    let plan = plan_in_order(resources);
    let how = ApplyOptions::new(directory.path(), Cancellation::new().expect("a pipe"), &());
    let summary = apply_plan(&plan, how).expect("a summary");
    expect![[r#"
        Test[bad] failed: failed as configured
        Test[later] skipped (Test[bad] failed and stopped the run)"#]]
    .assert_eq(&lines(&summary));
    assert!(!summary.succeeded());
}

/// Cancels the run when a resource of this title has finished.
struct CancelAfter(&'static str, Cancellation);

impl EventSink for CancelAfter {
    fn emit(&self, event: Event<'_>) {
        if let Event::Finished(finished) = event
            && finished.reference.title() == self.0
        {
            self.1.cancel();
        }
    }
}

#[test]
fn an_interrupted_run_starts_nothing_else_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let resources = json!([
        test("one", json!({})),
        test("two", json!({})),
        test("three", json!({}))
    ]);
    let plan = plan_in_order(resources);
    let cancellation = Cancellation::new().expect("a pipe");
    let sink = CancelAfter("one", cancellation.clone());
    let summary = apply_plan(
        &plan,
        ApplyOptions::new(directory.path(), cancellation, &sink),
    )
    .expect("a summary");
    expect![[r#"
        Test[one] unchanged
        Test[three] skipped (the run was interrupted)
        Test[two] skipped (the run was interrupted)"#]]
    .assert_eq(&lines(&summary));
    assert!(!summary.succeeded());
}

fn many(mode: OrderingMode, resources: Vec<Value>) -> Summary {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = CatalogPlan::new(
        &catalog(Value::Array(resources)),
        &Registry::standard(),
        PlanOptions {
            mode,
            ..PlanOptions::default()
        },
    )
    .expect("a plan");
    let how = ApplyOptions::new(directory.path(), Cancellation::new().expect("a pipe"), &());
    apply_plan(&plan, how).expect("a summary")
}

#[test]
fn a_chain_of_ten_thousand_is_applied_in_order_in_every_mode() {
    for mode in OrderingMode::ALL {
        // Declared backwards, so that file order does not help.
        let chain = (0..10_000).rev().map(|index| {
            let require = if index == 0 {
                Value::Null
            } else {
                json!(format!("Test[{}]", index - 1))
            };
            test(&index.to_string(), json!({"require": require}))
        });
        let summary = many(mode, chain.collect());
        let order: Vec<usize> = summary
            .finished
            .iter()
            .map(|one| one.reference.title().parse().expect("a number"))
            .collect();
        assert_eq!(order, (0..10_000).collect::<Vec<_>>(), "{mode:?}");
    }
}

#[test]
fn a_failure_at_the_top_of_a_deep_chain_reaches_its_end() {
    let chain = (0..10_000).map(|index| match index {
        0 => test("0", json!({"result": false})),
        _ => test(
            &index.to_string(),
            json!({"require": format!("Test[{}]", index - 1)}),
        ),
    });
    let summary = many(OrderingMode::Genius, chain.collect());
    assert_eq!(summary.count(Status::Skipped), 9_999);
}

#[test]
fn a_hundred_thousand_resources_are_applied() {
    let resources =
        (0..100_000).map(|index| test(&index.to_string(), json!({"changes": index % 2 == 0})));
    let summary = many(OrderingMode::Genius, resources.collect());
    assert_eq!(
        (
            summary.count(Status::Changed),
            summary.count(Status::Unchanged)
        ),
        (50_000, 50_000)
    );
}

#[test]
fn a_second_change_to_the_same_desired_state_is_corrective() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("motd");
    let corrective = |content: &str| {
        let resource = json!({"type": "File", "title": path, "parameters": {"content": content}});
        let summary = apply(directory.path(), json!([resource]));
        summary.finished[0].outcome.corrective
    };
    assert!(!corrective("one"), "the first change is a new wish");
    std::fs::write(&path, "drift").expect("written");
    assert!(corrective("one"), "someone else changed it");
    assert!(!corrective("two"), "another wish");
}

#[test]
fn what_acts_in_every_run_corrects_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let resources = json!([
        test("changes", json!({"changes": true})),
        {"type": "Notify", "title": "hello", "parameters": {}},
        {"type": "Exec", "title": "/bin/true", "parameters": {}},
    ]);
    for _ in 0..2 {
        let summary = apply(directory.path(), resources.clone());
        assert_eq!(summary.count(Status::Changed), 3);
        for one in &summary.finished {
            assert!(!one.outcome.corrective, "{}", one.reference);
        }
    }
}

#[test]
fn secrets_stay_out_of_messages_changes_and_outputs() {
    let directory = tempfile::tempdir().expect("a directory");
    let resources = json!([
        {"type": "Notify", "title": "n", "parameters": {"message": "hunter22"}, "sensitive_parameters": ["message"]},
        test("quotes it", json!({"result": false, "comment": "wrong password hunter22"})),
    ]);
    let transcript = std::sync::Mutex::new(String::new());
    struct Record<'a>(&'a std::sync::Mutex<String>);
    impl EventSink for Record<'_> {
        fn emit(&self, event: Event<'_>) {
            self.0
                .lock()
                .expect("whole")
                .push_str(&format!("{event:?}\n"));
        }
    }
    let sink = Record(&transcript);
    let plan = CatalogPlan::new(
        &catalog(resources),
        &Registry::standard(),
        PlanOptions::default(),
    )
    .expect("a plan");
    let summary = apply_plan(
        &plan,
        ApplyOptions::new(
            directory.path(),
            Cancellation::new().expect("a pipe"),
            &sink,
        ),
    )
    .expect("a summary");
    let everything = format!("{}{summary:?}", transcript.lock().expect("whole"));
    assert!(!everything.contains("hunter22"), "{everything}");
    assert!(everything.contains("[secret]"));
}

#[test]
fn retry_tries_again_and_gives_up_after_its_attempts() {
    let retry = json!({"attempts": 3, "interval": 0});
    let summary = apply_in_new_root(json!([test(
        "bad",
        json!({"result": false, "retry": retry})
    )]));
    assert_eq!(summary.finished[0].outcome.attempts, 3);
    assert_eq!(summary.finished[0].outcome.status, Status::Failed);
}

#[test]
fn a_prereq_that_fails_leaves_its_target_null_and_does_not_stop_who_requires_that() {
    check(
        json!([
            state("target", json!({"changes": true}), json!([])),
            state(
                "fails",
                json!({"result": false}),
                json!([requisite("prereq", &["target"])])
            ),
            linked("behind", requisite("require", &["target"])),
        ]),
        expect![[r#"
            Test[behind] unchanged
            Test[fails] failed: failed as configured
            Test[target] skipped (its prerequisite Test[fails] failed)"#]],
    );
}

#[test]
fn a_look_of_prereq_asks_the_targets_own_requisites_and_guards() {
    check(
        json!([
            state("quiet", json!({}), json!([])),
            state(
                "not asked for",
                json!({"changes": true}),
                json!([requisite("onchanges", &["quiet"])])
            ),
            linked("first", requisite("prereq", &["not asked for"])),
            state(
                "guarded",
                json!({"changes": true, "onlyif": "false"}),
                json!([])
            ),
            linked("second", requisite("prereq", &["guarded"])),
        ]),
        expect![[r#"
            Test[first] skipped (prereq: nothing would change)
            Test[guarded] skipped (onlyif: `false` failed)
            Test[not asked for] skipped (onchanges: nothing changed)
            Test[quiet] unchanged
            Test[second] skipped (prereq: nothing would change)"#]],
    );
}

#[test]
fn check_cmd_of_a_state_decides_whatever_came_of_it() {
    check(
        json!([
            state(
                "saved",
                json!({"result": false, "check_cmd": "true"}),
                json!([])
            ),
            state("doomed", json!({"check_cmd": "false"}), json!([])),
        ]),
        expect![[r#"
            Test[doomed] failed: check_cmd `false` failed
            Test[saved] unchanged"#]],
    );
}

#[test]
fn a_listener_is_notified_of_a_change_that_came_with_a_failure() {
    let summary = apply_in_new_root(json!([
        linked("listener", requisite("listen", &["broken"])),
        state(
            "broken",
            json!({"changes": true, "result": false}),
            json!([])
        ),
    ]));
    assert!(summary.finished.last().expect("some").outcome.refreshed);
}
