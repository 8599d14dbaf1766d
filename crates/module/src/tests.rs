//! Every way in which a package can be wrong, and checks that none of them passes.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    File, KnownVersions, SigningKey, Trust, VerifiedModule, VerifyError, pack, sign, verify,
};

fn manifest(version: &str) -> Value {
    json!({
        "name": "greeting", "version": version, "protocol": 1, "command": ["run"],
        "types": [{"name": "greeting", "name_parameter": "path",
                   "properties": [{"name": "ensure"}, {"name": "text"}],
                   "parameters": [{"name": "path"}]}],
    })
}

fn files() -> Vec<File> {
    let file = |path: &str, text: &str, executable| File {
        path: path.to_owned(),
        bytes: text.as_bytes().to_vec(),
        executable,
    };
    vec![
        file("run", "#!/bin/sh\n", true),
        file("data/words", "hello\n", false),
    ]
}

fn packed(version: &str) -> Vec<u8> {
    let manifest = manifest(version).to_string();
    pack(manifest.as_bytes(), &files()).expect("a package").1
}

fn key() -> SigningKey {
    SigningKey::generate().expect("a key")
}

fn trusting(keys: &[&SigningKey]) -> Trust {
    let mut trust = Trust::default();
    for key in keys {
        let line = key.public("the author").to_line();
        trust.add(&line).expect("a key");
    }
    trust
}

fn refused(package: &[u8], trust: &Trust, expected: Expect) {
    let error = verify(package, trust).expect_err("it is refused");
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(&error) {
        text.push_str(&format!(": {source}"));
    }
    for (key, _) in trust.keys() {
        text = text.replace(&key.to_string(), "KEY");
    }
    expected.assert_eq(&text);
}

fn unpacked(package: &[u8]) -> Vec<(tar::Header, Vec<u8>, Vec<u8>)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(package));
    let entries = archive.entries().expect("an archive");
    entries
        .map(|entry| {
            let mut entry = entry.expect("an entry");
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).expect("bytes");
            (
                entry.header().clone(),
                entry.path_bytes().into_owned(),
                bytes,
            )
        })
        .collect()
}

/// Changes one member of the package by hand and leaves its signature as it is.
fn tampered(
    package: &[u8],
    change: impl Fn(&mut tar::Header, &mut Vec<u8>, &mut Vec<u8>),
) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(encoder);
    for (mut header, mut path, mut bytes) in unpacked(package) {
        change(&mut header, &mut path, &mut bytes);
        header.set_size(bytes.len() as u64);
        let name = &mut header.as_old_mut().name;
        name.fill(0);
        name[..path.len()].copy_from_slice(&path);
        header.set_cksum();
        builder.append(&header, bytes.as_slice()).expect("written");
    }
    builder
        .into_inner()
        .expect("an archive")
        .finish()
        .expect("compressed")
}

fn verified(version: &str, key: &SigningKey) -> VerifiedModule {
    let package = sign(&packed(version), key).expect("signed");
    verify(&package, &trusting(&[key])).expect("verified")
}

#[test]
fn a_signed_package_is_accepted_with_all_that_was_packed() {
    let author = key();
    let module = verified("1.2.0", &author);
    assert_eq!(module.manifest().name, "greeting");
    assert_eq!(module.signed_by(), author.public("").fingerprint());
    assert_eq!(module.signer(), "the author");
    assert_eq!(module.files().len(), 2);
    assert_eq!(module.files()[1], files()[0]);
    module.check_pin(module.sha256()).expect("its own hash");
    assert!(matches!(
        module.check_pin(&"0".repeat(64)),
        Err(VerifyError::Pinned { .. })
    ));
}

#[test]
fn the_same_files_give_the_same_bytes_in_any_order() {
    let mut other = files();
    other.reverse();
    let manifest = manifest("1.2.0").to_string();
    let again = pack(manifest.as_bytes(), &other).expect("a package").1;
    assert_eq!(again, packed("1.2.0"));
}

#[test]
fn what_is_unsigned_or_signed_by_a_stranger_is_refused() {
    let (author, stranger) = (key(), key());
    refused(
        &packed("1.2.0"),
        &trusting(&[&author]),
        expect!["it is not signed"],
    );
    let package = sign(&packed("1.2.0"), &stranger).expect("signed");
    let error = verify(&package, &trusting(&[&author])).expect_err("refused");
    assert!(
        error.to_string().contains("which is not trusted here"),
        "{error}"
    );
    assert!(verify(&package, &Trust::default()).is_err());
    // A second signature, by a trusted key, makes it acceptable.
    let package = sign(&package, &author).expect("signed");
    verify(&package, &trusting(&[&author])).expect("verified");
}

#[test]
fn a_revoked_key_is_refused_also_beside_a_good_one() {
    let (author, leaked) = (key(), key());
    let mut trust = trusting(&[&author, &leaked]);
    let package = sign(&packed("1.2.0"), &leaked).expect("signed");
    verify(&package, &trust).expect("not revoked yet");
    let list = format!(
        "# leaked in spring\n\n{} old laptop\n",
        leaked.public("").fingerprint()
    );
    trust.revoke(&list).expect("a list");
    refused(
        &package,
        &trust,
        expect!["it is signed by KEY, which was revoked"],
    );
    let package = sign(&package, &author).expect("signed");
    refused(
        &package,
        &trust,
        expect!["it is signed by KEY, which was revoked"],
    );
}

