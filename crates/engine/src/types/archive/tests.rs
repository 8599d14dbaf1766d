//! Archives: decisions, and real archives of every format.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use sha2::Digest;

use crate::types::package::test_repository::{needs, run};
use crate::types::testing_root::Machine;

/// Creates an archive of a small tree with the system's tar.
fn archive(machine: &Machine, name: &str) -> PathBuf {
    needs(&["tar", "gzip", "xz", "bzip2", "zstd"]);
    let tree = machine.beside().join("tree");
    std::fs::create_dir_all(tree.join("app/bin")).unwrap();
    std::fs::write(tree.join("app/bin/run"), "#!/bin/sh\n").unwrap();
    run(Command::new("chmod")
        .arg("750")
        .arg(tree.join("app/bin/run")));
    std::fs::write(tree.join("app/README"), "read me\n").unwrap();
    let _ = symlink("README", tree.join("app/link"));
    let _ = std::fs::hard_link(tree.join("app/README"), tree.join("app/same"));
    let path = machine.beside().join(name);
    run(Command::new("tar")
        .arg("-caf")
        .arg(&path)
        .arg("-C")
        .arg(&tree)
        .arg("app"));
    path
}

fn desired(source: &std::path::Path, more: Value) -> Value {
    let mut parameters = json!({"source": source.to_string_lossy()});
    parameters
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([{"type": "Archive", "title": "/opt/app", "parameters": parameters}])
}

#[test]
fn every_kind_of_tar_is_unpacked_once() {
    for ending in ["tar", "tar.gz", "tar.xz", "tar.bz2", "tar.zst"] {
        let machine = Machine::new();
        let source = archive(&machine, &format!("app.{ending}"));
        machine.converges(desired(
            &source,
            json!({"user": "1234", "strip_components": 1}),
        ));
        assert_eq!(machine.read("/opt/app/link"), "read me\n");
        assert_eq!(machine.read("/opt/app/same"), "read me\n");
        let metadata = std::fs::metadata(machine.path("/opt/app/bin/run")).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (1234, 0o750));
    }
}

#[test]
fn a_zip_is_unpacked() {
    let machine = Machine::new();
    let source = machine.beside().join("app.zip");
    let mut writer = zip::ZipWriter::new(std::fs::File::create(&source).unwrap());
    let options = zip::write::SimpleFileOptions::default().unix_permissions(0o640);
    writer.start_file("a/b.txt", options).unwrap();
    std::io::Write::write_all(&mut writer, b"hello").unwrap();
    writer.finish().unwrap();
    machine.converges(desired(&source, json!({})));
    assert_eq!(machine.read("/opt/app/a/b.txt"), "hello");
}

#[test]
fn a_new_archive_and_a_lost_file_are_seen() {
    let machine = Machine::new();
    let source = archive(&machine, "app.tar.gz");
    machine.converges(desired(&source, json!({})));
    std::fs::remove_file(machine.path("/opt/app/app/README")).unwrap();
    let transcript = machine.converges(desired(&source, json!({})));
    assert!(
        transcript.contains("app/README differs from the archive"),
        "{transcript}"
    );
    std::fs::write(machine.beside().join("tree/app/new"), "new").unwrap();
    let source = archive(&machine, "app.tar.gz");
    let transcript = machine.converges(desired(&source, json!({})));
    assert!(transcript.contains("checksum: sha256:"), "{transcript}");
    assert_eq!(machine.read("/opt/app/app/new"), "new");
}

#[test]
fn nothing_of_an_archive_with_the_wrong_checksum_is_written() {
    let machine = Machine::new();
    let source = archive(&machine, "app.tar.gz");
    let transcript = machine.apply(desired(
        &source,
        json!({"checksum": format!("sha256:{}", "0".repeat(64))}),
    ));
    assert!(
        transcript.contains("has the checksum sha256:"),
        "{transcript}"
    );
    assert!(!machine.path("/opt/app").exists());
    let right = hex::encode(sha2::Sha256::digest(std::fs::read(&source).unwrap()));
    machine.converges(desired(&source, json!({"checksum": right})));
}

