//! A certificate to show to a server.

use std::path::PathBuf;

use reqwest::{Client, Identity};

use crate::config::limited::read_regular;
use crate::config::{ClientCert, Secret};

/// A chain of certificates with its key is a few KiB.
const MAX_BYTES: u64 = 256 * 1024;

impl ClientCert {
    /// Reads the file and lets the TLS library try it.
    pub(super) fn read(path: PathBuf) -> Result<Self, String> {
        let pem = read_regular(&path, MAX_BYTES).map_err(|error| format!("{} {error}", path.display()))?;
        match String::from_utf8(pem) {
            Ok(pem) if is_usable(&pem) => Ok(Self { path, pem: Secret::new(pem) }),
            Ok(_) | Err(_) => {
                Err(format!("{} must hold a certificate and its private key as PEM", path.display()))
            }
        }
    }
}

/// Whether the key is that of the certificate, too.
fn is_usable(pem: &str) -> bool {
    Identity::from_pem(pem.as_bytes())
        .is_ok_and(|identity| Client::builder().tls_certs_only([]).identity(identity).build().is_ok())
}
