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

fn wish(origin: &Origin, more: Value) -> Value {
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
    let latest = wish(&origin, json!({"ensure": "latest", "revision": "main"}));
    machine.converges(latest.clone());
    assert_eq!(machine.read("/srv/app/file"), "one");
    let new = origin.commit("two");
    let told = machine.converges(latest);
    assert!(told.contains(&format!("-> {new}")), "{told}");
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
    machine.converges(wish(&origin, json!({})));
    origin.commit("two");
    origin.git(&["tag", "-a", "-m", "release", "v2"]);
    machine.converges(wish(&origin, json!({"revision": "v2"})));
    assert_eq!(machine.read("/srv/app/file"), "two");
    machine.converges(wish(&origin, json!({"revision": first})));
    assert_eq!(machine.read("/srv/app/file"), "one");
    machine.converges(wish(&origin, json!({"ensure": "latest", "revision": "v2"})));
    let told = machine.apply(wish(&origin, json!({"revision": "nonesuch"})));
    assert!(told.contains("has no `nonesuch`"), "{told}");
}

#[test]
fn changes_and_commits_of_its_own_are_lost_only_by_force() {
    let machine = Machine::new();
    let origin = Origin::new(&machine);
    let latest = |force: bool| {
        wish(
            &origin,
            json!({"ensure": "latest", "revision": "main", "force": force}),
        )
    };
    machine.converges(latest(false));
    origin.commit("two");
    machine.write("/srv/app/file", "mine");
    let told = machine.apply(latest(false));
    assert!(told.contains("has changes of its own"), "{told}");
    git(
        &machine.path("/srv/app"),
        &["commit", "-q", "-a", "-m", "mine"],
    );
    let told = machine.apply(latest(false));
    assert!(told.contains("has commits of its own"), "{told}");
    assert_eq!(machine.read("/srv/app/file"), "mine");
    machine.converges(latest(true));
    assert_eq!(machine.read("/srv/app/file"), "two");
    machine.write("/srv/app/file", "drift");
    machine.converges(latest(true));
    assert_eq!(machine.read("/srv/app/file"), "two");
}

#[test]
fn what_is_no_checkout_is_replaced_only_by_force() {
    let machine = Machine::new();
    let origin = Origin::new(&machine);
    machine.write("/srv/app/precious", "x");
    let told = machine.apply(wish(&origin, json!({})));
    assert!(
        told.contains("holds something that is no checkout"),
        "{told}"
    );
    assert_eq!(machine.read("/srv/app/precious"), "x");
    machine.converges(wish(&origin, json!({"force": true})));
    machine.converges(wish(&origin, json!({"ensure": "absent"})));
    assert!(!machine.path("/srv/app").exists());
}

#[test]
fn a_source_that_fails_leaves_nothing_and_tells_no_password() {
    let machine = Machine::new();
    needs(&["git"]);
    let told = machine.apply(json!([{"type": "Git", "title": "/srv/app", "parameters": {
        "source": "http://ada:hunter2@127.0.0.1:9/x.git"}}]));
    assert!(told.contains("git clone failed"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
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
        let plan = crate::Plan::new(
            &catalog,
            &crate::Registry::standard(),
            crate::PlanOptions::default(),
        );
        assert!(plan.is_err(), "{parameters}");
    }
}
