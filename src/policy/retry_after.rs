//! How long an answer asks us to wait.
//!
//! Source: RFC 9110, 10.2.3 (`Retry-After`) and 5.6.7 (dates); VTEX documents the header for 429 and 503.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};

/// No hint is longer: a server that asks for more has its clock or its units wrong.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A reset further ahead is not about the limit that was just met.
const PLAUSIBLE_RESET: Duration = Duration::from_secs(60 * 60);

/// From here on a number of seconds is counted from 1970, below it from now.
const EPOCH_FROM: u64 = 1_000_000_000;

const SECOND: Duration = Duration::from_secs(1);

/// A wait that an answer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// Above zero, at most [`LONGEST`].
    pub wait: Duration,
    /// Whether it asked for more than [`LONGEST`].
    pub capped: bool,
}

/// Reads the wait from the values of all `Retry-After`, of `Date` and of `X-RateLimit-Reset`.
///
/// The largest usable `Retry-After` counts, as seconds or as an HTTP date; without one, a plausible reset. Zero,
/// past, negative and unreadable values are no hint.
pub fn hint<'a>(
    retry_after: impl IntoIterator<Item = &'a str>,
    date: Option<&str>,
    rate_limit_reset: Option<&str>,
    received_at: Timestamp,
) -> Option<Hint> {
    let answered_at = server_time(date, received_at);
    let wait =
        |value| seconds(value).map(Duration::from_secs).or_else(|| until(http_date(value)?, answered_at));
    let longest = retry_after.into_iter().filter_map(wait).max();
    longest
        .filter(|wait| !wait.is_zero())
        .or_else(|| reset_in(rate_limit_reset?, date, received_at))
        .map(|wait| Hint { wait: wait.min(LONGEST), capped: LONGEST < wait })
}

/// Reads the time to the reset of a rate limit: seconds from now, or since 1970 where the number is 10^9 or more.
/// Above zero; `None` where it is past, more than an hour ahead, or no number.
pub fn reset_in(value: &str, date: Option<&str>, received_at: Timestamp) -> Option<Duration> {
    let number = seconds(value)?;
    let (wait, longest) = if number < EPOCH_FROM {
        (Duration::from_secs(number), PLAUSIBLE_RESET)
    } else {
        let epoch = Timestamp::from_second(i64::try_from(number).ok()?).ok()?;
        (until(epoch, server_time(date, received_at))?, PLAUSIBLE_RESET + SECOND)
    };
    (!wait.is_zero() && wait <= longest).then_some(wait)
}

/// What the server's clock showed when it answered. A date of its own is compared with that, not with our clock,
/// which may be wrong.
fn server_time(date: Option<&str>, received_at: Timestamp) -> Timestamp {
    date.and_then(http_date).unwrap_or(received_at)
}

/// From `now` to the end of the second of `then`, since whole seconds may have been rounded down; `None` when
/// that is past.
fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    let wait = then.duration_since(now).saturating_add(SignedDuration::from_secs(1));
    wait.is_positive().then(|| wait.unsigned_abs())
}

/// Digits only; a number too large for 64 bits is the largest.
fn seconds(value: &str) -> Option<u64> {
    let value = value.trim();
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().unwrap_or(u64::MAX))
}

