//! Extension modules through the binary: from a key to a changed machine, with the example modules
//! in Python and Rust, and every kind of refusal.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Keys, packages, and a separate machine.
struct World {
    directory: tempfile::TempDir,
}

impl World {
    /// Creates a world with a key that the machine trusts.
    fn new() -> Self {
        let world = Self {
            directory: tempfile::tempdir().expect("a directory"),
        };
        std::fs::create_dir(world.path("trusted")).expect("made");
        std::fs::create_dir(world.path("etc")).expect("made");
        world.keygen("author");
        world.trust("author");
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bunraku"))
            .args(arguments)
            .current_dir(self.directory.path())
            .env("BUNRAKU_STATE_DIR", self.path("state"))
            .env("BUNRAKU_MODULE_KEYS", self.path("trusted"))
            .output()
            .expect("bunraku runs")
    }

    fn run_successfully(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {printed}{error}"
        );
        printed
    }

    /// Runs a command that must be refused. Checks the exit code and returns the error.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {error}");
        error
    }

    fn keygen(&self, name: &str) -> String {
        let printed = self.run_successfully(&["module", "keygen", name, "--comment", "somebody"]);
        printed.trim().to_owned()
    }

    fn trust(&self, name: &str) {
        let public = format!("{name}.pub");
        std::fs::copy(self.path(&public), self.path("trusted").join(&public)).expect("copied");
    }

    fn pack(&self, directory: &Path, output: &str) {
        let directory = directory.to_str().expect("a path");
        self.run_successfully(&["module", "pack", directory, "--output", output]);
    }

    fn signed(&self, directory: &Path, output: &str) {
        self.pack(directory, output);
        self.run_successfully(&["module", "sign", output, "--key", "author"]);
    }

    fn catalog(&self, resources: Value) -> &'static str {
        let catalog = json!({"name": "test", "resources": resources});
        std::fs::write(self.path("catalog.json"), catalog.to_string()).expect("written");
        "catalog.json"
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect(name)
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/modules")
}

/// Returns the example in Rust, built, beside its manifest.
fn rust_example(world: &World) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "-p", "bunraku-example-module"])
        .arg("--message-format=json")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{error}");
    let text = String::from_utf8_lossy(&built.stdout);
    let program = text.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(message["executable"].as_str()?.to_owned())
    });
    let directory = world.path("rust");
    std::fs::create_dir(&directory).expect("made");
    std::fs::copy(
        program.expect("a program"),
        directory.join("environment_variable"),
    )
    .expect("copied");
    let manifest = examples().join("environment_variable/module.json");
    std::fs::copy(manifest, directory.join("module.json")).expect("copied");
    directory
}

/// Creates a module that leaves a witness file when any part of it runs.
fn witness(world: &World, version: &str) -> PathBuf {
    let directory = world.path(&format!("witness-{version}"));
    std::fs::create_dir_all(&directory).expect("made");
    let manifest = json!({
        "name": "witness", "version": version, "protocol": 1, "command": ["run"],
        "types": [{"name": "witness", "properties": [{"name": "value"}]}],
    });
    std::fs::write(directory.join("module.json"), manifest.to_string()).expect("written");
    let program = format!("#!/bin/sh\ntouch '{}'\n", world.path("it-ran").display());
    let path = directory.join("run");
    std::fs::write(&path, program).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("executable");
    directory
}

fn uses_witness(world: &World) -> &'static str {
    world.catalog(json!([{"type": "witness", "title": "x", "parameters": {"value": 1}}]))
}

