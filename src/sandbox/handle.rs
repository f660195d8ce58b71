//! Handles: the opaque text that a receive gives with each item and a commit gives back.
//!
//! Like VTEX's they are JWT-shaped, about 1.4 KB, and carry a queue's receipt inside; unlike VTEX's they can be read
//! back without a store, because the receipt says which receive of which message it stands for.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::items::Item;

/// What a message keeps through all its receives; written as a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId(u128);

impl MessageId {
    pub fn random(rng: &mut StdRng) -> Self {
        let version_4 = 0x4000_u128 << 64;
        let variant = 0x8000_u128 << 48;
        let free = !((0xf000_u128 << 64) | (0xc000_u128 << 48));
        Self(rng.random::<u128>() & free | version_4 | variant)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

/// One receive of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The message's number in its queue.
    pub message: u64,
    /// 1 for the first receive.
    pub receive: u32,
}

/// Why a text is no handle of this feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It was made for another app key.
    Foreign,
    /// Nobody made it, or it was changed by a byte.
    Garbled,
}

/// Both forms that VTEX's documents show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandleForm {
    /// A JWT with the receipt inside.
    #[default]
    Jwt,
    /// The receipt alone, as in 2019: `AQEB…` with `+`, `/` and `=`.
    Bare,
}

/// Makes and reads the handles of one app key.
#[derive(Debug, Clone)]
pub struct Issuer {
    account: String,
    app_key: String,
    tag: [u8; 8],
    form: HandleForm,
}

impl Issuer {
    pub fn new(account: &str, app_key: &str, form: HandleForm) -> Self {
        let digest = Sha256::digest(app_key.as_bytes());
        let mut tag = [0; 8];
        tag.copy_from_slice(&digest[..8]);
        Self { account: account.to_owned(), app_key: app_key.to_owned(), tag, form }
    }

    /// The handle for one receive; `created_at` is when that happens.
    pub fn mint(
        &self,
        receipt: Receipt,
        message: MessageId,
        item: &Item,
        created_at: Timestamp,
        rng: &mut StdRng,
    ) -> String {
        match self.form {
            HandleForm::Jwt => self.jwt(receipt, message, item, created_at, rng),
            HandleForm::Bare => self.seal(receipt, rng),
        }
    }

    /// Which receive a handle stands for.
    ///
    /// # Errors
    /// [`Unreadable`] when it was not minted by an issuer of the same app key.
    pub fn read(&self, handle: &str) -> Result<Receipt, Unreadable> {
        let Some((signed, signature)) = handle.rsplit_once('.') else { return self.unseal(handle) };
        if URL_SAFE_NO_PAD.encode(digest(signed.as_bytes())) != signature {
            return Err(Unreadable::Garbled);
        }
        let (_, claims) = signed.split_once('.').ok_or(Unreadable::Garbled)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| Unreadable::Garbled)?;
        let claims: Value = serde_json::from_slice(&claims).map_err(|_| Unreadable::Garbled)?;
        self.unseal(claims["Handle"].as_str().unwrap_or_default())
    }

    fn jwt(
        &self,
        receipt: Receipt,
        message: MessageId,
        item: &Item,
        created_at: Timestamp,
        rng: &mut StdRng,
    ) -> String {
        let item = item.value();
        let text = |name: &str| item[name].as_str();
        let claims = Claims {
            name: &self.app_key,
            app_key: &self.app_key,
            account: &self.account,
            handle: self.seal(receipt, rng),
            order_id: text("orderId"),
            message_id: message.to_string(),
            domain: text("domain"),
            state: text("state"),
            last_state: text("lastState"),
            last_change: text("lastChange").map(us_date),
            current_change: text("currentChange").map(us_date),
            created_at: created_at.strftime("%m/%d/%Y %H:%M:%S").to_string(),
            iss: "broadcast-api.vtexcommerce.com.br",
            aud: format!("{}_{}", self.account, self.app_key),
        };
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(digest(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// A queue's receipt handle as SQS writes it: base64 that starts `AQEB`, 452 characters.
    fn seal(&self, receipt: Receipt, rng: &mut StdRng) -> String {
        let mut bytes = Vec::with_capacity(SEALED_BYTES);
        bytes.extend_from_slice(&[1, 1, 1]);
        bytes.extend_from_slice(&self.tag);
        bytes.extend_from_slice(&receipt.message.to_be_bytes());
        bytes.extend_from_slice(&receipt.receive.to_be_bytes());
        let filled = bytes.len();
        bytes.resize(SEALED_BYTES - CHECK_BYTES, 0);
        rng.fill_bytes(&mut bytes[filled..]);
        let check = digest(&bytes);
        bytes.extend_from_slice(&check[..CHECK_BYTES]);
        STANDARD.encode(bytes)
    }

    fn unseal(&self, sealed: &str) -> Result<Receipt, Unreadable> {
        let bytes = STANDARD.decode(sealed).map_err(|_| Unreadable::Garbled)?;
        if bytes.len() != SEALED_BYTES {
            return Err(Unreadable::Garbled);
        }
        let (body, check) = bytes.split_at(SEALED_BYTES - CHECK_BYTES);
        if digest(body)[..CHECK_BYTES] != *check {
            return Err(Unreadable::Garbled);
        }
        if body[3..11] != self.tag {
            return Err(Unreadable::Foreign);
        }
        let message = body[11..19].iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let receive = body[19..23].iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
        Ok(Receipt { message, receive })
    }
}

const SEALED_BYTES: usize = 338;
const CHECK_BYTES: usize = 16;

/// The claims of the handle in VTEX's own sample: no `exp`, no `iat`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Claims<'a> {
    #[serde(rename = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name")]
    name: &'a str,
    app_key: &'a str,
    account: &'a str,
    handle: String,
    order_id: Option<&'a str>,
    message_id: String,
    domain: Option<&'a str>,
    state: Option<&'a str>,
    last_state: Option<&'a str>,
    last_change: Option<String>,
    current_change: Option<String>,
    created_at: String,
    #[serde(rename = "iss")]
    iss: &'a str,
    #[serde(rename = "aud")]
    aud: String,
}

/// A checksum that only this module makes; it guards against changed bytes, not against an attacker.
fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::new_with_prefix(b"order-feed sandbox").chain_update(bytes).finalize().into()
}

