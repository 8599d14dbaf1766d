//! Every type that writes below a path, in a directory whose owner placed a link on the path.

use std::os::unix::fs::{chown, lchown, symlink};

use serde_json::{Value, json};

use super::testing_root::Machine;
use crate::Status;

/// A user that is neither root nor the user who runs the tests.
const OTHER: u32 = 65534;

/// Creates a machine with a directory of another user, in which `way` leads to root's `/root-only`.
fn machine() -> Machine {
    let machine = Machine::new();
    let (home, victim) = (machine.path("/srv/home"), machine.path("/root-only"));
    for directory in [&home, &victim] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    chown(&home, Some(OTHER), Some(OTHER)).expect("tests run as root");
    let way = home.join("way");
    symlink(&victim, &way).expect("a link");
    lchown(&way, Some(OTHER), Some(OTHER)).expect("tests run as root");
    machine
}

fn archive(machine: &Machine) -> String {
    let (file, content) = (
        machine.beside().join("some.tar"),
        machine.beside().join("content"),
    );
    std::fs::create_dir_all(&content).expect("a directory");
    std::fs::write(content.join("file"), "content").expect("a file");
    let done = std::process::Command::new("tar")
        .arg("-cf")
        .arg(&file)
        .arg("-C")
        .arg(&content)
        .arg("file")
        .status();
    assert!(done.expect("tar runs").success());
    file.to_string_lossy().into_owned()
}

fn repository(machine: &Machine) -> String {
    let path = machine.beside().join("repository");
    let script = r#"git init -q -b main "$1" && cd "$1" && echo one >file && git add file &&
        git -c user.name=Test -c user.email=test@example.com commit -qm one"#;
    let done = std::process::Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(&path)
        .status();
    assert!(done.expect("sh runs").success());
    path.to_string_lossy().into_owned()
}

fn resource(kind: &str, title: &str, parameters: Value) -> Value {
    json!([{"type": kind, "title": title, "parameters": parameters}])
}

#[test]
fn no_type_writes_through_a_link_of_another_user() {
    let machine = machine();
    let (archive, repository) = (archive(&machine), repository(&machine));
    let cases = [
        resource("File", "/srv/home/way/file", json!({"content": "x"})),
        resource("File", "/srv/home/way/deep", json!({"ensure": "directory"})),
        resource("Archive", "/srv/home/way/new", json!({"source": archive})),
        resource("Archive", "/srv/home/way", json!({"source": archive})),
        resource("Git", "/srv/home/way/app", json!({"source": repository})),
        resource(
            "Git",
            "/srv/home/way/a/b/app",
            json!({"source": repository}),
        ),
        resource(
            "Host",
            "db",
            json!({"ip": "192.0.2.1", "target": "/srv/home/way/hosts"}),
        ),
        resource(
            "Sysctl",
            "kernel.panic",
            json!({"value": "1", "apply": false, "target": "/srv/home/way/sysctl.conf"}),
        ),
        resource(
            "Pkgrepo",
            "example",
            json!({"uris": "http://192.0.2.1/", "suites": "x", "components": "main",
                   "target": "/srv/home/way/example.sources", "refresh": false}),
        ),
        resource(
            "Service",
            "example",
            json!({"ensure": "running", "provider": "supervised", "command": "sleep 1000",
                   "pidfile": "/srv/home/way/run/pid", "log": "/srv/home/way/run/log"}),
        ),
    ];
    for case in cases {
        let summary = machine.run(case.clone(), false);
        let victim = std::fs::read_dir(machine.path("/root-only")).expect("it is there");
        let written: Vec<_> = victim.flatten().map(|entry| entry.file_name()).collect();
        assert!(written.is_empty(), "{case} wrote {written:?}");
        let statuses: Vec<Status> = (summary.finished.iter())
            .map(|one| one.outcome.status)
            .collect();
        assert_eq!(statuses, [Status::Failed], "{case}");
    }
}

#[test]
fn a_checkout_in_a_directory_of_another_user_is_cloned_by_root_into_the_directory_that_it_opened() {
    let machine = machine();
    let repository = repository(&machine);
    let desired = resource("Git", "/srv/home/app", json!({"source": repository}));
    machine.apply(desired);
    assert_eq!(machine.read("/srv/home/app/file"), "one\n");
}
