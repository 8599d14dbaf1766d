//! Tests of content-addressed bytes: writing, reading, damage, limits.

use bunraku_testkit::eventually;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::Duration;

use crate::blob_support::{Kind, World, content, options, read, read_range};
use bunraku_model::ContentId;
use bunraku_store::blobs::{BlobError, BlobOptions, Blobs, CHUNK_SIZE, ScrubSummary};
use bunraku_store::{Range, Transaction};
use futures::TryStreamExt;
use jiff::Timestamp;

async fn put(blobs: &dyn Blobs, bytes: &[u8]) -> ContentId {
    let put = blobs.put(&mut &bytes[..], None).await;
    put.expect("writes").info.id
}

#[tokio::test]
async fn what_is_written_is_read_back_whatever_its_size() {
    for world in World::all(options()).await {
        let blobs = world.open().await;
        let sizes = [
            0,
            1,
            CHUNK_SIZE - 1,
            CHUNK_SIZE,
            CHUNK_SIZE + 1,
            2 * CHUNK_SIZE,
            1_700_000,
        ];
        for (seed, size) in sizes.into_iter().enumerate() {
            let bytes = content(seed as u64, size);
            let put = blobs.put(&mut &bytes[..], None).await.expect("writes");
            assert_eq!(put.info.id, ContentId::of(&bytes));
            assert_eq!(put.info.size, size as u64);
            assert_eq!(read(&*blobs, put.info.id).await.expect("reads"), bytes);
            assert_eq!(
                blobs.size(put.info.id).await.expect("asks"),
                Some(size as u64)
            );
        }
        let listed = blobs.list(None).await.expect("lists");
        assert_eq!(listed.len(), sizes.len());
        assert!(listed.is_sorted_by_key(|info| info.id));
        let rest = blobs.list(Some(listed[2].id)).await.expect("lists");
        assert_eq!(rest, listed[3..]);
    }
}

#[tokio::test]
async fn a_part_is_what_the_whole_has_there() {
    for world in World::all(options()).await {
        let blobs = world.open().await;
        let bytes = content(1, 2 * CHUNK_SIZE + 77);
        let id = put(&*blobs, &bytes).await;
        let (chunk, size) = (CHUNK_SIZE as u64, bytes.len() as u64);
        let parts = [
            0..0,
            0..1,
            0..size,
            5..chunk,
            chunk - 1..chunk + 1,
            chunk..2 * chunk,
            2 * chunk..size,
            size - 1..size,
            size..size,
            3..2 * chunk + 5,
        ];
        for part in parts {
            let expected = &bytes[part.start as usize..part.end as usize];
            let found = read_range(&*blobs, id, part.clone()).await.expect("reads");
            assert!(found == expected, "{part:?}");
        }
        let beyond = read_range(&*blobs, id, 0..size + 1).await;
        assert!(
            matches!(beyond, Err(BlobError::OutOfRange { .. })),
            "{beyond:?}"
        );
    }
}

#[tokio::test]
async fn unexpected_content_is_refused_and_nothing_is_kept() {
    for world in World::all(options()).await {
        let blobs = world.open().await;
        let bytes = content(2, CHUNK_SIZE + 9);
        let expected = ContentId::of(b"something else");
        let refused = blobs.put(&mut &bytes[..], Some(expected)).await;
        assert!(
            matches!(refused, Err(BlobError::Mismatch { found, .. }) if found == ContentId::of(&bytes)),
            "{refused:?}"
        );
        assert!(!blobs.has(ContentId::of(&bytes)).await.expect("asks"));
        assert!(!blobs.has(expected).await.expect("asks"));
        assert_eq!(world.stored_names().await, Vec::<String>::new());
        let right = blobs
            .put(&mut &bytes[..], Some(ContentId::of(&bytes)))
            .await;
        assert!(right.is_ok());
    }
}

#[tokio::test]
async fn content_above_the_limit_is_refused_and_nothing_is_kept() {
    let limited = BlobOptions {
        max_size: Some(1_000_000),
        ..options()
    };
    for world in World::all(limited).await {
        let blobs = world.open().await;
        let refused = blobs.put(&mut &content(3, 1_000_001)[..], None).await;
        let error = refused.expect_err("too large").to_string();
        assert_eq!(error, "the content exceeds the limit of 1000000 bytes");
        assert_eq!(world.stored_names().await, Vec::<String>::new());
        blobs
            .put(&mut &content(3, 1_000_000)[..], None)
            .await
            .expect("just fits");
    }
}

/// A source that gives some bytes and then fails, like a broken connection.
struct Breaks(usize);

