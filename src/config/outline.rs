//! What the tools of the journal need of the configuration: no secret, nothing that runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Url;

use super::Wanted;
use super::raw::{RawAccountNames, RawConfig, RawSink, RawStates};

#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    pub journal: PathBuf,
    /// By the name of the account, switched off or not: what its envelopes call their source.
    pub sources: BTreeMap<String, String>,
    /// By name.
    pub sinks: BTreeMap<String, Wanted>,
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
    let sinks = raw.sinks.iter().map(|(name, sink)| {
        let wanted = match sink {
            RawSink::File(sink) => wanted(sink.states.as_ref(), sink.accounts.as_ref()),
            RawSink::Webhook(sink) => wanted(sink.states.as_ref(), sink.accounts.as_ref()),
            RawSink::Command(sink) => wanted(sink.states.as_ref(), sink.accounts.as_ref()),
        };
        (name.clone(), wanted)
    });
    Some(Outline {
        journal: raw.journal.path.as_ref()?.value.0.clone(),
        sources: sources.collect(),
        sinks: sinks.collect(),
    })
}

fn wanted(states: Option<&RawStates>, accounts: Option<&RawAccountNames>) -> Wanted {
    Wanted {
        states: states.map(|states| states.0.iter().map(|state| state.value.0.clone()).collect()),
        accounts: accounts.map(|accounts| accounts.0.iter().map(|account| account.value.0.clone()).collect()),
    }
}
