//! A webhook: that nobody else reads or answers what it sends.

use std::collections::BTreeMap;

use reqwest::header::{AUTHORIZATION, HeaderName};

use super::secrets::{doubt_exposed, doubt_literal, resolve};
use super::{Remarks, Surroundings};
use crate::config::raw::{RawSecret, RawSecrets, RawWebhook, Text, WebhookUrl};
use crate::config::{CaFile, ClientCert, Limits, Secret, SigningSecret, Webhook};

pub(super) fn webhook(
    name: &str,
    raw: RawWebhook,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Webhook> {
    let RawWebhook {
        states: _,
        accounts: _,
        url,
        allow_http,
        signing_secret,
        headers,
        ca_file,
        client_cert,
        max_attempts,
        timeout,
        concurrency,
    } = raw;
    if url.is_none() {
        remarks.require(&["sinks", name, "url"], "the https URL to post events to");
    }
    let url = url.map(|url| self::url(name, url, allow_http == Some(true), remarks));
    let signing_secrets = signing_secrets(name, signing_secret, surroundings, remarks);
    let headers = self::headers(name, headers, surroundings, remarks);
    let ca_file = ca_file.map(|file| CaFile::read(file.value.0)).transpose();
    let ca_file = told(ca_file, &["sinks", name, "ca_file"], remarks);
    let client_cert = client_cert.map(|file| ClientCert::read(file.value.0)).transpose();
    let client_cert = told(client_cert, &["sinks", name, "client_cert"], remarks);
    if let Some(Some(ClientCert { path, .. })) = &client_cert {
        doubt_exposed(&["sinks", name, "client_cert"], path, remarks);
    }
    let limits =
        Limits { max_attempts: max_attempts?.0, timeout: timeout?.value.0, concurrency: concurrency?.0 };
    Some(Webhook {
        url: url?.value.0,
        signing_secrets: signing_secrets?,
        headers: headers?,
        ca_file: ca_file?,
        client_cert: client_cert?,
        limits,
    })
}

fn url(name: &str, url: Text<WebhookUrl>, allow_http: bool, remarks: &mut Remarks) -> Text<WebhookUrl> {
    if !url.value.is_private() {
        let key = ["sinks", name, "url"];
        if allow_http {
            remarks.doubt(&key, "http: everybody on the way can read and change the events");
        } else {
            remarks.refuse(&key, "must be https; http only to a loopback address or with allow_http = true");
        }
    }
    url
}

fn signing_secrets(
    name: &str,
    raw: Option<RawSecrets<10>>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Vec<SigningSecret>> {
    let key = ["sinks", name, "signing_secret"];
    let Some(raw) = raw else {
        remarks.doubt(&key, "not set: the receiver cannot tell these requests from those of anybody else");
        return Some(Vec::new());
    };
    let mut sign = |raw: RawSecret| {
        let (secret, source) = resolve(&key, raw, Secret::from_bytes, surroundings, remarks)?;
        doubt_literal(&key, &source, remarks);
        let secret = SigningSecret::new(secret);
        if secret.is_none() {
            remarks.refuse(&key, format!("must be {}", SigningSecret::ALLOWED));
        }
        secret
    };
    // Not stopped at the first that is wrong.
    let secrets: Vec<_> = raw.into_all().into_iter().map(&mut sign).collect();
    secrets.into_iter().collect()
}

/// What the agent, the HTTP library or the connection says, in lower case.
const RESERVED: [&str; 16] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

fn headers(
    name: &str,
    raw: BTreeMap<String, RawSecret>,
    surroundings: Surroundings<'_>,
    remarks: &mut Remarks,
) -> Option<Vec<(HeaderName, Secret)>> {
    let mut seen = Vec::new();
    let mut header = |(text, value): (String, RawSecret)| {
        let key = ["sinks", name, "headers", &text];
        let Ok(header) = HeaderName::from_bytes(text.as_bytes()) else {
            remarks.refuse(&key, "must be the name of a header: letters, digits and `-`");
            return None;
        };
        if RESERVED.contains(&header.as_str()) {
            remarks.refuse(&key, "is set by the agent; it cannot be given");
            return None;
        }
        if seen.contains(&header) {
            remarks
                .refuse(&key, "is given twice: upper and lower case do not matter in the name of a header");
            return None;
        }
        seen.push(header.clone());
        let (secret, source) = resolve(&key, value, Secret::header_from_bytes, surroundings, remarks)?;
        if header == AUTHORIZATION {
            doubt_literal(&key, &source, remarks);
        }
        Some((header, secret))
    };
    let headers: Vec<_> = raw.into_iter().map(&mut header).collect();
    headers.into_iter().collect()
}

fn told<T>(read: Result<T, String>, key: &[&str], remarks: &mut Remarks) -> Option<T> {
    read.map_err(|message| remarks.refuse(key, message)).ok()
}
