//! Switches: how the sandbox behaves where VTEX's documents are silent, contradict each other or warn.
//!
//! Each default is what VTEX most likely does. A client should get along with every other value, too.

use std::time::Duration;

use serde::Deserialize;

use super::handle::HandleForm;
use super::items::Variety;
use super::queue::{Oddities, Rules, StaleHandle};
use super::strict::de_choice;
use super::text::{de_duration, de_probability};

/// The table `[feed]`: receives, commits and the configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedBehaviour {
    /// Probability that a receive answers fewer items than it could.
    #[serde(deserialize_with = "de_probability")]
    pub short_reads: f64,
    /// Probability that a receive answers `[]` although events wait.
    #[serde(deserialize_with = "de_probability")]
    pub empty_reads: f64,
    /// Probability that a received event is not hidden.
    #[serde(deserialize_with = "de_probability")]
    pub delivered_twice: f64,
    /// Probability that a committed event comes back once.
    #[serde(deserialize_with = "de_probability")]
    pub back_after_commit: f64,
    /// Probability that a handle's commit succeeds without effect.
    #[serde(deserialize_with = "de_probability")]
    pub kept_despite_commit: f64,
    #[serde(deserialize_with = "de_choice")]
    pub handle_form: HandleForm,
    #[serde(deserialize_with = "de_choice")]
    pub maxlot_above_ten: AboveTen,
    #[serde(deserialize_with = "de_choice")]
    pub stale_handle: StaleHandle,
    #[serde(deserialize_with = "de_choice")]
    pub unknown_handle: BadHandle,
    #[serde(deserialize_with = "de_choice")]
    pub foreign_handle: BadHandle,
    #[serde(deserialize_with = "de_choice")]
    pub handles_above_ten: AboveTen,
    #[serde(deserialize_with = "de_choice")]
    pub commit_answer: CommitAnswer,
    #[serde(deserialize_with = "de_choice")]
    pub unconfigured_answer: PlainBody,
    #[serde(deserialize_with = "de_choice")]
    pub disable_single_fire_with_statuses: SingleFire,
    /// App keys that may do nothing.
    pub forbidden_keys: Vec<String>,
    #[serde(deserialize_with = "de_choice")]
    pub forbidden_answer: PlainBody,
    /// Requests without `Accept` and `Content-Type` are refused.
    pub strict_headers: bool,
}

impl FeedBehaviour {
    pub(super) fn rules(&self, visibility: Duration, retention: Duration) -> Rules {
        let oddities = Oddities {
            short_read: self.short_reads,
            empty_read: self.empty_reads,
            delivered_twice: self.delivered_twice,
            back_after_commit: self.back_after_commit,
            kept_despite_commit: self.kept_despite_commit,
        };
        Rules { visibility, retention, stale_handle: self.stale_handle, oddities }
    }
}

/// What happens to a number above the ten that SQS takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AboveTen {
    /// A `maxlot` counts as ten; handles are all committed.
    #[default]
    Accepted,
    Refused,
}

/// What happens to a commit with a handle that is not one of this feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BadHandle {
    /// Nothing of the commit takes effect.
    #[default]
    Refused,
    /// The other handles are committed.
    Ignored,
}

/// How a commit that took effect is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommitAnswer {
    /// 200, `text/plain`, without a body.
    #[default]
    Empty,
    /// 204.
    NoContent,
    /// 200, `{}`.
    Object,
    /// 200, some words.
    Text,
}

/// The body of an error that no document describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlainBody {
    /// VTEX's envelope, `{"error":{"code":…,"message":…,"exception":null}}`.
    #[default]
    Envelope,
    /// `{}`.
    Object,
    Empty,
    Text,
    Html,
}

/// What a configuration with `FromWorkflow` and `disableSingleFire` gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SingleFire {
    /// 409, as for every mixture of filters.
    #[default]
    Refused,
    Tolerated,
}

/// The table `[items]`: what events are made.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ItemBehaviour {
    /// A feed that nobody configured has an order filter, not a workflow filter.
    pub from_orders: bool,
    /// Probability that an event is enqueued as two messages.
    #[serde(deserialize_with = "de_probability")]
    pub enqueued_twice: f64,
    #[serde(deserialize_with = "de_choice")]
    pub second_event_id: SecondEventId,
    /// Probability that an order enters a state once more at another time.
    #[serde(deserialize_with = "de_probability")]
    pub repeated_state: f64,
    /// Probability of a state that is null, empty, unknown or outside the filter.
    #[serde(deserialize_with = "de_probability")]
    pub odd_state: f64,
    /// Probability that a purchase has an id with characters to be escaped.
    #[serde(deserialize_with = "de_probability")]
    pub odd_order_id: f64,
    /// Probability of members that no document lists.
    #[serde(deserialize_with = "de_probability")]
    pub extra_fields: f64,
}

impl ItemBehaviour {
    pub(super) fn variety(&self) -> Variety {
        Variety { odd_state: self.odd_state, extra_fields: self.extra_fields }
    }
}

/// The `eventId` of the second message of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecondEventId {
    #[default]
    Same,
    Different,
}

/// The table `[orders]`: order documents and the start of handling.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderBehaviour {
    /// For this long after its last change an order is not found.
    #[serde(deserialize_with = "de_duration")]
    pub not_found_for: Duration,
    /// Probability that an order is never found.
    #[serde(deserialize_with = "de_probability")]
    pub missing: f64,
    /// Probability that an order's `status` is null, empty or `detail.state.null`.
    #[serde(deserialize_with = "de_probability")]
    pub odd_status: f64,
    /// Probability that an order says `isCompleted: false`.
    #[serde(deserialize_with = "de_probability")]
    pub incomplete: f64,
    /// Orders stay in `ready-for-handling` until their handling is started.
    pub wait_for_start_handling: bool,
    /// For this long after its purchase an order is missing in the list of orders.
    #[serde(deserialize_with = "de_duration")]
    pub listed_after: Duration,
}

impl Default for OrderBehaviour {
    fn default() -> Self {
        Self {
            not_found_for: Duration::ZERO,
            missing: 0.0,
            odd_status: 0.0,
            incomplete: 0.0,
            wait_for_start_handling: false,
            listed_after: Duration::from_secs(240),
        }
    }
}
