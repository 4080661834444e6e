//! Dialling a harness: connect, upgrade.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bma_proto_core::Time;
use bma_proto_core::contract::ProtocolVersion;
use bma_proto_core::executor::{Dial, DialError};
use bma_proto_core::websocket::{Channel, ClientConfig, Closed, How, Limits, Output, Target, Violation};

use crate::runtime::{Runtime, Timer};
use crate::url::HarnessUrl;
use crate::wire::{Progress, Wire};

/// Connects and upgrades. It takes at most the handshake time-out in all.
pub(crate) async fn connect(
    runtime: Arc<dyn Runtime>,
    dial: Dial,
    target: Target,
    limits: Limits,
) -> Result<(Wire, ProtocolVersion), DialError> {
    let failed = |error: &dyn std::fmt::Display| DialError::Failed(error.to_string());
    let url = HarnessUrl::parse(&dial.ws_url).map_err(|error| failed(&error))?;
    let begun = runtime.now();
    let mut timer = runtime.timer();
    timer.set(Some(begun + limits.handshake_timeout));
    let stream = match before(timer.as_mut(), runtime.dial(url.endpoint())).await {
        Some(stream) => {
            stream.map_err(|error| DialError::Failed(format!("cannot connect to {}: {error}", url.endpoint())))?
        }
        None => {
            let within = limits.handshake_timeout.as_millis();
            return Err(DialError::Failed(format!("cannot connect to {} within {within} ms", url.endpoint())));
        }
    };
    let mut config = ClientConfig::new(url.host(), url.target(), target);
    config.protocols = offers(&dial.protocol);
    config.bearer = (!dial.token.is_empty()).then(|| dial.token.clone());
    config.limits = limits;
    // The time that the dial took counts.
    let channel = Channel::client(begun, config).map_err(|error| failed(&error))?;
    let mut wire = Wire::new(stream, channel);
    match upgraded(runtime.as_ref(), timer.as_mut(), &mut wire).await {
        Ok(protocol) => Ok((wire, protocol)),
        Err(closed) => Err(refused(&closed)),
    }
}

/// The newest version first: an older harness takes the older one.
pub(crate) fn offers(protocol: &ProtocolVersion) -> Vec<String> {
    match protocol {
        ProtocolVersion::V1_1 => vec![ProtocolVersion::V1_1.to_string(), ProtocolVersion::V1.to_string()],
        other => vec![other.to_string()],
    }
}

fn refused(closed: &Closed) -> DialError {
    match &closed.how {
        How::Upgrade(error) if error.is_unauthorized() => DialError::Unauthorized(error.to_string()),
        How::Violation(Violation::Subprotocol { .. }) => DialError::UnsupportedProtocol(closed.to_string()),
        _ => DialError::Failed(closed.to_string()),
    }
}

/// Drives the upgrade to its end. What comes after it stays in the channel.
async fn upgraded(runtime: &dyn Runtime, timer: &mut dyn Timer, wire: &mut Wire) -> Result<ProtocolVersion, Closed> {
    poll_fn(|cx| {
        loop {
            let now = runtime.now();
            let _ = wire.poll_flush(cx, now);
            match wire.output() {
                Some(Output::Open { protocol }) => return Poll::Ready(Ok(ProtocolVersion::from(protocol))),
                Some(Output::Closed(closed)) => return Poll::Ready(Err(*closed)),
                Some(Output::AuthRequired(_) | Output::Text(_)) => continue,
                None => {}
            }
            if let Poll::Ready(Progress::Bytes | Progress::More) = wire.poll_receive(cx, now) {
                continue;
            }
            timer.set(wire.deadline().map(|(at, _)| at));
            if timer.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
            wire.tick(runtime.now());
        }
    })
    .await
}

/// `future`'s output, or `None` when the timer is first.
pub(crate) async fn before<F: Future>(timer: &mut dyn Timer, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.poll_expired(cx).map(|()| None),
    })
    .await
}

/// Waits until a time.
pub(crate) async fn sleep_until(runtime: &dyn Runtime, at: Time) {
    let mut timer = runtime.timer();
    timer.set(Some(at));
    poll_fn(|cx| timer.poll_expired(cx)).await;
}
