//! Locations: another root, sources by scheme, drift.

use serde_json::json;

use crate::world::World;

#[test]
fn another_root_takes_all_paths() {
    let world = World::new();
    std::fs::create_dir_all(world.path("etc")).expect("a directory");
    let root = world.path("").to_string_lossy().into_owned();
    let ended = world.apply(
        &json!([{"type": "File", "title": "/etc/motd", "parameters": {"content": "inside"}}]),
        &["--root", &root],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(
        std::fs::read_to_string(world.path("etc/motd")).expect("a file"),
        "inside"
    );
}

#[test]
fn sources_are_found_by_scheme_and_do_not_climb_out() {
    let world = World::new();
    std::fs::create_dir_all(world.path("salt/web")).expect("a directory");
    std::fs::write(world.path("salt/web/conf"), "served").expect("a file");
    std::fs::write(world.path("secret"), "not served").expect("a file");
    let root = format!("salt={}", world.path("salt").display());
    let copy = |source: &str| json!([{"type": "File", "title": "@ROOT@/copy", "parameters": {"source": source}}]);
    assert_eq!(
        world
            .apply(&copy("salt://web/conf"), &["--source-root", &root])
            .code,
        Some(0)
    );
    assert_eq!(
        std::fs::read_to_string(world.path("copy")).expect("a file"),
        "served"
    );
    let ended = world.apply(&copy("salt://../secret"), &["--source-root", &root]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stdout.contains("points outside its root"),
        "{}",
        ended.stdout
    );
    assert!(
        world
            .apply(&copy("puppet:///modules/x/y"), &[])
            .stdout
            .contains("`puppet:` addresses are not available here")
    );
}

#[test]
fn drift_is_distinguished_from_an_intended_change() {
    let world = World::new();
    let wish = |content: &str| json!([{"type": "File", "title": "@ROOT@/a", "parameters": {"content": content}}]);
    assert!(!world.apply(&wish("one"), &[]).stdout.contains("corrective"));
    std::fs::write(world.path("a"), "drifted").expect("a file");
    assert!(
        world
            .apply(&wish("one"), &[])
            .stdout
            .contains("changed (corrective)")
    );
    assert!(!world.apply(&wish("two"), &[]).stdout.contains("corrective"));
}

#[test]
fn files_of_puppet_modules_are_found_below_the_source_root_in_noop_too() {
    let world = World::new();
    let module = world.path("code/modules/motd/files");
    std::fs::create_dir_all(&module).expect("a directory");
    std::fs::write(module.join("motd"), "served").expect("a file");
    let copy = |source: &str| json!([{"type": "File", "title": "@ROOT@/copy", "parameters": {"source": source}}]);
    let root = format!("puppet={}", world.path("code").display());
    let options = ["--noop", "--source-root", &root];
    let looked = world.apply(&copy("puppet:///modules/motd/motd"), &options);
    assert_eq!(looked.code, Some(0), "{}", looked.stdout);
    let refused = world.apply(&copy("puppet:///modules/motd/other"), &options);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    let ended = world.apply(
        &copy("puppet:///modules/motd/motd"),
        &["--source-root", &root],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    let copied = std::fs::read_to_string(world.path("copy"));
    assert_eq!(copied.expect("a file"), "served");
}

#[test]
fn anyone_may_look_after_root_has_applied() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    let wish = json!([{"type": "File", "title": "@ROOT@/a", "parameters": {"content": "one"}}]);
    assert_eq!(world.apply(&wish, &[]).code, Some(0));
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let above = world.path("..");
    std::fs::set_permissions(&above, everyone).expect("a mode");
    let path = world.catalog(&wish);
    let command = world.command(&path, &["--noop"]);
    let mut other = std::process::Command::new("setpriv");
    other
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(command.get_program())
        .args(command.get_args())
        .env("HOME", world.path(""))
        .env_remove("XDG_CONFIG_HOME")
        .envs(
            command
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
    let ended = world.ended(other.output().expect("setpriv runs"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn each_unknown_type_is_listed_once_with_the_options() {
    let world = World::new();
    let ended = world.apply(
        &json!([{"type": "Foo", "title": "a"}, {"type": "Foo", "title": "b"}, {"type": "Bar::Baz", "title": "c"}]),
        &[],
    );
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr.matches("Foo").count(), 2, "{}", ended.stderr);
    for part in [
        "no resource type `Foo` (2 resources)",
        "no resource type `Bar::Baz`",
        "hint: docs/resources.md lists the types",
        "bunraku module",
        "run_method",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}
