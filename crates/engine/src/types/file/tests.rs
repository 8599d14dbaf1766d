//! Real files, in a directory of the test.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::types::testing::{apply, lines, noop};
use crate::{ResourceOutcome, Status, Summary};

/// A directory for files and one for the engine's state.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(root.path("")).expect("a directory");
        root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("files").join(name)
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn resource(&self, name: &str, parameters: Value) -> Value {
        json!({"type": "File", "title": self.path(name), "parameters": parameters})
    }

    fn apply(&self, resources: Value) -> Summary {
        apply(&self.state(), resources)
    }

    /// Applies one file. If that succeeds, a second run must change nothing.
    fn file(&self, name: &str, parameters: Value) -> ResourceOutcome {
        let resource = self.resource(name, parameters);
        let outcome = self.apply(json!([resource])).finished[0].outcome.clone();
        if outcome.status != Status::Failed {
            let again = self.apply(json!([resource]));
            assert_eq!(
                again.finished[0].outcome.status,
                Status::Unchanged,
                "{:?}",
                again.finished[0].outcome
            );
        }
        outcome
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }

    fn mode(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.path(name))
            .expect("something")
            .permissions()
            .mode()
            & 0o7777
    }

    /// Returns the names in a directory, sorted.
    fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }
}

fn properties(outcome: &ResourceOutcome) -> Vec<&str> {
    outcome
        .changes
        .iter()
        .map(|change| change.property.as_str())
        .collect()
}

fn failure(outcome: &ResourceOutcome) -> &str {
    assert_eq!(outcome.status, Status::Failed);
    outcome.message.as_deref().expect("a reason")
}

#[test]
fn a_file_gets_its_content_mode_and_owner() {
    let root = Root::new();
    let outcome = root.file(
        "a",
        json!({"content": "one\n", "mode": "0640", "owner": "daemon", "group": "sys"}),
    );
    assert_eq!(properties(&outcome), ["ensure"]);
    assert_eq!((root.text("a").as_str(), root.mode("a")), ("one\n", 0o640));
    let metadata = fs::metadata(root.path("a")).expect("a file");
    assert_eq!((metadata.uid(), metadata.gid()), (1, 3));

    let outcome = root.file(
        "a",
        json!({"content": "two\n", "mode": "u=rw,go=r", "show_diff": true}),
    );
    assert_eq!(properties(&outcome), ["content", "mode"]);
    assert_eq!(
        outcome.changes[0].diff.as_deref(),
        Some("@@ -1 +1 @@\n-one\n+two\n")
    );
    let metadata = fs::metadata(root.path("a")).expect("a file");
    assert_eq!(
        (metadata.uid(), metadata.gid(), root.mode("a")),
        (1, 3, 0o644),
        "what is not declared stays"
    );
    assert_eq!(root.names(""), ["a"], "nothing is left behind");
}

#[test]
fn content_that_is_not_text_lands_as_it_is() {
    let root = Root::new();
    let outcome = root.file(
        "a",
        json!({"content": {"__ptype": "Binary", "__pvalue": "AP+A/g=="}}),
    );
    assert_eq!(outcome.status, Status::Changed);
    assert_eq!(
        fs::read(root.path("a")).expect("a file"),
        [0, 255, 128, 254]
    );
    assert_eq!(outcome.changes[0].diff, None);
}

#[test]
fn names_that_are_not_text_are_copied_and_purged() {
    let root = Root::new();
    let odd = std::ffi::OsStr::from_bytes(b"odd-\xff-name");
    fs::create_dir(root.path("source")).expect("a directory");
    fs::write(root.path("source/plain"), "x").expect("a file");
    fs::create_dir(root.path("target")).expect("a directory");
    fs::write(root.path("target").join(odd), "x").expect("a file");
    let outcome = root.file("target", json!({"ensure": "directory", "recurse": true, "purge": true, "source": root.path("source")}));
    assert_eq!(outcome.status, Status::Changed, "{:?}", outcome.message);
    assert_eq!(root.names("target"), ["plain"]);
    let kept = crate::backups(&root.state(), None).expect("backups");
    assert_eq!(kept[0].real_path(), root.path("target").join(odd));
}

