//! The real journal on storage that fails, is slow, and loses what was not synced when the power goes.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::audit;
use super::coverage::Met;
use super::disk::{Luck, Medium, Trouble};
use super::inline;
use super::storage::{Storage, WalMark};
use super::trace::Step;
use super::world::World;
use crate::event::Item;
use crate::journal::{Appended, Batch, Journal, JournalError, Outbox, SqliteJournal, StoredPause};
use crate::observe::logging::ErrorChain;

mod outbox;

/// Headings read for the books at a time.
const PAGE: usize = 1_000;

/// What all users of one agent's journal share.
pub(super) struct Shared {
    pub(super) inner: SqliteJournal,
    storage: Arc<Storage>,
    world: Arc<World>,
    /// Asks for a crash, now.
    crash: CancellationToken,
    /// One piece of work at a time, as with the one connection of the real journal.
    pub(super) turn: tokio::sync::Mutex<()>,
    suspect: AtomicBool,
    /// A transaction that is done, though nobody was told yet: where the write-ahead log stood before it.
    pub(super) untold: Mutex<Option<WalMark>>,
    appended: Mutex<Appends>,
    /// Those who want to know that another process has written.
    altered: Mutex<Altered>,
}

struct Altered {
    real: watch::Receiver<()>,
    users: Vec<watch::Sender<()>>,
}

/// Who uses the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    Gates,
    Feed(usize),
    Sink(usize),
    Receiver(usize),
}

struct Appends {
    real: watch::Receiver<()>,
    users: Vec<watch::Sender<()>>,
    /// Changes that the journal told of so far.
    n_changes: u64,
}

/// The journal as one of its users has it.
#[derive(Clone)]
pub(super) struct SimulatedJournal {
    shared: Arc<Shared>,
    user: User,
    /// The place behind which the journal was empty, and after how many changes.
    end: Arc<Mutex<Option<(i64, u64)>>>,
}

impl Shared {
    pub(super) fn open(
        world: &Arc<World>,
        storage: &Arc<Storage>,
        crash: CancellationToken,
    ) -> Result<Self, JournalError> {
        let inner = SqliteJournal::open(&storage.journal())?;
        // The first look only remembers.
        inline::to_its_end(inner.look_for_changes())?;
        let shared = Self {
            altered: Mutex::new(Altered { real: inner.altered(), users: Vec::new() }),
            appended: Mutex::new(Appends { real: inner.appended(), users: Vec::new(), n_changes: 0 }),
            inner,
            storage: Arc::clone(storage),
            world: Arc::clone(world),
            crash,
            turn: tokio::sync::Mutex::default(),
            suspect: AtomicBool::new(false),
            untold: Mutex::new(None),
        };
        shared.note_journaled();
        Ok(shared)
    }

    /// Looks whether another process has written, as the agent does all the time.
    pub(super) fn look_for_changes(&self) {
        let looked = inline::to_its_end(self.inner.look_for_changes());
        let mut altered = self.altered.lock().unwrap_or_else(PoisonError::into_inner);
        let Altered { real, users } = &mut *altered;
        let has_changed = real.has_changed().unwrap_or(false);
        real.mark_unchanged();
        self.world.with(|state, now| {
            state.expect(looked.map_err(|error| format!("cannot look: {}", ErrorChain(&error))));
            if has_changed {
                state.oracle.receivers.iter_mut().for_each(|receiver| receiver.told(now));
                state.trace.note(now, Step::Altered);
            }
        });
        for user in users.iter().filter(|_| has_changed) {
            user.send_replace(());
        }
    }

    /// Lets the receivers' books know what was journaled.
    fn note_journaled(&self) {
        if self.world.plan.receivers.is_empty() {
            return;
        }
        loop {
            let noted_to = self.world.with(|state, _| state.noted_to);
            let headings = inline::to_its_end(self.inner.headings_after(noted_to, PAGE));
            let n_headings = self.world.with(|state, _| match headings {
                Ok(headings) => {
                    headings.iter().for_each(|heading| state.note_journaled(heading));
                    headings.len()
                }
                Err(error) => {
                    state.expect(Err(format!("cannot read headings: {}", ErrorChain(&error))));
                    0
                }
            });
            if n_headings < PAGE {
                return;
            }
        }
    }

    /// Passes on that something was appended, to one user after the other: a channel with several receivers wakes
    /// them in an order that no seed decides.
    fn pass_on_appended(&self) {
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        let Appends { real, users, n_changes } = &mut *appended;
        if real.has_changed().unwrap_or(false) {
            real.mark_unchanged();
            *n_changes += 1;
            self.note_journaled();
            for user in users.iter() {
                user.send_replace(());
            }
        }
    }

    fn n_changes(&self) -> u64 {
        self.appended.lock().unwrap_or_else(PoisonError::into_inner).n_changes
    }

    fn fails(&self, doing: &'static str, done: bool) -> JournalError {
        self.world.with(|state, now| {
            state.coverage.meet(match (doing, done) {
                ("probe", _) => Met::ProbeFailed,
                (_, false) => Met::JournalFailed,
                (_, true) => Met::JournalFailedAfterwards,
            });
            state.trace.note(now, Step::Failed { medium: Medium::Journal, doing, done });
        });
        JournalError::Suspect { path: self.storage.journal() }
    }

    fn set_suspect(&self, suspect: bool) {
        self.suspect.store(suspect, Ordering::Relaxed);
        self.world.with(|state, _| state.oracle.journal_is_suspect = suspect);
    }

    fn tell(&self, wal: Option<WalMark>) {
        *self.untold.lock().unwrap_or_else(PoisonError::into_inner) = wal;
    }

