//! The byte-level WebSocket channel: bytes in, text frames out, both ends.
//!
//! [`Channel`] owns the HTTP upgrade (request target, subprotocol, bearer), the
//! frames, the message limit, the close codes and the closing handshake. It owns
//! no socket: a driver hands it what it read, drains what came of it, and writes
//! what the channel appends to a wire buffer, so that everything one drain
//! produced leaves in one write.
//!
//! ```
//! use bma_proto_core::Time;
//! use bma_proto_core::websocket::{Channel, ClientConfig, Output, ServerConfig, Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Time::ORIGIN; // a driver passes its monotonic clock with every call
//! let mut client = Channel::client(now, ClientConfig::new("brain.example", "/", Target::Control))?;
//! let mut server = Channel::server(now, ServerConfig::default());
//!
//! // A driver repeats: read into a scratch buffer, `receive`, `poll` until None,
//! // `transmit`, write the wire buffer. Here the two ends are their own network.
//! let mut wire = Vec::new();
//! let mut texts = Vec::new();
//! for _ in 0..4 {
//!     client.transmit(&mut wire);
//!     server.receive(now, &wire);
//!     wire.clear();
//!     while let Some(output) = server.poll() {
//!         match output {
//!             Output::AuthRequired(request) => {
//!                 assert_eq!(request.target, Target::Control);
//!                 server.accept(now)?; // or refuse(now, 401, "unknown token")
//!             }
//!             Output::Open { .. } => server.send_text("hello", &mut wire)?,
//!             Output::Text(_) | Output::Closed(_) => {}
//!         }
//!     }
//!     server.transmit(&mut wire);
//!     client.receive(now, &wire);
//!     wire.clear();
//!     while let Some(output) = client.poll() {
//!         if let Output::Text(text) = output {
//!             texts.push(text.to_string());
//!         }
//!     }
//! }
//! assert_eq!(texts, ["hello"]);
//! # Ok(()) }
//! ```
//!
//! # Bounds
//!
//! | What | Bound | At the bound |
//! |---|---|---|
//! | request or response head | [`MAX_HEAD_BYTES`] | the server answers 431, the client fails |
//! | bytes that come while the server decides | [`MAX_EARLY_BYTES`] | refused with 400 |
//! | a message, and each frame of it, in both directions | [`Limits::max_message_bytes`], or [`Limits::max_mcp_message_bytes`] on an MCP channel | received: closed with 1009, nothing more is read; sent: [`Misuse::TooLarge`] |
//! | pings | one pong waits to be written | the pong to the latest ping replaces it |
//! | text frames not yet polled | what the driver fed since it last drained | drain before reading on |
//! | upgrade and closing handshake | [`Limits::handshake_timeout`], [`Limits::close_timeout`] | the channel ends |
//!
//! # Logs
//!
//! Nothing in this module logs, and neither `Debug` nor an error shows a
//! credential or a frame's text. The frame decoder below it, `tungstenite`, does
//! log through the `log` crate, and at its `trace` level it prints every received
//! frame with its payload. A program that forwards `log` records must keep that
//! target at `debug` or above (`tungstenite=debug` in an environment filter).
//!
//! # Randomness
//!
//! Frame masks and the upgrade's key come from the operating system's generator
//! (through `rand`), as RFC 6455 wants. This is the one exception to the crate's
//! purity; what a run does with text frames is not affected by it.

mod channel;
mod client;
mod config;
mod error;
mod frames;
mod http;
mod server;
mod target;

pub use channel::{Channel, Input, Output, Role};
pub use config::{ClientConfig, ConfigError, Limits, ServerConfig, Upgraded};
pub use error::{Closed, How, Misuse, UpgradeError, Violation};
pub use frames::Text;
pub use http::accept_key;
pub use server::UpgradeRequest;
pub use target::Target;

/// The longest request or response head that is read, in bytes.
pub const MAX_HEAD_BYTES: usize = 8 * 1024;

/// How much a server keeps of what comes after the request head while it waits
/// for [`Channel::accept`], in bytes. A client has nothing to say before the
/// answer, so this is generous.
pub const MAX_EARLY_BYTES: usize = 16 * 1024;
