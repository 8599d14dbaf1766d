//! Applies the same catalog with real Puppet and with Bunraku: the result is the same, file by
//! file.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use bunraku_testkit::puppet_options;
use serde_json::Value;

use crate::world::World;

/// Core types in common use; `@ROOT@` is the directory to work in.
const MANIFEST: &str = r#"
class site::base {
  file { '@ROOT@/etc': ensure => directory, mode => '0750' }
  file { '@ROOT@/etc/motd': content => "hello\nworld\n", mode => '0644', owner => 'root', group => 'daemon' }
  file { '@ROOT@/etc/secret': content => Sensitive("hunter22\n"), mode => '0600', owner => 'daemon' }
  file { '@ROOT@/etc/link': ensure => link, target => 'motd' }
  file { '@ROOT@/etc/empty': ensure => present }
  file { '@ROOT@/etc/symbolic': content => 'x', mode => 'u=rwx,g=rx,o=' }
  file { '@ROOT@/unwanted': ensure => absent }
  file { '@ROOT@/unwanted.d': ensure => absent, force => true }
  file { '@ROOT@/kept': content => 'new', replace => false }
}
class site::tree {
  file { '@ROOT@/tree': ensure => directory, recurse => true, purge => true, source => '@ROOT@/origin', mode => '0640', ignore => ['*.bak'] }
  file { '@ROOT@/tree/own': content => 'declared', mode => '0604' }
}
define site::flag(String $text) {
  file { "@ROOT@/flags/${title}": content => $text }
}
class site::commands {
  Exec { path => ['/usr/bin', '/bin'] }
  exec { 'once': command => 'echo once >> @ROOT@/log', creates => '@ROOT@/log' }
  exec { 'not': command => 'echo not >> @ROOT@/log', onlyif => 'false', require => Exec['once'] }
  exec { 'unless': command => 'echo unless >> @ROOT@/log', unless => ['false', 'test -e /does/not/exist'], require => Exec['once'] }
  exec { 'on change': command => 'echo changed >> @ROOT@/refreshes', refreshonly => true, subscribe => Class['site::base'] }
  exec { 'twice': command => 'echo run >> @ROOT@/twice', subscribe => File['@ROOT@/etc/motd'] }
  exec { 'as another': command => 'id -un > @ROOT@/open/who', user => 'daemon', umask => '077', cwd => '/', environment => ['A=b'] }
  exec { 'fails': command => 'exit 3', provider => shell }
  exec { 'code': command => 'echo code >> @ROOT@/code; exit 4', returns => [4], provider => shell }
  file { '@ROOT@/after-failure': content => 'never', require => Exec['fails'] }
  notify { 'done': message => 'all done', require => Exec['once'] }
}
file { '@ROOT@/flags': ensure => directory }
site::flag { 'one': text => 'eins' }
site::flag { 'two': text => 'zwei', before => Site::Flag['one'] }
include site::base, site::tree, site::commands
Class['site::base'] -> Class['site::tree']
"#;

fn puppet(arguments: &[&str], home: &Path) -> std::process::Output {
    let mut command = Command::new("puppet");
    command.args(arguments).args(puppet_options(home));
    command
        .output()
        .expect("puppet is needed: run scripts/setup")
}

/// Creates the initial state.
fn prepare(root: &Path) {
    std::fs::create_dir_all(root.join("origin/sub/empty")).expect("directories");
    std::fs::write(root.join("origin/a"), "a").expect("a file");
    std::fs::write(root.join("origin/sub/b"), "b").expect("a file");
    std::fs::write(root.join("origin/x.bak"), "x").expect("a file");
    std::fs::create_dir_all(root.join("tree/stale/deep")).expect("directories");
    std::fs::write(root.join("tree/stale/deep/x"), "x").expect("a file");
    std::fs::write(root.join("unwanted"), "x").expect("a file");
    std::fs::create_dir_all(root.join("unwanted.d/x")).expect("directories");
    std::fs::write(root.join("kept"), "old").expect("a file");
    std::fs::create_dir(root.join("open")).expect("a directory");
    std::fs::set_permissions(
        root.join("open"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .expect("a mode");
    // Another user works in this directory.
    for above in root.ancestors().take_while(|above| {
        above.starts_with(std::env::temp_dir()) && **above != std::env::temp_dir()
    }) {
        std::fs::set_permissions(above, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("a mode");
    }
}

/// Returns every path below with its kind, mode, owner and content.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = path.symlink_metadata().expect("something");
            let what = if metadata.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else if metadata.is_symlink() {
                format!("link to {}", path.read_link().expect("a link").display())
            } else {
                format!("file {:?}", std::fs::read_to_string(&path).expect("text"))
            };
            let about = format!(
                "{:04o} {}:{} {what}",
                metadata.mode() & 0o7777,
                metadata.uid(),
                metadata.gid()
            );
            found.insert(
                path.strip_prefix(root)
                    .expect("below")
                    .display()
                    .to_string(),
                about,
            );
        }
    }
    found
}

