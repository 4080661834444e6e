//! Members whose shape somebody else owns, kept as the text they came as.

use std::fmt;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value, kept as text: nothing is lost, reordered or rounded.
///
/// Whose shape is not known can hold anything, a credential too: `Debug` shows
/// what kind of value it is and how long.
#[derive(Clone, Default)]
pub struct Json(
    /// `None` is `null`, so that a default costs nothing.
    Option<Box<RawValue>>,
);

impl Json {
    /// Writes `value` as JSON.
    ///
    /// # Errors
    /// When `value` has no JSON form (a map with keys that are no strings, say).
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self::from)
    }

    /// Takes text that is one JSON value.
    ///
    /// # Errors
    /// When it is not.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self::from)
    }

    /// Reads the value as `T`.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// The JSON text.
    pub fn get(&self) -> &str {
        self.raw().get()
    }

    fn raw(&self) -> &RawValue {
        self.0.as_deref().unwrap_or(RawValue::NULL)
    }
}

impl From<Box<RawValue>> for Json {
    fn from(value: Box<RawValue>) -> Self {
        Self(Some(value))
    }
}

impl PartialEq for Json {
    /// Equal texts.
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.get().as_bytes().first() {
            Some(b'{') => "object",
            Some(b'[') => "array",
            Some(b'"') => "string",
            Some(b't' | b'f') => "boolean",
            Some(b'n') | None => return f.write_str("Json(null)"),
            Some(_) => "number",
        };
        write!(f, "Json({kind}, {} bytes)", self.get().len())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

/// A [`Json`] value that is an object. `null` is read as an empty one.
#[derive(Clone, PartialEq)]
pub struct JsonObject(Json);

impl JsonObject {
    /// Writes `value` as a JSON object.
    ///
    /// # Errors
    /// When `value` has no JSON form or is no object.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Self::checked(Json::new(value)?)
    }

    /// Reads the object as `T`.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.0.parse()
    }

    /// The JSON text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    fn checked<E: Error>(json: Json) -> Result<Self, E> {
        if json.get().starts_with('{') { Ok(Self(json)) } else { Err(E::custom("must be a JSON object")) }
    }
}

impl Default for JsonObject {
    /// `{}`.
    fn default() -> Self {
        Self(RawValue::from_string("{}".to_owned()).expect("`{}` is JSON").into())
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Json::deserialize(deserializer)? {
            json if json.get() == "null" => Ok(Self::default()),
            json => Self::checked(json),
        }
    }
}
