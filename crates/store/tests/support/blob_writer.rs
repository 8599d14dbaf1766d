//! A process that writes, references, releases and collects blobs until it is killed, and prints
//! the acknowledged references.
//!
//! `bunraku-store-blob-writer DIRECTORY directory|store|PORT SEED`, with the port of an S3 server.
//!
//! Each line is written at once: `refers ID REFERRER` after a reference was added, `lets-go ID
//! REFERRER` before one is removed.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use bunraku_model::ContentId;
use bunraku_store::blobs::{
    BlobOptions, Blobs, ContentPlace, DirectoryBlobs, S3Credentials, S3Options, SharedBlobs,
    StoreBlobs,
};
use bunraku_store::contract::Random;
use bunraku_store::{EmbeddedOptions, EmbeddedStore};
use jiff::Timestamp;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("a directory"));
    let place = arguments.next().expect("a place");
    let seed: u64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a seed");
    let store = EmbeddedStore::open(&directory.join("store"), EmbeddedOptions::default())
        .await
        .expect("the store opens");
    let store = Arc::new(store);
    let options = BlobOptions {
        grace: std::time::Duration::ZERO,
        ..BlobOptions::default()
    };
    let blobs: SharedBlobs = if place == "directory" {
        let opened = DirectoryBlobs::in_directory(directory.join("blobs"), store, options).await;
        Arc::new(opened.expect("the blobs open"))
    } else if place == "store" {
        Arc::new(StoreBlobs::in_store(store, options))
    } else {
        let keys = S3Credentials::Keys {
            access_key: "test-key".to_owned(),
            secret_key: "test-secret".to_owned(),
            session_token: None,
        };
        let s3 = S3Options {
            endpoint: Some(format!("http://127.0.0.1:{place}")),
            path_style: true,
            ..S3Options::new("content", keys)
        };
        let blobs = StoreBlobs::in_store(store, options);
        let blobs = blobs.with_s3(&s3).expect("valid settings");
        blobs.activate(ContentPlace::S3).expect("it has S3");
        Arc::new(blobs)
    };
    for task in 0..3 {
        tokio::spawn(write(
            Arc::clone(&blobs),
            Random(seed + task),
            format!("{seed}-{task}"),
        ));
    }
    loop {
        blobs.collect(Timestamp::now()).await.expect("collects");
    }
}

async fn write(blobs: SharedBlobs, mut random: Random, name: String) {
    let mut held: Vec<(ContentId, String)> = Vec::new();
    for number in 0_u64.. {
        // Few different contents, so that writers and the collector meet.
        let size = [10, 5_000, 300_000, 700_000][usize::try_from(random.below(4)).expect("small")];
        let fill = u8::try_from(random.below(4)).expect("small");
        let put = blobs
            .put(&mut &vec![fill; size][..], None)
            .await
            .expect("writes");
        let (id, referrer) = (put.info.id, format!("{name}-{number}"));
        blobs.reference(id, &referrer).await.expect("refers");
        print_line(&format!("refers {id} {referrer}"));
        put.pin.release().await.expect("releases");
        held.push((id, referrer));
        if held.len() > 2 {
            let (id, referrer) = held.remove(0);
            print_line(&format!("lets-go {id} {referrer}"));
            blobs.unreference(id, &referrer).await.expect("lets go");
        }
    }
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let line = format!("{line}\n");
    out.write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .expect("someone listens");
}
