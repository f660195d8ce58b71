//! The rate limit of an account: a bucket of tokens, the penalty for emptying it, and who does not keep to that.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::strict::de_choice;
use super::text::de_duration;

/// The table `[rate_limit]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// How fast the bucket fills.
    #[serde(deserialize_with = "de_per_minute")]
    pub per_minute: u32,
    /// How much it holds: as many requests may come at once.
    #[serde(deserialize_with = "de_per_minute")]
    pub burst: u32,
    /// How long everything is refused once it is empty; it is full then.
    #[serde(default = "minute", deserialize_with = "de_duration")]
    pub penalty: Duration,
    #[serde(default)]
    pub retry_after: RetryAfter,
    #[serde(default, deserialize_with = "de_choice")]
    pub headers: LimitHeaders,
}

/// How a 429 says when to come back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "String")]
pub enum RetryAfter {
    #[default]
    Seconds,
    /// An HTTP date.
    Date,
    /// Not at all.
    None,
    /// Whatever is written here, such as `0`, `86400` or `soon`.
    Literal(String),
}

/// What successful answers tell of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitHeaders {
    #[default]
    None,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last as seconds since 1970.
    XRatelimit,
    /// `Ratelimit-Limit`, `-Remaining` and `-Reset`, the last as seconds from now.
    Ratelimit,
}

/// Whether a request may pass.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// With the headers that tell of the bucket.
    Pass(Vec<(&'static str, String)>),
    /// With the text of `Retry-After`, if there is any.
    Refuse(Option<String>),
}

/// The state of one account.
#[derive(Debug)]
pub(super) struct Throttle {
    limit: Option<RateLimit>,
    tokens: f64,
    filled_at: Duration,
    refused: Option<Refused>,
    /// When the last 429 was answered, and until when no request should come after it.
    penalty: Option<(Duration, Duration)>,
}

#[derive(Debug)]
struct Refused {
    until: Duration,
    retry_after: RetryAfter,
}

/// A client that was answered 429 should stay away for at least this long, says VTEX.
const LEAST_PENALTY: Duration = Duration::from_secs(60);
/// No client can be expected to wait longer.
const LONGEST_PENALTY: Duration = Duration::from_secs(86_400);

impl Throttle {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        let tokens = limit.as_ref().map_or(0.0, |limit| f64::from(limit.burst));
        Self { limit, tokens, filled_at: Duration::ZERO, refused: None, penalty: None }
    }

    /// Lets a request pass, or refuses it.
    pub(super) fn ask(&mut self, now: Duration, epoch: Timestamp) -> Verdict {
        if let Some(refused) = self.refused.as_ref().filter(|refused| now < refused.until) {
            return Verdict::Refuse(
                refused.retry_after.text(refused.until - now, wall(epoch, refused.until)),
            );
        }
        self.refused = None;
        let Some(limit) = &self.limit else { return Verdict::Pass(Vec::new()) };
        let gained = now.saturating_sub(self.filled_at).as_secs_f64() * f64::from(limit.per_minute) / 60.0;
        self.tokens = (self.tokens + gained).min(f64::from(limit.burst));
        self.filled_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Verdict::Pass(self.headers(limit, now, epoch));
        }
        let (penalty, retry_after) = (limit.penalty, limit.retry_after.clone());
        self.refuse(now, penalty, retry_after);
        self.tokens = f64::from(self.limit.as_ref().map_or(0, |limit| limit.burst));
        self.ask(now, epoch)
    }

    /// Refuses everything for this long.
    pub(super) fn refuse(&mut self, now: Duration, lasting: Duration, retry_after: RetryAfter) {
        // At least a moment, so that the request at hand is refused.
        let until = now.saturating_add(lasting.max(Duration::from_millis(1)));
        self.refused = Some(Refused { until, retry_after });
    }

    /// Takes note of a 429 and of what it told the client.
    pub(super) fn answered_429(&mut self, now: Duration, retry_after_s: Option<u64>) {
        let hint = Duration::from_secs(retry_after_s.unwrap_or(0));
        let until = now.saturating_add(hint.clamp(LEAST_PENALTY, LONGEST_PENALTY));
        let until = self.penalty.map_or(until, |(_, before)| before.max(until));
        self.penalty = Some((now, until));
    }

    /// How long ago the 429 was answered in whose penalty a request at `now` falls.
    pub(super) fn in_penalty(&self, now: Duration) -> Option<Duration> {
        self.penalty.filter(|(_, until)| now < *until).map(|(since, _)| now.saturating_sub(since))
    }

    fn headers(&self, limit: &RateLimit, now: Duration, epoch: Timestamp) -> Vec<(&'static str, String)> {
        let missing = f64::from(limit.burst) - self.tokens;
        let full_in = (missing * 60.0 / f64::from(limit.per_minute)).ceil() as u64;
        let remaining = (self.tokens.floor() as u64).to_string();
        match limit.headers {
            LimitHeaders::None => Vec::new(),
            LimitHeaders::XRatelimit => vec![
                ("x-ratelimit-limit", limit.burst.to_string()),
                ("x-ratelimit-remaining", remaining),
                (
                    "x-ratelimit-reset",
                    wall(epoch, now + Duration::from_secs(full_in)).as_second().to_string(),
                ),
            ],
            LimitHeaders::Ratelimit => vec![
                ("ratelimit-limit", limit.burst.to_string()),
                ("ratelimit-remaining", remaining),
                ("ratelimit-reset", full_in.to_string()),
            ],
        }
    }
}