#[test]
fn nothing_is_done_to_what_does_not_exist_and_has_no_content() {
    let root = Root::new();
    assert_eq!(
        root.file("a", json!({"mode": "0600"})).status,
        Status::Unchanged
    );
    assert!(!root.path("a").exists());
    assert_eq!(
        root.file("a", json!({"ensure": "present"})).status,
        Status::Changed
    );
    assert_eq!(root.text("a"), "");
}

#[test]
fn replace_false_leaves_an_existing_content_alone() {
    let root = Root::new();
    fs::write(root.path("a"), "mine").expect("a file");
    assert_eq!(
        root.file("a", json!({"content": "theirs", "replace": false}))
            .status,
        Status::Unchanged
    );
    assert_eq!(
        root.file("b", json!({"content": "theirs", "replace": false}))
            .status,
        Status::Changed
    );
    assert_eq!(
        (root.text("a").as_str(), root.text("b").as_str()),
        ("mine", "theirs")
    );
}

#[test]
fn a_directory_gets_its_mode_with_the_search_bit_as_in_puppet() {
    let root = Root::new();
    assert_eq!(
        root.file("d", json!({"ensure": "directory", "mode": "0640"}))
            .status,
        Status::Changed
    );
    assert_eq!(root.mode("d"), 0o750);
    assert_eq!(
        root.file("x/y/z", json!({"ensure": "directory", "makedirs": true}))
            .status,
        Status::Changed
    );
    assert!(root.path("x/y/z").is_dir());
    let outcome = root.file("no/such", json!({"content": ""}));
    assert!(
        failure(&outcome).ends_with("files/no does not exist"),
        "{outcome:?}"
    );
}

#[test]
fn a_link_is_made_and_moved_and_takes_the_place_of_a_file() {
    let root = Root::new();
    fs::write(root.path("a"), "x").expect("a file");
    assert_eq!(
        root.file("a", json!({"ensure": "link", "target": "b"}))
            .status,
        Status::Changed
    );
    assert_eq!(
        properties(&root.file("a", json!({"ensure": "link", "target": "/c"}))),
        ["target"]
    );
    assert_eq!(
        fs::read_link(root.path("a")).expect("a link"),
        Path::new("/c")
    );
    assert_eq!(
        properties(&root.file("a", json!({"ensure": "file", "content": "back"}))),
        ["ensure"]
    );
    assert_eq!(root.text("a"), "back");
}

#[test]
fn a_link_as_the_last_part_is_replaced_or_followed_as_declared() {
    let root = Root::new();
    fs::write(root.path("real"), "x").expect("a file");
    symlink("real", root.path("followed")).expect("a link");
    assert_eq!(
        root.file("followed", json!({"content": "new", "links": "follow"}))
            .status,
        Status::Changed
    );
    assert_eq!(root.text("real"), "new");
    assert!(root.path("followed").is_symlink());
}

#[test]
fn absent_removes_files_and_links_and_directories_only_with_force() {
    let root = Root::new();
    fs::write(root.path("a"), "x").expect("a file");
    fs::create_dir(root.path("d")).expect("a directory");
    fs::write(root.path("d/inside"), "x").expect("a file");
    symlink("d", root.path("l")).expect("a link");
    assert_eq!(
        root.file("a", json!({"ensure": "absent"})).status,
        Status::Changed
    );
    assert_eq!(
        root.file("l", json!({"ensure": "absent"})).status,
        Status::Changed
    );
    assert!(
        root.path("d/inside").exists(),
        "the link went, not what it led to"
    );
    let outcome = root.file("d", json!({"ensure": "absent"}));
    assert!(failure(&outcome).contains("set `force` to remove it"));
    assert_eq!(
        root.file("d", json!({"ensure": "absent", "force": true}))
            .status,
        Status::Changed
    );
    assert_eq!(
        root.file("gone/deeper", json!({"ensure": "absent"})).status,
        Status::Unchanged
    );
    assert_eq!(root.names(""), Vec::<String>::new());
}

