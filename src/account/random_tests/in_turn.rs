//! A journal for runs that a seed must repeat exactly.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::journal::{Appended, Batch, Journal, JournalError, SqliteJournal, StoredPause};

/// A journal that holds up everybody until it is done, so that a seed repeats a run exactly.
pub(super) struct InTurn {
    journal: SqliteJournal,
    n_events: AtomicUsize,
}

impl InTurn {
    pub(super) fn new() -> Self {
        Self { journal: SqliteJournal::in_memory().unwrap(), n_events: AtomicUsize::new(0) }
    }

    /// How many events it holds.
    pub(super) fn n_events(&self) -> usize {
        self.n_events.load(Ordering::Relaxed)
    }
}

impl Journal for InTurn {
    async fn append(&self, batch: Batch) -> Result<Appended, JournalError> {
        let appended = block_on(self.journal.append(batch))?;
        self.n_events.fetch_add(appended.n_new, Ordering::Relaxed);
        Ok(appended)
    }

    fn is_blocked(&self) -> bool {
        self.journal.is_blocked()
    }

    async fn probe(&self) -> Result<(), JournalError> {
        block_on(self.journal.probe())
    }

    async fn store_pause(&self, vtex_account: &str, pause: StoredPause) -> Result<(), JournalError> {
        block_on(self.journal.store_pause(vtex_account, pause))
    }

    async fn pause(&self, vtex_account: &str) -> Result<Option<StoredPause>, JournalError> {
        block_on(self.journal.pause(vtex_account))
    }
}

/// Waits for what another thread does, without letting the runtime do anything else.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    // Otherwise tokio may want its turn first, which never comes here.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
