//! Kills writers at any moment: referenced content is complete, and partial content is never
//! visible.

use crate::killed::was_killed;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::blob_support::{Kind, World, options, read};
use bunraku_model::ContentId;
use bunraku_store::contract::Random;
use bunraku_store::testing::S3Server;
use bunraku_store::{EmbeddedOptions, EmbeddedStore, Range, SharedStore};
use jiff::Timestamp;

const ROUNDS: u64 = 25;

/// The references that dead writers acknowledged.
#[derive(Default)]
struct Acknowledged {
    refers: BTreeSet<(ContentId, String)>,
    released: usize,
}

impl Acknowledged {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, id, referrer] = words[..] else {
            panic!("the writer said {line:?}");
        };
        let reference = (id.parse().expect("an id"), referrer.to_owned());
        match what {
            "refers" => assert!(self.refers.insert(reference), "{line}"),
            _ => {
                assert!(self.refers.remove(&reference), "{line}");
                self.released += 1;
            }
        }
    }
}

/// Lets the writer print some lines and continue for a while, then kills it. Returns its output;
/// the last line may be cut off.
fn run_and_kill(directory: &Path, place: &str, seed: u64, random: &mut Random) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bunraku-store-blob-writer"))
        .arg(directory)
        .args([place.to_owned(), seed.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the writer starts");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut said = String::new();
    for _ in 0..random.below(16) {
        output.read_line(&mut said).expect("it speaks");
    }
    std::thread::sleep(Duration::from_millis(random.below(30)));
    child.kill().expect("it is ours to kill");
    output.read_to_string(&mut said).expect("text");
    was_killed(child);
    said
}

async fn open(directory: &tempfile::TempDir) -> EmbeddedStore {
    EmbeddedStore::open(&directory.path().join("store"), EmbeddedOptions::default())
        .await
        .expect("it opens after a kill")
}

async fn check(
    directory: tempfile::TempDir,
    kind: Kind,
    s3: Option<S3Server>,
    acknowledged: &Acknowledged,
) -> (tempfile::TempDir, Option<S3Server>) {
    let store = open(&directory).await;
    let world = World {
        store: Arc::new(store.clone()),
        options: options(),
        kind,
        directory,
        s3,
    };
    let blobs = world.open().await;
    let wanted: BTreeSet<ContentId> = acknowledged.refers.iter().map(|(id, _)| *id).collect();
    for id in &wanted {
        let found = read(&*blobs, *id).await;
        assert!(found.is_ok(), "{id} is referred to: {:?}", found.err());
        let referrers = blobs.references(*id).await.expect("lists");
        let said = acknowledged.refers.iter().filter(|(of, _)| of == id);
        for (_, referrer) in said {
            assert!(referrers.contains(referrer), "{referrer} was forgotten");
        }
    }
    let scrubbed = blobs.scrub().await.expect("reads");
    assert_eq!(scrubbed.damaged, [], "seen, and not whole");
    end_leases(&world.store).await;
    for _ in 0..3 {
        blobs.collect(Timestamp::now()).await.expect("collects");
    }
    // There may be more: a writer may have died before it could print a line.
    let mut listed = BTreeSet::new();
    for info in blobs.list(None).await.expect("lists") {
        let referrers = blobs.references(info.id).await.expect("lists");
        assert!(!referrers.is_empty(), "{} is garbage and was kept", info.id);
        listed.insert(info.id);
    }
    assert!(listed.is_superset(&wanted));
    if kind != Kind::Store {
        assert_eq!(
            world.stored_names().await.len(),
            listed.len(),
            "debris was left"
        );
    }
    drop(blobs);
    store.close().await.expect("it closes");
    (world.directory, world.s3)
}

/// Ends the pins and uploads of dead writers, as time would.
async fn end_leases(store: &SharedStore) {
    for prefix in ["blob-uploads/", "blob-pins/"] {
        let page = store.range(Range::prefix(prefix)).await.expect("reads");
        for lease in page.items.iter().filter_map(|item| item.lease) {
            let _ = store.lease_revoke(lease).await;
        }
    }
}

async fn crash_often(kind: Kind, rounds: u64) {
    let mut s3 = match kind {
        Kind::S3 => Some(S3Server::start().await),
        _ => None,
    };
    let place = match (kind, &s3) {
        (Kind::Directory, _) => "directory".to_owned(),
        (_, None) => "store".to_owned(),
        (_, Some(s3)) => s3.port().to_string(),
    };
    let mut directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir_all(directory.path().join("store")).expect("a directory");
    let mut acknowledged = Acknowledged::default();
    let mut random = Random(7);
    for round in 0..rounds {
        let said = run_and_kill(directory.path(), &place, 1000 * round, &mut random);
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        for line in whole.lines() {
            acknowledged.take(line);
        }
        (directory, s3) = check(directory, kind, s3, &acknowledged).await;
    }
    assert!(acknowledged.released > 0, "the writers did something");
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_in_a_directory_survive_every_kill() {
    crash_often(Kind::Directory, ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_in_the_store_survive_every_kill() {
    crash_often(Kind::Store, ROUNDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_in_s3_survive_every_kill() {
    crash_often(Kind::S3, 8).await;
}