#[test]
fn a_tree_is_copied_owned_and_purged_but_for_what_others_manage() {
    let root = Root::new();
    fs::create_dir_all(root.path("source/sub/empty")).expect("directories");
    fs::write(root.path("source/one"), "1").expect("a file");
    fs::write(root.path("source/sub/two"), "2").expect("a file");
    fs::write(root.path("source/skip.bak"), "x").expect("a file");
    fs::create_dir_all(root.path("target/old/deep")).expect("directories");
    fs::write(root.path("target/old/deep/x"), "x").expect("a file");
    fs::create_dir_all(root.path("target/kept")).expect("directories");
    fs::write(root.path("target/kept/other"), "x").expect("a file");
    let resources = json!([
        root.resource("target", json!({"ensure": "directory", "recurse": true, "purge": true, "force": true, "source": root.path("source"),
                                       "mode": "0640", "ignore": ["*.bak"]})),
        root.resource("target/kept/mine", json!({"content": "declared", "mode": "0600"})),
    ]);
    let summary = root.apply(resources.clone());
    assert!(summary.succeeded(), "{}", lines(&summary));
    assert_eq!(root.names("target"), ["kept", "one", "sub"]);
    assert_eq!(root.names("target/kept"), ["mine"]);
    assert_eq!(
        (
            root.mode("target/sub"),
            root.mode("target/one"),
            root.mode("target/kept/mine")
        ),
        (0o750, 0o640, 0o600)
    );
    assert!(root.path("target/sub/empty").is_dir());
    let again = root.apply(resources);
    assert!(!again.changed(), "{}", lines(&again));
}

#[test]
fn parts_of_a_file_are_edited() {
    let root = Root::new();
    fs::write(root.path("a"), "size = 1\n").expect("a file");
    let outcome = root.file(
        "a",
        json!({"line": "size = 2", "line_match": "^size", "append": ["end"],
                                        "block": "x", "block_start": "# <", "block_end": "# >"}),
    );
    assert_eq!(properties(&outcome), ["content"]);
    assert_eq!(root.text("a"), "size = 2\n# <\nx\n# >\nend\n");
    assert_eq!(
        root.file("b", json!({"append": ["x"], "create": false}))
            .status,
        Status::Unchanged
    );
    assert!(!root.path("b").exists());
}

#[test]
fn a_template_is_filled_in() {
    let root = Root::new();
    root.file("a", json!({"content": "{% for x in list %}{{ x }};{% endfor %}\n", "template": "jinja", "context": {"list": [1, 2]}}));
    assert_eq!(root.text("a"), "1;2;\n");
    let outcome = root.file(
        "a",
        json!({"content": "{{ nothing }}", "template": "jinja"}),
    );
    assert!(
        failure(&outcome).contains("the template failed at line 1"),
        "{outcome:?}"
    );
    assert_eq!(root.text("a"), "1;2;\n", "the old content stays");
}

#[test]
fn a_source_is_copied_and_its_checksum_holds() {
    let root = Root::new();
    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    fs::write(root.path("source"), &large).expect("a file");
    let sum = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&large));
    assert_eq!(
        root.file(
            "a",
            json!({"source": ["/no/such", root.path("source")], "checksum_value": sum})
        )
        .status,
        Status::Changed
    );
    assert_eq!(fs::read(root.path("a")).expect("a file"), large);
    fs::write(root.path("source"), "tampered").expect("a file");
    let outcome = root.file(
        "a",
        json!({"source": root.path("source"), "checksum_value": sum}),
    );
    assert!(failure(&outcome).contains("instead of"), "{outcome:?}");
    assert_eq!(fs::read(root.path("a")).expect("a file"), large);
}

#[test]
fn a_refused_content_does_not_land() {
    let root = Root::new();
    fs::write(root.path("a.conf"), "good").expect("a file");
    let outcome = root.file(
        "a.conf",
        json!({"content": "bad", "validate_cmd": "grep -q good %"}),
    );
    assert!(
        failure(&outcome).contains("rejected the new content"),
        "{outcome:?}"
    );
    assert_eq!(root.text("a.conf"), "good");
    assert_eq!(root.names(""), ["a.conf"], "nothing is left behind");
    let outcome = root.file(
        "a.conf",
        json!({"content": "good too", "validate_cmd": "case % in *.conf) exit 0;; esac; exit 1"}),
    );
    assert_eq!(
        outcome.status,
        Status::Changed,
        "the extension stays for the checker"
    );
}

