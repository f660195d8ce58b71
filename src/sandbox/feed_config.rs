//! A feed's configuration as VTEX reads and shows it.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::queue::Rules;

/// Which changes a feed is told of, and how its queue treats them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FeedConfig {
    pub(super) filter: Filter,
    pub(super) visibility: Duration,
    pub(super) retention: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Filter {
    /// Changes into these states; all of them when there is none. VTEX does not check the names.
    Workflow { statuses: Vec<String> },
    /// Changes of an order's document.
    Orders { expression: String, disable_single_fire: bool },
}

/// Why a configuration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConfigRefused {
    #[error("The body is not a feed configuration")]
    Malformed,
    #[error("Members of both filter types are mixed")]
    Mixed,
    #[error("A number is out of its range")]
    OutOfRange,
}

impl FeedConfig {
    /// What a feed has that nobody configured: every state.
    pub(super) fn of_everything(visibility: Duration) -> Self {
        let filter = Filter::Workflow { statuses: Vec::new() };
        Self { filter, visibility, retention: Rules::default().retention }
    }

    /// Reads the body of a request. Keys count in any case, as VTEX's own documents spell them in two ways.
    /// `tolerate_single_fire` lets `disableSingleFire` pass beside statuses, as many integrations send it.
    ///
    /// # Errors
    /// [`ConfigRefused`]
    pub(super) fn parse(body: &[u8], tolerate_single_fire: bool) -> Result<Self, ConfigRefused> {
        let body = serde_json::from_slice(body).map_err(|_| ConfigRefused::Malformed)?;
        let Value::Object(config) = lower_case_keys(body) else { return Err(ConfigRefused::Malformed) };
        let queue = table(&config, "queue")?;
        Ok(Self {
            filter: Filter::parse(&table(&config, "filter")?, tolerate_single_fire)?,
            visibility: seconds(&queue, "visibilitytimeoutinseconds", 30, 0, 43_200)?,
            retention: seconds(&queue, "messageretentionperiodinseconds", 345_600, 345_600, 1_209_600)?,
        })
    }

    /// What `GET` answers, for a feed with this many messages of which the oldest is this old.
    pub(super) fn show(&self, quantity: usize, oldest: Duration) -> Value {
        let filter = match &self.filter {
            Filter::Workflow { statuses } => json!({"type": "FromWorkflow", "status": statuses}),
            Filter::Orders { expression, disable_single_fire } => {
                json!({"type": "FromOrders", "expression": expression, "disableSingleFire": disable_single_fire})
            }
        };
        json!({
            "filter": filter,
            "queue": {
                "visibilityTimeoutInSeconds": self.visibility.as_secs(),
                "messageRetentionPeriodInSeconds": self.retention.as_secs(),
            },
            "quantity": quantity,
            "approximateAgeOfOldestMessageInSeconds": oldest.as_secs_f64(),
        })
    }
}

impl Filter {
    fn parse(filter: &Map<String, Value>, tolerate_single_fire: bool) -> Result<Self, ConfigRefused> {
        let given = |name: &str| filter.get(name).filter(|value| !value.is_null());
        let expression =
            given("expression").map(|value| value.as_str().ok_or(ConfigRefused::Malformed)).transpose()?;
        let single_fire = given("disablesinglefire")
            .map(|value| value.as_bool().ok_or(ConfigRefused::Malformed))
            .transpose()?;
        let default = if expression.is_some() { "FromOrders" } else { "FromWorkflow" };
        match given("type").map_or(Some(default), Value::as_str) {
            Some("FromWorkflow") => {
                if expression.is_some() || (single_fire.is_some() && !tolerate_single_fire) {
                    return Err(ConfigRefused::Mixed);
                }
                Ok(Self::Workflow { statuses: statuses(given("status"))? })
            }
            Some("FromOrders") => {
                if given("status").is_some() {
                    return Err(ConfigRefused::Mixed);
                }
                let expression = expression.ok_or(ConfigRefused::Malformed)?.to_owned();
                Ok(Self::Orders { expression, disable_single_fire: single_fire.unwrap_or(false) })
            }
            Some(_) | None => Err(ConfigRefused::Malformed),
        }
    }

    /// Whether a feed is told that an order entered `state` after it `passed` others.
    ///
    /// Of expressions only comparisons of `status` with texts, joined by `or`, are understood; any other is taken to
    /// be true of every order. Unless single fire is disabled, an order fires when the expression first comes true.
    pub(super) fn wants(&self, state: &str, passed: &[&str]) -> bool {
        match self {
            Self::Workflow { statuses } => {
                statuses.is_empty() || statuses.iter().any(|status| status == state)
            }
            Self::Orders { expression, disable_single_fire } => {
                let compared = compared_statuses(expression);
                let holds = |state: &str| compared.as_ref().is_none_or(|statuses| statuses.contains(&state));
                holds(state) && (*disable_single_fire || !passed.iter().any(|state| holds(state)))
            }
        }
    }
}

/// The texts of `status = "a" or status = "b"`; none for an expression of another form.
fn compared_statuses(expression: &str) -> Option<Vec<&str>> {
    expression.split(" or ").map(compared_status).collect()
}

fn compared_status(comparison: &str) -> Option<&str> {
    let quoted = comparison.trim().strip_prefix("status")?.trim_start().strip_prefix('=')?.trim_start();
    quoted.strip_prefix('"')?.strip_suffix('"').filter(|text| !text.contains('"'))
}

