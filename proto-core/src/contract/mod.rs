//! The wire contract: types, enumerations, error codes, limits and the method catalogue.
//!
//! Types are named as in the contract and grouped by method family; every one is
//! also at this module's root. The [`catalogue`] says for each [`Method`] who
//! sends it, what it needs and which types it carries, and [`methods`] names the
//! methods as types, for generic code.
//!
//! Receivers take more than senders write:
//!
//! - Members that are not known are ignored; values of enumerations that are not
//!   known are kept and written back unchanged.
//! - An optional member may be absent, null, or, where it is no free text, the
//!   empty string. It is written only when it has a value.
//! - A list or map that must be there is read from null and always written.
//! - A required identifier, or another required member without which params mean
//!   nothing, is refused when it is empty, as if it were missing. [`read()`] and
//!   [`ShapeError`] name the member.
//! - Whole numbers are exact over all 64 bits. One that does not fit is refused.
//! - Members whose shape a tool or an event owns are kept as text ([`Json`]).
//!
//! What can hold a credential shows nothing of it in `Debug`: [`Secret`], the
//! values of a [`TextMap`], and [`Json`].
pub mod capabilities;
pub mod catalogue;
pub mod defaults;
pub mod enums;
pub mod envelope;
pub mod error;
pub mod event;
pub mod executor;
pub mod ids;
pub mod interaction;
pub mod json;
pub mod machine;
pub mod mcp;
mod open_enum;
pub mod process;
mod rules;
pub mod secret;
pub mod session;
pub mod shape;
pub mod terminal;
pub mod text_map;
pub mod tool;
pub mod tool_input;
pub mod turn;

pub use capabilities::*;
pub use catalogue::{
    AnyParams, AnyResult, Direction, Kind, Method, MethodSpec, NotificationMethod, RequestMethod, methods,
};
pub use enums::*;
pub use envelope::*;
pub use error::{CloseCode, ErrorCode};
pub use event::*;
pub use executor::*;
pub use ids::*;
pub use interaction::*;
pub use json::{Json, JsonObject};
pub use machine::*;
pub use mcp::*;
pub use process::*;
pub use secret::Secret;
pub use session::*;
pub use shape::{ShapeError, read};
pub use terminal::*;
pub use text_map::TextMap;
pub use tool::*;
pub use tool_input::*;
pub use turn::*;