/// `2026-03-02T20:54:23.71Z` as `03/02/2026 20:54:23`; another text stays as it is.
fn us_date(date: &str) -> String {
    let parts = (date.get(..4), date.get(5..7), date.get(8..10), date.get(11..19));
    match parts {
        (Some(year), Some(month), Some(day), Some(time)) => format!("{month}/{day}/{year} {time}"),
        _ => date.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use serde_json::json;

    const RECEIPT: Receipt = Receipt { message: 70_000, receive: 3 };

    fn issuer(app_key: &str) -> Issuer {
        Issuer::new("mystore", app_key, HandleForm::Jwt)
    }

    fn handle(issuer: &Issuer, seed: u64) -> String {
        let mut rng = StdRng::seed_from_u64(seed);
        let item = Item::new(&json!({
            "orderId": "1000000000123-01", "domain": "Fulfillment", "state": "ready-for-handling",
            "lastState": "window-to-cancel", "lastChange": "2026-03-02T20:54:01.134057Z",
            "currentChange": "2026-03-02T20:54:23.7153839Z",
        }));
        let message = MessageId::random(&mut rng);
        let now = "2026-03-02T21:01:00Z".parse().unwrap();
        issuer.mint(RECEIPT, message, &item, now, &mut rng)
    }

    #[test]
    fn a_handle_is_read_back_by_its_own_issuer_only() {
        let issuer = issuer("vtexappkey-mystore-AAAAAA");
        let handle = handle(&issuer, 1);
        assert_eq!(issuer.read(&handle), Ok(RECEIPT));
        let other = Issuer::new("mystore", "vtexappkey-mystore-BBBBBB", HandleForm::Jwt);
        assert_eq!(other.read(&handle), Err(Unreadable::Foreign));
    }

    #[test]
    fn a_handle_looks_like_the_documented_sample() {
        let handle = handle(&issuer("vtexappkey-mystore-AAAAAA"), 1);
        assert!((1300..1500).contains(&handle.len()), "{}", handle.len());
        assert_eq!(handle.matches('.').count(), 2);
        let payload = handle.split('.').nth(1).unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
        let receipt = claims["Handle"].as_str().unwrap();
        assert!(receipt.starts_with("AQEB"));
        assert_eq!(receipt.len(), 452);
        assert_eq!(claims["CreatedAt"], "03/02/2026 21:01:00");
        assert_eq!(claims["CurrentChange"], "03/02/2026 20:54:23");
        assert_eq!(claims["aud"], "mystore_vtexappkey-mystore-AAAAAA");
        assert_eq!(claims["MessageId"].as_str().unwrap().len(), 36);
        assert!(claims["exp"].is_null() && claims["iat"].is_null());
    }

    #[test]
    fn a_bare_handle_is_base64_with_its_plain_alphabet_and_is_read_back() {
        let issuer = Issuer::new("mystore", "key", HandleForm::Bare);
        let handles: Vec<String> = (0..20).map(|seed| handle(&issuer, seed)).collect();
        for handle in &handles {
            assert!(handle.starts_with("AQEB") && handle.ends_with('=') && handle.len() == 452);
            assert_eq!(issuer.read(handle), Ok(RECEIPT));
        }
        assert!(
            handles.iter().any(|handle| handle.contains('+'))
                && handles.iter().any(|handle| handle.contains('/'))
        );
    }

    #[test]
    fn a_handle_with_any_byte_changed_is_garbled() {
        for form in [HandleForm::Jwt, HandleForm::Bare] {
            let issuer = Issuer::new("mystore", "key", form);
            let handle = handle(&issuer, 1);
            for at in 0..handle.len() {
                let mut bytes = handle.clone().into_bytes();
                bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(bytes).unwrap();
                assert_eq!(issuer.read(&changed), Err(Unreadable::Garbled), "byte {at}");
            }
            for text in ["", ".", "..", "a.b.c", &handle[1..]] {
                assert_eq!(issuer.read(text), Err(Unreadable::Garbled), "{text}");
            }
        }
    }

    #[test]
    fn two_receives_of_one_message_have_different_handles() {
        let issuer = issuer("key");
        assert_ne!(handle(&issuer, 1), handle(&issuer, 2));
    }
}
