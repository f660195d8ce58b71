//! Certificates of authorities.

use std::path::PathBuf;

use reqwest::{Certificate, Client};

use crate::config::CaFile;
use crate::config::limited::read_regular;

/// A bundle of all public authorities is a quarter of this.
const MAX_BYTES: u64 = 1024 * 1024;

impl CaFile {
    /// Reads the file and lets the TLS library try it.
    pub(super) fn read(path: PathBuf) -> Result<Self, String> {
        let pem = read_regular(&path, MAX_BYTES).map_err(|error| format!("{} {error}", path.display()))?;
        if !is_usable(&pem) {
            return Err(format!("{} must hold certificates as PEM", path.display()));
        }
        Ok(Self { path, pem })
    }
}

fn is_usable(pem: &[u8]) -> bool {
    match Certificate::from_pem_bundle(pem) {
        Ok(certificates) => {
            !certificates.is_empty() && Client::builder().tls_certs_only(certificates).build().is_ok()
        }
        Err(_) => false,
    }
}
