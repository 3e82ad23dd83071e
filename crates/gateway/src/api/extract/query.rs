//! Query parameters. Unknown parameters are ignored, an empty value counts as absent, and the last of several values
//! with the same name wins.

use axum::extract::FromRequestParts;
use http::request::Parts;
use schemars::JsonSchema;
use serde::de::value::{Error, MapDeserializer, StringDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::api::openapi::{Operation, OperationInput};
use crate::api::page::PageParams;
use crate::problem::Problem;

/// The query parameters of a request.
pub struct QueryParams<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

impl<T: JsonSchema> OperationInput for QueryParams<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query_params::<T>();
    }
}

/// The query parameters of a list: those that select a page, and those of the list itself.
pub struct PagedQuery<T> {
    pub page: PageParams,
    pub filter: T,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for PagedQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self { page: parse(query)?, filter: parse(query)? })
    }
}

impl<T: JsonSchema> OperationInput for PagedQuery<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query_params::<PageParams>();
        operation.query_params::<T>();
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    if query.contains("%00") {
        return Err(Problem::bad_request("query parameters must not contain NUL characters"));
    }
    let values = last_values(url::form_urlencoded::parse(query.as_bytes()));
    let deserializer = MapDeserializer::new(values.into_iter());
    serde_path_to_error::deserialize(deserializer).map_err(|error: serde_path_to_error::Error<Error>| {
        let path = error.path().to_string();
        match path.as_str() {
            "." | "" => Problem::bad_request(error.into_inner().to_string()),
            name => Problem::field(name, error.into_inner()),
        }
    })
}

/// The last value of each name, in the order in which the names first appear.
fn last_values(pairs: url::form_urlencoded::Parse<'_>) -> Vec<(String, QueryValue)> {
    let mut values: Vec<(String, QueryValue)> = Vec::new();
    for (name, value) in pairs {
        let value = QueryValue(value.into_owned());
        match values.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => values.push((name.into_owned(), value)),
        }
    }
    values
}

/// The text of a query value. It is parsed as a number or boolean where the parameter's type requires it.
struct QueryValue(String);

impl IntoDeserializer<'_, Error> for QueryValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident, $visit:ident, $type:ty, $expected:literal;)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(Error::custom(concat!("must be ", $expected))),
            }
        }
    )+};
}

impl<'de> Deserializer<'de> for QueryValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let deserializer: StringDeserializer<Error> = self.0.into_deserializer();
        deserializer.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    parsed! {
        deserialize_bool, visit_bool, bool, "true or false";
        deserialize_i32, visit_i32, i32, "a whole number";
        deserialize_i64, visit_i64, i64, "a whole number";
        deserialize_u32, visit_u32, u32, "a whole number of at least 0";
        deserialize_u64, visit_u64, u64, "a whole number of at least 0";
        deserialize_f64, visit_f64, f64, "a number";
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}
