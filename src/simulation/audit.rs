//! Looks at what is stored: nothing may be missing, twice, or out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use serde::Deserialize;

use super::agent::Ending;
use super::coverage::Met;
use super::operator;
use super::sink::SinkState;
use super::storage::Storage;
use super::weather::Weather;
use super::world::{State, World};
use crate::journal::{Outbox, SqliteJournal};

/// How calm it must have been before a shutdown for its commits to be owed.
pub(super) const CALM_FOR: Duration = Duration::from_secs(1_800);

/// Events read from the journal at a time.
const PAGE: usize = 1_000;

/// How every handle begins: a JWT's head, or a queue's receipt.
const HANDLES: [&[u8]; 2] = [b"eyJhbGciOi", b"AQEB"];

/// Every handle goes on for longer. The journal also holds random bytes, which begin like one now and then.
const HANDLE_TAIL: usize = 24;

/// Looks at the journal between two agents: what the last one believed stored must be there, once.
///
/// # Errors
/// What is wrong with it.
pub(super) fn journal(world: &World, storage: &Storage) -> Result<(), String> {
    let journal = SqliteJournal::open(&storage.journal()).map_err(|error| error.to_string())?;
    loop {
        let seq = world.with(|state, _| state.found.seq);
        let entries = journal.entries_after(seq, PAGE, usize::MAX);
        let entries = super::inline::to_its_end(entries).map_err(|error| error.to_string())?;
        let Some(last) = entries.last() else { break };
        let seq = last.seq;
        world.with(|state, _| {
            for entry in &entries {
                let number = number(&entry.item)?;
                if !state.found.numbers.insert(number) {
                    return Err(format!("event {number} is journaled twice"));
                }
            }
            state.found.seq = seq;
            Ok(())
        })?;
    }
    world.with(|state, now| state.audit_journal(now))
}

/// Looks at the bytes of the journal when all is over: no handle may be in it.
///
/// # Errors
/// One is, or it cannot be read.
pub(super) fn journal_bytes(storage: &Storage) -> Result<(), String> {
    let bytes = storage.journal_bytes().map_err(|error| error.to_string())?;
    if HANDLES
        .iter()
        .any(|head| bytes.windows(head.len() + HANDLE_TAIL).any(|window| is_handle(window, head)))
    {
        return Err("the journal holds a handle".to_owned());
    }
    Ok(())
}

fn is_handle(window: &[u8], head: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_.".contains(byte);
    window.strip_prefix(head).is_some_and(|tail| tail.iter().all(is_base64))
}

/// Looks at the files of the sinks when all is over.
pub(super) fn sinks(world: &World, storage: &Storage) {
    for sink in 0..world.plan.n_sinks {
        let mut text = String::new();
        for part in storage.sink_parts(sink) {
            let bytes = std::fs::read(part).unwrap_or_default();
            text.push_str(&String::from_utf8_lossy(&bytes));
            text.push('\n');
        }
        world.with(|state, now| {
            let kept = state.audit_sink(now, sink, &text);
            state.expect(kept);
        });
    }
}

/// Looks at what is recorded of the receivers when all is over.
pub(super) fn receivers(world: &World, storage: &Storage) {
    for receiver in 0..world.plan.receivers.len() {
        let records = operator::records(storage, receiver);
        world.with(|state, _| {
            let of = &state.receivers[receiver];
            let kept = match records {
                Ok(Some(found)) => state.oracle.receivers[receiver].audit(&found, |seq| of.is_poison(seq)),
                Ok(None) => Err("is not known".to_owned()),
                Err(error) => Err(format!("cannot be read: {error}")),
            };
            state.expect(kept.map_err(|text| format!("receiver {receiver}: {text}")));
        });
    }
}

/// What was found in the journal so far.
#[derive(Default)]
pub(super) struct Found {
    seq: i64,
    numbers: BTreeSet<u32>,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    sequence: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    event: Number,
}

