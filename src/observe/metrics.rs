//! Counters and histograms of the requests to VTEX, for everything that tells how the agent fares.
//!
//! Labels are operations, statuses, classes and causes, never accounts: a thousand feeds make no more series than
//! one. The share of 429 is `requests_total{status="429"}` over all of `requests_total`.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::policy::classify::{Class, Operation};

/// Begins the name of each metric.
const PREFIX: &str = "order_feed_agent";

/// Upper bounds in seconds: from a quick answer to the longest that a request may take by default and some.
const DURATIONS: [f64; 11] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Upper bounds in seconds: from the spacing of a fast pace to a pause of hours.
const WAITS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 120.0, 900.0, 3600.0];

/// The numbers of one agent. Clones count into the same ones.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    retried_well: Family<OperationLabels, Counter>,
    given_up: Family<GivenUpLabels, Counter>,
    waits: Family<WaitLabels, Histogram, fn() -> Histogram>,
    pauses: Family<PauseLabels, Counter>,
    totals: TotalCounters,
}

/// Kept beside the families, which cannot be summed up.
#[derive(Default)]
struct TotalCounters {
    requests: Counter,
    throttled: Counter,
    retried_well: Counter,
    given_up: Counter,
}

/// A whole run in four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub requests: u64,
    /// Answered with 429.
    pub throttled: u64,
    /// Operations that succeeded after failed attempts.
    pub retried_well: u64,
    /// Operations that failed for good.
    pub given_up: u64,
}

/// Why a request waits. Its text is the `cause` of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// For its place in the pace.
    Pace,
    /// Until a pause ends.
    Pause,
    /// Until the breaker lets a trial through.
    Breaker,
    /// Until one of the requests that run is over.
    Lanes,
    /// Others go first.
    Turn,
    /// Before the next attempt after a failure.
    Backoff,
}

/// Why an operation was given up. Its text is the `class` of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivenUp {
    /// It failed like this.
    Failed(Class),
    /// Its lease, or the patience of the shutdown, ended first.
    OutOfTime,
    /// The journal failed first.
    JournalBlocked,
}

/// Why an account was closed. Its text is the `reason` of the metric and of `rate_limit.paused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseReason {
    TooManyRequests,
    /// The Retry-After of another failure.
    RetryAfter,
}

impl Default for Metrics {
    fn default() -> Self {
        let durations: fn() -> Histogram = || Histogram::new(DURATIONS);
        let waits: fn() -> Histogram = || Histogram::new(WAITS);
        let mut inner = Inner {
            registry: Registry::with_prefix(PREFIX),
            requests: Family::default(),
            durations: Family::new_with_constructor(durations),
            retried_well: Family::default(),
            given_up: Family::default(),
            waits: Family::new_with_constructor(waits),
            pauses: Family::default(),
            totals: TotalCounters::default(),
        };
        inner.register();
        Self(Arc::new(inner))
    }
}

impl Metrics {
    /// All metrics, to be encoded.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub fn totals(&self) -> Totals {
        let TotalCounters { requests, throttled, retried_well, given_up } = &self.0.totals;
        Totals {
            requests: requests.get(),
            throttled: throttled.get(),
            retried_well: retried_well.get(),
            given_up: given_up.get(),
        }
    }

    /// Counts one request; `status` is `None` where no answer came, or none that could be read whole.
    pub fn requested(&self, operation: Operation, status: Option<u16>, duration: Duration) {
        let labels = RequestLabels { operation: operation.name(), status: StatusLabel(status) };
        self.0.requests.get_or_create(&labels).inc();
        let labels = OperationLabels { operation: operation.name() };
        self.0.durations.get_or_create(&labels).observe(duration.as_secs_f64());
        self.0.totals.requests.inc();
        if status == Some(429) {
            self.0.totals.throttled.inc();
        }
    }

    /// Counts an operation that succeeded after failed attempts.
    pub fn retried_well(&self, operation: Operation) {
        self.0.retried_well.get_or_create(&OperationLabels { operation: operation.name() }).inc();
        self.0.totals.retried_well.inc();
    }

    /// Counts an operation that failed for good.
    pub fn gave_up(&self, operation: Operation, why: GivenUp) {
        let labels = GivenUpLabels { operation: operation.name(), class: why.name() };
        self.0.given_up.get_or_create(&labels).inc();
        self.0.totals.given_up.inc();
    }

    /// Counts the begin of a pause.
    pub fn paused(&self, reason: PauseReason) {
        self.0.pauses.get_or_create(&PauseLabels { reason: reason.name() }).inc();
    }

    /// Begins to measure how long a request waits.
    pub fn waiting(&self) -> Waiting<'_> {
        Waiting { metrics: self, current: None }
    }

    /// The same for a wait whose cause is known.
    pub fn waiting_for(&self, cause: Cause) -> Waiting<'_> {
        Waiting { metrics: self, current: Some((cause, Instant::now())) }
    }
}

