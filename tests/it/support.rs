//! What several tests need.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use order_feed_agent::config::{self, Account};
use order_feed_agent::event::Item;
use order_feed_agent::http::client::Clients;
use order_feed_agent::journal::{Batch, Journal, Journaled, SqliteJournal};
use order_feed_agent::sandbox::{Options, Sandbox};
use order_feed_agent::vtex::feed::HttpFeed;
use order_feed_agent::vtex::http::Http;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) mod agent;
pub(crate) mod raw_server;
pub(crate) mod receiver;
pub(crate) mod witness;

/// The app token of every test; it must never be seen outside a request.
pub(crate) const TOKEN: &str = "CANARY-TOKEN-4711";

/// Loads a configuration from text, as the binary would.
pub(crate) fn load(text: &str) -> config::Config {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    config::load(&path, []).unwrap_or_else(|errors| panic!("{errors}")).config
}

/// The one account of a configuration whose feed is at `base_url`; `more` is TOML that follows.
pub(crate) fn account(base_url: &str, more: &str) -> Account {
    let text = format!(
        "[accounts.store]\nbase_url = \"{base_url}\"\napp_key = \"vtexappkey-store-ABCDEF\"\napp_token = \"{TOKEN}\"\n{more}"
    );
    load(&text).accounts.remove(0)
}

pub(crate) fn feed(base_url: &str, more: &str) -> HttpFeed {
    let account = account(base_url, more);
    let client = Clients::default().client(&account).unwrap();
    HttpFeed::new(Arc::new(Http::new(client, &account)), account.name.clone())
}

/// Journals items in `directory`, which is the only way to something that can be committed.
pub(crate) async fn journaled(directory: &Path, items: Vec<Item>) -> Vec<Journaled> {
    let journal = SqliteJournal::open(&directory.join("journal.db")).unwrap();
    let batch = Batch {
        account: "store".to_owned(),
        source: "http://127.0.0.1/api/orders/feed".to_owned(),
        items,
        received_at: jiff::Timestamp::UNIX_EPOCH,
        lease: Duration::from_secs(30),
    };
    journal.append(batch).await.unwrap().journaled
}

/// A sandbox on a free port, in this process so that its ledger can be read.
pub(crate) async fn sandbox(options: Options) -> (Sandbox, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sandbox = Sandbox::new(options);
    let serving = sandbox.clone();
    tokio::spawn(async move { serving.serve(listener, CancellationToken::new()).await });
    (sandbox, address)
}