/// Writes a manifest for this root.
fn manifest(home: &Path, root: &Path, text: &str) -> std::path::PathBuf {
    std::fs::create_dir_all(home).expect("a directory");
    let manifest = home.join("site.pp");
    let text = text.replace("@ROOT@", &root.to_string_lossy());
    std::fs::write(&manifest, text).expect("a file");
    manifest
}

/// Compiles a catalog for this root with real Puppet.
fn compiled(home: &Path, root: &Path, text: &str) -> Value {
    let manifest = manifest(home, root, text);
    let manifest = manifest.to_string_lossy().into_owned();
    let output = puppet(
        &[
            "catalog",
            "compile",
            "--manifest",
            &manifest,
            "web1",
            "--render-as",
            "json",
        ],
        home,
    );
    let stdout = String::from_utf8_lossy(&output.stdout);
    let json = &stdout[stdout.find("\n{").map_or(0, |start| start + 1)..];
    serde_json::from_str(json.trim_end_matches("\u{1b}[0m").trim()).unwrap_or_else(|error| {
        panic!(
            "{error}\n{stdout}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    })
}

#[test]
fn a_catalog_of_real_puppet_gives_the_same_files_as_puppet_apply() {
    let (theirs, ours) = (World::new(), World::new());
    for world in [&theirs, &ours] {
        prepare(&world.path(""));
    }
    let home = theirs.path("../puppet");
    let catalog = compiled(&home, &theirs.path(""), MANIFEST);
    let path = home.join("catalog.json");
    std::fs::write(&path, catalog.to_string()).expect("a file");
    let output = puppet(&["apply", "--catalog", &path.to_string_lossy()], &home);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();

    // The same catalog, with only the root replaced.
    let (from, to) = (theirs.path(""), ours.path(""));
    let text = catalog
        .to_string()
        .replace(&*from.to_string_lossy(), &to.to_string_lossy());
    let path = ours.path("../catalog.json");
    std::fs::write(&path, text).expect("a file");
    for mode in ["genius", "ansible", "justdoit"] {
        let ended = ours.ended(
            ours.command(&path, &["--order", mode])
                .output()
                .expect("the binary runs"),
        );
        assert_eq!(
            ended.code,
            Some(1),
            "one command fails: {}\n{}",
            ended.stdout,
            ended.stderr
        );
        if mode == "genius" {
            let (theirs, ours) = (tree(&theirs.path("")), tree(&ours.path("")));
            assert_eq!(
                ours, theirs,
                "ours, then Puppet's, which said\n{said}\nand we said\n{}",
                ended.stdout
            );
            assert!(theirs.len() > 20, "the catalog did something: {theirs:?}");
        }
    }
}

#[test]
fn a_catalog_of_real_puppet_is_read_and_written_without_loss() {
    let world = World::new();
    let catalog = compiled(&world.path("../puppet"), &world.path(""), MANIFEST);
    let read =
        bunraku_model::Catalog::from_json(catalog.to_string().as_bytes()).expect("a catalog");
    assert_eq!(serde_json::to_value(&read).expect("plain data"), catalog);
    let again = compiled(&world.path("../puppet"), &world.path(""), MANIFEST);
    let again = bunraku_model::Catalog::from_json(again.to_string().as_bytes()).expect("a catalog");
    assert_ne!(read.catalog_uuid, again.catalog_uuid);
    assert_eq!(read.id(), again.id(), "compiled twice, nothing changed");
}

/// Resources selected by tag, and the tags that are inherited or not.
const TAGGED: &str = r#"
Exec { path => ['/usr/bin', '/bin'] }
class base {
  file { '@ROOT@/base': content => 'base' }
}
class web {
  file { '@ROOT@/web': content => 'web', require => File['@ROOT@/base'] }
  exec { 'heard': command => 'touch @ROOT@/heard', refreshonly => true, subscribe => File['@ROOT@/web'] }
}
class shared {
  file { '@ROOT@/shared': content => 'shared', tag => 'mine' }
  file { '@ROOT@/not mine': content => 'shared' }
}
class behind {
  exec { 'behind': command => 'touch @ROOT@/behind', refreshonly => true, tag => 'web' }
}
define flag() {
  file { "@ROOT@/${title}": content => $title }
}
flag { 'one': }
include shared, base, web, behind
Class['web'] ~> Class['behind']
"#;

#[test]
fn what_is_chosen_by_tag_is_what_puppet_chooses() {
    let (theirs, ours) = (World::new(), World::new());
    let home = theirs.path("../puppet");
    let site = manifest(&home, &theirs.path(""), TAGGED);
    let tags = "Web,mine,flag";
    let output = puppet(&["apply", "--tags", tags, &site.to_string_lossy()], &home);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let catalog = compiled(&home, &ours.path(""), TAGGED);
    let path = ours.path("../catalog.json");
    std::fs::write(&path, catalog.to_string()).expect("a file");
    let mut command = ours.command(&path, &["--tags", tags]);
    let ended = ours.ended(command.output().expect("the binary runs"));
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    let (theirs, ours) = (tree(&theirs.path("")), tree(&ours.path("")));
    assert_eq!(ours, theirs, "ours, then Puppet's, which said\n{said}");
    let names: Vec<&str> = theirs.keys().map(String::as_str).collect();
    assert_eq!(names, ["heard", "one", "shared", "web"]);
}