#[test]
fn the_example_in_python_is_packed_signed_installed_and_applies_a_catalog() {
    let world = World::new();
    world.signed(&examples().join("ini_setting"), "ini.bunraku-module");
    let printed = world.run_successfully(&["module", "verify", "ini.bunraku-module"]);
    assert!(
        printed.starts_with("verified ini_setting 1.0.0\n"),
        "{printed}"
    );
    world.run_successfully(&["module", "install", "ini.bunraku-module"]);
    let list = world.run_successfully(&["module", "list"]);
    assert!(
        list.contains("ini_setting") && list.contains("verified"),
        "{list}"
    );
    let path = world.path("etc/app.ini");
    std::fs::write(&path, "; kept\n[main]\nport = 1\n\n[other]\nport = 5\n").expect("written");
    let setting = |title: &str, value: Value| {
        json!({"type": "Ini_setting", "title": title,
               "parameters": {"path": path, "section": "main", "setting": title, "value": value}})
    };
    let catalog = world.catalog(json!([
        setting("port", json!(8150)),
        setting("host", json!("::1"))
    ]));

    let noop = world.run(&["apply", catalog, "--noop", "--detailed-exitcodes"]);
    assert_eq!(noop.status.code(), Some(2));
    assert!(world.read("etc/app.ini").contains("port = 1\n"));

    let printed = world.run_successfully(&["apply", catalog]);
    assert!(
        printed.contains("value: 1 → 8150") && printed.contains("2 changed"),
        "{printed}"
    );
    assert_eq!(
        world.read("etc/app.ini"),
        "; kept\n[main]\nport = 8150\nhost = ::1\n\n[other]\nport = 5\n"
    );
    let again = world.run(&["apply", catalog, "--detailed-exitcodes"]);
    assert_eq!(again.status.code(), Some(0));
    let running = std::fs::read_dir(world.path("state/modules/running")).expect("a directory");
    assert_eq!(running.count(), 0, "nothing is left behind");
}

#[test]
fn the_example_in_rust_is_used_from_a_state_file_beside_others() {
    let world = World::new();
    let directory = rust_example(&world);
    std::fs::create_dir(world.path("modules")).expect("made");
    world.signed(&directory, "modules/environment.bunraku-module");
    let target = world.path("etc/environment");
    let states = format!(
        "editor:\n  environment_variable.present:\n    - name: EDITOR\n    - value: vi\n    - target: {0}\n    - register: made\n\
         pager:\n  environment_variable.absent:\n    - name: PAGER\n    - target: {0}\n    - require:\n      - environment_variable: editor\n\
         told:\n  file.managed:\n    - name: {1}\n    - contents: \"${{ made.comment }}\"\n",
        target.display(),
        world.path("told").display()
    );
    std::fs::write(world.path("case.sls"), states).expect("written");
    std::fs::write(&target, "PAGER=less\nLANG=C\n").expect("written");
    let apply = ["apply", "case.sls", "--module-dir", "modules"];
    world.run_successfully(&apply);
    assert_eq!(world.read("etc/environment"), "LANG=C\nEDITOR=vi\n");
    assert!(
        world.read("told").starts_with("wrote "),
        "{}",
        world.read("told")
    );
    // The file contains the result of the last change, so it changes once more.
    let shown = world.run_successfully(&["states", "show", "case.sls", "--module-dir", "modules"]);
    assert!(shown.contains("environment_variable.present"), "{shown}");
    let misspelt = "x:\n  environment_variable.presnt:\n    - name: EDITOR\n";
    std::fs::write(world.path("wrong.sls"), misspelt).expect("written");
    let output = world.run(&["apply", "wrong.sls", "--module-dir", "modules"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0));
    assert!(error.contains("`environment_variable.present`"), "{error}");
}

#[test]
fn what_is_not_signed_by_a_trusted_key_is_refused_and_nothing_of_it_runs() {
    let world = World::new();
    std::fs::create_dir(world.path("modules")).expect("made");
    let catalog = uses_witness(&world);
    let package = "modules/witness.bunraku-module";
    let apply = ["apply", catalog, "--module-dir", "modules"];
    let refused = |why: &str| {
        for arguments in [
            apply.as_slice(),
            &["module", "install", package],
            &["module", "verify", package],
        ] {
            let error = world.refused(arguments);
            assert!(error.contains(why), "{arguments:?}: {error}");
        }
        assert!(!world.path("it-ran").exists(), "{why}");
        assert!(!world.path("state/modules/installed").exists(), "{why}");
    };
    world.pack(&witness(&world, "1.0.0"), package);
    refused("it is not signed");

    world.keygen("stranger");
    world.run_successfully(&["module", "sign", package, "--key", "stranger"]);
    refused("which is not trusted here");

    world.pack(&witness(&world, "1.0.0"), package);
    world.run_successfully(&["module", "sign", package, "--key", "author"]);
    let mut bytes = std::fs::read(world.path(package)).expect("a package");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(world.path(package), bytes).expect("written");
    refused("is refused");

    let leaked = world.keygen("leaked");
    world.trust("leaked");
    world.pack(&witness(&world, "1.0.0"), package);
    world.run_successfully(&["module", "sign", package, "--key", "leaked"]);
    world.run_successfully(&["module", "verify", package]);
    std::fs::write(world.path("trusted/revoked"), format!("{leaked} lost\n")).expect("written");
    refused("which was revoked");
}

