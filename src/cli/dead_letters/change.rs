//! `dead-letters retry` and `discard`.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

use jiff::Timestamp;

use super::{ChangeArgs, selection};
use crate::cli::Failure;
use crate::cli::output::{self, Paper, count};
use crate::config::Outline;
use crate::journal::desk::{DeadLetter, DeadLetterPages, Desk, DeskError, Direction};
use crate::observe::logging::ErrorChain;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Retry,
    Discard,
}

/// Reasons that are printed; the others are counted.
const REASONS_MAX: usize = 20;

/// What was done so far.
#[derive(Debug, Default)]
struct Tally {
    n_pending: usize,
    n_discarded: usize,
    n_journaled: usize,
    n_known: usize,
    n_failed: usize,
    sinks: BTreeSet<String>,
}

/// Does it step by step, says how much was done, and goes on where one of them cannot be done.
pub(super) fn change(
    desk: &mut Desk,
    outline: &Outline,
    deed: Deed,
    args: ChangeArgs,
) -> Result<(), Failure> {
    let mut tally = Tally::default();
    let done = all(desk, outline, deed, args, &mut tally);
    let mut out = Paper::buffered();
    tally.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()?;
    for sink in tally.sinks.iter().filter(|sink| !outline.sinks.contains(*sink)) {
        output::note(format!("sink {} is not configured: nobody delivers to it", output::plain(sink, 64)));
    }
    if REASONS_MAX < tally.n_failed {
        output::error(format!("{} more could not be done", tally.n_failed - REASONS_MAX));
    }
    done?;
    if 0 < tally.n_failed { Err(Failure::Unfinished) } else { Ok(()) }
}

fn all(
    desk: &mut Desk,
    outline: &Outline,
    deed: Deed,
    args: ChangeArgs,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let ChangeArgs { ids, all, sink, before } = args;
    let selection = selection(desk, outline, sink, before)?;
    if all {
        let mut pages = DeadLetterPages::new(selection, Direction::OldestFirst);
        while !pages.is_done() {
            let letters = desk.next_dead_letters(&mut pages)?;
            tally.add(desk, outline, deed, &letters)?;
        }
        return Ok(());
    }
    for id in &ids {
        match desk.dead_letters(id, &selection) {
            Ok(letters) => tally.add(desk, outline, deed, &letters)?,
            Err(fatal @ DeskError::Journal(_)) => return Err(fatal.into()),
            Err(error) => tally.failed(&error),
        }
    }
    Ok(())
}

impl Tally {
    fn add(
        &mut self,
        desk: &mut Desk,
        outline: &Outline,
        deed: Deed,
        letters: &[DeadLetter],
    ) -> Result<(), DeskError> {
        match deed {
            Deed::Discard => self.n_discarded += desk.discard(letters)?,
            Deed::Retry => {
                self.n_pending += desk.retry(letters)?;
                self.sinks.extend(letters.iter().filter_map(DeadLetter::sink).map(str::to_owned));
                for letter in letters.iter().filter(|letter| letter.sink().is_none()) {
                    match desk.decode(letter, &outline.sources, Timestamp::now()) {
                        Ok(true) => self.n_journaled += 1,
                        Ok(false) => self.n_known += 1,
                        Err(fatal @ DeskError::Journal(_)) => return Err(fatal),
                        Err(error) => self.failed(&error),
                    }
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, error: &(dyn Error + 'static)) {
        self.n_failed += 1;
        if self.n_failed <= REASONS_MAX {
            output::error(ErrorChain(error));
        }
    }

    /// What to tell on stdout; nothing where only failures are to be told.
    fn lines(&self) -> Vec<String> {
        let &Self { n_pending, n_discarded, n_journaled, n_known, n_failed, sinks: _ } = self;
        let mut lines = Vec::new();
        if 0 < n_pending {
            lines.push(format!("{} pending again", count(n_pending, "dead letter")));
        }
        if 0 < n_journaled {
            lines.push(format!("{} journaled as new events", count(n_journaled, "quarantined item")));
        }
        if 0 < n_known {
            lines.push(format!("{} dropped: the journal has the events", count(n_known, "quarantined item")));
        }
        if 0 < n_discarded {
            lines.push(format!("{} discarded", count(n_discarded, "dead letter")));
        }
        if 0 < n_pending + n_journaled {
            lines.push("a running agent takes them up within 2 s, a stopped one when it starts".to_owned());
        }
        if lines.is_empty() && n_failed == 0 {
            lines.push("no dead letters".to_owned());
        }
        lines
    }
}