impl tokio::io::AsyncRead for Breaks {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if self.0 == 0 {
            return std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()));
        }
        let some = self.0.min(buffer.remaining());
        buffer.put_slice(&vec![7; some]);
        self.0 -= some;
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_source_that_breaks_leaves_nothing() {
    for world in World::all(options()).await {
        let blobs = world.open().await;
        let broken = blobs.put(&mut Breaks(CHUNK_SIZE * 2 + 5), None).await;
        assert!(matches!(broken, Err(BlobError::Source(_))), "{broken:?}");
        assert_eq!(world.stored_names().await, Vec::<String>::new());
        assert!(blobs.list(None).await.expect("lists").is_empty());
    }
}

#[tokio::test]
async fn many_writers_of_the_same_content_keep_it_once() {
    for world in World::all(options()).await {
        let blobs = world.open().await;
        let bytes = content(4, CHUNK_SIZE + 3);
        let writers = (0..8).map(|_| async {
            let put = blobs.put(&mut &bytes[..], None).await.expect("writes");
            read(&*blobs, put.info.id).await.expect("reads")
        });
        for found in futures::future::join_all(writers).await {
            assert!(found == bytes);
        }
        let once = if world.kind == Kind::Store { 3 } else { 1 };
        assert_eq!(world.stored_names().await.len(), once);
    }
}

/// Flips one bit of the only stored content.
async fn damage(world: &World, at: u64) {
    if let Some(s3) = &world.s3 {
        let name = s3.objects().await.remove(0);
        let mut bytes = s3.read(&name).await;
        let position = at as usize % bytes.len();
        bytes[position] ^= 1;
        s3.write(&name, bytes).await;
        return;
    }
    if world.kind == Kind::Directory {
        let files = world.files();
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&files[0])
            .expect("opens");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("reads");
        file.write_all_at(&[byte[0] ^ 1], at).expect("writes");
        return;
    }
    let page = world
        .store
        .range(Range::prefix("blob-chunks/"))
        .await
        .expect("reads");
    let chunk = page
        .items
        .iter()
        .find(|item| !item.key.ends_with("manifest"))
        .expect("a chunk");
    let mut value = chunk.value.to_vec();
    let position = at as usize % value.len();
    value[position] ^= 1;
    let write = Transaction::new().put(chunk.key.clone(), value);
    world.store.commit(write).await.expect("writes");
}

#[tokio::test]
async fn a_flipped_bit_is_an_error_and_never_handed_out() {
    for world in World::all(options()).await {
        let blobs = world.open().await;
        let bytes = content(5, 3 * CHUNK_SIZE + 3);
        let id = put(&*blobs, &bytes).await;
        blobs.reference(id, "test").await.expect("refers");
        damage(&world, CHUNK_SIZE as u64 + 2_000).await;

        let mut stream = blobs.open(id).await.expect("opens");
        let (mut handed_out, mut error) = (Vec::new(), None);
        loop {
            match stream.try_next().await {
                Ok(Some(part)) => handed_out.extend_from_slice(&part),
                Ok(None) => break,
                Err(found) => {
                    error = Some(found);
                    break;
                }
            }
        }
        assert!(
            matches!(error, Some(BlobError::Damaged { .. })),
            "{error:?}"
        );
        assert!(bytes.starts_with(&handed_out));

        let whole_range = read_range(&*blobs, id, 0..bytes.len() as u64).await;
        assert!(matches!(whole_range, Err(BlobError::Damaged { .. })));
        if world.kind != Kind::Store {
            let elsewhere = read_range(&*blobs, id, 0..100)
                .await
                .expect("is sound there");
            assert!(elsewhere == bytes[..100]);
        }

        let found = blobs.scrub().await.expect("reads");
        assert_eq!(
            found,
            ScrubSummary {
                checked: 1,
                damaged: vec![id]
            }
        );
        assert!(!blobs.has(id).await.expect("asks"));
        assert!(matches!(
            blobs.open(id).await.err(),
            Some(BlobError::Damaged { .. })
        ));
        let refer = blobs.reference(id, "other").await;
        assert!(matches!(refer, Err(BlobError::Damaged { .. })), "{refer:?}");

        blobs.put(&mut &bytes[..], None).await.expect("mends");
        assert!(read(&*blobs, id).await.expect("reads") == bytes);
        assert_eq!(blobs.references(id).await.expect("lists"), ["test"]);
        assert_eq!(
            blobs.scrub().await.expect("reads"),
            ScrubSummary {
                checked: 1,
                damaged: vec![]
            }
        );
    }
}

