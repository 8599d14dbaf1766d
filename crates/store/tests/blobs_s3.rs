//! Content in S3: parts, requests, and a server that is slow, full, broken or down.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crate::blob_support::{Kind, World, content, options, read, read_range};
use bunraku_model::{ContentId, error_chain};
use bunraku_store::blobs::{
    BlobError, Blobs, CHUNK_SIZE, ContentPlace, S3Credentials, S3Options, SharedBlobs, StoreBlobs,
};
use bunraku_store::testing::{
    CutPoint, CutStore, FaultProxy, ProxyFault, S3Server, TestAuthority, WriteCounter,
};
use bunraku_store::{Range, SharedStore};
use bunraku_testkit::eventually;
use jiff::Timestamp;

fn blobs_with(store: SharedStore, s3: &S3Options) -> SharedBlobs {
    let blobs = StoreBlobs::in_store(store, options());
    let blobs = blobs.with_s3(s3).expect("valid settings");
    blobs.activate(ContentPlace::S3).expect("it has S3");
    Arc::new(blobs)
}

/// Blobs in S3 behind a proxy. Failing requests are given up soon.
struct Proxied {
    world: World,
    proxy: FaultProxy,
    blobs: SharedBlobs,
}

async fn proxied() -> Proxied {
    let world = World::new(Kind::S3, options()).await;
    let s3 = world.s3.as_ref().expect("a server");
    let proxy = FaultProxy::start(s3.port()).await;
    let settings = S3Options {
        request_timeout: Duration::from_secs(5),
        retry_for: Duration::from_secs(1),
        ..s3.options_through(proxy.port())
    };
    let blobs = blobs_with(world.store.clone(), &settings);
    Proxied {
        world,
        proxy,
        blobs,
    }
}

async fn notes(store: &SharedStore) -> usize {
    let page = store.range(Range::prefix("blob-objects/")).await;
    page.expect("reads").items.len()
}

#[tokio::test]
async fn large_content_is_sent_in_parts_and_read_in_few_requests() {
    let Proxied {
        world,
        proxy,
        blobs,
    } = proxied().await;
    let s3 = world.s3.as_ref().expect("a server");
    // It does not compress, and is longer than two parts.
    let bytes = content(1, 17 * 1024 * 1024 + 5);
    let put = blobs.put(&mut &bytes[..], None).await.expect("writes");
    assert_eq!(put.info.id, ContentId::of(&bytes));
    assert_eq!((s3.objects().await.len(), s3.unfinished().await), (1, 0));
    assert_eq!(notes(&world.store).await, 0);

    let before = proxy.connections();
    assert!(read(&*blobs, put.info.id).await.expect("reads") == bytes);
    let requests = proxy.connections() - before;
    assert!(requests < 12, "{requests} requests for 34 chunks");
    let middle = 9_000_000..9_000_100;
    let part = read_range(&*blobs, put.info.id, middle.clone()).await;
    assert!(part.expect("reads") == bytes[9_000_000..9_000_100]);
}

#[tokio::test]
async fn small_content_takes_three_writes_in_the_store_and_two_if_it_exists() {
    let world = World::new(Kind::S3, options()).await;
    let counter = Arc::new(WriteCounter::new(world.store.clone()));
    let s3 = world.s3.as_ref().expect("a server").options();
    let blobs = blobs_with(counter.clone(), &s3);
    // A lease, the announcement, the record.
    blobs.put(&mut &b"small"[..], None).await.expect("writes");
    assert_eq!(counter.take(), 3);
    // A lease and the pin.
    blobs.put(&mut &b"small"[..], None).await.expect("writes");
    assert_eq!(counter.take(), 2);
}

#[tokio::test]
async fn a_collection_without_garbage_makes_no_request_to_s3() {
    let Proxied {
        world: _world,
        proxy,
        blobs,
    } = proxied().await;
    for number in 0..20_u64 {
        let put = blobs.put(&mut &content(number, 500)[..], None).await;
        let id = put.expect("writes").info.id;
        blobs.reference(id, "test").await.expect("refers");
    }
    let before = proxy.connections();
    let collected = blobs.collect(Timestamp::now()).await.expect("collects");
    assert_eq!(collected, Default::default());
    assert_eq!(proxy.connections(), before);
}

