//! Members whose shape somebody else owns, kept as the text they came as.

use std::fmt;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value, kept as text: nothing is lost, reordered or rounded.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Writes `value` as JSON.
    ///
    /// # Errors
    /// When `value` has no JSON form (a map with keys that are no strings, say).
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// Takes text that is one JSON value.
    ///
    /// # Errors
    /// When it is not.
    pub fn from_text(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// Reads the value as `T`.
    ///
    /// # Errors
    /// When it has another shape.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }

    /// The JSON text.
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl Default for Json {
    /// `null`.
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
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
        f.write_str(self.get())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// A [`Json`] value that is an object.
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

    fn checked<E: serde::de::Error>(json: Json) -> Result<Self, E> {
        if json.get().starts_with('{') { Ok(Self(json)) } else { Err(E::custom("expected a JSON object")) }
    }
}

impl Default for JsonObject {
    /// `{}`.
    fn default() -> Self {
        Self(Json::new(&serde_json::Map::new()).unwrap_or_default())
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::checked(Json::deserialize(deserializer)?).map_err(|error: D::Error| D::Error::custom(error))
    }
}

/// Reads a list or map in which `null` says the same as empty.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
