//! Who calls, as servers with `identity: claims` are told: a signed token in a header. The key is derived from the master
//! key, so that all nodes have the same one and none is stored.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use gateway_core::ids::OrgId;
use gateway_core::time::{SECOND, Timestamp};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

pub const IDENTITY: HeaderName = HeaderName::from_static("x-gateway-identity");
/// How long a token is valid, in seconds.
const LIFE_S: i64 = 60;
const PURPOSE: &[u8] = b"mcp-identity";

/// A public key that verifies tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "JsonWebKey")]
pub struct PublicKey {
    kty: &'static str,
    crv: &'static str,
    alg: &'static str,
    #[serde(rename = "use")]
    usage: &'static str,
    kid: String,
    /// The key, in base64url.
    x: String,
}

/// Signs identities.
pub struct IdentityKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
    /// Of master keys that are still accepted, which other nodes may sign with.
    accepted: Vec<PublicKey>,
    issuer: Option<String>,
}

#[derive(Serialize)]
struct Claims<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    sub: &'a str,
    aud: &'a str,
    iat: i64,
    exp: i64,
    org: OrgId,
    key_id: Option<&'a str>,
    user: Option<&'a str>,
}

fn pair_of(master_key: &SecretString) -> Option<Ed25519KeyPair> {
    let bytes = hex::decode(master_key.expose_secret()).ok()?;
    let seed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), PURPOSE);
    Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).ok()
}

fn public_of(pair: &Ed25519KeyPair) -> PublicKey {
    let key = pair.public_key().as_ref();
    PublicKey {
        kty: "OKP",
        crv: "Ed25519",
        alg: "EdDSA",
        usage: "sig",
        kid: hex::encode(&Sha256::digest(key)[..8]),
        x: BASE64.encode(key),
    }
}

/// The key and the user in the name of a caller.
fn parts(caller: &str) -> (Option<&str>, Option<&str>) {
    match caller.split_once(':') {
        Some(("user", user)) => (None, Some(user)),
        Some(("key", key)) => match key.split_once('/') {
            Some((key, user)) => (Some(key), Some(user)),
            None => (Some(key), None),
        },
        _ => (None, None),
    }
}

impl IdentityKey {
    /// `None` if a master key is invalid.
    pub fn new(master_key: &SecretString, accepted: &[SecretString], issuer: Option<String>) -> Option<Self> {
        let pair = pair_of(master_key)?;
        let accepted =
            accepted.iter().map(|key| pair_of(key).as_ref().map(public_of)).collect::<Option<_>>()?;
        Some(Self { public: public_of(&pair), pair, accepted, issuer })
    }

    pub fn public_keys(&self) -> Vec<PublicKey> {
        [&self.public].into_iter().chain(&self.accepted).cloned().collect()
    }

    /// The header that tells the server at `url` who calls. `None` if it cannot be sent.
    pub(super) fn header(
        &self,
        (org, caller): (OrgId, &str),
        url: &str,
        now: Timestamp,
    ) -> Option<HeaderValue> {
        let (key_id, user) = parts(caller);
        let iat = now.0.div_euclid(SECOND);
        let iss = self.issuer.as_deref();
        let claims = Claims { iss, sub: caller, aud: url, iat, exp: iat + LIFE_S, org, key_id, user };
        let head = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.public.kid}).to_string();
        let claims = serde_json::to_string(&claims).ok()?;
        let signed = format!("{}.{}", BASE64.encode(head), BASE64.encode(claims));
        let signature = BASE64.encode(self.pair.sign(signed.as_bytes()));
        let mut value = HeaderValue::try_from(format!("{signed}.{signature}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;

    fn key(byte: &str) -> SecretString {
        byte.repeat(32).into()
    }

    #[test]
    fn a_token_names_the_caller_and_is_verified_by_the_published_key() {
        let signing = IdentityKey::new(&key("ab"), &[key("cd")], Some("https://gw".into())).unwrap();
        let org: OrgId = Uuid::from_u128(7).into();
        let header = signing.header((org, "key:k1/ada"), "https://tools/mcp", Timestamp(5_000)).unwrap();
        let text = header.to_str().unwrap();
        let parts: Vec<&str> = text.split('.').collect();
        let decoded = |part: &str| serde_json::from_slice::<Value>(&BASE64.decode(part).unwrap()).unwrap();
        let claims = decoded(parts[1]);
        let expected = json!({"iss": "https://gw", "sub": "key:k1/ada", "aud": "https://tools/mcp", "iat": 5, "exp": 65,
            "org": org, "key_id": "k1", "user": "ada"});
        assert_eq!(claims, expected);
        let published = signing.public_keys();
        assert_eq!(decoded(parts[0])["kid"], json!(published[0].kid));
        let public = UnparsedPublicKey::new(&ED25519, BASE64.decode(&published[0].x).unwrap());
        let signature = BASE64.decode(parts[2]).unwrap();
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &signature).unwrap();
        let old = IdentityKey::new(&key("cd"), &[], None).unwrap();
        assert_eq!(published[1], old.public_keys()[0]);
    }

    #[test]
    fn callers_are_people_or_keys_with_or_without_a_user() {
        assert_eq!(parts("user:u1"), (None, Some("u1")));
        assert_eq!(parts("key:k1"), (Some("k1"), None));
        assert_eq!(parts("key:k1/a/b"), (Some("k1"), Some("a/b")));
        assert_eq!(parts("org"), (None, None));
    }
}