#[tokio::test]
async fn a_missing_object_is_an_error_that_names_it() {
    let world = World::new(Kind::S3, options()).await;
    let s3 = world.s3.as_ref().expect("a server");
    let blobs = world.open().await;
    let put = blobs.put(&mut &b"bytes"[..], None).await.expect("writes");
    let name = s3.objects().await.remove(0);
    s3.remove(&name).await;
    let error = read(&*blobs, put.info.id).await.expect_err("it is gone");
    let expected = format!(
        "content {} is corrupt: s3://content/{name} does not exist",
        put.info.id
    );
    assert_eq!(error.to_string(), expected);
    // Writing it again repairs it.
    blobs.put(&mut &b"bytes"[..], None).await.expect("mends");
    assert_eq!(read(&*blobs, put.info.id).await.expect("reads"), b"bytes");
}

#[tokio::test]
async fn a_damaged_object_is_an_error_wherever_the_damage_is() {
    let world = World::new(Kind::S3, options()).await;
    let s3 = world.s3.as_ref().expect("a server");
    let blobs = world.open().await;
    let bytes = content(3, 2_000);
    let put = blobs.put(&mut &bytes[..], None).await.expect("writes");
    let name = s3.objects().await.remove(0);
    let good = s3.read(&name).await;
    for length in [0, 1, 50, good.len() - 1] {
        s3.write(&name, good[..length].to_vec()).await;
        let cut = read(&*blobs, put.info.id).await;
        assert!(cut.is_err(), "{length} bytes");
    }
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        s3.write(&name, bad).await;
        // Some bits of gzip do not matter.
        if let Ok(found) = read(&*blobs, put.info.id).await {
            assert!(found == bytes, "byte {at}");
        }
    }
}

#[tokio::test]
async fn errors_that_pass_are_not_noticed() {
    let Proxied {
        world: _world,
        proxy,
        blobs,
    } = proxied().await;
    for fault in [
        ProxyFault::Answer(503, "SlowDown"),
        ProxyFault::Answer(500, "InternalError"),
        ProxyFault::Reset,
    ] {
        proxy.set(fault.clone());
        let before = proxy.connections();
        let bytes = format!("{fault:?}").into_bytes();
        let mut source = &bytes[..];
        let (put, ()) = tokio::join!(blobs.put(&mut source, None), async {
            eventually(async || proxy.connections() > before).await;
            proxy.set(ProxyFault::None);
        });
        let id = put.unwrap_or_else(|error| panic!("{fault:?}: {}", error_chain(&error)));
        assert_eq!(read(&*blobs, id.info.id).await.expect("reads"), bytes);
    }
}

#[tokio::test]
async fn a_server_that_is_down_full_or_silent_is_a_clear_error_and_nothing_is_lost() {
    let Proxied {
        world,
        proxy,
        blobs,
    } = proxied().await;
    let s3 = world.s3.as_ref().expect("a server");
    let kept = blobs.put(&mut &b"kept"[..], None).await.expect("writes");
    blobs.reference(kept.info.id, "test").await.expect("refers");
    let faults = [
        (ProxyFault::Reset, "connection"),
        (
            ProxyFault::AnswerWrites(507, "QuotaExceeded"),
            "S3 answered 507 QuotaExceeded: injected",
        ),
        (
            ProxyFault::Answer(403, "AccessDenied"),
            "S3 answered 403 AccessDenied: injected",
        ),
        (ProxyFault::Silent, "no answer within 5 s"),
    ];
    for (number, (fault, expected)) in faults.into_iter().enumerate() {
        proxy.set(fault.clone());
        let bytes = content(number as u64, 1_000);
        let error = blobs.put(&mut &bytes[..], None).await.expect_err("refused");
        assert!(error.is_place_failure(), "{fault:?}: {error:?}");
        let text = error_chain(&error);
        assert!(
            text.starts_with("cannot write s3://content/bunraku/content/"),
            "{text}"
        );
        assert!(text.contains(expected), "{fault:?}: {text}");
        assert!(
            !blobs
                .has(ContentId::of(&bytes))
                .await
                .expect("the store works")
        );
        proxy.set(ProxyFault::None);
        assert_eq!(read(&*blobs, kept.info.id).await.expect("reads"), b"kept");
        let again = blobs.put(&mut &bytes[..], None).await.expect("recovers");
        again.pin.release().await.expect("releases");
    }
    // What the failed writes left is gone after a collection.
    for _ in 0..2 {
        blobs.collect(Timestamp::now()).await.expect("collects");
    }
    assert_eq!(
        (s3.objects().await.len(), notes(&world.store).await),
        (1, 0)
    );
}