#[test]
fn an_older_version_is_refused_once_a_newer_one_was_here() {
    let world = World::new();
    world.signed(&witness(&world, "1.0.0"), "old.bunraku-module");
    world.signed(&witness(&world, "1.1.0"), "new.bunraku-module");
    world.run_successfully(&["module", "install", "new.bunraku-module"]);
    let error = world.refused(&["module", "install", "old.bunraku-module"]);
    assert!(
        error.contains("`witness` 1.0.0 is older than 1.1.0"),
        "{error}"
    );
    std::fs::create_dir(world.path("modules")).expect("made");
    std::fs::rename(
        world.path("old.bunraku-module"),
        world.path("modules/x.bunraku-module"),
    )
    .expect("moved");
    let catalog = uses_witness(&world);
    let error = world.refused(&["apply", catalog, "--module-dir", "modules"]);
    assert!(error.contains("is older than"), "{error}");
    assert!(!world.path("it-ran").exists());
}

#[test]
fn a_catalog_gets_the_very_module_that_it_pins() {
    let world = World::new();
    world.signed(&witness(&world, "1.0.0"), "witness.bunraku-module");
    world.run_successfully(&["module", "install", "witness.bunraku-module"]);
    let pinned = |modules: Value| {
        let resources = json!([{"type": "witness", "title": "x", "parameters": {"value": 1}}]);
        let catalog = json!({"name": "test", "resources": resources, "modules": modules});
        std::fs::write(world.path("pinned.json"), catalog.to_string()).expect("written");
        world.refused(&["apply", "pinned.json"])
    };
    let error = pinned(json!({"witness": "0".repeat(64)}));
    assert!(
        error.contains("differs from the one that the catalog was compiled with"),
        "{error}"
    );
    let error = pinned(json!({}));
    assert!(error.contains("which it does not pin"), "{error}");
    let error = pinned(json!({"witness": "0".repeat(64), "other": "0".repeat(64)}));
    assert!(!error.is_empty());
    assert!(!world.path("it-ran").exists());
}

#[test]
fn a_machine_with_a_refused_module_still_applies_what_needs_none() {
    let world = World::new();
    world.signed(&witness(&world, "1.0.0"), "witness.bunraku-module");
    world.run_successfully(&["module", "install", "witness.bunraku-module"]);
    std::fs::remove_file(world.path("trusted/author.pub")).expect("removed");
    let plain = world.catalog(json!([{"type": "Notify", "title": "hello", "parameters": {}}]));
    world.run_successfully(&["apply", plain]);
    let catalog = uses_witness(&world);
    let error = world.refused(&["apply", catalog]);
    assert!(error.contains("which is not trusted here"), "{error}");
    let list = world.refused(&["module", "list"]);
    assert!(list.is_empty(), "the table says it: {list}");
}

#[test]
fn a_key_is_never_written_over_and_a_private_one_is_private() {
    let world = World::new();
    let output = world.run(&["module", "keygen", "author"]);
    assert_eq!(output.status.code(), Some(1));
    let metadata = std::fs::metadata(world.path("author")).expect("a key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_link_is_not_packed() {
    let world = World::new();
    let directory = witness(&world, "1.0.0");
    std::os::unix::fs::symlink("/etc/shadow", directory.join("words")).expect("made");
    let directory = directory.to_str().expect("a path");
    let output = world.run(&["module", "pack", directory]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("is not a regular file"), "{error}");
}
