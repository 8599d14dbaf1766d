//! Many quick steps at once: none is lost, run twice, or late.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::types::testing::catalog;
use crate::{
    ApplyOptions, Cancellation, CatalogPlan, Event, EventSink, OrderingMode, PlanOptions, Registry,
    RunEnd, Status, Summary, apply_plan,
};

fn file(place: &Path, name: &str, parameters: Value) -> Value {
    let mut all = json!({"content": format!("{name}\n")});
    for (name, value) in parameters.as_object().expect("an object") {
        all[name] = value.clone();
    }
    json!({"type": "File", "title": place.join(name), "parameters": all})
}

fn plan(mode: OrderingMode, resources: &[Value]) -> CatalogPlan {
    let options = PlanOptions { mode, threads: 2 };
    let catalog = catalog(Value::Array(resources.to_vec()));
    CatalogPlan::new(&catalog, &Registry::standard(), options).expect("a plan")
}

fn run(mode: OrderingMode, state: &Path, resources: &[Value], parallel: usize) -> Summary {
    let mut how = ApplyOptions::new(state, Cancellation::new().expect("a pipe"), &());
    how.parallel = Some(parallel);
    apply_plan(&plan(mode, resources), how).expect("a summary")
}

#[test]
fn every_file_is_looked_at_once_in_every_mode_with_any_number_of_workers() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    // Every tenth file waits for the one before it.
    let resources: Vec<Value> = (0..1_500)
        .map(|index| match index % 10 {
            9 => {
                let before = place.join((index - 1).to_string());
                let require = json!(format!("File[{}]", before.display()));
                file(place, &index.to_string(), json!({"require": require}))
            }
            _ => file(place, &index.to_string(), json!({})),
        })
        .collect();
    let first = run(OrderingMode::Genius, &place.join("state"), &resources, 4);
    assert_eq!(first.count(Status::Changed), resources.len());
    for mode in OrderingMode::ALL {
        for parallel in [1, 2, 9] {
            // Some files have drifted, in between the others.
            for index in [3, 700, 701, 1_499] {
                std::fs::write(place.join(index.to_string()), "drift").expect("written");
            }
            let again = run(mode, &place.join("state"), &resources, parallel);
            assert_eq!(again.count(Status::Changed), 4, "{mode:?} {parallel}");
            assert_eq!(again.count(Status::Unchanged), resources.len() - 4);
            let numbers: Vec<usize> = again.finished.iter().map(|one| one.number).collect();
            assert_eq!(numbers, (1..=resources.len()).collect::<Vec<_>>());
        }
    }
}

#[test]
fn file_order_holds_also_where_a_later_file_frees_an_earlier_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let require = json!({"require": format!("File[{}]", place.join("second").display())});
    let mut resources = vec![
        file(place, "first", require),
        file(place, "second", json!({})),
    ];
    resources.extend((0..50).map(|index| file(place, &format!("rest-{index}"), json!({}))));
    let order = || -> Vec<String> {
        let summary = run(OrderingMode::Ansible, &place.join("state"), &resources, 1);
        let names = summary.finished.iter().map(|one| one.reference.title());
        names
            .take(3)
            .map(|name| name.rsplit('/').next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(order(), ["second", "first", "rest-0"]);
    assert_eq!(order(), ["second", "first", "rest-0"], "nothing to do");
}

/// Cancels the run when this many resources have started.
struct CancelAt(usize, AtomicUsize, Cancellation);

impl EventSink for CancelAt {
    fn emit(&self, event: Event<'_>) {
        if let Event::Started { .. } = event
            && self.1.fetch_add(1, Ordering::SeqCst) + 1 == self.0
        {
            self.2.cancel();
        }
    }
}

#[test]
fn an_interrupt_ends_a_round_of_quick_steps_at_the_step_in_hand() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let resources: Vec<Value> = (0..400)
        .map(|index| file(place, &index.to_string(), json!({})))
        .collect();
    run(OrderingMode::Genius, &place.join("state"), &resources, 2);
    let cancellation = Cancellation::new().expect("a pipe");
    let sink = CancelAt(150, AtomicUsize::new(0), cancellation.clone());
    let mut how = ApplyOptions::new(place.join("state"), cancellation, &sink);
    how.parallel = Some(1);
    let summary = apply_plan(&plan(OrderingMode::Genius, &resources), how).expect("a summary");
    assert_eq!(summary.ended_early, Some(RunEnd::Interrupted));
    assert_eq!(summary.count(Status::Unchanged), 150);
    assert_eq!(summary.count(Status::Skipped), 250);
}

