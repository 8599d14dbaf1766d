//! Checkouts: decisions, and real repositories.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::types::package::test_repository::{needs, run};
use crate::types::testing_root::Machine;

struct Origin(PathBuf);

impl Origin {
    fn new(machine: &Machine) -> Self {
        needs(&["git"]);
        let origin = Self(machine.beside().join("origin"));
        run(Command::new("git")
            .args(["init", "-q", "-b", "main"])
            .arg(&origin.0));
        origin.commit("one");
        origin
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(&self.0, arguments)
    }

    fn commit(&self, content: &str) -> String {
        std::fs::write(self.0.join("file"), content).unwrap();
        self.git(&["add", "file"]);
        self.git(&["commit", "-q", "-m", content]);
        self.git(&["rev-parse", "HEAD"])
    }
}

fn git(place: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(place).args([
        "-c",
        "user.name=Test",
        "-c",
        "user.email=test@example.com",
    ]);
    run(command.args(arguments)).trim().to_owned()
}

fn desired(origin: &Origin, more: Value) -> Value {
    let mut parameters = json!({"source": origin.0.to_string_lossy()});
    parameters
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([{"type": "Git", "title": "/srv/app", "parameters": parameters}])
}

#[test]
fn a_checkout_follows_its_branch_when_it_shall_be_the_latest() {
    let machine = Machine::new();
    let origin = Origin::new(&machine);
    let latest = desired(&origin, json!({"ensure": "latest", "revision": "main"}));
    machine.converges(latest.clone());
    assert_eq!(machine.read("/srv/app/file"), "one");
    let new = origin.commit("two");
    let transcript = machine.converges(latest);
    assert!(transcript.contains(&format!("-> {new}")), "{transcript}");
    assert_eq!(machine.read("/srv/app/file"), "two");
    assert_eq!(
        git(&machine.path("/srv/app"), &["branch", "--show-current"]),
        "main"
    );
    assert_eq!(
        std::fs::read_dir(machine.path("/srv")).unwrap().count(),
        1,
        "nothing stays beside it"
    );
}

#[test]
fn a_tag_or_a_commit_is_fetched_when_it_is_not_known_and_then_stays() {
    let machine = Machine::new();
    let origin = Origin::new(&machine);
    let first = origin.git(&["rev-parse", "HEAD"]);
    machine.converges(desired(&origin, json!({})));
    origin.commit("two");
    origin.git(&["tag", "-a", "-m", "release", "v2"]);
    machine.converges(desired(&origin, json!({"revision": "v2"})));
    assert_eq!(machine.read("/srv/app/file"), "two");
    machine.converges(desired(&origin, json!({"revision": first})));
    assert_eq!(machine.read("/srv/app/file"), "one");
    machine.converges(desired(
        &origin,
        json!({"ensure": "latest", "revision": "v2"}),
    ));
    let transcript = machine.apply(desired(&origin, json!({"revision": "nonesuch"})));
    assert!(transcript.contains("has no `nonesuch`"), "{transcript}");
}

#[test]
fn changes_and_commits_of_its_own_are_lost_only_by_force() {
    let machine = Machine::new();
    let origin = Origin::new(&machine);
    let latest = |force: bool| {
        desired(
            &origin,
            json!({"ensure": "latest", "revision": "main", "force": force}),
        )
    };
    machine.converges(latest(false));
    origin.commit("two");
    machine.write("/srv/app/file", "mine");
    let transcript = machine.apply(latest(false));
    assert!(transcript.contains("has local changes"), "{transcript}");
    git(
        &machine.path("/srv/app"),
        &["commit", "-q", "-a", "-m", "mine"],
    );
    let transcript = machine.apply(latest(false));
    assert!(transcript.contains("has local commits"), "{transcript}");
    assert_eq!(machine.read("/srv/app/file"), "mine");
    machine.converges(latest(true));
    assert_eq!(machine.read("/srv/app/file"), "two");
    machine.write("/srv/app/file", "drift");
    machine.converges(latest(true));
    assert_eq!(machine.read("/srv/app/file"), "two");
}

#[test]
fn a_path_that_is_not_a_checkout_is_replaced_only_by_force() {
    let machine = Machine::new();
    let origin = Origin::new(&machine);
    machine.write("/srv/app/precious", "x");
    let transcript = machine.apply(desired(&origin, json!({})));
    assert!(transcript.contains("is not a checkout"), "{transcript}");
    assert_eq!(machine.read("/srv/app/precious"), "x");
    machine.converges(desired(&origin, json!({"force": true})));
    machine.converges(desired(&origin, json!({"ensure": "absent"})));
    assert!(!machine.path("/srv/app").exists());
}

#[test]
fn a_source_that_fails_leaves_nothing_and_shows_no_password() {
    let machine = Machine::new();
    needs(&["git"]);
    let transcript = machine.apply(json!([{"type": "Git", "title": "/srv/app", "parameters": {
        "source": "http://ada:hunter2@127.0.0.1:9/x.git"}}]));
    assert!(transcript.contains("git clone failed"), "{transcript}");
    assert!(!transcript.contains("hunter2"), "{transcript}");
    assert_eq!(std::fs::read_dir(machine.path("/srv")).unwrap().count(), 0);
}

#[test]
fn what_git_could_take_for_an_option_is_refused() {
    for parameters in [
        json!({"source": "--upload-pack=touch /x"}),
        json!({"source": "ext::sh -c evil"}),
        json!({"source": "/x", "revision": "--orphan"}),
    ] {
        let catalog = crate::types::testing::catalog(
            json!([{"type": "Git", "title": "/x", "parameters": parameters}]),
        );
        let plan = crate::CatalogPlan::new(
            &catalog,
            &crate::Registry::standard(),
            crate::PlanOptions::default(),
        );
        assert!(plan.is_err(), "{parameters}");
    }
}
