//! The signature of Standard Webhooks: that whoever sent this knew a secret, and when.

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::config::SigningSecret;

/// Signs with every secret; a receiver accepts any signature that it can verify.
pub(super) struct Signer(Vec<Key>);

impl Signer {
    pub(super) fn new(secrets: &[SigningSecret]) -> Self {
        Self(secrets.iter().map(|secret| Key::new(HMAC_SHA256, secret.key())).collect())
    }

    /// The value of `webhook-signature`; `timestamp` counts seconds since 1970. `None` without a secret.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &str) -> Option<String> {
        let signature = |key| {
            let mut signing = Context::with_key(key);
            for part in [id, ".", &timestamp.to_string(), ".", body] {
                signing.update(part.as_bytes());
            }
            format!("v1,{}", STANDARD.encode(signing.sign()))
        };
        let signatures: Vec<String> = self.0.iter().map(signature).collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const EXPECTED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_example_of_the_specification_has_its_signature() {
        assert_eq!(sign(&[SECRET]).as_deref(), Some(EXPECTED));
    }

    #[test]
    fn each_secret_gives_a_signature_and_none_gives_none() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let both = sign(&[SECRET, other]).unwrap();
        assert_eq!(both, format!("{EXPECTED} {}", sign(&[other]).unwrap()));
        assert_eq!(sign(&[]), None);
    }

    fn sign(secrets: &[&str]) -> Option<String> {
        let secret = |text: &&str| SigningSecret::new(Secret::new((*text).to_owned())).unwrap();
        let secrets: Vec<SigningSecret> = secrets.iter().map(secret).collect();
        let signer = Signer::new(&secrets);
        signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#)
    }
}