#[tokio::test]
async fn a_slow_server_delays_nobody_who_does_not_need_it() {
    let Proxied {
        world: _world,
        proxy,
        blobs,
    } = proxied().await;
    let first = blobs.put(&mut &b"first"[..], None).await.expect("writes");
    proxy.set(ProxyFault::Silent);
    let waiting = tokio::spawn({
        let blobs = blobs.clone();
        async move { blobs.put(&mut &b"second"[..], None).await.map(drop) }
    });
    let before = proxy.connections();
    eventually(async || proxy.connections() > before).await;
    blobs.reference(first.info.id, "a").await.expect("refers");
    assert!(blobs.has(first.info.id).await.expect("asks"));
    blobs.collect(Timestamp::now()).await.expect("collects");
    assert!(!waiting.is_finished());
    proxy.set(ProxyFault::Slow(Duration::from_millis(50)));
    waiting.await.expect("ends").expect("is written in the end");
}

#[tokio::test]
async fn an_object_without_a_record_is_cleared_away_wherever_the_writer_died() {
    let server = S3Server::start().await;
    let sizes = [1_000, 9 * 1024 * 1024];
    // A writer that dies after it began a multipart upload and before it noted that leaves an upload
    // without parts: it holds no bytes, and a lifecycle rule of the bucket removes it.
    let mut without_parts = 0;
    for (size, cut) in sizes
        .into_iter()
        .flat_map(|size| [CutPoint::Before, CutPoint::After].map(|cut| (size, cut)))
    {
        for at in 0.. {
            let world = World::new(Kind::Store, options()).await;
            let cut_store = Arc::new(CutStore::new(world.store.clone(), at, cut));
            let blobs = blobs_with(cut_store.clone(), &server.options());
            let bytes = content(at, size);
            let put = blobs.put(&mut &bytes[..], None).await;
            assert_eq!(put.is_err(), cut_store.is_cut());
            // Time passes: the leases of the dead writer end.
            let page = world
                .store
                .range(Range::prefix("blob-"))
                .await
                .expect("reads");
            for lease in page.items.iter().filter_map(|item| item.lease) {
                let _ = world.store.lease_revoke(lease).await;
            }
            let blobs = blobs_with(world.store.clone(), &server.options());
            for _ in 0..2 {
                blobs.collect(Timestamp::now()).await.expect("collects");
            }
            let left = server.objects().await;
            assert_eq!(left, Vec::<String>::new(), "{size} bytes, cut {cut:?} {at}");
            let is_before_note = size > 1_000 && at == 2 && cut == CutPoint::Before;
            without_parts += usize::from(is_before_note);
            let unfinished = server.unfinished().await;
            assert_eq!(unfinished, without_parts, "{size} bytes, cut {cut:?} {at}");
            assert_eq!(notes(&world.store).await, 0);
            if put.is_ok() {
                assert!(at > 1, "some writes were cut");
                break;
            }
        }
    }
}

