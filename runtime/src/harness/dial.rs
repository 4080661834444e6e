//! The reversed way: the harness dials an executor that listens.

use std::path::Path;
use std::sync::Arc;

use bma_proto_core::contract::{ProtocolVersion, Secret};
use bma_proto_core::executor::{Dial, DialError};
use bma_proto_core::harness::Principal;
use bma_proto_core::websocket::Target;

use super::accept::{Incoming, register};
use super::executor::Executor;
use super::{HarnessEvent, Shared};
use crate::connect::connect;
use crate::runtime::Endpoint;
use crate::sync::{Event, Events};
use crate::upgrade::goodbye;
use crate::url::HarnessUrl;

/// An executor that listens was not reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialExecutorError {
    /// Nobody listens there, or what does answered something else.
    #[error("cannot reach an executor at {endpoint}: {reason}")]
    Unreachable {
        /// What was dialled.
        endpoint: Endpoint,
        /// What came instead.
        reason: String,
    },
    /// The executor refused the token.
    #[error("the executor at {endpoint} refused the token: {reason}; give the one that it was started with")]
    Unauthorized {
        /// What was dialled.
        endpoint: Endpoint,
        /// What it answered.
        reason: String,
    },
    /// The two share no version of the protocol.
    #[error("the executor at {endpoint} speaks another protocol: {reason}")]
    UnsupportedProtocol {
        /// What was dialled.
        endpoint: Endpoint,
        /// What it answered.
        reason: String,
    },
    /// It was reached, and did not register.
    #[error("the executor at {endpoint} is not registered: {reason}")]
    NotRegistered {
        /// What was dialled.
        endpoint: Endpoint,
        /// What went wrong.
        reason: String,
    },
}

pub(super) async fn dial(shared: &Arc<Shared>, path: &Path, token: Secret) -> Result<Executor, DialExecutorError> {
    let endpoint = Endpoint::Unix(path.to_owned());
    let ws_url = HarnessUrl::of_listener(&endpoint).to_string();
    let dial = Dial { ws_url, token, protocol: ProtocolVersion::V1_1 };
    let connected = connect(Arc::clone(&shared.runtime), dial, Target::Control, shared.options.channel).await;
    let (wire, _) = match connected {
        Ok(connected) => connected,
        Err(DialError::Failed(reason)) => return Err(DialExecutorError::Unreachable { endpoint, reason }),
        Err(DialError::Unauthorized(reason)) => return Err(DialExecutorError::Unauthorized { endpoint, reason }),
        Err(DialError::UnsupportedProtocol(reason)) => {
            return Err(DialExecutorError::UnsupportedProtocol { endpoint, reason });
        }
    };
    // From before it can be told.
    let mut comings = shared.subscribers.subscribe();
    match register(shared, Incoming::upgraded(wire, Principal::default())).await {
        Ok(executor) => attached(executor, &mut comings)
            .await
            .map_err(|reason| DialExecutorError::NotRegistered { endpoint, reason }),
        Err(left) => {
            goodbye(shared.runtime.as_ref(), left.wire).await;
            Err(DialExecutorError::NotRegistered { endpoint, reason: left.reason })
        }
    }
}

/// Waits until the executor's task has taken the connection over: from then on it can be asked something.
async fn attached(executor: Executor, comings: &mut Events<HarnessEvent>) -> Result<Executor, String> {
    loop {
        match comings.next().await {
            Some(Event::Item(HarnessEvent::Registered { executor: come, .. })) if come.id() == executor.id() => {
                return Ok(executor);
            }
            Some(Event::Item(HarnessEvent::Gone { executor: left, gone })) if left.id() == executor.id() => {
                return Err(gone.to_string());
            }
            // It may be among those that are not told.
            Some(Event::Lagged(_)) if executor.is_connected() => return Ok(executor),
            Some(_) => {}
            None => return Err("the harness is gone".to_owned()),
        }
    }
}