#[test]
fn what_is_replaced_is_kept_and_can_be_brought_back() {
    let root = Root::new();
    fs::write(root.path("a"), "first").expect("a file");
    fs::set_permissions(root.path("a"), fs::Permissions::from_mode(0o604)).expect("a mode");
    root.file("a", json!({"content": "second", "mode": "0644"}));
    root.file("a", json!({"ensure": "absent"}));
    root.file("b", json!({"content": "x"}));
    root.file("b", json!({"content": "y", "backup": false}));
    let kept = crate::backups(&root.state(), Some(&root.path("a"))).expect("backups");
    assert_eq!(
        kept.iter().map(|backup| backup.mode).collect::<Vec<_>>(),
        [0o604, 0o644]
    );
    let cancellation = || crate::Cancellation::new().expect("a pipe");
    crate::restore(&root.state(), &kept[0], cancellation()).expect("restored");
    assert_eq!((root.text("a").as_str(), root.mode("a")), ("first", 0o604));
    crate::restore(&root.state(), &kept[1], cancellation()).expect("restored");
    assert_eq!(root.text("a"), "second");
    assert_eq!(
        crate::backups(&root.state(), None).expect("backups").len(),
        3,
        "what a restore replaced is kept as well"
    );
}

#[test]
fn a_noop_run_touches_nothing_and_trusts_what_would_be_made_before() {
    let root = Root::new();
    fs::write(root.path("a"), "old\n").expect("a file");
    let before = fs::metadata(root.path("a")).expect("a file").ctime_nsec();
    let summary = noop(
        &root.state(),
        json!([
            root.resource("a", json!({"content": "new\n", "mode": "0600", "owner": "daemon"})),
            root.resource("d", json!({"ensure": "directory"})),
            root.resource("d/inside", json!({"content": "x"})),
            root.resource("e/inside", json!({"content": "x"})),
            {"type": "Test", "title": "behind", "parameters": {"require": format!("File[{}]", root.path("e/inside").display())}},
        ]),
    );
    let statuses: Vec<Status> = ["a", "d", "d/inside", "e/inside"]
        .iter()
        .map(|name| {
            let title = root.path(name).display().to_string();
            summary
                .finished
                .iter()
                .find(|one| one.reference.title() == title)
                .expect("it finished")
                .outcome
                .status
        })
        .collect();
    assert_eq!(
        statuses,
        [
            Status::Pending,
            Status::Pending,
            Status::Pending,
            Status::Failed
        ]
    );
    assert_eq!(
        summary.count(Status::Skipped),
        1,
        "what needs the failing one is no success"
    );
    assert_eq!(
        fs::metadata(root.path("a")).expect("a file").ctime_nsec(),
        before
    );
    assert_eq!(root.names(""), ["a"]);
    assert!(!root.state().exists(), "not even the engine's own state");
}

#[test]
fn a_secret_content_shows_in_no_diff() {
    let root = Root::new();
    fs::write(root.path("a"), "old secret\n").expect("a file");
    let mut resource = root.resource("a", json!({"content": "new secret\n"}));
    resource["sensitive_parameters"] = json!(["content"]);
    let outcome = root.apply(json!([resource])).finished[0].outcome.clone();
    let shown = format!("{outcome:?}");
    assert!(
        !shown.contains("new secret") && !shown.contains("sha256"),
        "{shown}"
    );
    assert_eq!(outcome.changes[0].diff, None);
}

#[test]
fn a_file_that_not_everyone_may_read_shows_a_diff_only_if_asked() {
    for (before, parameters, shown) in [
        (0o644, json!({}), true),
        (0o600, json!({}), false),
        (0o640, json!({"mode": "0644"}), false),
        (0o644, json!({"mode": "0640"}), false),
        (0o644, json!({"mode": "o-r"}), false),
        (0o600, json!({"show_diff": true}), true),
        (0o644, json!({"show_diff": false}), false),
    ] {
        let root = Root::new();
        fs::write(root.path("a"), "old\n").expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(before);
        fs::set_permissions(root.path("a"), mode).expect("set");
        let mut all = parameters.clone();
        all["content"] = json!("new\n");
        let outcome = root.apply(json!([root.resource("a", all)])).finished[0]
            .outcome
            .clone();
        let diffs = outcome
            .changes
            .iter()
            .filter(|change| change.diff.is_some());
        assert_eq!(diffs.count(), usize::from(shown), "{before:o} {parameters}");
        assert!(
            shown || !format!("{outcome:?}").contains("new\\n"),
            "{outcome:?}"
        );
    }
    // A new file.
    for (mode, shown) in [("0600", false), ("0644", true)] {
        let root = Root::new();
        let resource = root.resource("a", json!({"content": "new\n", "mode": mode}));
        let outcome = root.apply(json!([resource])).finished[0].outcome.clone();
        let diffs = outcome
            .changes
            .iter()
            .filter(|change| change.diff.is_some());
        assert_eq!(diffs.count(), usize::from(shown), "{mode}");
    }
}