#[test]
fn a_list_or_a_key_that_cannot_be_read_is_an_error_and_not_passed_over() {
    let mut trust = Trust::default();
    let error = trust
        .revoke("# fine\nnot a fingerprint\n")
        .expect_err("refused");
    assert!(error.to_string().contains("line 2"), "{error}");
    assert!(trust.add("ssh-ed25519 AAAA me").is_err());
    assert!(trust.add("").is_err());
    let two = format!("{0}\n{0}\n", key().public("").to_line());
    assert!(trust.add(&two).is_err());
}

#[test]
fn every_kind_of_tampering_is_refused() {
    let author = key();
    let trust = trusting(&[&author]);
    let package = sign(&packed("1.2.0"), &author).expect("signed");
    let change = |wanted: &'static str, text: &'static str| {
        tampered(&package, move |_, path, bytes| {
            if path.as_slice() == wanted.as_bytes() {
                *bytes = text.as_bytes().to_vec();
            }
        })
    };
    refused(
        &change("files/run", "#!/bin/sh\nrm -rf /\n"),
        &trust,
        expect!["`run` differs from what was signed"],
    );
    let newer = manifest("9.0.0").to_string();
    let swapped = tampered(&package, |_, path, bytes| {
        if path.as_slice() == b"module.json" {
            *bytes = newer.clone().into_bytes();
        }
    });
    refused(
        &swapped,
        &trust,
        expect!["the signature of KEY does not match: the module was changed after it was signed"],
    );
    let renamed = |to: &'static str| {
        tampered(&package, move |_, path, _| {
            if path.as_slice() == b"files/data/words" {
                *path = to.as_bytes().to_vec();
            }
        })
    };
    refused(
        &renamed("files/run.pth"),
        &trust,
        expect!["`run.pth` is not in the manifest"],
    );
    refused(
        &renamed("files/run"),
        &trust,
        expect!["it is not a module: `run` exists twice"],
    );
    refused(
        &renamed("files/../../../etc/cron.d/x"),
        &trust,
        expect![
            "it is not a module: `files/../../../etc/cron.d/x` is not a regular file inside the module"
        ],
    );
    refused(
        &renamed("elsewhere"),
        &trust,
        expect!["it is not a module: `elsewhere` is not a regular file inside the module"],
    );
    let link = tampered(&package, |header, path, bytes| {
        if path.as_slice() == b"files/data/words" {
            header.set_entry_type(tar::EntryType::Symlink);
            bytes.clear();
        }
    });
    refused(
        &link,
        &trust,
        expect!["it is not a module: `files/data/words` is not a regular file inside the module"],
    );
    let executable = tampered(&package, |header, path, _| {
        if path.as_slice() == b"files/data/words" {
            header.set_mode(0o755);
        }
    });
    refused(
        &executable,
        &trust,
        expect!["`data/words` differs from what was signed"],
    );
}

#[test]
fn a_signature_of_something_else_does_not_fit() {
    let author = key();
    let trust = trusting(&[&author]);
    let one = sign(&packed("1.2.0"), &author).expect("signed");
    let signatures = unpacked(&one)[1].2.clone();
    let other = tampered(&packed("1.3.0"), |_, path, bytes| {
        if path.as_slice() == b"signatures.json" {
            *bytes = signatures.clone();
        }
    });
    refused(
        &other,
        &trust,
        expect!["the signature of KEY does not match: the module was changed after it was signed"],
    );
}

#[test]
fn an_invalid_package_is_refused() {
    let author = key();
    let trust = trusting(&[&author]);
    assert!(verify(b"", &trust).is_err());
    assert!(verify(b"#!/bin/sh\n", &trust).is_err());
    let package = sign(&packed("1.2.0"), &author).expect("signed");
    for cut in [10, 100, package.len() / 2, package.len() - 1] {
        assert!(verify(&package[..cut], &trust).is_err(), "cut at {cut}");
    }
    let longer = [package.as_slice(), b"more"].concat();
    refused(
        &longer,
        &trust,
        expect!["it is not a module: it has trailing data"],
    );
}

#[test]
fn a_bomb_does_not_fill_the_memory() {
    let author = key();
    let trust = trusting(&[&author]);
    let package = sign(&packed("1.2.0"), &author).expect("signed");
    // The first members claim a small size; the next one claims more than the total limit.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for (header, _, bytes) in &unpacked(&package)[..2] {
        std::io::Write::write_all(&mut encoder, header.as_bytes()).expect("written");
        std::io::Write::write_all(&mut encoder, bytes).expect("written");
        let padding = vec![0; (512 - bytes.len() % 512) % 512];
        std::io::Write::write_all(&mut encoder, &padding).expect("written");
    }
    let mut header = tar::Header::new_ustar();
    header.set_path("files/run").expect("a path");
    header.set_size(1 << 40);
    header.set_mode(0o755);
    header.set_cksum();
    std::io::Write::write_all(&mut encoder, header.as_bytes()).expect("written");
    std::io::Write::write_all(&mut encoder, &vec![0; 8 << 20]).expect("written");
    let bomb = encoder.finish().expect("compressed");
    refused(
        &bomb,
        &trust,
        expect!["it is not a module: `files/run` exceeds the maximum size of a module"],
    );
}