fn statuses(given: Option<&Value>) -> Result<Vec<String>, ConfigRefused> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let given = given.as_array().ok_or(ConfigRefused::Malformed)?;
    given.iter().map(|status| status.as_str().map(str::to_owned).ok_or(ConfigRefused::Malformed)).collect()
}

/// A member that is an object; an empty one when it is missing.
fn table(of: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, ConfigRefused> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(table)) => Ok(table.clone()),
        Some(_) => Err(ConfigRefused::Malformed),
    }
}

fn seconds(
    of: &Map<String, Value>,
    name: &str,
    default: u64,
    min: u64,
    max: u64,
) -> Result<Duration, ConfigRefused> {
    let given = match of.get(name) {
        None | Some(Value::Null) => default,
        Some(value) if value.is_number() => value.as_u64().ok_or(ConfigRefused::OutOfRange)?,
        Some(_) => return Err(ConfigRefused::Malformed),
    };
    if (min..=max).contains(&given) { Ok(Duration::from_secs(given)) } else { Err(ConfigRefused::OutOfRange) }
}

fn lower_case_keys(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(key, value)| (key.to_ascii_lowercase(), lower_case_keys(value)))
            .collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &Value) -> Result<FeedConfig, ConfigRefused> {
        FeedConfig::parse(body.to_string().as_bytes(), false)
    }

    #[test]
    fn both_spellings_of_the_retention_are_read_and_one_is_shown() {
        for key in ["MessageRetentionPeriodInSeconds", "messageRetentionPeriodInSeconds"] {
            let config = parse(&json!({
                "filter": {"type": "FromWorkflow", "status": ["handling", "no-such-state"]},
                "queue": {"visibilityTimeoutInSeconds": 240, key: 604_800},
            }));
            let shown = config.unwrap().show(7, Duration::from_millis(1_270));
            assert_eq!(
                shown,
                json!({
                    "filter": {"type": "FromWorkflow", "status": ["handling", "no-such-state"]},
                    "queue": {"visibilityTimeoutInSeconds": 240, "messageRetentionPeriodInSeconds": 604_800},
                    "quantity": 7,
                    "approximateAgeOfOldestMessageInSeconds": 1.27,
                })
            );
        }
    }

    #[test]
    fn what_is_left_out_takes_its_default() {
        let everything = FeedConfig::of_everything(Duration::from_secs(30));
        assert_eq!(parse(&json!({})), Ok(everything.clone()));
        assert_eq!(parse(&json!({"filter": null, "queue": null})), Ok(everything.clone()));
        assert_eq!(parse(&json!({"filter": {"status": []}})), Ok(everything));
    }

    #[test]
    fn mixed_and_malformed_configurations_are_refused() {
        use ConfigRefused::{Malformed, Mixed, OutOfRange};
        let table = [
            (json!({"filter": {"type": "FromWorkflow", "expression": "true"}}), Mixed),
            (json!({"filter": {"type": "FromWorkflow", "disableSingleFire": false}}), Mixed),
            (json!({"filter": {"type": "FromOrders", "expression": "true", "status": ["handling"]}}), Mixed),
            (json!({"filter": {"type": "FromOrders"}}), Malformed),
            (json!({"filter": {"type": "FromNowhere"}}), Malformed),
            (json!({"filter": {"type": 1}}), Malformed),
            (json!({"filter": []}), Malformed),
            (json!({"filter": {"status": [1]}}), Malformed),
            (json!([]), Malformed),
            (json!({"queue": {"visibilityTimeoutInSeconds": "30"}}), Malformed),
            (json!({"queue": {"visibilityTimeoutInSeconds": -1}}), OutOfRange),
            (json!({"queue": {"visibilityTimeoutInSeconds": 43_201}}), OutOfRange),
            (json!({"queue": {"messageRetentionPeriodInSeconds": 345_599}}), OutOfRange),
            (json!({"queue": {"messageRetentionPeriodInSeconds": 1_209_601}}), OutOfRange),
        ];
        for (body, refused) in table {
            assert_eq!(parse(&body), Err(refused), "{body}");
        }
    }

    #[test]
    fn single_fire_beside_statuses_passes_where_it_is_tolerated() {
        let body = json!({"filter": {"type": "FromWorkflow", "status": [], "disableSingleFire": false}});
        assert!(FeedConfig::parse(body.to_string().as_bytes(), true).is_ok());
    }

    #[test]
    fn a_workflow_filter_wants_its_states_and_an_order_filter_fires_once() {
        let workflow = Filter::Workflow { statuses: vec!["handling".into()] };
        assert!(workflow.wants("handling", &["handling"]) && !workflow.wants("invoiced", &[]));

        let orders = |expression: &str, disable_single_fire| Filter::Orders {
            expression: expression.into(),
            disable_single_fire,
        };
        let by_status = r#"status = "handling" or status="invoiced""#;
        assert!(!orders(by_status, false).wants("canceled", &[]));
        assert!(orders(by_status, false).wants("invoiced", &["canceled"]));
        assert!(!orders(by_status, false).wants("invoiced", &["handling"]));
        assert!(orders(by_status, true).wants("invoiced", &["handling"]));
        assert!(orders("value > 100", false).wants("anything", &[]));
        assert!(!orders("value > 100", false).wants("anything", &["before"]));
    }
}
