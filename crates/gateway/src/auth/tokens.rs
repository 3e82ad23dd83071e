//! Session tokens: JWT, HS256, a fixed life of 24 hours, checked against the app's clock without any leeway.

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
    pub fn expires_at(&self) -> Timestamp {
        Timestamp(self.exp.saturating_mul(1_000))
    }
}

pub struct Tokens {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
}

impl Tokens {
    pub fn new(secret: &SecretString) -> Self {
        let bytes = secret.expose_secret().as_bytes();
        let mut validation = Validation::new(Algorithm::HS256);
        // The library would ask the system's clock; expiry is checked below, by ours.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        Self {
            encoding: EncodingKey::from_secret(bytes),
            decoding: DecodingKey::from_secret(bytes),
            validation,
        }
    }

    /// A signed token, or None when signing itself fails.
    pub fn issue(&self, claims: &Claims) -> Option<String> {
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &self.encoding).ok()
    }

    /// Was this token signed here, whether or not it still holds?
    pub fn is_ours(&self, token: &str) -> bool {
        self.read(token, Timestamp(0)).is_some()
    }

    pub fn read(&self, token: &str, now: Timestamp) -> Option<Claims> {
        let claims = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation).ok()?.claims;
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
    fn a_token_is_good_until_its_last_second_and_not_one_longer() {
        let tokens = Tokens::new(&"x".repeat(32).into());
        let token = tokens.issue(&claims(100)).unwrap();
        assert!(tokens.read(&token, Timestamp(99_999)).is_some());
        assert!(tokens.read(&token, Timestamp(100_000)).is_none());
    }

    #[test]
    fn a_token_of_another_key_or_algorithm_is_refused() {
        let tokens = Tokens::new(&"x".repeat(32).into());
        let foreign = Tokens::new(&"y".repeat(32).into()).issue(&claims(100)).unwrap();
        assert!(tokens.read(&foreign, Timestamp(0)).is_none());
        let stronger =
            jsonwebtoken::encode(&Header::new(Algorithm::HS512), &claims(100), &tokens.encoding).unwrap();
        assert!(tokens.read(&stronger, Timestamp(0)).is_none());
    }
}
