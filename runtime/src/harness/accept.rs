//! From a stream to an executor: upgrade, authentication, first frame. A short
//! task for each connection, with a deadline; then the executor's own task has it.

use std::sync::Arc;

use bma_proto_core::contract::{CloseCode, ErrorCode};
use bma_proto_core::harness::{Placement, Principal, Refusal, Registration, read_registration};
use bma_proto_core::websocket::{Channel, Output, ServerConfig, Text};

use super::executor::Executor;
use super::{HarnessEvent, Shared};
use crate::runtime::{Runtime, Stream};
use crate::upgrade::{admit, goodbye, next};
use crate::wire::Wire;

/// A connection that belongs to no executor yet.
pub(super) struct Incoming {
    wire: Wire,
    /// Who it is, when it was upgraded and authenticated elsewhere.
    principal: Option<Principal>,
}

impl Incoming {
    /// Nothing was read from it.
    pub(super) fn fresh(shared: &Shared, stream: Box<dyn Stream>) -> Self {
        let config = ServerConfig { limits: shared.options.channel, ..ServerConfig::default() };
        Self { wire: Wire::new(stream, Channel::server(shared.runtime.now(), config)), principal: None }
    }

    /// It was upgraded and authenticated elsewhere.
    pub(super) fn upgraded(wire: Wire, principal: Principal) -> Self {
        Self { wire, principal: Some(principal) }
    }
}

/// A connection that leads to no executor: it has only goodbye to say.
pub(super) struct Left {
    pub(super) wire: Wire,
    /// Why it does not.
    pub(super) reason: String,
}

pub(super) fn serve(shared: &Arc<Shared>, incoming: Incoming) {
    let Some(place) = shared.upgrading.take() else {
        tracing::warn!(bound = shared.options.max_upgrading, "too many connections in their upgrade: one was dropped");
        return;
    };
    let task = {
        let shared = Arc::clone(shared);
        async move {
            let _place = place;
            if let Err(left) = register(&shared, incoming).await {
                tracing::debug!(reason = %left.reason, "a connection led to no executor");
                goodbye(shared.runtime.as_ref(), left.wire).await;
            }
        }
    };
    shared.runtime.spawn(Box::pin(task));
}

/// Leads a connection to its executor.
pub(super) async fn register(shared: &Arc<Shared>, incoming: Incoming) -> Result<Executor, Left> {
    let runtime = shared.runtime.as_ref();
    let deadline = runtime.now() + shared.options.channel.handshake_timeout;
    let mut timer = runtime.timer();
    let left = |wire, reason: &str| Left { wire, reason: reason.to_owned() };
    let Incoming { mut wire, principal } = incoming;
    let principal = match principal {
        Some(principal) => principal,
        None => {
            let authenticator = &shared.options.authenticator;
            let admitted = admit(authenticator, runtime, timer.as_mut(), &mut wire, deadline).await;
            match admitted.filter(|_| wire.channel().accept(runtime.now()).is_ok()) {
                Some(admitted) => admitted.principal,
                None => return Err(left(wire, "it was not let in")),
            }
        }
    };
    let Some(first) = next(runtime, timer.as_mut(), &mut wire, deadline, text_of).await else {
        let reason = "no executor.register in time";
        wire.close(runtime.now(), CloseCode::RegistrationRefused.number(), reason);
        return Err(left(wire, reason));
    };
    let placed = read_registration(&first).and_then(|mut registration| {
        let mut known = shared.known();
        let placement = known.registry.place(&principal, &mut registration)?;
        let (executor, new) = match placement {
            Placement::Known(id) => (known.executors.get(&id).cloned(), false),
            Placement::New(id) => {
                let executor = Executor::new(shared, id.clone());
                known.executors.insert(id, executor.clone());
                (Some(executor), true)
            }
        };
        Ok((executor, new, registration))
    });
    match placed {
        Ok((Some(executor), new, registration)) => {
            if let Some((mut wire, registration)) = executor.connect(wire, registration) {
                register_again(runtime, &mut wire, &registration);
                return Err(left(wire, "its executor was given up in this moment"));
            }
            if new {
                executor.drive(shared);
            }
            Ok(executor)
        }
        Ok((None, _, registration)) => {
            // The registry and the table change under one lock, so this cannot be; say so rather than hang.
            let error = ErrorCode::InternalError.error("the executor cannot be found");
            refuse(runtime, &mut wire, &registration.refuse(&error));
            Err(left(wire, "the executor cannot be found"))
        }
        Err(refusal) => {
            tracing::warn!(reason = %refusal.reason, "a registration was refused");
            refuse(runtime, &mut wire, &refusal);
            Err(Left { wire, reason: refusal.reason.to_string() })
        }
    }
}

/// It came back in the very moment its executor was given up.
pub(super) fn register_again(runtime: &dyn Runtime, wire: &mut Wire, registration: &Registration) {
    let error = ErrorCode::LeaseExpired.error("the executor is gone: register again");
    wire.send(&registration.refuse(&error).frame);
    wire.close(runtime.now(), 1012, "register again");
}

fn refuse(runtime: &dyn Runtime, wire: &mut Wire, refusal: &Refusal) {
    if !refusal.frame.is_empty() {
        wire.send(&refusal.frame);
    }
    wire.close(runtime.now(), refusal.code, &refusal.reason);
}

fn text_of(output: Output) -> Option<Text> {
    match output {
        Output::Text(text) => Some(text),
        Output::AuthRequired(_) | Output::Open { .. } | Output::Closed(_) => None,
    }
}

/// Tells of an executor's coming.
pub(super) fn announce(shared: &Shared, executor: &Executor, resumed: bool) {
    shared.publish(&HarnessEvent::Registered { executor: executor.clone(), resumed });
}
