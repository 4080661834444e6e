//! How members are read where a receiver takes more than a sender may write.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::envelope::JSONRPCErrorData;
use super::json::Json;

/// Reads a list or map in which `null` says the same as empty.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a list that mostly has one element, and gets room for no more at first: such lists are
/// kept by the thousand. `null` says the same as empty.
pub(super) fn short_list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct ShortList<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ShortList<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_none<E>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_unit<E>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
            deserializer.deserialize_seq(self)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let Some(first) = elements.next_element()? else { return Ok(Vec::new()) };
            let mut list = vec![first];
            while let Some(element) = elements.next_element()? {
                list.push(element);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_option(ShortList(PhantomData))
}

/// Reads an optional name, reference, path, time or enumeration value, in which
/// `null` and the empty string say the same as absent: peers that cannot tell
/// an unset string from an empty one exist.
pub(super) fn empty_as_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: for<'a> From<&'a str>,
{
    struct EmptyAsNone<T>(PhantomData<T>);

    impl<'de, T: for<'a> From<&'a str>> Visitor<'de> for EmptyAsNone<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or null")
        }

        fn visit_none<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
            deserializer.deserialize_str(self)
        }

        fn visit_str<E>(self, text: &str) -> Result<Option<T>, E> {
            Ok(if text.is_empty() { None } else { Some(T::from(text)) })
        }
    }

    deserializer.deserialize_option(EmptyAsNone(PhantomData))
}

/// Reads a required string that says nothing when it is empty: as wrong as a missing one.
pub(super) fn not_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: for<'a> From<&'a str>,
{
    deserializer.deserialize_str(Text { refuse_empty: true, target: PhantomData })
}

/// Reads an identifier of a result, which may be empty in a refusal.
pub(super) fn maybe_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: for<'a> From<&'a str>,
{
    deserializer.deserialize_str(Text { refuse_empty: false, target: PhantomData })
}

/// Reads an error's data. Its shape is the contract's, but JSON-RPC allows any,
/// and an answer must not get lost because its error says too much.
pub(super) fn data_of_any_shape<'de, D>(deserializer: D) -> Result<Option<Box<JSONRPCErrorData>>, D::Error>
where
    D: Deserializer<'de>,
{
    let Some(data) = Option::<Json>::deserialize(deserializer)? else { return Ok(None) };
    let typed = data.parse::<JSONRPCErrorData>();
    let text = || data.parse().map(|detail| JSONRPCErrorData { detail: Some(detail), ..Default::default() });
    Ok(typed.or_else(|_| text()).ok().map(Box::new))
}

struct Text<T> {
    refuse_empty: bool,
    target: PhantomData<T>,
}

impl<T: for<'a> From<&'a str>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        if self.refuse_empty && text.is_empty() {
            return Err(E::custom("must not be empty"));
        }
        Ok(T::from(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    #[test]
    fn a_short_list_is_any_list_and_has_room_for_no_more_than_one() {
        #[derive(Deserialize)]
        struct Lists {
            #[serde(deserialize_with = "short_list")]
            list: Vec<u64>,
        }
        let read = |list: &str| serde_json::from_str::<Lists>(&format!(r#"{{"list":{list}}}"#)).map(|lists| lists.list);
        assert_eq!(read("null").unwrap(), read("[]").unwrap());
        assert_eq!(read("[]").unwrap().capacity(), 0);
        let one = read("[7]").unwrap();
        assert_eq!((one.as_slice(), one.capacity()), ([7].as_slice(), 1));
        assert_eq!(read("[1,2,3,4,5]").unwrap(), [1, 2, 3, 4, 5]);
        for wrong in ["7", "\"7\"", "{}", "[1,null]", "[1,"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
