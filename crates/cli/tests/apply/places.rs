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
