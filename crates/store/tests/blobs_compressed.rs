//! Content in the store is compressed, and content from before is readable.

use crate::blob_support::{Kind, World, content, options, read};
use bunraku_model::ContentId;
use bunraku_store::{Range, Transaction};

/// Returns the size of all stored chunks.
async fn stored_bytes(world: &World) -> usize {
    let page = world.store.range(Range::prefix("blob-chunks/")).await;
    let items = page.expect("readable").items;
    items.iter().map(|item| item.value.len()).sum()
}

#[tokio::test]
async fn text_takes_a_fraction_of_its_size_in_the_store_and_a_part_of_it_can_be_read() {
    let world = World::new(Kind::Store, options()).await;
    let blobs = world.open().await;
    let text: String = (0..60_000)
        .map(|number| format!("{{\"title\":\"/etc/app/{number}.conf\",\"mode\":\"0644\"}}\n"))
        .collect();
    let put = blobs.put(&mut text.as_bytes(), None).await.expect("writes");
    assert_eq!(put.info.id, ContentId::of(text.as_bytes()));
    assert_eq!(put.info.size, text.len() as u64);
    let stored = stored_bytes(&world).await;
    assert!(stored * 5 < text.len(), "{stored} of {} bytes", text.len());
    assert_eq!(
        read(&*blobs, put.info.id).await.expect("reads"),
        text.as_bytes()
    );
    let part = blobs.open_range(put.info.id, 600_000..1_200_000).await;
    let part: Vec<bytes::Bytes> = futures::TryStreamExt::try_collect(part.expect("opens"))
        .await
        .expect("reads");
    assert_eq!(part.concat(), &text.as_bytes()[600_000..1_200_000]);
    let scrubbed = blobs.scrub().await.expect("reads everything");
    assert_eq!((scrubbed.checked, scrubbed.damaged.len()), (1, 0));
}

#[tokio::test]
async fn content_that_does_not_compress_is_stored_as_it_is() {
    let world = World::new(Kind::Store, options()).await;
    let blobs = world.open().await;
    let random = content(7, 200_000);
    let put = blobs.put(&mut &random[..], None).await.expect("writes");
    let stored = stored_bytes(&world).await;
    assert!(stored < random.len() + 200, "{stored}");
    assert_eq!(read(&*blobs, put.info.id).await.expect("reads"), random);
}

#[tokio::test]
async fn content_that_was_stored_without_compression_is_readable() {
    let world = World::new(Kind::Store, options()).await;
    let blobs = world.open().await;
    let text = "the same line\n".repeat(1_000);
    let put = blobs.put(&mut text.as_bytes(), None).await.expect("writes");
    // As earlier versions wrote it.
    let page = world.store.range(Range::prefix("blob-chunks/")).await;
    let hash = ContentId::of(text.as_bytes()).to_string();
    let items = page.expect("readable").items;
    let chunk = items.iter().find(|item| item.key.ends_with(&hash));
    let key = chunk.expect("one chunk").key.clone();
    let plain = Transaction::new().put(key, text.clone());
    world.store.commit(plain).await.expect("written");
    assert_eq!(
        read(&*blobs, put.info.id).await.expect("reads"),
        text.as_bytes()
    );
}