#[derive(Deserialize)]
struct Number {
    n: u32,
}

pub(super) fn number(item: &str) -> Result<u32, String> {
    serde_json::from_str(item).map(|Number { n }| n).map_err(|_| format!("not as received: {item}"))
}

impl State {
    fn audit_journal(&self, now: Duration) -> Result<(), String> {
        let owed = self.oracle.events.owed(now).usable;
        let missing = owed
            .iter()
            .find(|event| self.oracle.events.is_journaled(**event) && !self.found.numbers.contains(event));
        match missing {
            Some(event) => Err(format!("event {event} was said to be journaled and is not")),
            None => Ok(()),
        }
    }

    fn audit_sink(&mut self, now: Duration, sink: usize, text: &str) -> Result<(), String> {
        let mut last = 0;
        let mut times: BTreeMap<u32, u32> = BTreeMap::new();
        for line in text.lines() {
            // A line that a crash cut stays where its rest was written anew.
            let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
            self.coverage.delivered += 1;
            let Number { n } = line.data.event;
            let n_times = times.entry(n).or_default();
            *n_times += 1;
            if 1 < *n_times {
                self.coverage.delivered_again += 1;
                if !self.may_repeat[sink].contains(&line.id) {
                    return Err(format!("sink {sink} got event {n} twice"));
                }
                continue;
            }
            let seq: i64 = line.sequence.parse().map_err(|_| "a sequence that is none".to_owned())?;
            if seq <= last {
                return Err(format!("sink {sink} got event {n} out of order"));
            }
            last = seq;
        }
        let owed = self.oracle.events.owed(now);
        for _ in 0..owed.n_expired {
            self.coverage.meet(Met::Expired);
        }
        match owed.usable.iter().find(|event| !times.contains_key(event)) {
            Some(event) => Err(format!("sink {sink} never got event {event}")),
            None => Ok(()),
        }
    }

    /// What a shutdown in good time owes. It owes the commits only on a good day.
    pub(super) fn audit_shutdown(&mut self, now: Duration) {
        if let Some(event) = self.oracle.events.lost_at_shutdown() {
            self.expect(Err(format!("event {event} was received, and neither journaled nor refused")));
        }
        let is_calm = self.calm_since.is_some_and(|since| since + CALM_FOR <= now);
        let is_closed = self.oracle.accounts.iter().any(|account| account.is_closed(now));
        if is_calm && let Some(event) = self.oracle.events.untried(now).filter(|_| !is_closed) {
            self.expect(Err(format!("event {event} is journaled, and its commit was not tried")));
        }
        if is_calm && self.sinks.iter().any(|sink| sink.seq < self.oracle.events.n_journaled as i64) {
            self.expect(Err("a sink was not brought up to date at the shutdown".to_owned()));
        }
        for receiver in 0..self.oracle.receivers.len() {
            let book = &self.oracle.receivers[receiver];
            if 0 < book.n_in_hand() {
                self.coverage.meet(Met::UnansweredAtShutdown);
            }
            if let Some(seq) = book.lost_at_shutdown() {
                let text =
                    format!("receiver {receiver}: {seq} was taken, and the shutdown did not record it");
                self.expect(Err(text));
            }
        }
        if let Some(account) = self.oracle.accounts.iter().position(|account| account.is_forgetful(now)) {
            self.expect(Err(format!("the pause of account {account} is not stored")));
        }
    }

