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
use crate::sandbox::strict::{Choice, Table};
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
    operations: Option<Vec<Choice<Operation>>>,
    nth: Option<u64>,
    through: Option<u64>,
    probability: Option<f64>,
    delay: Option<Span>,
    answer: Option<Table<RawAnswer>>,
    truncate: Option<Bytesize>,
    pad: Option<Bytesize>,
    content_type: Option<String>,
    encoding: Option<Choice<Encoding>>,
    gzip_bomb: Option<Bytesize>,
    drip: Option<Table<RawDrip>>,
    cut: Option<Bytesize>,
    lose_answer: Option<Choice<When>>,
    reset: Option<Choice<When>>,
    hang: Option<Span>,
    throttle: Option<Table<RawThrottle>>,
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
        if operations.as_ref().is_some_and(Vec::is_empty) {
            return Err("`operations` names at least one; without it all are meant".into());
        }
        let operations = operations.into_iter().flatten().map(|Choice(operation)| operation).collect();
        let trigger = trigger(nth, through, probability)?;
        let actions = [
            answer.map(canned),
            truncate.map(|Bytesize(bytes)| Ok(Action::Truncate(bytes))),
            pad.map(|Bytesize(bytes)| padded(bytes)),
            content_type.map(|text| of_content_type(&text)),
            encoding.map(|Choice(Encoding::Gzip)| Ok(Action::Gzip)),
            gzip_bomb.map(|Bytesize(bytes)| exploding(bytes)),
            drip.map(dripping),
            cut.map(|Bytesize(after)| Ok(Action::Cut { after })),
            lose_answer.map(|Choice(when)| Ok(Action::LoseAnswer(when.into()))),
            reset.map(|Choice(when)| Ok(Action::Reset(when.into()))),
            hang.map(|Span(length)| lasting("hang", length).map(Action::Hang)),
            throttle.map(throttling),
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
        let delay = delay.map(|Span(delay)| lasting("delay", delay)).transpose()?.unwrap_or_default();
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

fn canned(Table(answer): Table<RawAnswer>) -> Result<Action, String> {
    let RawAnswer { status, headers, body, after_effect } = answer;
    let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 200);
    let status = status.ok_or("`answer.status` is from 200 to 999")?;
    if !body.is_empty() && matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Err("`answer.body` cannot be sent with a status of 204 or 304".into());
    }
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
    if (1..=LARGEST_PAD).contains(&bytes) {
        Ok(Action::Pad(bytes))
    } else {
        Err("`pad` is above 0 and at most 64MiB".into())
    }
}

fn of_content_type(text: &str) -> Result<Action, String> {
    HeaderValue::from_str(text).map(Action::ContentType).map_err(|_| "`content_type` cannot be sent".into())
}

fn exploding(bytes: usize) -> Result<Action, String> {
    if !(1..=LARGEST_BOMB).contains(&bytes) {
        return Err("`gzip_bomb` is above 0 and at most 1GiB".into());
    }
    bomb(bytes).map(Action::GzipBomb).map_err(|error| error.to_string())
}

fn dripping(Table(drip): Table<RawDrip>) -> Result<Action, String> {
    let RawDrip { bytes: Bytesize(bytes), every: Span(every) } = drip;
    if bytes > 0 { Ok(Action::Drip { bytes, every }) } else { Err("`drip.bytes` is above 0".into()) }
}

fn throttling(Table(throttle): Table<RawThrottle>) -> Result<Action, String> {
    let RawThrottle { lasting: Span(length), retry_after } = throttle;
    Ok(Action::Throttle { lasting: lasting("throttle.lasting", length)?, retry_after })
}

/// A time in which something can be seen to go wrong.
fn lasting(key: &str, length: Duration) -> Result<Duration, String> {
    if length.is_zero() { Err(format!("`{key}` is above 0")) } else { Ok(length) }
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
        let length = duration(&text).map_err(|wrong| format!("{wrong}, or `for good`"))?;
        if length.is_zero() {
            return Err("the time is above 0, or `for good`".into());
        }
        Ok(Self(Lasting::For(length)))
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
            ("nth = 1\ncut = '1'\noperations = []", "`operations`"),
            ("nth = 1\nhang = '0s'", "above 0"),
            ("nth = 1\ndelay = '0s'", "above 0"),
            ("nth = 1\npad = '0'", "above 0"),
            ("nth = 1\ngzip_bomb = '0'", "above 0"),
            ("nth = 1\nthrottle = { lasting = '0s' }", "above 0"),
            ("nth = 1\nrotate_token = '0s'", "above 0"),
            ("nth = 1\nremove_config = '0s'", "above 0"),
            ("nth = 1\nanswer = { status = 204, body = 'x' }", "`answer.body`"),
            ("nth = 1\nanswer = { status = 304, body = 'x' }", "`answer.body`"),
            ("nth = 1\nreset = true", "expected one of `before-effect`, `after-effect`"),
            ("nth = 1\nreset = { after-effect = {} }", "expected one of `before-effect`, `after-effect`"),
            ("nth = 1\nencoding = 1", "expected one of `gzip`"),
            ("nth = 1\ncut = '1'\noperations = [1]", "expected one of `feed.receive`"),
            ("nth = 1\nanswer = [503]", "expected a table"),
            ("nth = 1\nthrottle = ['5s']", "expected a table"),
            ("nth = 1\ndrip = ['1', '5s']", "expected a table"),
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
