//! Identifiers: opaque strings, each a type of its own, cheap to clone.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Declares identifier types. `required` ones refuse the empty string when they
/// are read: an empty identifier is as wrong as a missing one. (Where a member is
/// optional, an empty one is read as absent instead; see `rules`.)
macro_rules! identifiers {
    ($( $(#[$meta:meta])* $rule:ident $name:ident, $member:literal; )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the identifier is the empty string.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a string (", $member, ")"))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        identifiers!(@check $rule text, $member);
                        Ok($name::from(text))
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }
    )+};
    (@check required $text:ident, $member:literal) => {
        if $text.is_empty() {
            return Err(E::custom(concat!("must not be empty (", $member, ")")));
        }
    };
    (@check optional $text:ident, $member:literal) => {};
}

identifiers! {
    /// One artifact in the platform's store.
    required ArtifactId, "artifact_id";
    /// One registered connection.
    required ConnectionId, "connection_id";
    /// A self-hosted environment; empty for a machine-scoped executor.
    optional EnvironmentId, "environment_id";
    /// One durable session event.
    required EventId, "event_id";
    /// One executor, the same across its connections.
    required ExecutorId, "executor_id";
    /// One user input of a turn.
    required InputId, "input_id";
    /// One permission or question put to the user.
    required InteractionId, "interaction_id";
    /// One process of a session.
    required ProcessId, "process_id";
    /// One session.
    required SessionId, "session_id";
    /// One terminal.
    required TerminalId, "terminal_id";
    /// One tool call of a session; a call id runs at most once.
    required ToolCallId, "tool_call_id";
    /// One turn of an agent session.
    required TurnId, "turn_id";
    /// The unit of work that a session assignment belongs to.
    required WorkId, "work_id";
}