    /// Takes note of what an end came upon.
    pub(super) fn note_end(&mut self, now: Duration, how: Ending) {
        let is_paused = self.oracle.accounts.iter().any(|account| Duration::ZERO < account.closed_for(now));
        let is_in_delivery = self.sinks.iter().any(|sink| !sink.in_hand.is_empty());
        let mut meet = |met, is_met: bool| {
            if is_met {
                self.coverage.meet(met);
            }
        };
        match how {
            Ending::Shutdown => {
                meet(Met::Shutdown, true);
                meet(Met::ShutdownInPause, is_paused);
            }
            Ending::Crash | Ending::GraceExceeded => {
                meet(if how == Ending::Crash { Met::Crash } else { Met::GraceExceeded }, true);
                meet(Met::CrashInPause, is_paused);
                meet(Met::CrashWithLeasedBatch, self.oracle.events.has_leased());
                meet(Met::CrashBetweenJournalAndCommit, self.oracle.events.has_uncommitted());
                meet(Met::CrashInDelivery, is_in_delivery);
                for receiver in &self.oracle.receivers {
                    meet(Met::CrashInAttempt, 0 < receiver.n_in_hand());
                    meet(Met::CrashBeforeRecord, 0 < receiver.n_unrecorded());
                }
            }
        }
        for sink in &mut self.sinks {
            sink.failed_at = None;
        }
    }

    /// What is still to be done, if anything is, and how much that is.
    pub(super) fn unquiet(&mut self, now: Duration) -> Option<(usize, String)> {
        let owed = self.oracle.events.owed(now);
        let n_all = self.oracle.events.n_journaled;
        let all = owed.usable.iter().chain(&owed.unusable);
        let open: Vec<&u32> = all.filter(|event| !self.oracle.events.is_journaled(**event)).collect();
        let n_queued: usize = self.feeds.iter_mut().map(|feed| feed.queue.len(now)).sum();
        let n_queued = n_queued.saturating_sub(owed.n_stuck);
        let behind = |sink: &SinkState| n_all.saturating_sub(usize::try_from(sink.seq).unwrap_or_default());
        let n_behind: usize = self.sinks.iter().map(behind).sum();
        let receivers = self.oracle.receivers.iter().map(|receiver| receiver.left());
        let left: Vec<(usize, (usize, Option<i64>))> =
            receivers.enumerate().filter(|(_, (n_left, _))| 0 < *n_left).collect();
        let n_left = open.len() + n_queued + n_behind + left.iter().map(|(_, (n, _))| n).sum::<usize>();
        let what = match open.first() {
            Some(event) => format!("event {event} is not journaled"),
            None if 0 < n_queued => format!("{n_queued} messages are not committed"),
            None if 0 < n_behind => format!("the sinks are {n_behind} events behind"),
            None => format!("receivers and what they have not got: {left:?}"),
        };
        (0 < n_left).then_some((n_left, what))
    }

    /// Whether an event or its receiver is at fault only others can tell: as long as there is poison to be set aside,
    /// other orders come.
    pub(super) fn keep_company(&mut self, now: Duration, rng: &mut StdRng) {
        let owed = self.oracle.events.owed(now).usable;
        if owed.iter().any(|event| !self.oracle.events.is_journaled(*event)) {
            // No more than the feeds get rid of: one may hand over a single event in five minutes.
            return;
        }
        let mut receivers = self.oracle.receivers.iter().zip(&self.receivers);
        if receivers.any(|(book, receiver)| book.left().1.is_some_and(|seq| receiver.is_poison(seq))) {
            for feed in 0..self.feeds.len() {
                self.enqueue(now, feed, rng);
            }
        }
    }

    /// What another process wrote and the agent does not look at.
    pub(super) fn overlooked(&self, now: Duration) -> Option<String> {
        let receivers = self.oracle.receivers.iter().enumerate();
        let mut overlooked = receivers.filter_map(|(number, book)| Some((number, book.overlooked(now)?)));
        overlooked
            .next()
            .map(|(number, seq)| format!("receiver {number}: {seq} is retried, and nobody looks"))
    }

    /// To be called with every change of weather or disks.
    pub(super) fn note_calm(&mut self, now: Duration) {
        use super::disk::Disk;
        let is_calm = self.weather.iter().all(|weather| *weather == Weather::Calm)
            && self.disks.values().all(|disk| matches!(disk, Disk::Healthy | Disk::Slow));
        self.calm_since = is_calm.then_some(self.calm_since.unwrap_or(now));
    }
}
