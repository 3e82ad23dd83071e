//! Signatures of the Standard Webhooks specification 1.0. The signed content is `id.timestamp.body` over the raw bytes.
//! While a secret is being rotated, a delivery carries one signature for each secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

pub const SECRET_PREFIX: &str = "whsec_";

/// Formats 32 random bytes as a secret.
pub fn format_secret(random: &[u8; 32]) -> String {
    format!("{SECRET_PREFIX}{}", BASE64.encode(random))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be base64 after the prefix {SECRET_PREFIX}")]
pub struct MalformedSecret;

/// The HMAC key of a secret: the decoded bytes if it has the gateway's prefix, else the text itself.
pub fn decode_secret(secret: &str) -> Result<Vec<u8>, MalformedSecret> {
    match secret.strip_prefix(SECRET_PREFIX) {
        None => Ok(secret.as_bytes().to_vec()),
        Some(text) => match BASE64.decode(text) {
            Ok(key) if !key.is_empty() => Ok(key),
            _ => Err(MalformedSecret),
        },
    }
}

/// One signature, such as `v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=`.
pub fn sign(key: &[u8], id: &str, timestamp: i64, body: &[u8]) -> String {
    // HMAC accepts keys of any length, so this cannot fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
}

/// The value of `webhook-signature`: one signature for each key.
pub fn sign_all<'a>(
    keys: impl IntoIterator<Item = &'a [u8]>,
    id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    keys.into_iter().map(|key| sign(key, id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_specification_has_the_expected_signature() {
        let key = decode_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_reads_back_as_the_bytes_that_it_was_made_from() {
        assert_eq!(decode_secret(&format_secret(&[7; 32])), Ok(vec![7; 32]));
        assert_eq!(decode_secret("any text"), Ok(b"any text".to_vec()));
        for bad in ["whsec_", "whsec_not base64!"] {
            assert_eq!(decode_secret(bad), Err(MalformedSecret), "{bad}");
        }
    }

    #[test]
    fn signatures_of_several_keys_are_separated_by_spaces() {
        let keys: [&[u8]; 2] = [b"new", b"old"];
        let both = sign_all(keys, "id", 1, b"body");
        assert_eq!(both, format!("{} {}", sign(b"new", "id", 1, b"body"), sign(b"old", "id", 1, b"body")));
    }
}
