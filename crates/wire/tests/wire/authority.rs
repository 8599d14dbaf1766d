//! The authority's directory: created only once, and never silently replaced.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bunraku_wire::Authority;
use bunraku_wire::authority::DirectoryError;
use jiff::Timestamp;

fn load(directory: &Path) -> Result<Authority, DirectoryError> {
    Authority::load_or_create(directory, Timestamp::now())
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_makes_an_authority_and_the_next_finds_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/ca");
    let first = load(&path).unwrap();
    let again = load(&path).unwrap();
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("ca.key")), 0o600);
    assert!(!path.join("ca.pem.pending").exists());
    assert!(!path.join("ca.key.pending").exists());
}

#[test]
fn many_at_once_get_the_same_authority() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca");
    let fingerprints: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| load(&path).unwrap().fingerprint()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(fingerprints.iter().all(|one| *one == fingerprints[0]));
}

#[test]
fn two_processes_exclude_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca");
    load(&path).unwrap();
    let held = std::fs::File::open(path.join("ca.lock")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(load(&path).unwrap().fingerprint()).unwrap());
        let early = receiver.recv_timeout(std::time::Duration::from_millis(200));
        assert!(early.is_err(), "it did not wait for the lock");
        drop(held);
        receiver.recv().unwrap();
    });
}

#[test]
fn a_missing_half_is_an_error_and_not_a_new_authority() {
    for lost in ["ca.pem", "ca.key"] {
        let directory = tempfile::tempdir().unwrap();
        load(directory.path()).unwrap();
        std::fs::remove_file(directory.path().join(lost)).unwrap();
        let error = load(directory.path()).unwrap_err();
        assert!(
            matches!(error, DirectoryError::HalfMissing { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(lost), "{error}");
        assert!(!directory.path().join(lost).exists());
    }
}

#[test]
fn damaged_or_mismatching_files_are_an_error() {
    let other = tempfile::tempdir().unwrap();
    load(other.path()).unwrap();
    let foreign_key = std::fs::read_to_string(other.path().join("ca.key")).unwrap();
    let foreign_certificate = std::fs::read_to_string(other.path().join("ca.pem")).unwrap();
    for (file, content) in [
        ("ca.pem", String::new()),
        ("ca.key", String::new()),
        ("ca.pem", foreign_certificate[..200].to_owned()),
        ("ca.key", foreign_key.clone()),
        ("ca.pem", foreign_certificate.clone()),
    ] {
        let directory = tempfile::tempdir().unwrap();
        load(directory.path()).unwrap();
        let path = directory.path().join(file);
        std::fs::write(&path, &content).unwrap();
        let error = load(directory.path()).unwrap_err();
        assert!(
            matches!(error, DirectoryError::Damaged { .. }),
            "{file}: {error:?}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    load(directory.path()).unwrap();
    let key = directory.path().join("ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = load(directory.path()).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn a_crash_while_it_is_made_is_finished_or_undone_by_the_next_start() {
    // Every intermediate state of the write, in order.
    let made = tempfile::tempdir().unwrap();
    let fingerprint = load(made.path()).unwrap().fingerprint();
    let certificate = std::fs::read(made.path().join("ca.pem")).unwrap();
    let key = std::fs::read(made.path().join("ca.key")).unwrap();
    let stage = |files: &[(&str, &[u8])]| {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let first = load(directory.path()).unwrap().fingerprint();
        assert_eq!(load(directory.path()).unwrap().fingerprint(), first);
        first
    };
    // Nothing was in place: nobody has seen that authority, so a new one is fine.
    stage(&[("ca.pem.pending", &certificate)]);
    stage(&[("ca.pem.pending", &certificate[..50])]);
    stage(&[("ca.pem.pending", &certificate), ("ca.key.pending", &key)]);
    // The key is in place: the result must be the same authority.
    let finished = stage(&[("ca.pem.pending", &certificate), ("ca.key", &key)]);
    assert_eq!(finished, fingerprint);
}

#[test]
fn a_pending_certificate_of_another_key_is_not_taken() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    load(one.path()).unwrap();
    load(other.path()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(one.path().join("ca.key"), directory.path().join("ca.key")).unwrap();
    std::fs::copy(
        other.path().join("ca.pem"),
        directory.path().join("ca.pem.pending"),
    )
    .unwrap();
    let error = load(directory.path()).unwrap_err();
    assert!(
        matches!(error, DirectoryError::HalfMissing { .. }),
        "{error:?}"
    );
}

#[test]
fn an_unwritable_place_is_a_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = load(&file.join("ca")).unwrap_err();
    assert!(matches!(error, DirectoryError::Io { .. }), "{error:?}");
}
