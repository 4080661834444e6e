//! Who is who: first frames, and the executor that a connection belongs to.

use std::collections::BTreeMap;

use super::Config;
use crate::contract::{
    AnyParams, CloseCode, ErrorCode, ExecutorId, ExecutorRegisterParams, JSONRPCError, ProtocolVersion,
};
use crate::rng::Rng;
use crate::rpc::{self, Event, Peer, RequestId, Side};

/// What authentication knows of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principal {
    /// Pins the identity: the connection can only be this executor.
    pub executor_id: Option<ExecutorId>,
}

/// The first frame of a control connection.
#[derive(Clone, Debug)]
pub struct Registration {
    pub(super) request: RequestId,
    /// What the executor says.
    pub params: Box<ExecutorRegisterParams>,
}

/// A connection that is not taken: send the frame, then close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer to write.
    pub frame: String,
    /// The close code.
    pub code: u16,
    /// The close reason.
    pub reason: String,
}

/// Which executor a connection belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A new one, with this id: make its [`ExecutorPeer`](super::ExecutorPeer).
    New(ExecutorId),
    /// A known one: attach to its machine.
    Known(ExecutorId),
}

/// Reads the first frame of a control connection, which must be `executor.register`.
///
/// # Errors
/// The answer to write before closing.
pub fn read_registration(text: &str) -> Result<Registration, Refusal> {
    let mut peer: Peer<()> = Peer::new(rpc::Config::new(Side::Harness));
    peer.connect();
    let error = match peer.accept(text) {
        Some(Event::Request { id, params: AnyParams::ExecutorRegister(params) }) => {
            return Ok(Registration { request: id.request_id().clone(), params });
        }
        Some(Event::Request { id, .. }) => {
            peer.refuse(id, &ErrorCode::InvalidRequest.error("the first frame must be executor.register"));
            "the first frame was another request"
        }
        _ => "the first frame was no executor.register request",
    };
    Err(Refusal {
        frame: peer.next_frame().unwrap_or_default(),
        code: CloseCode::RegistrationRefused.number(),
        reason: error.to_owned(),
    })
}

impl Registration {
    /// Turns the registration down.
    pub fn refuse(&self, error: &JSONRPCError) -> Refusal {
        let code = match error.known_code() {
            Some(ErrorCode::UnsupportedProtocol) => CloseCode::UnsupportedProtocol,
            _ => CloseCode::RegistrationRefused,
        };
        let mut peer: Peer<()> = Peer::new(rpc::Config::new(Side::Harness));
        peer.connect();
        let id = peer.adopt(self.request.clone());
        peer.refuse(id, error);
        Refusal { frame: peer.next_frame().unwrap_or_default(), code: code.number(), reason: error.message.clone() }
    }
}

/// The executors that a harness knows, connected or within their lease.
#[derive(Clone, Debug)]
pub struct Registry {
    rng: Rng,
    max_executors: usize,
    /// Each executor with the identity that authentication pinned it to.
    executors: BTreeMap<ExecutorId, Principal>,
}

impl Registry {
    /// An empty registry; `seed` makes the ids it gives out.
    pub fn new(config: &Config, seed: u64) -> Self {
        Self { rng: Rng::new(seed), max_executors: config.max_executors, executors: BTreeMap::new() }
    }

    /// Finds the executor that a connection belongs to. An executor that asks to
    /// resume one that is not known (any more) is a new one.
    ///
    /// # Errors
    /// The answer to write before closing: another protocol, another identity than
    /// the authenticated one, or no capacity.
    pub fn place(&mut self, principal: &Principal, registration: &Registration) -> Result<Placement, Refusal> {
        let params = &registration.params;
        if !matches!(params.protocol, ProtocolVersion::V1 | ProtocolVersion::V1_1) {
            let message = format!("protocol {:?} is not spoken here: use bma.executor.v1.1", params.protocol);
            return Err(registration.refuse(&ErrorCode::UnsupportedProtocol.error(message)));
        }
        let resume = params.resume.as_ref().and_then(|resume| resume.executor_id.as_ref());
        let wanted = match (&principal.executor_id, resume) {
            (Some(pinned), Some(resume)) if pinned != resume => {
                let message = format!("the credential belongs to executor {pinned}, not {resume}");
                return Err(registration.refuse(&ErrorCode::Forbidden.error(message)));
            }
            (Some(pinned), _) => Some(pinned),
            (None, resume) => resume,
        };
        if let Some(id) = wanted {
            match self.executors.get(id) {
                Some(known) if known == principal => return Ok(Placement::Known(id.clone())),
                Some(_) => {
                    let message = format!("executor {id} belongs to another credential");
                    return Err(registration.refuse(&ErrorCode::Forbidden.error(message)));
                }
                None => {}
            }
        }
        if self.executors.len() >= self.max_executors {
            let message = format!("{} executors are registered already: try again later", self.executors.len());
            return Err(registration.refuse(&ErrorCode::ExecutorBusy.error(message).with_retryable(true)));
        }
        let id = match &principal.executor_id {
            Some(pinned) => pinned.clone(),
            None => self.rng.id("exec_").into(),
        };
        self.executors.insert(id.clone(), principal.clone());
        Ok(Placement::New(id))
    }

    /// Forgets an executor that is gone.
    pub fn remove(&mut self, id: &ExecutorId) {
        self.executors.remove(id);
    }

    /// The executors known, in the order of their ids.
    pub fn executors(&self) -> impl Iterator<Item = &ExecutorId> {
        self.executors.keys()
    }
}
