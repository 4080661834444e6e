//! The wire contract: types, enumerations, error codes, limits and the method catalogue.
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
pub mod secret;
pub mod session;
pub mod terminal;
pub mod tool;
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
pub use terminal::*;
pub use tool::*;
pub use turn::*;