#[tokio::test]
async fn garbage_is_removed_once_s3_is_back() {
    let Proxied {
        world,
        proxy,
        blobs,
    } = proxied().await;
    let s3 = world.s3.as_ref().expect("a server");
    for number in 0..5 {
        let put = blobs.put(&mut &content(number, 500)[..], None).await;
        put.expect("writes").pin.release().await.expect("releases");
    }
    blobs.collect(Timestamp::now()).await.expect("condemns");
    proxy.set(ProxyFault::Reset);
    // It fails or leaves debris, and forgets nothing.
    let _ = blobs.collect(Timestamp::now()).await;
    assert_eq!(s3.objects().await.len(), 5);
    proxy.set(ProxyFault::None);
    for _ in 0..2 {
        blobs.collect(Timestamp::now()).await.expect("collects");
    }
    assert_eq!(s3.objects().await, Vec::<String>::new());
    assert_eq!(notes(&world.store).await, 0);
}

#[tokio::test]
async fn a_signed_url_needs_no_credentials_and_any_gzip_reader_decodes_it() {
    let world = World::new(Kind::S3, options()).await;
    let blobs = world.open().await;
    let text = "a line of text\n".repeat(100_000);
    let put = blobs.put(&mut text.as_bytes(), None).await.expect("writes");
    let url = blobs.signed_url(put.info.id, Duration::from_secs(60)).await;
    let url = url.expect("signs").expect("it is in S3");
    let answer = std::process::Command::new("curl")
        .args(["--silent", "--fail", &url])
        .output()
        .expect("curl runs");
    assert!(answer.status.success(), "{url}");
    assert!(answer.stdout.len() * 10 < text.len(), "it is compressed");
    let mut decoded = String::new();
    flate2::read::MultiGzDecoder::new(&answer.stdout[..])
        .read_to_string(&mut decoded)
        .expect("gzip");
    assert!(decoded == text);
    let bare = url.split('?').next().expect("a URL");
    let denied = std::process::Command::new("curl")
        .args(["--silent", "--fail", bare])
        .output()
        .expect("curl runs");
    assert!(!denied.status.success(), "without a signature");
    // Content elsewhere has no URL.
    blobs.activate(ContentPlace::Default).expect("activates");
    let other = blobs.put(&mut &b"other"[..], None).await.expect("writes");
    let url = blobs
        .signed_url(other.info.id, Duration::from_secs(60))
        .await;
    assert_eq!(url.expect("asks"), None);
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let authority = TestAuthority::new();
    let server = S3Server::start_tls(&authority).await;
    let world = World::new(Kind::Store, options()).await;
    let trusted = S3Options {
        ca_pem: authority.ca_pem(),
        ..server.options()
    };
    blobs_with(world.store.clone(), &trusted)
        .check_s3()
        .await
        .expect("trusted");
    let other = S3Options {
        ca_pem: TestAuthority::new().ca_pem(),
        retry_for: Duration::ZERO,
        ..server.options()
    };
    let refused = blobs_with(world.store.clone(), &other).check_s3().await;
    let error = error_chain(&refused.expect_err("another authority"));
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn credentials_come_from_a_file_that_may_change() {
    let world = World::new(Kind::S3, options()).await;
    let file = world.directory.path().join("credentials");
    let settings = S3Options {
        credentials: S3Credentials::File(file.clone()),
        ..world.s3.as_ref().expect("a server").options()
    };
    let blobs = blobs_with(world.store.clone(), &settings);
    let error = error_chain(&blobs.check_s3().await.expect_err("no file"));
    assert!(error.contains("cannot use the credentials in"), "{error}");
    let keys = "[default]\naws_access_key_id = a\naws_secret_access_key = b\n";
    std::fs::write(&file, keys).expect("writes");
    blobs.check_s3().await.expect("works now");
    assert!(matches!(
        blobs
            .put(&mut &vec![7; CHUNK_SIZE][..], Some(ContentId::of(b"")))
            .await,
        Err(BlobError::Mismatch { .. })
    ));
}