/// The waits of one request, one after another. The last one ends when this is dropped, so a wait that is given up
/// counts as far as it went.
#[must_use = "the wait ends when it is dropped"]
pub struct Waiting<'a> {
    metrics: &'a Metrics,
    current: Option<(Cause, Instant)>,
}

impl Waiting<'_> {
    /// Goes on waiting, from now on because of `cause`.
    pub fn because(&mut self, cause: Cause) {
        if self.current.is_none_or(|(current, _)| current != cause) {
            self.end();
            self.current = Some((cause, Instant::now()));
        }
    }

    fn end(&mut self) {
        if let Some((cause, since)) = self.current.take() {
            let labels = WaitLabels { cause: cause.name() };
            self.metrics.0.waits.get_or_create(&labels).observe(since.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pace => "pace",
            Self::Pause => "pause",
            Self::Breaker => "breaker",
            Self::Lanes => "lanes",
            Self::Turn => "turn",
            Self::Backoff => "backoff",
        }
    }
}

impl GivenUp {
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed(class) => class.name(),
            Self::OutOfTime => "out_of_time",
            Self::JournalBlocked => "journal_blocked",
        }
    }
}

impl PauseReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::TooManyRequests => "too_many_requests",
            Self::RetryAfter => "retry_after",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    status: StatusLabel,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GivenUpLabels {
    operation: &'static str,
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PauseLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct StatusLabel(Option<u16>);

impl EncodeLabelValue for StatusLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => write!(encoder, "{status}"),
            None => encoder.write_str("none"),
        }
    }
}

impl Inner {
    fn register(&mut self) {
        let Self { registry, requests, durations, retried_well, given_up, waits, pauses, totals: _ } = self;
        registry.register("requests", "Requests sent to VTEX, by answer", requests.clone());
        registry.register_with_unit(
            "request_duration",
            "From sending a request to its whole answer or its failure",
            Unit::Seconds,
            durations.clone(),
        );
        registry.register(
            "retries_succeeded",
            "Operations that succeeded after failed attempts",
            retried_well.clone(),
        );
        registry.register("given_up", "Operations that failed for good", given_up.clone());
        registry.register_with_unit(
            "wait",
            "How long requests waited before they were sent, by cause",
            Unit::Seconds,
            waits.clone(),
        );
        registry.register("pauses", "Pauses begun: no request to an account until the end", pauses.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;
    use tokio::time::sleep;

    fn text(metrics: &Metrics) -> String {
        let mut text = String::new();
        encode(&mut text, metrics.registry()).unwrap();
        text
    }

    #[test]
    fn all_that_was_counted_is_encoded_and_summed_up() {
        let metrics = Metrics::default();
        let second = Duration::from_secs(1);
        metrics.requested(Operation::Receive, Some(200), second);
        metrics.requested(Operation::Receive, Some(429), second);
        metrics.requested(Operation::Commit, None, second);
        metrics.retried_well(Operation::Commit);
        metrics.gave_up(Operation::Receive, GivenUp::Failed(Class::Throttled));
        metrics.clone().gave_up(Operation::Commit, GivenUp::OutOfTime);
        metrics.paused(PauseReason::TooManyRequests);
        let text = text(&metrics);
        for line in [
            r#"requests_total{operation="feed.receive",status="200"} 1"#,
            r#"requests_total{operation="feed.receive",status="429"} 1"#,
            r#"requests_total{operation="feed.commit",status="none"} 1"#,
            r#"request_duration_seconds_count{operation="feed.receive"} 2"#,
            r#"retries_succeeded_total{operation="feed.commit"} 1"#,
            r#"given_up_total{operation="feed.receive",class="throttled"} 1"#,
            r#"given_up_total{operation="feed.commit",class="out_of_time"} 1"#,
            r#"pauses_total{reason="too_many_requests"} 1"#,
        ] {
            assert!(text.contains(&format!("{PREFIX}_{line}\n")), "{line} in\n{text}");
        }
        assert_eq!(metrics.totals(), Totals { requests: 3, throttled: 1, retried_well: 1, given_up: 2 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_for_each_of_its_causes_also_when_it_is_given_up() {
        let metrics = Metrics::default();
        let mut waiting = metrics.waiting();
        for (cause, seconds) in [(Cause::Turn, 1), (Cause::Pace, 2), (Cause::Pace, 3), (Cause::Pause, 60)] {
            waiting.because(cause);
            sleep(Duration::from_secs(seconds)).await;
        }
        drop(waiting);
        drop(metrics.waiting());
        let text = text(&metrics);
        for (cause, sum) in [("turn", "1"), ("pace", "5"), ("pause", "60")] {
            for (what, value) in [("sum", format!("{sum}.0")), ("count", "1".to_owned())] {
                let line = format!("{PREFIX}_wait_seconds_{what}{{cause=\"{cause}\"}} {value}\n");
                assert!(text.contains(&line), "{line} in\n{text}");
            }
        }
    }
}
