//! How a client comes to its connections.

use std::sync::Arc;

use bma_proto_core::contract::ProtocolVersion;
use bma_proto_core::executor::{Dial, DialError};
use bma_proto_core::websocket::{Limits, Target};

use super::listener::ExecutorListener;
use crate::connect;
use crate::runtime::{BoxFuture, Runtime};
use crate::wire::Wire;

/// How a [`Client`](super::Client) comes to its connections.
#[derive(Clone, Debug, Default)]
pub struct Transport(Way);

#[derive(Clone, Debug, Default)]
enum Way {
    #[default]
    Dial,
    Listen(Arc<ExecutorListener>),
}

impl Transport {
    /// It dials the URL that comes with each token. The default.
    pub fn dial() -> Self {
        Self(Way::Dial)
    }

    /// It waits for a harness to dial. The token source is asked all the same, and what it gives is not used.
    pub fn listen(listener: ExecutorListener) -> Self {
        Self(Way::Listen(Arc::new(listener)))
    }

    /// Whether a connection comes when somebody else makes it, and nobody can say when.
    pub(super) fn listens(&self) -> bool {
        matches!(self.0, Way::Listen(_))
    }

    pub(super) fn connect(
        &self,
        runtime: &Arc<dyn Runtime>,
        dial: Dial,
        limits: Limits,
    ) -> BoxFuture<Result<(Wire, ProtocolVersion), DialError>> {
        match &self.0 {
            Way::Dial => Box::pin(connect::connect(Arc::clone(runtime), dial, Target::Control, limits)),
            Way::Listen(listener) => Box::pin(Arc::clone(listener).accept(dial, limits)),
        }
    }
}