/// One of the three forms of an HTTP date.
fn http_date(value: &str) -> Option<Timestamp> {
    let time: SystemTime = httpdate::parse_http_date(value.trim()).ok()?;
    // An HTTP date is in 1970 or later; only the last day of the year 9999 is too late for a timestamp.
    Some(Timestamp::try_from(time).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 0.7 s into the second that the answers' `Date` names.
    const RECEIVED: &str = "2026-03-02T12:00:00.7Z";
    const DATE: &str = "Mon, 02 Mar 2026 12:00:00 GMT";

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (value, expected) in [
            ("90", Some(90)),
            (" 90 ", Some(90)),
            ("1", Some(1)),
            // To the end of its second.
            ("Mon, 02 Mar 2026 12:02:00 GMT", Some(121)),
            ("Monday, 02-Mar-26 12:02:00 GMT", Some(121)),
            ("Mon Mar  2 12:02:00 2026", Some(121)),
            ("Mon, 02 Mar 2026 12:00:00 GMT", Some(1)),
            ("Mon, 02 Mar 2026 11:59:59 GMT", None),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None),
            ("0", None),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("1e3", None),
            ("soon", None),
            ("", None),
            ("  ", None),
            ("90, 60", None),
            ("٣", None),
            ("Mon, 02 Mar 2026 12:02:00 +0000", None),
            // Not the weekday of that date.
            ("Tue, 02 Mar 2026 12:02:00 GMT", None),
        ] {
            assert_eq!(wait(&[value], Some(DATE), None), expected.map(Duration::from_secs), "{value:?}");
        }
        assert_eq!(wait(&[], Some(DATE), None), None);
    }

    #[test]
    fn the_larger_of_two_counts_and_what_is_no_hint_hides_none() {
        let date = "Mon, 02 Mar 2026 12:02:00 GMT";
        for (values, seconds) in
            [(&["60", "90"][..], 90), (&["90", "60"], 90), (&["90", date], 121), (&["0", "soon", "7"], 7)]
        {
            assert_eq!(wait(values, Some(DATE), None), Some(Duration::from_secs(seconds)), "{values:?}");
        }
    }

    #[test]
    fn a_date_is_corrected_by_the_answers_own() {
        let retry_after = "Mon, 02 Mar 2026 13:02:00 GMT";
        // The server's clock is an hour ahead of ours.
        assert_eq!(
            wait(&[retry_after], Some("Mon, 02 Mar 2026 13:00:00 GMT"), None),
            Some(Duration::from_secs(121))
        );
        for no_date in [None, Some("today"), Some("")] {
            assert_eq!(
                wait(&[retry_after], no_date, None),
                Some(Duration::from_millis(3_720_300)),
                "{no_date:?}"
            );
        }
    }

    #[test]
    fn more_than_a_day_is_taken_as_a_day() {
        for (value, capped) in [
            ("86400", false),
            ("86401", true),
            ("99999999999999999999", true),
            ("Tue, 02 Mar 2027 12:00:00 GMT", true),
            ("Fri, 31 Dec 9999 23:59:59 GMT", true),
        ] {
            let found = hint([value], Some(DATE), None, received());
            assert_eq!(found, Some(Hint { wait: LONGEST, capped }), "{value}");
        }
    }

    #[test]
    fn without_a_retry_after_a_plausible_reset_counts() {
        let epoch = "1772452900"; // 100 s after DATE
        for (retry_after, reset, expected) in [
            (&[][..], "100", Some(100)),
            (&[], epoch, Some(101)),
            (&["soon"], "100", Some(100)),
            (&["0"], epoch, Some(101)),
            (&["7"], "100", Some(7)),
            (&[], "3600", Some(3_600)),
            (&[], "3601", None),
            (&[], "1772456400", Some(3_601)),
            (&[], "1772456401", None),
            (&[], "1772452799", None),
            // Milliseconds since 1970.
            (&[], "1772452900000", None),
            (&[], "999999999", None),
            (&[], "1000000000", None),
            (&[], "18446744073709551615", None),
            (&[], "99999999999999999999", None),
            (&[], "0", None),
            (&[], "-100", None),
            (&[], "1772452900.5", None),
            (&[], "soon", None),
            (&[], "", None),
        ] {
            assert_eq!(
                wait(retry_after, Some(DATE), Some(reset)),
                expected.map(Duration::from_secs),
                "{retry_after:?} {reset:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_the_headers_say_a_hint_is_above_zero_and_at_most_a_day(
            retry_after in prop::collection::vec(value(), 0..3), date in prop::option::of(value()),
            reset in prop::option::of(value()), received_s in -377_000_000_000i64..253_000_000_000,
        ) {
            let received_at = Timestamp::from_second(received_s).unwrap();
            let retry_after = retry_after.iter().map(String::as_str);
            if let Some(hint) = hint(retry_after, date.as_deref(), reset.as_deref(), received_at) {
                prop_assert!(Duration::ZERO < hint.wait && hint.wait <= LONGEST);
                prop_assert!(!hint.capped || hint.wait == LONGEST);
            }
        }
    }

    fn value() -> impl Strategy<Value = String> {
        let date = (0u64..253_402_300_800)
            .prop_map(|s| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(s)));
        prop_oneof!["\\PC{0,40}", "[0-9]{0,25}", date]
    }

    fn wait(retry_after: &[&str], date: Option<&str>, reset: Option<&str>) -> Option<Duration> {
        hint(retry_after.iter().copied(), date, reset, received()).map(|hint| hint.wait)
    }

    fn received() -> Timestamp {
        RECEIVED.parse().unwrap()
    }
}
