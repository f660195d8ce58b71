//! What the tools of the journal need of the configuration: no secret, nothing that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use reqwest::Url;

use super::raw::RawConfig;

#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    pub journal: PathBuf,
    /// By the name of the account, switched off or not: what its envelopes call their source.
    pub sources: BTreeMap<String, String>,
    /// By name.
    pub sinks: BTreeSet<String>,
}

/// What the envelope calls the source of the events of an account.
pub fn source(base_url: &Url) -> String {
    format!("{}/api/orders/feed", base_url.as_str().trim_end_matches('/'))
}

/// Returns nothing only where a problem has been found.
pub(super) fn outline(raw: &RawConfig) -> Option<Outline> {
    let sources = raw
        .accounts
        .iter()
        .filter_map(|(name, account)| Some((name.clone(), source(&account.base_url.as_ref()?.value.0))));
    Some(Outline {
        journal: raw.journal.path.as_ref()?.value.0.clone(),
        sources: sources.collect(),
        sinks: raw.sinks.keys().cloned().collect(),
    })
}
