//! The one line that `systemctl status` shows: the last poll, what is paused or failing, the backlog.
//!
//! The loops write facts to the [`Status`] board; [`render`] makes a line of them, and [`publish`] sends it on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Lines are sent at most this often.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// A line is made anew at least this often, because pauses end by themselves.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Names listed in one place of the line.
const MAX_NAMES: usize = 5;

/// The board that the loops write to. Clones are the same board.
#[derive(Debug, Clone)]
pub struct Status {
    facts: Arc<watch::Sender<Facts>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// By the name of the feed.
    pub accounts: BTreeMap<String, AccountFacts>,
    /// Deliveries that are still to be made; `None` while nobody has counted.
    pub backlog: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccountFacts {
    /// `None` before the first poll has ended.
    pub last_poll: Option<LastPoll>,
    /// The end of the last pause; no pause once it has passed.
    pub paused_until: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LastPoll {
    pub ended: Timestamp,
    /// Events, duplicates included.
    pub received: u64,
    /// Whether it ended because of a failure.
    pub failed: bool,
}

impl Default for Status {
    fn default() -> Self {
        Self { facts: Arc::new(watch::Sender::new(Facts::default())) }
    }
}

impl Status {
    /// Changes the facts of an account; one that is not on the board is put there first.
    pub fn account(&self, name: &str, change: impl FnOnce(&mut AccountFacts)) {
        self.facts.send_modify(|facts| change(facts.accounts.entry(name.to_owned()).or_default()));
    }

    /// Takes an account from the board, when its feed is polled no longer.
    pub fn remove_account(&self, name: &str) {
        self.facts.send_modify(|facts| {
            facts.accounts.remove(name);
        });
    }

    /// Sets how many deliveries are still to be made.
    pub fn backlog(&self, deliveries: u64) {
        self.facts.send_modify(|facts| facts.backlog = Some(deliveries));
    }

    /// A copy of the board.
    pub fn facts(&self) -> Facts {
        self.facts.borrow().clone()
    }
}

/// Hands each new line to `send`, at most one a second. Runs until dropped; cancel safe.
pub async fn publish(status: &Status, mut now: impl FnMut() -> Timestamp, mut send: impl FnMut(&str)) {
    let mut facts = status.facts.subscribe();
    let mut sent = String::new();
    loop {
        let line = render(&facts.borrow_and_update(), now());
        if line != sent {
            send(&line);
            sent = line;
        }
        sleep(MIN_INTERVAL).await;
        // Either of a change, the time, and the end of a board that this borrows (which cannot come) leads on.
        drop(timeout(MAX_INTERVAL, facts.changed()).await);
    }
}

/// The line for these facts. Times are UTC.
pub fn render(facts: &Facts, now: Timestamp) -> String {
    let mut parts = vec![last_poll(facts)];
    let paused = facts.accounts.iter().filter_map(|(name, account)| {
        let until = account.paused_until.filter(|until| now < *until)?;
        Some(format!("{name} until {until:.0}"))
    });
    parts.extend(list("paused", paused));
    let failing = facts.accounts.iter().filter(|(_, account)| account.is_failing());
    parts.extend(list("failing", failing.map(|(name, _)| name.clone())));
    parts.extend(facts.backlog.map(|backlog| format!("backlog {backlog}")));
    parts.join("; ")
}

impl AccountFacts {
    fn is_failing(&self) -> bool {
        self.last_poll.as_ref().is_some_and(|poll| poll.failed)
    }
}

fn last_poll(facts: &Facts) -> String {
    let polls = facts.accounts.iter().filter_map(|(name, account)| Some((name, account.last_poll.as_ref()?)));
    match polls.max_by_key(|(_, poll)| poll.ended) {
        Some((name, poll)) => format!("last poll {:.0} ({name}, {} received)", poll.ended, poll.received),
        None => "no poll yet".to_owned(),
    }
}

/// `what: a, b and 3 more`; nothing for no names.
fn list(what: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    let n_hidden = names.len().saturating_sub(MAX_NAMES);
    let shown = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match (names.len(), n_hidden) {
        (0, _) => None,
        (_, 0) => Some(format!("{what}: {shown}")),
        (_, n_hidden) => Some(format!("{what}: {shown} and {n_hidden} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "2026-01-31T12:00:00Z";

    #[test]
    fn the_line_tells_the_last_poll_pauses_failures_and_the_backlog() {
        let status = Status::default();
        assert_eq!(render(&status.facts(), noon(0)), "no poll yet");
        status.account("main", |account| account.last_poll = Some(poll(-30, 3, false)));
        status.account("outlet", |account| {
            account.last_poll = Some(poll(-60, 0, true));
            account.paused_until = Some(noon(90));
        });
        status.backlog(12);
        assert_eq!(
            render(&status.facts(), noon(0)),
            "last poll 2026-01-31T11:59:30Z (main, 3 received); paused: outlet until 2026-01-31T12:01:30Z; \
             failing: outlet; backlog 12"
        );
        status.remove_account("outlet");
        assert_eq!(
            render(&status.facts(), noon(0)),
            "last poll 2026-01-31T11:59:30Z (main, 3 received); backlog 12"
        );
    }

    #[test]
    fn a_pause_that_has_passed_is_not_told() {
        let status = Status::default();
        status.account("main", |account| account.paused_until = Some(noon(0)));
        assert_eq!(render(&status.facts(), noon(0)), "no poll yet");
    }

    #[test]
    fn of_many_accounts_some_are_named() {
        let status = Status::default();
        for n in 10..50 {
            status.account(&format!("a{n}"), |account| account.paused_until = Some(noon(1)));
        }
        let line = render(&status.facts(), noon(0));
        assert!(
            line.starts_with("no poll yet; paused: a10 until") && line.ends_with(" and 35 more"),
            "{line}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_sent_when_it_changes_and_when_a_pause_ends_by_itself() {
        let status = Status::default();
        let start = tokio::time::Instant::now();
        let now = || noon(i64::try_from(start.elapsed().as_secs()).unwrap());
        let mut sent = Vec::new();
        let changes = async {
            sleep(Duration::from_secs(10)).await;
            for n in 0..100 {
                status.backlog(n);
            }
            sleep(Duration::from_secs(10)).await;
            status.account("main", |account| account.paused_until = Some(noon(100)));
            sleep(Duration::from_secs(600)).await;
        };
        tokio::select! {
            () = publish(&status, now, |line| sent.push(line.to_owned())) => {}
            () = changes => {}
        }
        assert_eq!(
            sent,
            [
                "no poll yet",
                "no poll yet; backlog 99",
                "no poll yet; paused: main until 2026-01-31T12:01:40Z; backlog 99",
                "no poll yet; backlog 99",
            ]
        );
    }

    fn noon(seconds: i64) -> Timestamp {
        NOON.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds)
    }

    fn poll(seconds: i64, received: u64, failed: bool) -> LastPoll {
        LastPoll { ended: noon(seconds), received, failed }
    }
}
