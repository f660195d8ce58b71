//! Who and where VTEX is, the proxy on the way, and where webhooks go.

use std::net::IpAddr;

use reqwest::Url;

use super::text::Word;
use crate::config::Proxy;

/// The first part of a host name; lower-case, as DNS does not distinguish.
#[derive(Debug, Clone)]
pub(in crate::config) struct DnsLabel(pub(in crate::config) String);

impl Word for DnsLabel {
    const PATTERN: Option<&str> = Some("^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$");

    fn allowed() -> String {
        "the name of a VTEX account: 1 to 63 letters, digits and `-`, no `-` at an end".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let fits =
            (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        (fits && !text.starts_with('-') && !text.ends_with('-')).then(|| Self(text.to_ascii_lowercase()))
    }
}

/// Where the feed is asked; without a trailing slash.
#[derive(Debug, Clone)]
pub(in crate::config) struct BaseUrl(pub(in crate::config) Url);

impl Word for BaseUrl {
    fn allowed() -> String {
        "an https URL without user, query and fragment; http only to a loopback address".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let mut url = parse(text)?;
        let secure = match url.scheme() {
            "https" => true,
            "http" => is_loopback(url.host_str()?),
            _ => false,
        };
        let plain = url.username().is_empty() && url.password().is_none();
        if !secure || !plain || url.query().is_some() || url.fragment().is_some() {
            return None;
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Some(Self(url))
    }
}

/// Where a webhook posts to. Whether http will do depends on another key.
#[derive(Debug, Clone)]
pub(in crate::config) struct WebhookUrl(pub(in crate::config) Url);

impl WebhookUrl {
    /// Whether nobody else reads what is sent.
    pub(in crate::config) fn is_private(&self) -> bool {
        self.0.scheme() == "https" || self.0.host_str().is_some_and(is_loopback)
    }
}

impl Word for WebhookUrl {
    const PATTERN: Option<&str> = Some("^[Hh][Tt][Tt][Pp][Ss]?:");

    fn allowed() -> String {
        "an https URL, or an http one, without user, password and fragment".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let url = parse(text)?;
        let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        (matches!(url.scheme(), "http" | "https") && plain).then_some(Self(url))
    }

    /// Without the query, which may hold a key.
    fn shown(&self, _: &str) -> String {
        let mut url = self.0.clone();
        if url.query().is_some() {
            url.set_query(Some("***"));
        }
        url.into()
    }
}

impl Word for Proxy {
    fn allowed() -> String {
        "`none`, `env` or the http or https URL of a proxy".to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "env" => Some(Self::Env),
            url => {
                let url = parse(url)?;
                let is_proxy = matches!(url.scheme(), "http" | "https") && matches!(url.path(), "" | "/");
                (is_proxy && url.query().is_none() && url.fragment().is_none()).then_some(Self::Url(url))
            }
        }
    }

    /// Without user and password.
    fn shown(&self, text: &str) -> String {
        let Self::Url(url) = self else { return text.to_owned() };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
    }
}

/// Without the leniency of browsers, which drop spaces and newlines.
fn parse(text: &str) -> Option<Url> {
    if text.bytes().all(|b| b.is_ascii_graphic()) { Url::parse(text).ok() } else { None }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
