//! Session tokens: JWT with HS256 and a fixed lifetime of 24 hours, checked against the application's clock without
//! leeway.

use gateway_core::access::Role;
use gateway_core::ids::{OrgId, TokenId, UserId};
use gateway_core::time::{DAY, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

pub const LIFETIME: i64 = DAY;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claims {
    pub sub: UserId,
    pub org: OrgId,
    pub role: Role,
    pub iat: i64,
    pub exp: i64,
    pub jti: TokenId,
}

impl Claims {
    pub fn issued_at(&self) -> Timestamp {
        Timestamp(self.iat.saturating_mul(1_000))
    }

    pub fn expires_at(&self) -> Timestamp {
        Timestamp(self.exp.saturating_mul(1_000))
    }
}

pub struct Tokens {
    encoding: EncodingKey,
    /// The secret that signs comes first; the others are accepted while it is being changed.
    decoding: Vec<DecodingKey>,
    validation: Validation,
}

impl Tokens {
    pub fn new(secret: &SecretString) -> Self {
        let bytes = secret.expose_secret().as_bytes();
        let mut validation = Validation::new(Algorithm::HS256);
        // The library would use the system clock; `read` checks the expiry against the application's clock.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        Self {
            encoding: EncodingKey::from_secret(bytes),
            decoding: vec![DecodingKey::from_secret(bytes)],
            validation,
        }
    }

    /// Also accepts tokens that were signed with one of these secrets.
    pub fn accepting(mut self, secrets: &[SecretString]) -> Self {
        let keys = secrets.iter().map(|secret| DecodingKey::from_secret(secret.expose_secret().as_bytes()));
        self.decoding.extend(keys);
        self
    }

    /// Signs a token. Returns `None` if signing fails.
    pub fn issue(&self, claims: &Claims) -> Option<String> {
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &self.encoding).ok()
    }

    /// True if this service signed the token, even if it has expired.
    pub fn is_ours(&self, token: &str) -> bool {
        self.read(token, Timestamp(0)).is_some()
    }

    pub fn read(&self, token: &str, now: Timestamp) -> Option<Claims> {
        let decode = |key| jsonwebtoken::decode::<Claims>(token, key, &self.validation).ok();
        let claims = self.decoding.iter().find_map(decode)?.claims;
        (now.0 < claims.expires_at().0).then_some(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(exp: i64) -> Claims {
        let id = uuid::Uuid::nil();
        Claims { sub: id.into(), org: id.into(), role: Role::Owner, iat: 0, exp, jti: id.into() }
    }

    #[test]
    fn a_token_is_valid_until_its_last_second() {
        let tokens = Tokens::new(&"x".repeat(32).into());
        let token = tokens.issue(&claims(100)).unwrap();
        assert!(tokens.read(&token, Timestamp(99_999)).is_some());
        assert!(tokens.read(&token, Timestamp(100_000)).is_none());
    }

    #[test]
    fn a_token_of_an_accepted_secret_is_valid_and_new_ones_are_signed_with_the_first() {
        let (old, new) = (Tokens::new(&"x".repeat(32).into()), Tokens::new(&"y".repeat(32).into()));
        let both = Tokens::new(&"y".repeat(32).into()).accepting(&["x".repeat(32).into()]);
        let token = old.issue(&claims(100)).unwrap();
        assert!(both.read(&token, Timestamp(0)).is_some() && both.is_ours(&token));
        assert!(new.read(&token, Timestamp(0)).is_none());
        let token = both.issue(&claims(100)).unwrap();
        assert!(new.read(&token, Timestamp(0)).is_some() && old.read(&token, Timestamp(0)).is_none());
    }

    #[test]
    fn a_token_of_another_key_or_algorithm_is_rejected() {
        let tokens = Tokens::new(&"x".repeat(32).into());
        let foreign = Tokens::new(&"y".repeat(32).into()).issue(&claims(100)).unwrap();
        assert!(tokens.read(&foreign, Timestamp(0)).is_none());
        let stronger =
            jsonwebtoken::encode(&Header::new(Algorithm::HS512), &claims(100), &tokens.encoding).unwrap();
        assert!(tokens.read(&stronger, Timestamp(0)).is_none());
    }
}