/// Creates a tar with names that no honest program writes.
fn hostile(machine: &Machine, entries: &[(&str, tar::EntryType, &str)]) -> PathBuf {
    let path = machine.beside().join("hostile.tar");
    let mut bytes = Vec::new();
    for (name, kind, content) in entries {
        let mut header = tar::Header::new_gnu();
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let is_link = matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link);
        if is_link {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        let data: &[u8] = if is_link { b"" } else { content.as_bytes() };
        header.set_size(data.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().div_ceil(512) * 512, 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn nothing_in_an_archive_reaches_out_of_the_directory() {
    use tar::EntryType::{Block, Link, Regular, Symlink};
    let outside = |machine: &Machine| machine.path("/opt/evil");
    let cases: &[&[(&str, tar::EntryType, &str)]] = &[
        &[("../evil", Regular, "x")],
        &[("a/../../evil", Regular, "x")],
        &[("/opt/evil", Regular, "x")],
        &[("out", Symlink, ".."), ("out/evil", Regular, "x")],
        &[("out", Symlink, "../evil"), ("copy", Link, "out")],
        &[("copy", Link, "../secret")],
        &[("disk", Block, "")],
    ];
    for case in cases {
        let machine = Machine::new();
        machine.write("/opt/secret", "secret");
        let transcript = machine.apply(desired(&hostile(&machine, case), json!({})));
        assert!(
            transcript.contains("Archive[/opt/app] failed"),
            "{case:?}: {transcript}"
        );
        assert!(!outside(&machine).exists(), "{case:?}");
        assert!(
            std::fs::read(machine.path("/opt/app/copy")).is_err(),
            "{case:?}"
        );
    }
}

#[test]
fn a_link_that_waits_in_the_directory_is_not_written_through() {
    let machine = Machine::new();
    machine.write("/etc/precious", "precious");
    std::fs::create_dir_all(machine.path("/opt/app")).unwrap();
    symlink(machine.path("/etc/precious"), machine.path("/opt/app/file")).unwrap();
    symlink(machine.path("/etc"), machine.path("/opt/app/dir")).unwrap();
    let source = hostile(&machine, &[("file", tar::EntryType::Regular, "new")]);
    machine.converges(desired(&source, json!({})));
    assert_eq!(machine.read("/opt/app/file"), "new");
    let source = hostile(
        &machine,
        &[("dir/precious", tar::EntryType::Regular, "new")],
    );
    let transcript = machine.apply(desired(&source, json!({})));
    assert!(
        transcript.contains("follows a link out of the directory"),
        "{transcript}"
    );
    assert_eq!(machine.read("/etc/precious"), "precious");
}

#[test]
fn an_archive_that_grows_beyond_its_limit_is_stopped() {
    let machine = Machine::new();
    let tree = machine.beside().join("big");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("zeros"), vec![0; 4 << 20]).unwrap();
    for name in ["big.tar", "big.tar.gz"] {
        let source = machine.beside().join(name);
        run(Command::new("tar")
            .arg("-caf")
            .arg(&source)
            .arg("-C")
            .arg(&tree)
            .arg("zeros"));
        let transcript = machine.apply(desired(&source, json!({"max_size": 1 << 20})));
        assert!(
            transcript.contains("it unpacks to more than"),
            "{transcript}"
        );
        assert!(!machine.path("/opt/app/zeros").exists());
    }
}

#[test]
fn an_invalid_archive_is_reported() {
    let machine = Machine::new();
    let source = machine.beside().join("not.tar.gz");
    std::fs::write(&source, "hello").unwrap();
    let transcript = machine.apply(desired(&source, json!({})));
    assert!(transcript.contains("gzip failed"), "{transcript}");
}
