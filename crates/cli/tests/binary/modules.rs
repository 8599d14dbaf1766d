//! Extension modules from an author to a node, with a real server and a real agent: published,
//! named by an environment in git, pinned, fetched, verified on the node and applied. Also covers
//! every kind of refusal.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Running, ServerProcess, Site, all_output, bunraku, write_and_commit};

const STATES: &str = "port:
  ini_setting.present:
    - path: APP
    - section: main
    - value: '8150'
";

/// A server, a node with its own key, and an author.
struct World {
    site: Site,
    server: ServerProcess,
    _agent: Running,
}

impl World {
    fn new() -> Self {
        let site = Site::new();
        let server = site.server("server", 0, &[]);
        let keys = site.path("keys");
        std::fs::create_dir(&keys).expect("made");
        let flags = ["--module-keys", keys.to_str().expect("a path")];
        let agent = site.agent_with("web-1", &[&server], true, &flags);
        server.wait_for_facts("web-1");
        let world = Self {
            site,
            server,
            _agent: agent,
        };
        world.local(&["module", "keygen", "author", "--comment", "platform"]);
        let public = world.site.path("author.pub");
        std::fs::copy(public, keys.join("author.pub")).expect("copied");
        world
    }

    fn local(&self, arguments: &[&str]) -> String {
        let mut command = bunraku();
        let output = command
            .current_dir(self.site.path(""))
            .args(arguments)
            .output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", all_output(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Packs the example in this version, signed if a key is given.
    fn package(&self, version: &str, key: Option<&str>) -> PathBuf {
        let example =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/modules/ini_setting");
        let directory = self.site.path(&format!("ini_setting-{version}"));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("made");
        std::fs::copy(
            example.join("ini_setting.py"),
            directory.join("ini_setting.py"),
        )
        .expect("copied");
        let manifest = std::fs::read_to_string(example.join("module.json")).expect("a manifest");
        let manifest = manifest.replace("\"1.0.0\"", &format!("\"{version}\""));
        std::fs::write(directory.join("module.json"), manifest).expect("written");
        let package = format!("{version}.bunraku-module");
        let source = directory.to_str().expect("a path").to_owned();
        self.local(&["module", "pack", &source, "--output", &package]);
        if let Some(key) = key {
            self.local(&["module", "sign", &package, "--key", key]);
        }
        self.site.path(&package)
    }

    fn publish(&self, package: &Path) -> Output {
        let package = package.to_str().expect("a path");
        self.server.operator(&["module", "publish", package])
    }

    fn published(&self, package: &Path) {
        let output = self.publish(package);
        assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    }

    /// Commits the states and this `modules.yaml`.
    fn commit(&self, modules: &str) {
        let code = self.site.path("code");
        let app = self.app();
        let states = STATES.replace("APP", app.to_str().expect("a path"));
        let files = [
            ("top.sls", "base:\n  '*': [app]\n"),
            ("app.sls", &states),
            ("modules.yaml", modules),
        ];
        write_and_commit(&code, &files);
    }

    fn deploy(&self) -> Output {
        let server = &self.server;
        server.operator(&["environment", "deploy", "production", "--wait"])
    }

    /// Deploys and releases.
    fn release(&self, modules: &str) {
        self.commit(modules);
        let deployed = self.deploy();
        assert_eq!(deployed.status.code(), Some(0), "{}", all_output(&deployed));
        let released = self.server.operator(&["release", "create", "production"]);
        assert_eq!(released.status.code(), Some(0), "{}", all_output(&released));
        let shown = (self.server).operator(&["release", "show", "production", "--wait"]);
        assert_eq!(shown.status.code(), Some(0), "{}", all_output(&shown));
    }

    fn run(&self, flags: &[&str]) -> Output {
        let command = [&["node", "run", "web-1", "--wait"], flags].concat();
        self.server.operator(&command)
    }

    /// Checks that the run is refused with this reason, and that no part of the module has run.
    fn refused(&self, why: &str) {
        std::fs::write(self.app(), "[main]\nport = 1\n").expect("written");
        let output = self.run(&[]);
        assert_eq!(output.status.code(), Some(3), "{}", all_output(&output));
        let reports = self.server.json(&["report", "list"]);
        let message = reports[0]["finished"]["message"].as_str().unwrap_or("");
        assert!(message.contains(why), "{why}: {message}");
        assert_eq!(reports[0]["finished"]["ending"], "not_started");
        let text = std::fs::read_to_string(self.app()).expect("readable");
        assert_eq!(text, "[main]\nport = 1\n");
    }

    fn app(&self) -> PathBuf {
        self.site.path("app.ini")
    }
}

/// Returns the file below a directory whose content begins like this.
fn holding(directory: &Path, content: &[u8]) -> Option<PathBuf> {
    for entry in std::fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = holding(&path, content) {
                return Some(found);
            }
        } else if std::fs::read(&path).is_ok_and(|read| read.starts_with(content)) {
            return Some(path);
        }
    }
    None
}