    /// Does `work`, if the storage lets it.
    async fn write<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        let _turn = self.turn().await;
        let Luck { before, trouble, after } = self.world.luck(Medium::Journal, true);
        sleep(before).await;
        if doing != "probe" && self.suspect.load(Ordering::Relaxed) {
            return Err(JournalError::Suspect { path: self.storage.journal() });
        }
        match trouble {
            Some(Trouble::CrashBefore) => self.crash().await,
            Some(Trouble::Fails) => {
                self.set_suspect(true);
                return Err(self.fails(doing, false));
            }
            Some(Trouble::FailsAfterwards | Trouble::CrashAfter) | None => {}
        }
        let wal = self.storage.wal_mark();
        let result = inline::to_its_end(work);
        self.tell(wal);
        sleep(after).await;
        if trouble == Some(Trouble::CrashAfter) {
            self.crash().await;
        }
        self.tell(None);
        if let Err(error) = &result {
            // Nothing of what a simulation does may break the real journal.
            self.world.with(|state, _| state.expect(Err(format!("cannot {doing}: {}", ErrorChain(error)))));
        }
        if result.is_err() || trouble == Some(Trouble::FailsAfterwards) {
            self.set_suspect(true);
            return Err(self.fails(doing, true));
        }
        result
    }

    async fn read<T>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        let _turn = self.turn().await;
        let Luck { before, trouble, after: _ } = self.world.luck(Medium::Journal, false);
        sleep(before).await;
        if trouble.is_some() {
            return Err(self.fails(doing, false));
        }
        inline::to_its_end(work)
    }

    /// Waits until nobody else works; for ever once the power is gone.
    async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        let turn = self.turn.lock().await;
        if self.crash.is_cancelled() {
            std::future::pending::<()>().await;
        }
        turn
    }

    async fn crash(&self) {
        self.crash.cancel();
        std::future::pending().await
    }
}

impl SimulatedJournal {
    pub(super) fn new(shared: Arc<Shared>, user: User) -> Self {
        Self { shared, user, end: Arc::default() }
    }

    fn feed(&self) -> Option<usize> {
        match self.user {
            User::Feed(feed) => Some(feed),
            User::Gates | User::Sink(_) | User::Receiver(_) => None,
        }
    }

    /// The numbers of a batch's events, and those of them that an event can be made of.
    fn numbers(&self, batch: &Batch) -> Vec<u32> {
        let Some(feed) = self.feed() else { return Vec::new() };
        self.shared.world.with(|state, _| {
            batch
                .items
                .iter()
                .filter_map(|item| match item {
                    Item::Leased(leased) => state.event_of(feed, leased.handle.expose()),
                    Item::Unusable(unusable) => match &unusable.handle {
                        Some(handle) => state.event_of(feed, handle.expose()),
                        None => audit::number(&unusable.rest).ok(),
                    },
                })
                .collect()
        })
    }
}

impl Journal for SimulatedJournal {
    fn is_blocked(&self) -> bool {
        self.shared.suspect.load(Ordering::Relaxed) || self.shared.inner.is_blocked()
    }

    async fn append(&self, batch: Batch) -> Result<Appended, JournalError> {
        let (shared, feed) = (&self.shared, self.feed().unwrap_or_default());
        let events = self.numbers(&batch);
        let lease_end = shared.world.now() + batch.lease;
        let appended = shared.write("append", shared.inner.append(batch)).await;
        shared.pass_on_appended();
        shared.world.with(|state, now| match &appended {
            Ok(appended) => {
                state.oracle.events.journaled(&events, lease_end);
                state.trace.note(now, Step::Journaled { feed, events, n_new: appended.n_new });
            }
            Err(_) => {
                state.oracle.polls[feed].append_failed(now);
                state.oracle.events.not_journaled(&events);
            }
        });
        appended
    }

    async fn probe(&self) -> Result<(), JournalError> {
        if let Some(feed) = self.feed() {
            self.shared.world.with(|state, now| {
                let kept = state.oracle.polls[feed].probe_begun(now);
                state.expect(kept.map_err(|text| format!("feed {feed} {text}")));
            });
        }
        let probed = self.shared.write("probe", self.shared.inner.probe()).await;
        if let Some(feed) = self.feed() {
            self.shared.world.with(|state, now| state.oracle.polls[feed].probe_ended(now, probed.is_ok()));
        }
        probed?;
        self.shared.set_suspect(false);
        Ok(())
    }

    async fn store_pause(&self, vtex_account: &str, pause: StoredPause) -> Result<(), JournalError> {
        let shared = &self.shared;
        let Some(account) = self.feed() else {
            // A receiver's wait, which nobody here judges beyond the end of the agent.
            return shared.write("store_wait", shared.inner.store_pause(vtex_account, pause)).await;
        };
        let wall = shared.world.wall.now();
        let (account, asked) = shared.world.with(|state, now| {
            let account = state.oracle.account_of(account);
            (account, state.oracle.accounts[account].pause_being_stored(now, wall))
        });
        let length = pause.length;
        let stored = shared.write("store_pause", shared.inner.store_pause(vtex_account, pause)).await;
        shared.world.with(|state, now| {
            state.oracle.accounts[account].pause_answered(asked, stored.is_ok());
            if stored.is_ok() {
                state.trace.note(now, Step::PauseStored { account, length });
            }
        });
        stored
    }

    async fn pause(&self, vtex_account: &str) -> Result<Option<StoredPause>, JournalError> {
        self.shared.read("read", self.shared.inner.pause(vtex_account)).await
    }
}