#[test]
fn a_failure_that_ends_the_run_ends_the_round_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let mut resources: Vec<Value> = (0..400)
        .map(|index| file(place, &index.to_string(), json!({})))
        .collect();
    run(OrderingMode::Genius, &place.join("state"), &resources, 2);
    // A directory in the place of a file cannot be replaced without `force`.
    std::fs::create_dir(place.join("in the way")).expect("made");
    resources.insert(200, file(place, "in the way", json!({"failhard": true})));
    let summary = run(OrderingMode::Genius, &place.join("state"), &resources, 1);
    assert_eq!(summary.count(Status::Failed), 1);
    assert_eq!(summary.count(Status::Unchanged), 200);
    assert_eq!(summary.count(Status::Skipped), 200);
}

#[test]
fn a_command_that_waits_for_what_another_step_makes_gets_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let mut resources: Vec<Value> = (0..300)
        .map(|index| file(place, &index.to_string(), json!({})))
        .collect();
    run(OrderingMode::Genius, &place.join("state"), &resources, 2);
    let made = place.join("made");
    let wait = format!("while ! test -e '{}'; do sleep 0.01; done", made.display());
    resources.insert(
        0,
        json!({"type": "Exec", "title": "wait", "parameters": {"command": wait, "provider": "shell", "timeout": 300}}),
    );
    resources.push(file(place, "made", json!({})));
    for mode in [OrderingMode::Genius, OrderingMode::JustDoIt] {
        let summary = run(mode, &place.join("state"), &resources, 2);
        assert!(summary.succeeded(), "{mode:?}");
        assert_eq!(summary.count(Status::Changed), 2, "{mode:?}");
        std::fs::remove_file(&made).expect("removed");
    }
}

#[test]
fn a_plan_is_the_same_with_any_number_of_threads() {
    let resources: Vec<Value> = (0..2_000)
        .map(|index| {
            let before = json!({"before": format!("File[/x/{}]", (index + 1) % 2_001)});
            file(Path::new("/x"), &index.to_string(), before)
        })
        .chain([file(Path::new("/x"), "2000", json!({}))])
        .collect();
    let explained = |threads: usize| {
        let options = PlanOptions {
            mode: OrderingMode::Genius,
            threads,
        };
        let catalog = catalog(Value::Array(resources.clone()));
        let plan = CatalogPlan::new(&catalog, &Registry::standard(), options).expect("a plan");
        let steps: Vec<String> = plan.explain().map(|step| format!("{step:?}")).collect();
        steps
    };
    let one = explained(1);
    assert_eq!(one.len(), 2_001);
    assert_eq!(one, explained(3));

    let broken = |threads: usize| {
        let mut resources = resources.clone();
        resources[1_999]["parameters"]["mod"] = json!("0644");
        resources[1]["parameters"]["ensur"] = json!("file");
        let options = PlanOptions {
            mode: OrderingMode::Genius,
            threads,
        };
        let catalog = catalog(Value::Array(resources));
        let plan = CatalogPlan::new(&catalog, &Registry::standard(), options);
        plan.err().expect("two problems").to_string()
    };
    assert_eq!(broken(1), broken(4));
    assert_eq!(broken(4).lines().count(), 2);
}