#[test]
fn a_module_gets_from_its_author_to_a_node_and_what_must_not_run_is_refused() {
    let world = World::new();
    let server = &world.server;
    let first = world.package("1.0.0", Some("author"));

    // At first no one is trusted, and later only the signer.
    let refused = world.publish(&first);
    assert_eq!(refused.status.code(), Some(4), "{}", all_output(&refused));
    assert!(
        all_output(&refused).contains("is not trusted here"),
        "{}",
        all_output(&refused)
    );
    let public = world.site.path("author.pub");
    let trusted = server.operator(&["module", "trust", public.to_str().expect("a path")]);
    assert_eq!(trusted.status.code(), Some(0), "{}", all_output(&trusted));
    let unsigned = world.publish(&world.package("0.9.0", None));
    assert_eq!(unsigned.status.code(), Some(4), "{}", all_output(&unsigned));
    assert!(
        all_output(&unsigned).contains("it is not signed"),
        "{}",
        all_output(&unsigned)
    );
    let mut bytes = std::fs::read(&first).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(world.site.path("tampered"), bytes).expect("written");
    let tampered = world.publish(&world.site.path("tampered"));
    assert_eq!(tampered.status.code(), Some(4), "{}", all_output(&tampered));
    world.published(&first);
    world.published(&first);
    let listed = server.json(&["module", "list", "--published"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["version"], "1.0.0");

    // From the code to the machine; a second run changes nothing.
    let code = format!("file://{}", world.site.path("code").display());
    world.commit("ini_setting: 1.0.0\n");
    let added = server.operator(&["environment", "add", "production", &code]);
    assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
    world.release("ini_setting: 1.0.0\n");
    let noop = world.run(&["--noop"]);
    assert_eq!(noop.status.code(), Some(0), "{}", all_output(&noop));
    assert!(!world.app().exists(), "a noop run changes nothing");
    let ran = world.run(&[]);
    assert_eq!(ran.status.code(), Some(0), "{}", all_output(&ran));
    let text = std::fs::read_to_string(world.app()).expect("the module wrote it");
    assert!(text.contains("port = 8150"), "{text}");
    let again = world.run(&[]);
    assert_eq!(again.status.code(), Some(0), "{}", all_output(&again));
    let reports = server.json(&["report", "list"]);
    assert_eq!(reports[0]["finished"]["changed"], 0, "{}", reports[0]);
    assert_eq!(reports[0]["finished"]["unchanged"], 1, "{}", reports[0]);
    let catalog = reports[0]["started"]["catalog"].as_str().expect("an id");
    let shown = server.json(&["catalog", "show", catalog]);
    let pin = listed[0]["sha256"].as_str().expect("a hash");
    assert!(shown.to_string().contains(pin), "{shown}");

    // A newer version, then the older one again.
    let second = world.package("1.1.0", Some("author"));
    world.published(&second);
    world.release("ini_setting: 1.1.0\n");
    std::fs::write(world.app(), "[main]\nport = 2\n").expect("written");
    let ran = world.run(&[]);
    assert_eq!(ran.status.code(), Some(0), "{}", all_output(&ran));
    world.release("ini_setting: 1.0.0\n");
    world.refused("`ini_setting` 1.0.0 is older than 1.1.0, which was used before");
    let removed = server.operator(&["module", "remove", "ini_setting", "1.0.0"]);
    assert_eq!(removed.status.code(), Some(0), "{}", all_output(&removed));
    let older = world.publish(&first);
    assert_eq!(older.status.code(), Some(4), "{}", all_output(&older));
    assert!(
        all_output(&older).contains("is older than 1.1.0"),
        "{}",
        all_output(&older)
    );
    world.release("ini_setting: 1.1.0\n");
    assert_eq!(world.run(&[]).status.code(), Some(0));

    // Damaged in the node's cache: fetched again.
    let package = std::fs::read(&second).expect("readable");
    let cached = holding(&world.site.path("web-1"), &package).expect("in the cache");
    let mut damaged = package.clone();
    damaged[middle] ^= 1;
    std::fs::write(&cached, &damaged).expect("written");
    assert_eq!(world.run(&[]).status.code(), Some(0));
    assert_eq!(std::fs::read(&cached).expect("readable"), package);

    // The key is revoked on the server: the node stops, and compiling stops too.
    let key = listed[0]["signed_by"].as_str().expect("a fingerprint");
    let revoked = server.operator(&["module", "revoke", key, "--reason", "laptop stolen"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", all_output(&revoked));
    world.refused(&format!("it is signed by {key}, which was revoked"));
    world.commit("ini_setting: 1.1.0\n# again\n");
    let deployed = world.deploy();
    assert_ne!(deployed.status.code(), Some(0), "{}", all_output(&deployed));
    assert!(
        all_output(&deployed).contains("was revoked"),
        "{}",
        all_output(&deployed)
    );
    // Damaged on the server too: refused.
    std::fs::write(&cached, &damaged).expect("written");
    let blobs = world.site.path("server").join("blobs");
    let blob = holding(&blobs, &package).expect("among the blobs");
    let mut bytes = std::fs::read(&blob).expect("readable");
    bytes[middle] ^= 1;
    std::fs::write(&blob, &bytes).expect("written");
    world.refused("the module `ini_setting` is not on this node");

    let log = server.operator(&["module", "log"]);
    for word in [
        "trusted",
        "refused",
        "published",
        "removed",
        "revoked",
        "laptop stolen",
    ] {
        assert!(
            all_output(&log).contains(word),
            "{word}: {}",
            all_output(&log)
        );
    }
}

#[test]
fn environments_take_modules_from_an_address_from_git_and_from_themselves() {
    let world = World::new();
    let server = &world.server;
    let public = world.site.path("author.pub");
    let trusted = server.operator(&["module", "trust", public.to_str().expect("a path")]);
    assert_eq!(trusted.status.code(), Some(0), "{}", all_output(&trusted));
    let first = world.package("1.0.0", Some("author"));
    let told_hash = world.local(&[
        "module",
        "verify",
        "1.0.0.bunraku-module",
        "--module-keys",
        "keys",
        "--json",
    ]);
    let described: serde_json::Value = serde_json::from_str(&told_hash).expect("JSON");
    let hash = described["sha256"].as_str().expect("a hash");
    let code = format!("file://{}", world.site.path("code").display());
    let url = format!("file://{}", first.display());
    let wrong = format!(
        "ini_setting:\n  version: 1.0.0\n  url: {url}\n  sha256: {}\n",
        "ab".repeat(32)
    );
    world.commit(&wrong);
    let added = server.operator(&["environment", "add", "production", &code]);
    assert_eq!(added.status.code(), Some(0), "{}", all_output(&added));
    let deployed = world.deploy();
    assert_eq!(deployed.status.code(), Some(1), "{}", all_output(&deployed));
    let said = all_output(&deployed);
    assert!(
        said.contains("modules.yaml:1:1: the module `ini_setting` 1.0.0"),
        "{said}"
    );
    assert!(said.contains(&format!("its hash is {hash}")), "{said}");
    world.release(&wrong.replace(&"ab".repeat(32), hash));
    let ran = world.run(&[]);
    assert_eq!(ran.status.code(), Some(0), "{}", all_output(&ran));

    // A package in the code itself, signed by an untrusted key.
    world.local(&["module", "keygen", "stranger"]);
    let strange = world.package("1.2.0", Some("stranger"));
    std::fs::copy(&strange, world.site.path("code/x.bunraku-module")).expect("copied");
    world.commit("ini_setting: {version: 1.2.0, path: x.bunraku-module}\n");
    let deployed = world.deploy();
    assert_eq!(deployed.status.code(), Some(1), "{}", all_output(&deployed));
    assert!(
        all_output(&deployed).contains("which is not trusted here"),
        "{}",
        all_output(&deployed)
    );

    // In git at a commit: here, the commit of the code itself.
    let good = world.package("1.3.0", Some("author"));
    std::fs::copy(&good, world.site.path("code/x.bunraku-module")).expect("copied");
    world.commit("ini_setting: {version: 1.3.0, path: x.bunraku-module}\n");
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(world.site.path("code"))
        .output()
        .expect("git runs");
    let commit = String::from_utf8(output.stdout).expect("text");
    std::fs::remove_file(world.site.path("code/x.bunraku-module")).expect("removed");
    world.release(&format!(
        "ini_setting:\n  version: 1.3.0\n  git: {code}\n  commit: {}\n  path: x.bunraku-module\n",
        commit.trim()
    ));
    std::fs::remove_file(world.app()).expect("removed");
    let ran = world.run(&[]);
    assert_eq!(ran.status.code(), Some(0), "{}", all_output(&ran));
    assert!(world.app().exists());
}
