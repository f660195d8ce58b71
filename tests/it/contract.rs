//! One contract for both feeds: the in-memory one of the loop tests, and the sandbox behind real HTTP.

use std::time::Duration;

use order_feed_agent::event::Item;
use order_feed_agent::sandbox::items::Item as SandboxItem;
use order_feed_agent::sandbox::memory::MemoryFeed;
use order_feed_agent::sandbox::queue::Rules;
use order_feed_agent::sandbox::{Options, Sandbox};
use order_feed_agent::vtex::feed::Feed;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::{feed, journaled};

const N_EVENTS: usize = 25;
const VISIBILITY: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn the_feed_in_memory_keeps_the_contract() {
    let feed = MemoryFeed::new("store", Rules { visibility: VISIBILITY, ..Rules::default() }, 1);
    for n in 0..N_EVENTS {
        feed.enqueue(SandboxItem::new(
            &serde_json::json!({ "orderId": format!("{n}-01"), "state": "handling" }),
        ));
    }
    keeps_the_contract(feed).await;
}

#[tokio::test]
async fn the_sandbox_keeps_the_contract() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sandbox =
        Sandbox::new(Options { count: N_EVENTS as u64, visibility: VISIBILITY, ..Options::default() });
    tokio::spawn(async move { sandbox.serve(listener, CancellationToken::new()).await });
    keeps_the_contract(feed(&url, "")).await;
}

/// A feed of [`N_EVENTS`] events that are leased for [`VISIBILITY`].
async fn keeps_the_contract(feed: impl Feed) {
    assert_eq!(feed.visibility().await.unwrap().body, VISIBILITY, "how long a lease lasts can be learnt");
    let mut first = feed.receive(3, &CancellationToken::new()).await.unwrap().body;
    assert_eq!(first.len(), 3, "no more than asked for");
    first.extend(drain(&feed).await);
    assert_eq!(first.len(), N_EVENTS, "every event is given");
    assert_eq!(drain(&feed).await, [], "a leased item is hidden");

    sleep(VISIBILITY * 2).await;
    let again = drain(&feed).await;
    assert_eq!(sorted(&again, key), sorted(&first, key), "what is not committed comes back");
    let (old, new) = (sorted(&first, handle), sorted(&again, handle));
    assert!(old.iter().all(|handle| !new.contains(handle)), "an item comes back with a new handle");

    commit(&feed, first).await;
    sleep(VISIBILITY * 2).await;
    let third = drain(&feed).await;
    assert_eq!(third.len(), N_EVENTS, "a stale handle commits nothing");

    commit(&feed, third.clone()).await;
    commit(&feed, third).await;
    sleep(VISIBILITY * 2).await;
    assert_eq!(drain(&feed).await, [], "what is committed is gone, and committing it twice is harmless");
}

async fn drain(feed: &impl Feed) -> Vec<Item> {
    let mut items = Vec::new();
    loop {
        let batch = feed.receive(10, &CancellationToken::new()).await.unwrap().body;
        assert!(batch.len() <= 10);
        if batch.is_empty() {
            return items;
        }
        items.extend(batch);
    }
}

async fn commit(feed: &impl Feed, items: Vec<Item>) {
    let directory = tempfile::tempdir().unwrap();
    for events in journaled(directory.path(), items).await.chunks(10) {
        feed.commit(events).await.unwrap();
    }
}

fn sorted<T: Ord>(items: &[Item], part: impl Fn(&Item) -> T) -> Vec<T> {
    let mut parts: Vec<T> = items.iter().map(part).collect();
    parts.sort();
    parts
}

fn key(item: &Item) -> [u8; 16] {
    match item {
        Item::Leased(leased) => leased.event.key.hash,
        Item::Unusable(unusable) => unusable.hash,
    }
}

fn handle(item: &Item) -> String {
    match item {
        Item::Leased(leased) => leased.handle.expose().to_owned(),
        Item::Unusable(unusable) => unusable.handle.as_ref().unwrap().expose().to_owned(),
    }
}