/// Changes the owner of a path to another user, as an attacker would own it.
fn give_to_daemon(path: &Path) {
    std::os::unix::fs::lchown(path, Some(1), Some(1)).expect("root runs these tests");
}

#[test]
fn a_link_of_another_user_in_the_path_is_not_followed() {
    let root = Root::new();
    fs::create_dir(root.path("victim")).expect("a directory");
    fs::create_dir(root.path("home")).expect("a directory");
    give_to_daemon(&root.path("home"));
    symlink(root.path("victim"), root.path("home/config")).expect("a link");
    give_to_daemon(&root.path("home/config"));
    for parameters in [
        json!({"content": "x"}),
        json!({"ensure": "directory"}),
        json!({"ensure": "link", "target": "x"}),
        json!({"ensure": "absent"}),
    ] {
        let outcome = root.file("home/config/file", parameters);
        assert!(
            failure(&outcome).contains("is a symbolic link owned by user 1"),
            "{outcome:?}"
        );
    }
    let outcome = root.file("home/config/a/b", json!({"content": "x", "makedirs": true}));
    assert!(
        failure(&outcome).contains("is a symbolic link owned by user 1"),
        "{outcome:?}"
    );
    assert_eq!(root.names("victim"), Vec::<String>::new());
    // The administrator's own link is followed.
    symlink(root.path("victim"), root.path("mine")).expect("a link");
    assert_eq!(
        root.file("mine/file", json!({"content": "x"})).status,
        Status::Changed
    );
}

#[test]
fn a_link_in_the_place_of_the_file_is_replaced_and_its_target_stays() {
    let root = Root::new();
    fs::write(root.path("shadow"), "secret").expect("a file");
    fs::create_dir(root.path("home")).expect("a directory");
    give_to_daemon(&root.path("home"));
    symlink(root.path("shadow"), root.path("home/file")).expect("a link");
    give_to_daemon(&root.path("home/file"));
    assert_eq!(
        root.file("home/file", json!({"content": "x", "owner": "daemon"}))
            .status,
        Status::Changed
    );
    assert_eq!(root.text("shadow"), "secret");
    assert_eq!(fs::metadata(root.path("shadow")).expect("a file").uid(), 0);
}