#[test]
fn an_older_version_or_another_content_of_the_same_is_refused() {
    let author = key();
    let mut known = KnownVersions::default();
    assert!(known.take(&verified("1.2.0", &author)).expect("new"));
    assert!(!known.take(&verified("1.2.0", &author)).expect("the same"));
    assert!(known.take(&verified("1.10.0", &author)).expect("newer"));
    let error = known.take(&verified("1.9.9", &author)).expect_err("older");
    expect!["`greeting` 1.9.9 is older than 1.10.0, which was used before"]
        .assert_eq(&error.to_string());
    let mut other = manifest("1.10.0");
    other["types"][0]["summary"] = json!("something else");
    let package = pack(other.to_string().as_bytes(), &files())
        .expect("a package")
        .1;
    let package = sign(&package, &author).expect("signed");
    let other = verify(&package, &trusting(&[&author])).expect("verified");
    assert!(known.take(&other).is_err());
    let read = KnownVersions::parse(&known.to_bytes()).expect("what was written");
    assert_eq!(read, known);
    assert!(KnownVersions::parse(b"{").is_err());
}

#[test]
fn manifests_that_cannot_work_are_refused_when_they_are_packed() {
    let check = |change: &dyn Fn(&mut Value), expected: Expect| {
        let mut manifest = manifest("1.2.0");
        change(&mut manifest);
        let error = pack(manifest.to_string().as_bytes(), &files()).expect_err("refused");
        let source = std::error::Error::source(&error).expect("a source");
        let inner = source
            .source()
            .map_or(String::new(), |inner| format!(": {inner}"));
        expected.assert_eq(&format!("{source}{inner}"));
    };
    check(
        &|it| it["protocol"] = json!(7),
        expect!["the manifest is for protocol 7; this program supports 1"],
    );
    check(
        &|it| it["name"] = json!("../x"),
        expect!["`../x` must consist of lower-case letters, digits and underscores"],
    );
    check(
        &|it| it["types"] = json!([]),
        expect!["the manifest has no types"],
    );
    check(
        &|it| it["command"] = json!(["data/words"]),
        expect!["the program `data/words` is not an executable file of the module"],
    );
    check(
        &|it| it["command"] = json!(["/bin/sh"]),
        expect!["the program `/bin/sh` is not an executable file of the module"],
    );
    check(
        &|it| it["types"][0]["name_parameter"] = json!("file"),
        expect![
            "the name parameter `file` of `greeting` is neither a property nor a parameter of it"
        ],
    );
    check(
        &|it| it["types"][0]["properties"][1]["name"] = json!("ensure"),
        expect!["`ensure` exists twice"],
    );
    check(
        &|it| it["types"][0]["states"] = json!([{"function": "file.managed"}]),
        expect!["the state function `file.managed` must begin with the name of its type"],
    );
    check(
        &|it| it["version"] = json!("1.x"),
        expect![
            "the manifest is invalid: `1.x` is not a version of two to four numbers, such as `1.4.2`"
        ],
    );
    check(
        &|it| it["comand"] = json!([]),
        expect![
            "the manifest is invalid: unknown field `comand`, expected one of `name`, `version`, `protocol`, `command`, `types`, `files`"
        ],
    );
}

#[test]
fn a_key_survives_a_round_trip_and_an_invalid_key_is_refused() {
    let author = key();
    let read = SigningKey::from_pem(author.to_pem()).expect("a key");
    assert_eq!(
        read.public("").fingerprint(),
        author.public("").fingerprint()
    );
    assert!(SigningKey::from_pem("").is_err());
    assert!(SigningKey::from_pem(&author.to_pem().replace("PRIVATE", "PUBLIC")).is_err());
    assert!(!format!("{author:?}").contains("BEGIN"));
}

proptest! {
    #[test]
    fn one_changed_byte_is_never_accepted_as_something_else(position in 0_usize..10_000, bit in 0_u8..8) {
        let author = SigningKey::from_pem(FIXED).expect("a key");
        let trust = trusting(&[&author]);
        let good = sign(&packed("1.2.0"), &author).expect("signed");
        let whole = verify(&good, &trust).expect("verified");
        let mut bytes = good.clone();
        let position = position % bytes.len();
        bytes[position] ^= 1 << bit;
        // Some bytes of the compression's own header say nothing about the content.
        if let Ok(module) = verify(&bytes, &trust) {
            prop_assert_eq!(module.manifest(), whole.manifest());
            prop_assert_eq!(module.files(), whole.files());
        }
    }
}

/// A key that is used nowhere else.
const FIXED: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
