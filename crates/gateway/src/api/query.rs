//! A query value is text that may also be read as a number or a boolean, as the parameter's type asks.

use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

pub struct Scalar(pub String);

impl IntoDeserializer<'_, Error> for Scalar {
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

impl<'de> Deserializer<'de> for Scalar {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    /// A parameter that is there but empty counts as absent.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let deserializer: serde::de::value::StringDeserializer<Error> = self.0.into_deserializer();
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