#[test]
fn a_hard_link_in_somebody_elses_directory_keeps_its_owner_and_mode() {
    let root = Root::new();
    fs::write(root.path("shadow"), "secret").expect("a file");
    fs::set_permissions(root.path("shadow"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::create_dir(root.path("home")).expect("a directory");
    give_to_daemon(&root.path("home"));
    fs::hard_link(root.path("shadow"), root.path("home/file")).expect("a link");
    let outcome = root.file("home/file", json!({"owner": "daemon", "mode": "0644"}));
    assert!(failure(&outcome).contains("has hard links"), "{outcome:?}");
    assert_eq!(
        (
            root.mode("shadow"),
            fs::metadata(root.path("shadow")).expect("a file").uid()
        ),
        (0o600, 0)
    );
}

#[test]
fn a_recursion_does_not_leave_its_tree_by_a_link() {
    let root = Root::new();
    fs::create_dir(root.path("outside")).expect("a directory");
    fs::write(root.path("outside/file"), "x").expect("a file");
    fs::set_permissions(root.path("outside/file"), fs::Permissions::from_mode(0o600))
        .expect("a mode");
    fs::create_dir(root.path("tree")).expect("a directory");
    symlink(root.path("outside"), root.path("tree/way-out")).expect("a link");
    root.file(
        "tree",
        json!({"ensure": "directory", "recurse": true, "mode": "0777"}),
    );
    assert_eq!(root.mode("outside/file"), 0o600);
    root.file(
        "tree",
        json!({"ensure": "directory", "recurse": true, "purge": true}),
    );
    assert_eq!(root.names("tree"), Vec::<String>::new());
    assert_eq!(root.names("outside"), ["file"]);
}

#[test]
fn a_pipe_or_a_device_in_the_way_does_not_hang_the_run() {
    let root = Root::new();
    let made = std::process::Command::new("mkfifo")
        .arg(root.path("pipe"))
        .status()
        .expect("mkfifo is part of coreutils");
    assert!(made.success());
    assert_eq!(
        root.file("pipe", json!({"content": "x"})).status,
        Status::Changed
    );
    assert_eq!(root.text("pipe"), "x");
}

/// A small file system, unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    fn new(at: PathBuf, options: &str) -> Self {
        let mut command = std::process::Command::new("mount");
        let done = command
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&at)
            .status()
            .expect("mount is part of util-linux");
        assert!(
            done.success(),
            "these tests run as root and mount small file systems"
        );
        Self(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn a_full_disk_fails_the_file_and_leaves_the_old_one() {
    let root = Root::new();
    fs::create_dir(root.path("small")).expect("a directory");
    let _mount = Mount::new(root.path("small"), "size=64k");
    fs::write(root.path("small/a"), "old").expect("a file");
    let outcome = root.file("small/a", json!({"content": "x".repeat(200_000)}));
    assert!(failure(&outcome).contains("No space left"), "{outcome:?}");
    assert_eq!(root.text("small/a"), "old");
    assert_eq!(root.names("small"), ["a"], "nothing is left behind");
}

#[test]
fn a_read_only_root_fails_what_must_change_and_nothing_else() {
    let root = Root::new();
    fs::create_dir(root.path("fixed")).expect("a directory");
    let _mount = Mount::new(root.path("fixed"), "size=64k");
    fs::write(root.path("fixed/same"), "same").expect("a file");
    fs::write(root.path("fixed/other"), "old").expect("a file");
    let remounted = std::process::Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(root.path("fixed"))
        .status();
    assert!(remounted.expect("mount").success());
    assert_eq!(
        root.file("fixed/same", json!({"content": "same"})).status,
        Status::Unchanged
    );
    let outcome = root.file("fixed/other", json!({"content": "new"}));
    assert!(
        failure(&outcome).contains("Read-only file system"),
        "{outcome:?}"
    );
    let outcome = root.file("fixed/same", json!({"mode": "0600"}));
    assert!(
        failure(&outcome).contains("Read-only file system"),
        "{outcome:?}"
    );
}

#[test]
fn a_path_that_climbs_or_is_relative_is_refused_before_anything_changes() {
    for path in ["relative", "/a/../etc/passwd", "", "/a\u{0}b"] {
        let catalog = crate::types::testing::catalog(
            json!([{"type": "File", "title": "x", "parameters": {"path": path, "content": ""}}]),
        );
        let plan = crate::CatalogPlan::new(
            &catalog,
            &crate::Registry::standard(),
            crate::PlanOptions::default(),
        );
        assert!(plan.is_err(), "{path:?}");
    }
}

#[test]
fn noop_refuses_a_source_that_nothing_can_create() {
    use crate::types::testing::{apply, lines, noop};
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| place.path().join(name).to_string_lossy().into_owned();
    let copy = |source: &str| {
        serde_json::json!([
            {"type": "Test", "title": "first", "parameters": {"changes": true, "before": format!("File[{}]", path("copy"))}},
            {"type": "File", "title": path("copy"), "parameters": {"source": source}},
        ])
    };
    for source in ["puppet:///modules/motd/motd", "salt://motd"] {
        for summary in [
            noop(&place.path().join("state"), copy(source)),
            apply(&place.path().join("state"), copy(source)),
        ] {
            let lines = lines(&summary);
            assert!(lines.contains("failed: "), "{lines}");
            assert!(lines.contains("--source-root"), "{lines}");
        }
    }
    // A path of this machine may be what the first one creates.
    let summary = noop(&place.path().join("state"), copy(&path("made later")));
    assert!(lines(&summary).contains("pending"), "{}", lines(&summary));
}