#[tokio::test]
async fn a_file_that_is_cut_swapped_or_gone_is_an_error() {
    let world = World::new(Kind::Directory, options()).await;
    let blobs = world.open().await;
    let bytes = content(6, CHUNK_SIZE + 100);
    let id = put(&*blobs, &bytes).await;
    let file = world.files().remove(0);
    let good = std::fs::read(&file).expect("reads");

    for length in [0, 1, 40, CHUNK_SIZE, good.len() - 1] {
        std::fs::write(&file, &good[..length]).expect("writes");
        let cut = read(&*blobs, id).await;
        assert!(
            matches!(cut, Err(BlobError::Damaged { .. })),
            "{length}: {cut:?}"
        );
    }
    // A valid file, with other content.
    let elsewhere = World::new(Kind::Directory, options()).await;
    let other = elsewhere.open().await;
    other
        .put(&mut &content(7, CHUNK_SIZE + 100)[..], None)
        .await
        .expect("writes");
    std::fs::copy(elsewhere.files().remove(0), &file).expect("copies");
    let swapped = read(&*blobs, id).await;
    assert!(
        matches!(swapped, Err(BlobError::Damaged { .. })),
        "{swapped:?}"
    );

    std::fs::remove_file(&file).expect("removes");
    let gone = read(&*blobs, id).await;
    assert!(matches!(gone, Err(BlobError::Damaged { .. })), "{gone:?}");
    blobs.put(&mut &bytes[..], None).await.expect("mends");
    assert!(read(&*blobs, id).await.expect("reads") == bytes);
}

#[tokio::test]
async fn files_are_for_their_owner_only() {
    let world = World::new(Kind::Directory, options()).await;
    let blobs = world.open().await;
    blobs.put(&mut &b"secret"[..], None).await.expect("writes");
    let file = world.files().remove(0);
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path)
            .expect("exists")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&file), 0o600);
    let fan = file.parent().expect("a parent");
    let content = fan.parent().expect("a parent");
    assert_eq!(mode(fan), 0o700);
    assert_eq!(mode(content), 0o700);
    assert_eq!(mode(content.parent().expect("a parent")), 0o700);
}

#[tokio::test]
async fn what_a_crashed_writer_left_is_cleared_at_the_next_start() {
    let brief = BlobOptions {
        pin_for: Duration::from_secs(2),
        ..options()
    };
    for world in World::all(brief).await {
        let blobs = world.open().await;
        let kept = blobs.put(&mut &b"kept"[..], None).await.expect("writes");
        blobs.reference(kept.info.id, "test").await.expect("refers");
        let sound = world.stored_names().await;

        // A source that never ends; the task is dropped in the middle.
        let (mut give, mut take) = tokio::io::duplex(64 * 1024);
        let writer = tokio::spawn({
            let blobs = blobs.clone();
            async move { blobs.put(&mut take, None).await.map(drop) }
        });
        // An object is written when it is complete, or in parts of 8 MiB.
        let before = if world.kind == Kind::S3 { 16 } else { 1 };
        let bytes = content(8, before * CHUNK_SIZE + 70_000);
        tokio::io::AsyncWriteExt::write_all(&mut give, &bytes)
            .await
            .expect("takes");
        eventually(async || world.stored_names().await.len() != sound.len()).await;
        writer.abort();
        let _ = writer.await;

        // Nothing is removed while the lease lasts: the writer may be on another server.
        eventually(async || {
            let reopened = world.open().await;
            let under_way = world.store.range(Range::prefix("blob-uploads/")).await;
            let leftover = world.stored_names().await.len() > sound.len();
            if under_way.expect("reads").items.is_empty() {
                reopened.collect(Timestamp::now()).await.expect("collects");
                return true;
            }
            assert!(leftover, "cleared away under a writer's hands");
            false
        })
        .await;
        assert_eq!(world.stored_names().await, sound);
        assert_eq!(read(&*blobs, kept.info.id).await.expect("reads"), b"kept");
    }
}

#[tokio::test]
async fn a_source_that_is_silent_for_long_does_not_lose_its_lease() {
    let brief = BlobOptions {
        pin_for: Duration::from_secs(2),
        ..options()
    };
    for world in World::all(brief).await {
        let blobs = world.open().await;
        let (mut give, mut take) = tokio::io::duplex(1024);
        let writer = tokio::spawn({
            let blobs = blobs.clone();
            async move { blobs.put(&mut take, None).await }
        });
        // Meanwhile, leases of the same length that nobody renews end one after the other.
        for _ in 0..2 {
            let lease = world.store.lease_grant(Duration::from_secs(2)).await;
            let lease = lease.expect("granted");
            eventually(async || {
                let status = world.store.lease_status(lease).await;
                status.expect("an answer").is_none()
            })
            .await;
        }
        tokio::io::AsyncWriteExt::write_all(&mut give, b"late")
            .await
            .expect("takes");
        drop(give);
        let put = writer.await.expect("ends").expect("writes");
        assert_eq!(put.info.id, ContentId::of(b"late"));
    }
}
