//! One `[[fault]]` of the settings file.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::gzip::bomb;
use super::{Action, Canned, Effect, Fault, Lasting, Trigger};
use crate::sandbox::route::Operation;
use crate::sandbox::text::{Bytesize, Span, duration};
use crate::sandbox::throttle::RetryAfter;

/// Which requests go wrong, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Empty for every operation.
    pub operations: Vec<Operation>,
    pub trigger: Trigger,
    pub fault: Fault,
}

impl Rule {
    pub(super) fn matches(&self, operation: Operation) -> bool {
        self.operations.is_empty() || self.operations.contains(&operation)
    }
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sandbox) struct RawRule {
    #[serde(default)]
    operations: Vec<Operation>,
    nth: Option<u64>,
    through: Option<u64>,
    probability: Option<f64>,
    delay: Option<Span>,
    answer: Option<RawAnswer>,
    truncate: Option<Bytesize>,
    pad: Option<Bytesize>,
    content_type: Option<String>,
    encoding: Option<Encoding>,
    gzip_bomb: Option<Bytesize>,
    drip: Option<RawDrip>,
    cut: Option<Bytesize>,
    lose_answer: Option<When>,
    reset: Option<When>,
    hang: Option<Span>,
    throttle: Option<RawThrottle>,
    rotate_token: Option<RawLasting>,
    remove_config: Option<RawLasting>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAnswer {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    after_effect: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDrip {
    bytes: Bytesize,
    every: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawThrottle {
    lasting: Span,
    #[serde(default)]
    retry_after: RetryAfter,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Encoding {
    Gzip,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum When {
    BeforeEffect,
    AfterEffect,
}

/// `for good` or a duration.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct RawLasting(Lasting);

/// More than this is not decompressed by any test worth its time.
const LARGEST_BOMB: usize = 1 << 30;
const LARGEST_PAD: usize = 64 << 20;

impl TryFrom<RawRule> for Rule {
    type Error = String;

    fn try_from(raw: RawRule) -> Result<Self, String> {
        let RawRule {
            operations,
            nth,
            through,
            probability,
            delay,
            answer,
            truncate,
            pad,
            content_type,
            encoding,
            gzip_bomb,
            drip,
            cut,
            lose_answer,
            reset,
            hang,
            throttle,
            rotate_token,
            remove_config,
        } = raw;
        let trigger = trigger(nth, through, probability)?;
        let actions = [
            answer.map(canned),
            truncate.map(|Bytesize(bytes)| Ok(Action::Truncate(bytes))),
            pad.map(|Bytesize(bytes)| padded(bytes)),
            content_type.map(|text| of_content_type(&text)),
            encoding.map(|Encoding::Gzip| Ok(Action::Gzip)),
            gzip_bomb.map(|Bytesize(bytes)| exploding(bytes)),
            drip.map(dripping),
            cut.map(|Bytesize(after)| Ok(Action::Cut { after })),
            lose_answer.map(|when| Ok(Action::LoseAnswer(when.into()))),
            reset.map(|when| Ok(Action::Reset(when.into()))),
            hang.map(|Span(length)| Ok(Action::Hang(length))),
            throttle.map(|RawThrottle { lasting, retry_after }| {
                Ok(Action::Throttle { lasting: lasting.0, retry_after })
            }),
            rotate_token.map(|RawLasting(lasting)| Ok(Action::RotateToken(lasting))),
            remove_config.map(|RawLasting(lasting)| Ok(Action::RemoveConfig(lasting))),
        ];
        let mut given = actions.into_iter().flatten();
        let action = match (given.next(), given.next(), &delay) {
            (Some(action), None, _) => action?,
            (None, _, Some(_)) => Action::DelayOnly,
            (None, _, None) => {
                return Err("nothing goes wrong: an action like `answer` or `cut` is missing".into());
            }
            (Some(_), Some(_), _) => return Err("more than one action: write a [[fault]] for each".into()),
        };
        let delay = delay.map_or(Duration::ZERO, |Span(delay)| delay);
        Ok(Self { operations, trigger, fault: Fault { delay, action } })
    }
}

fn trigger(nth: Option<u64>, through: Option<u64>, probability: Option<f64>) -> Result<Trigger, String> {
    match (nth, through.or(nth), probability) {
        (Some(first @ 1..), Some(last), None) if first <= last => Ok(Trigger::Nth { first, last }),
        (Some(1..), Some(_), None) => Err("`through` is at least `nth`".into()),
        (None, None, Some(probability)) if (0.0..=1.0).contains(&probability) => {
            Ok(Trigger::Probability(probability))
        }
        _ => Err("either `nth`, from 1, with or without `through`, or a `probability` from 0 to 1".into()),
    }
}

fn canned(RawAnswer { status, headers, body, after_effect }: RawAnswer) -> Result<Action, String> {
    let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 200);
    let status = status.ok_or("`answer.status` is from 200 to 999")?;
    let header = |(name, value): (String, String)| {
        let wrong = || format!("`answer.headers` holds `{name}`, which cannot be sent");
        let value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
        Ok((HeaderName::try_from(&name).map_err(|_| wrong())?, value))
    };
    let headers = headers.into_iter().map(header).collect::<Result<_, String>>()?;
    let effect = if after_effect { Effect::Taken } else { Effect::None };
    Ok(Action::Answer { canned: Canned { status, headers, body: Bytes::from(body) }, effect })
}

fn padded(bytes: usize) -> Result<Action, String> {
    if bytes <= LARGEST_PAD { Ok(Action::Pad(bytes)) } else { Err("`pad` is at most 64MiB".into()) }
}

fn of_content_type(text: &str) -> Result<Action, String> {
    HeaderValue::from_str(text).map(Action::ContentType).map_err(|_| "`content_type` cannot be sent".into())
}

fn exploding(bytes: usize) -> Result<Action, String> {
    if bytes > LARGEST_BOMB {
        return Err("`gzip_bomb` is at most 1GiB".into());
    }
    bomb(bytes).map(Action::GzipBomb).map_err(|error| error.to_string())
}

fn dripping(RawDrip { bytes: Bytesize(bytes), every: Span(every) }: RawDrip) -> Result<Action, String> {
    if bytes > 0 { Ok(Action::Drip { bytes, every }) } else { Err("`drip.bytes` is above 0".into()) }
}

impl From<When> for Effect {
    fn from(when: When) -> Self {
        match when {
            When::BeforeEffect => Self::None,
            When::AfterEffect => Self::Taken,
        }
    }
}

impl TryFrom<String> for RawLasting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "for good" {
            return Ok(Self(Lasting::ForGood));
        }
        let lasting = duration(&text);
        lasting.map(|length| Self(Lasting::For(length))).map_err(|wrong| format!("{wrong}, or `for good`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Rule, String> {
        let raw: RawRule =
            toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())?;
        Rule::try_from(raw)
    }

    fn action_of(text: &str) -> Action {
        rule(&format!("probability = 0.02\n{text}")).unwrap().fault.action
    }

    #[test]
    fn every_action_has_a_key() {
        let minute = Duration::from_secs(60);
        assert_eq!(action_of("delay = '60s'"), Action::DelayOnly);
        assert_eq!(action_of("truncate = '10'"), Action::Truncate(10));
        assert_eq!(action_of("pad = '1KiB'"), Action::Pad(1_024));
        assert_eq!(
            action_of("content_type = 'text/html'"),
            Action::ContentType(HeaderValue::from_static("text/html"))
        );
        assert_eq!(action_of("encoding = 'gzip'"), Action::Gzip);
        assert_eq!(
            action_of("drip = { bytes = '7', every = '60s' }"),
            Action::Drip { bytes: 7, every: minute }
        );
        assert_eq!(action_of("cut = '9'"), Action::Cut { after: 9 });
        assert_eq!(action_of("lose_answer = 'before-effect'"), Action::LoseAnswer(Effect::None));
        assert_eq!(action_of("reset = 'after-effect'"), Action::Reset(Effect::Taken));
        assert_eq!(action_of("hang = '60s'"), Action::Hang(minute));
        assert_eq!(action_of("rotate_token = 'for good'"), Action::RotateToken(Lasting::ForGood));
        assert_eq!(action_of("remove_config = '60s'"), Action::RemoveConfig(Lasting::For(minute)));
        let throttle = Action::Throttle { lasting: minute, retry_after: RetryAfter::Date };
        assert_eq!(action_of("throttle = { lasting = '60s', retry_after = 'date' }"), throttle);
        assert!(matches!(action_of("gzip_bomb = '1MiB'"), Action::GzipBomb(_)));
        let answer = action_of(
            "answer = { status = 503, headers = { Retry-After = '5' }, body = '<html>', after_effect = true }",
        );
        let Action::Answer { canned, effect } = answer else { panic!("{answer:?}") };
        assert_eq!((canned.status.as_u16(), &canned.body[..], effect), (503, &b"<html>"[..], Effect::Taken));
        assert_eq!(canned.headers[0].0, "retry-after");
    }

    #[test]
    fn a_rule_needs_one_trigger_and_one_action() {
        let table = [
            ("cut = '1'", "either `nth`"),
            ("nth = 0\ncut = '1'", "either `nth`"),
            ("nth = 1\nprobability = 0.5\ncut = '1'", "either `nth`"),
            ("probability = 1.1\ncut = '1'", "either `nth`"),
            ("nth = 5\nthrough = 4\ncut = '1'", "`through` is at least"),
            ("nth = 1", "nothing goes wrong"),
            ("nth = 1\ncut = '1'\nhang = '1s'", "more than one action"),
            ("nth = 1\nanswer = { status = 99 }", "`answer.status`"),
            ("nth = 1\nanswer = { status = 200, headers = { 'a b' = '1' } }", "`a b`"),
            ("nth = 1\ndrip = { bytes = '0', every = '1s' }", "above 0"),
            ("nth = 1\ngzip_bomb = '2GiB'", "at most 1GiB"),
            ("nth = 1\nhang = 'long'", "`long` is not a duration"),
            ("nth = 1\nrotate_token = 'soon'", "or `for good`"),
            ("nth = 1\ncut = '1'\noperations = ['feed.recieve']", "unknown variant"),
            ("nth = 1\ncuts = '1'", "unknown field `cuts`"),
        ];
        for (text, message) in table {
            let refusal = rule(text).unwrap_err();
            assert!(refusal.contains(message), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_delay_goes_with_any_action() {
        let rule =
            rule("nth = 3\nthrough = 4\ndelay = '1s'\ncut = '9'\noperations = ['feed.receive']").unwrap();
        assert_eq!(rule.trigger, Trigger::Nth { first: 3, last: 4 });
        assert_eq!(rule.fault, Fault { delay: Duration::from_secs(1), action: Action::Cut { after: 9 } });
        assert!(rule.matches(Operation::FeedReceive) && !rule.matches(Operation::FeedCommit));
    }
}
