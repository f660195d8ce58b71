//! Certificates of authorities.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use reqwest::{Certificate, Client};

use crate::config::CaFile;

/// A bundle of all public authorities is a quarter of this.
const MAX_BYTES: u64 = 1024 * 1024;

impl CaFile {
    /// Reads the file and lets the TLS library try it.
    pub(super) fn read(path: PathBuf) -> Result<Self, String> {
        let cannot = |error| format!("{} cannot be read: {error}", path.display());
        if !std::fs::metadata(&path).map_err(cannot)?.is_file() {
            return Err(format!("{} is not a regular file", path.display()));
        }
        let mut pem = Vec::new();
        File::open(&path).map_err(cannot)?.take(MAX_BYTES + 1).read_to_end(&mut pem).map_err(cannot)?;
        if MAX_BYTES < pem.len() as u64 {
            return Err(format!("{} holds more than {MAX_BYTES} bytes", path.display()));
        }
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