impl RetryAfter {
    /// What the header says when the account is free in `left`, that is at `free_at`.
    fn text(&self, left: Duration, free_at: Timestamp) -> Option<String> {
        match self {
            Self::Seconds => Some(left.as_millis().div_ceil(1_000).to_string()),
            Self::Date => {
                // Dates have no fractions: the end of the second is never too early.
                let whole = free_at.saturating_add(Duration::from_millis(999)).unwrap_or(free_at);
                Some(whole.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
            }
            Self::None => None,
            Self::Literal(text) => Some(text.clone()),
        }
    }
}

impl From<String> for RetryAfter {
    fn from(text: String) -> Self {
        match text.as_str() {
            "seconds" => Self::Seconds,
            "date" => Self::Date,
            "none" => Self::None,
            _ => Self::Literal(text),
        }
    }
}

fn wall(epoch: Timestamp, at: Duration) -> Timestamp {
    epoch.saturating_add(at).unwrap_or(epoch)
}

fn minute() -> Duration {
    LEAST_PENALTY
}

fn de_per_minute<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let given = u32::deserialize(from)?;
    let wrong = || serde::de::Error::custom("from 1 to 1,000,000");
    (1..=1_000_000).contains(&given).then_some(given).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn epoch() -> Timestamp {
        "2026-03-02T20:00:00Z".parse().unwrap()
    }

    fn throttle(toml: &str) -> Throttle {
        Throttle::new(Some(toml::from_str(&format!("per_minute = 60\nburst = 3\n{toml}")).unwrap()))
    }

    fn passes(throttle: &mut Throttle, at: u64) -> bool {
        matches!(throttle.ask(secs(at), epoch()), Verdict::Pass(_))
    }

    #[test]
    fn a_burst_passes_then_the_pace_then_everything_is_refused_for_the_penalty() {
        let mut throttle = throttle("");
        assert_eq!([0, 0, 0, 1].map(|at| passes(&mut throttle, at)), [true, true, true, true]);
        assert!(!passes(&mut throttle, 1));
        assert_eq!([2, 30, 60].map(|at| passes(&mut throttle, at)), [false; 3]);
        assert_eq!([61, 61, 61].map(|at| passes(&mut throttle, at)), [true; 3]);
    }

    #[test]
    fn without_a_limit_everything_passes_unless_it_is_refused_from_outside() {
        let mut throttle = Throttle::new(None);
        assert!(passes(&mut throttle, 0));
        throttle.refuse(secs(1), secs(5), RetryAfter::Literal("soon".into()));
        assert_eq!(throttle.ask(secs(5), epoch()), Verdict::Refuse(Some("soon".into())));
        assert!(passes(&mut throttle, 6));
    }

    #[test]
    fn retry_after_takes_each_form() {
        for (form, text) in [
            ("seconds", Some("60")),
            ("date", Some("Mon, 02 Mar 2026 20:01:00 GMT")),
            ("none", None),
            ("0", Some("0")),
            ("86400", Some("86400")),
        ] {
            let mut throttle = throttle(&format!("retry_after = \"{form}\""));
            (0..3).for_each(|_| assert!(passes(&mut throttle, 0)));
            assert_eq!(throttle.ask(secs(0), epoch()), Verdict::Refuse(text.map(str::to_owned)), "{form}");
        }
    }

    #[test]
    fn successful_answers_tell_of_the_bucket_where_asked() {
        let mut throttle = throttle("headers = \"x-ratelimit\"");
        let Verdict::Pass(headers) = throttle.ask(secs(0), epoch()) else { panic!("refused") };
        let reset = (epoch().as_second() + 1).to_string();
        let expected =
            [("x-ratelimit-limit", "3"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", &reset)];
        assert_eq!(headers, expected.map(|(name, value)| (name, value.to_owned())));

        let mut throttle = self::throttle("headers = \"ratelimit\"");
        passes(&mut throttle, 0);
        let Verdict::Pass(headers) = throttle.ask(secs(0), epoch()) else { panic!("refused") };
        let expected = [("ratelimit-limit", "3"), ("ratelimit-remaining", "1"), ("ratelimit-reset", "2")];
        assert_eq!(headers, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn the_penalty_of_a_429_is_a_minute_or_what_it_said_and_never_shrinks() {
        let mut throttle = Throttle::new(None);
        assert_eq!(throttle.in_penalty(secs(0)), None);
        throttle.answered_429(secs(10), Some(5));
        assert_eq!(throttle.in_penalty(secs(69)), Some(secs(59)));
        assert_eq!(throttle.in_penalty(secs(70)), None);
        throttle.answered_429(secs(100), Some(500));
        throttle.answered_429(secs(110), None);
        assert_eq!(throttle.in_penalty(secs(599)), Some(secs(489)));
        assert_eq!(throttle.in_penalty(secs(600)), None);
    }
}
