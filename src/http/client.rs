//! The HTTP clients: one for all that want the same of it, since each holds its own authorities and pool.

use std::sync::{Arc, Weak};
use std::time::Duration;

use reqwest::{Certificate, Client, Identity};

use crate::config::{CaFile, ClientCert, Proxy};

/// A connection that nobody used for so long is closed: before the next poll, and before a server that keeps
/// connections for a minute would close it just when a request is written to it.
const IDLE: Duration = Duration::from_secs(20);

/// The client could not be made; most often there are no CA certificates on this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot make an HTTP client")]
pub struct ClientError(#[source] reqwest::Error);

/// The clients in use.
#[derive(Default)]
pub struct Clients(Vec<(Transport, Weak<Client>)>);

/// What a client is made of.
#[derive(Clone, PartialEq)]
pub struct Transport {
    pub(crate) https_only: bool,
    pub(crate) connect_timeout: Duration,
    /// For one attempt, body included.
    pub(crate) timeout: Duration,
    pub(crate) proxy: Proxy,
    pub(crate) ca_file: Option<CaFile>,
    pub(crate) client_cert: Option<ClientCert>,
    /// Connections kept while nothing is to be sent.
    pub(crate) n_idle: usize,
}

impl Clients {
    /// Returns the client that an account asks for.
    ///
    /// # Errors
    /// It is not there yet and could not be made.
    pub fn client(&mut self, wanted: impl Into<Transport>) -> Result<Arc<Client>, ClientError> {
        let transport = wanted.into();
        self.0.retain(|(_, client)| 0 < client.strong_count());
        let known = self.0.iter().find(|(known, _)| *known == transport);
        if let Some(client) = known.and_then(|(_, client)| client.upgrade()) {
            return Ok(client);
        }
        let client = Arc::new(transport.client()?);
        self.0.push((transport, Arc::downgrade(&client)));
        Ok(client)
    }
}

impl Transport {
    /// Makes a client of its own.
    ///
    /// # Errors
    /// The TLS library refuses what it is made of.
    pub fn client(&self) -> Result<Client, ClientError> {
        self.build().map_err(ClientError)
    }

    /// Every repetition, redirect and cookie would be a request that no policy decided and no gate let pass; a
    /// followed redirect would also hand the credentials to another host.
    fn build(&self) -> Result<Client, reqwest::Error> {
        let mut builder = Client::builder()
            .user_agent(concat!("order-feed-agent/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .https_only(self.https_only)
            .connect_timeout(self.connect_timeout)
            .timeout(self.timeout)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(self.n_idle);
        builder = match &self.proxy {
            Proxy::None => builder.no_proxy(),
            // What reqwest does by itself.
            Proxy::Env => builder,
            Proxy::Url(url) => builder.no_proxy().proxy(reqwest::Proxy::all(url.clone())?),
        };
        if let Some(ca_file) = &self.ca_file {
            builder = builder.tls_certs_merge(Certificate::from_pem_bundle(&ca_file.pem)?);
        }
        if let Some(client_cert) = &self.client_cert {
            builder = builder.identity(Identity::from_pem(client_cert.pem.expose().as_bytes())?);
        }
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn feeds_that_want_the_same_share_a_client_and_one_that_nobody_uses_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        let account = |name: &str, more: &str| {
            format!("[accounts.{name}]\napp_key = \"k-{name}\"\napp_token = \"t\"\n{more}\n")
        };
        let text = [account("a", ""), account("b", ""), account("c", "requests.timeout = \"7s\"")].concat();
        std::fs::write(&path, text).unwrap();
        let accounts = config::load(&path, []).unwrap().config.accounts;

        let mut clients = Clients::default();
        let [a, b, c] = [0, 1, 2].map(|n| clients.client(&accounts[n]).unwrap());
        assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
        drop(c);
        clients.client(&accounts[0]).unwrap();
        assert_eq!(clients.0.len(), 1);
    }
}
