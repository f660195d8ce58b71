//! The settings file of a sandbox: a strict TOML file with everything that is not a plain option.

use serde::Deserialize;
use toml::Spanned;

use super::behaviour::{FeedBehaviour, ItemBehaviour, OrderBehaviour};
use super::faults::{RawRule, Rule};
use super::strict::Table;
use super::throttle::RateLimit;

/// What the file holds; an empty file is a sandbox on its best behaviour.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    pub feed: FeedBehaviour,
    pub items: ItemBehaviour,
    pub orders: OrderBehaviour,
    /// No limit unless it is given.
    pub rate_limit: Option<RateLimit>,
    pub faults: Vec<Rule>,
}

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawSettings {
    feed: Table<FeedBehaviour>,
    items: Table<ItemBehaviour>,
    orders: Table<OrderBehaviour>,
    rate_limit: Option<Table<RateLimit>>,
    fault: Vec<Spanned<Table<RawRule>>>,
}

/// Where and why a settings file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {path}{message}")]
pub struct SettingsError {
    line: usize,
    column: usize,
    /// The key, with `: `, or empty.
    path: String,
    message: String,
}

impl Settings {
    /// Reads the text of a settings file.
    ///
    /// # Errors
    /// [`SettingsError`] names the first unknown key or wrong value.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let refuse = |path: &str, error: &toml::de::Error| {
            SettingsError::new(text, error.span().map_or(0, |span| span.start), path, error.message())
        };
        let toml = toml::Deserializer::parse(text).map_err(|error| refuse("", &error))?;
        let raw: RawSettings = serde_path_to_error::deserialize(toml).map_err(|error| {
            // The marker by which `Spanned` asks for its place is no part of the key.
            let path = error.path().to_string().replace(".$__serde_spanned_private_value", "");
            refuse(&path, error.inner())
        })?;
        let RawSettings { feed, items, orders, rate_limit, fault } = raw;
        let rule = |(index, raw): (usize, Spanned<Table<RawRule>>)| {
            let start = raw.span().start;
            let refuse = |why: String| SettingsError::new(text, start, &format!("fault[{index}]"), &why);
            Rule::try_from(raw.into_inner().0).map_err(refuse)
        };
        let faults = fault.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?;
        let rate_limit = rate_limit.map(|Table(limit)| limit);
        Ok(Self { feed: feed.0, items: items.0, orders: orders.0, rate_limit, faults })
    }
}

impl SettingsError {
    /// `start` is the byte at which the trouble starts.
    fn new(text: &str, start: usize, path: &str, message: &str) -> Self {
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            path: if path.is_empty() || path == "." { String::new() } else { format!("{path}: ") },
            message: message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Settings::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_refused_with_their_position() {
        assert!(refusal("\n[feed]\nshort_read = 0.5\n").starts_with("3:1: feed.short_read: unknown field"));
        assert!(refusal("[fed]\n").starts_with("1:2: fed: unknown field"));
        assert_eq!(
            refusal("[feed]\nempty_reads = 1.5\n"),
            "2:15: feed.empty_reads: 1.5 is not a probability from 0 to 1"
        );
        assert!(
            refusal("[orders]\nnot_found_for = \"soon\"\n")
                .starts_with("2:17: orders.not_found_for: `soon` is not")
        );
        assert!(
            refusal("[feed]\nstale_handle = \"kept\"\n").contains("unknown variant `kept`, expected one of")
        );
        assert!(refusal("[feed\n").starts_with("1:"));
        let limit = "[rate_limit]\nper_minute = 0\nburst = 1\n";
        assert_eq!(refusal(limit), "2:14: rate_limit.per_minute: from 1 to 1,000,000");
    }

    #[test]
    fn a_wrong_fault_is_refused_with_the_place_of_its_table() {
        let two = "[[fault]]\nnth = 1\ncut = '1'\n\n[[fault]]\nnth = 1\n";
        let refused = refusal(two);
        assert!(refused.starts_with("5:1: fault[1]: nothing goes wrong"), "{refused}");
        let refused = refusal(&format!("{two}cuts = '1'\n"));
        assert!(refused.starts_with("7:1: fault[1].cuts: unknown field `cuts`"), "{refused}");
    }

    #[test]
    fn a_list_is_no_table_and_a_choice_is_text() {
        assert_eq!(refusal("feed = [0.5, 0.5]"), "1:8: feed: invalid type: sequence, expected a table");
        assert_eq!(
            refusal("\nrate_limit = [600, 100]"),
            "2:14: rate_limit: invalid type: sequence, expected a table"
        );
        for table in ["items", "orders"] {
            assert!(refusal(&format!("{table} = []")).contains(&format!(" {table}: ")));
            assert!(refusal(&format!("[[{table}]]")).contains("expected a table"));
        }
        assert!(refusal("fault = [[1]]").contains("fault[0]: invalid type: sequence, expected a table"));
        assert_eq!(
            refusal("[feed]\nstale_handle = 1"),
            "2:16: feed.stale_handle: invalid type: integer `1`, expected one of `ignored`, `deleted`, `refused`"
        );
        for key in [
            "feed.handle_form",
            "feed.maxlot_above_ten",
            "feed.unknown_handle",
            "feed.foreign_handle",
            "feed.handles_above_ten",
            "feed.commit_answer",
            "feed.unconfigured_answer",
            "feed.disable_single_fire_with_statuses",
            "feed.forbidden_answer",
            "items.second_event_id",
        ] {
            for value in ["true", "{ refused = {} }"] {
                let refused = refusal(&format!("{key} = {value}"));
                assert!(refused.contains(&format!(" {key}: invalid type: ")), "{refused}");
                assert!(refused.contains("expected one of `"), "{refused}");
            }
        }
        let limit = "rate_limit = { per_minute = 1, burst = 1, headers = true }";
        assert!(refusal(limit).contains("expected one of `none`"), "{}", refusal(limit));
    }

    #[test]
    fn every_switch_has_a_key() {
        let settings = Settings::parse(
            r#"
            [feed]
            short_reads = 0.1
            empty_reads = 0.1
            delivered_twice = 0.1
            back_after_commit = 0.1
            kept_despite_commit = 1
            handle_form = "bare"
            maxlot_above_ten = "refused"
            stale_handle = "deleted"
            unknown_handle = "ignored"
            foreign_handle = "ignored"
            handles_above_ten = "refused"
            commit_answer = "no-content"
            unconfigured_answer = "object"
            disable_single_fire_with_statuses = "tolerated"
            forbidden_keys = ["vtexappkey-mystore-NOBODY"]
            forbidden_answer = "html"
            strict_headers = true
            [items]
            from_orders = true
            enqueued_twice = 0.1
            second_event_id = "different"
            repeated_state = 0.1
            odd_state = 0.1
            odd_order_id = 0.1
            extra_fields = 0.1
            [orders]
            not_found_for = "5s"
            missing = 0.1
            odd_status = 0.1
            incomplete = 0.1
            wait_for_start_handling = true
            listed_after = "4m"
            [rate_limit]
            per_minute = 600
            burst = 100
            penalty = "60s"
            retry_after = "date"
            headers = "x-ratelimit"
            [[fault]]
            operations = ["feed.receive", "feed.commit"]
            probability = 0.02
            answer = { status = 503 }
            "#,
        );
        assert!(settings.is_ok(), "{settings:?}");
    }
}
