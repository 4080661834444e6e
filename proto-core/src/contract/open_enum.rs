//! Open enumerations: the known values are variants, any other value is kept as it came.

/// Declares an open enumeration: one variant for each known wire value, and
/// `Other` for the rest, written back unchanged.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $text:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )+
            /// A value this version does not know, kept as it came. Never a known one:
            /// build values with `From<&str>`, which finds the known variant.
            Other(Box<str>),
        }

        impl $name {
            /// The known values, in the contract's order.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            /// The value as it stands on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( $text => Self::$variant, )+
                    other => Self::Other(other.into()),
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
            }
        }

        impl Default for $name {
            /// The empty value, which no known value equals: "not set".
            fn default() -> Self {
                Self::Other(Box::default())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::open_enum::deserialize(deserializer, stringify!($name))
            }
        }
    };
}
pub(super) use open_enum;

pub(super) fn deserialize<'de, D, T>(deserializer: D, name: &'static str) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: for<'a> From<&'a str>,
{
    struct Visitor<T>(&'static str, std::marker::PhantomData<T>);
    impl<T: for<'a> From<&'a str>> serde::de::Visitor<'_> for Visitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a string ({})", self.0)
        }
        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok(T::from(text))
        }
    }
    deserializer.deserialize_str(Visitor(name, std::marker::PhantomData))
}
