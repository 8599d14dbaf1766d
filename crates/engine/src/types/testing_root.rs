//! A machine for a test: a directory that the engine uses as `/`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::testing::catalog;
use crate::{
    ApplyOptions, Cancellation, CatalogPlan, DisplayValue, OrderingMode, PlanOptions, Registry,
    Summary, apply_plan,
};

pub(crate) struct Machine {
    place: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join("root")).expect("a root");
        Self { place }
    }

    /// Returns the directory for files of the test that are not part of the machine.
    pub(crate) fn beside(&self) -> &Path {
        self.place.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        self.place.path().join("root").join(path)
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(&path, content).expect("a file");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        let path = self.path(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn apply(&self, resources: Value) -> String {
        self.transcript(&self.run(resources, false))
    }

    pub(crate) fn noop(&self, resources: Value) -> String {
        self.transcript(&self.run(resources, true))
    }

    pub(crate) fn run(&self, resources: Value, noop: bool) -> Summary {
        self.carry_out(resources, noop, Cancellation::new().expect("a pipe"))
    }

    /// Runs resources with a cancellation.
    pub(crate) fn run_until(&self, resources: Value, cancellation: Cancellation) -> Summary {
        self.carry_out(resources, false, cancellation)
    }

    fn carry_out(&self, resources: Value, noop: bool, cancellation: Cancellation) -> Summary {
        let plan = CatalogPlan::new(
            &catalog(resources),
            &Registry::standard(),
            PlanOptions {
                mode: OrderingMode::Genius,
                ..PlanOptions::default()
            },
        )
        .unwrap_or_else(|error| panic!("{error}"));
        let how = ApplyOptions {
            noop,
            root: Some(self.place.path().join("root")),
            ..ApplyOptions::new(self.place.path().join("state"), cancellation, &())
        };
        apply_plan(&plan, how).expect("a record of the run")
    }

    /// Checks that noop reports the changes and makes none, apply makes them, and a
    /// second apply finds nothing to do.
    #[track_caller]
    pub(crate) fn converges(&self, resources: Value) -> String {
        let announced = self.noop(resources.clone());
        let first = self.apply(resources.clone());
        assert_eq!(
            announced.replace(" pending", " changed"),
            first,
            "noop announces what apply does"
        );
        let second = self.run(resources, false);
        let second: Vec<_> = (second.finished.iter())
            .filter(|one| one.outcome.status != crate::Status::Unchanged)
            .map(|one| (one.reference.to_string(), one.outcome.clone()))
            .collect();
        assert!(
            second.is_empty(),
            "the second apply changes nothing: {second:#?}"
        );
        first
    }

    /// Returns each resource, sorted, with its changes below it.
    pub(crate) fn transcript(&self, summary: &Summary) -> String {
        let place = self.place.path().to_string_lossy();
        transcript(summary).replace(&*place, "PLACE")
    }
}

/// Returns each resource, sorted, with its changes below it.
pub(crate) fn transcript(summary: &Summary) -> String {
    let mut blocks: Vec<String> = (summary.finished.iter())
        .map(|one| {
            let mut block = format!("{} {}\n", one.reference, one.outcome.status.as_str());
            if one.outcome.status == crate::Status::Failed {
                let why = one.outcome.message.as_deref().unwrap_or("");
                block.push_str(&format!("  {why}\n"));
            }
            for reason in &one.outcome.reasons {
                block.push_str(&format!("  ({reason})\n"));
            }
            for change in &one.outcome.changes {
                let side = |side: &DisplayValue| match side {
                    DisplayValue::Absent => "-".to_owned(),
                    DisplayValue::Value(Value::String(text)) => text.clone(),
                    DisplayValue::Value(value) => value.to_string(),
                    DisplayValue::Secret => "[secret]".to_owned(),
                };
                let (from, to) = (side(&change.from), side(&change.to));
                block.push_str(&format!("  {}: {from} -> {to}\n", change.property));
            }
            block
        })
        .collect();
    blocks.sort();
    blocks.concat()
}
