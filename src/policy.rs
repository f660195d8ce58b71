//! Decisions, and nothing else: values in, a value out. No clock, no generator, no IO, no logging; time and
//! jitter are arguments (invariant 4).
//!
//! An answer is [classified](classify); a failed attempt is [retried](retry) after a [backoff] or given up, and
//! given up at once where it may have had an effect that must not happen [twice](replay). What
//! an account may send next is decided by its [pauses](pause), its [breaker] and its [pace], and by whose turn
//! it is ([priority]). A refused commit is [split]; a poll that is over has its next one [scheduled](schedule).
//! Whether a failed delivery counts against its event is told by its sink's [health]. A file that grew old or long
//! makes [room for a new one](rotation).
//! None of these panics at any instant, length or jitter, and none answers a wait of zero.

pub mod backoff;
pub mod breaker;
pub mod classify;
pub mod health;
mod jitter;
pub mod pace;
pub mod pause;
pub mod priority;
pub mod replay;
pub mod retry;
pub mod retry_after;
pub mod rotation;
pub mod schedule;
pub mod slow_down;
pub mod split;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    /// Where a test's time starts; only differences to it mean anything.
    pub(in crate::policy) fn start() -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
