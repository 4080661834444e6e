//! Who is who: first frames, and the executor that a connection belongs to.

use std::collections::{BTreeMap, VecDeque};

use super::Config;
use crate::contract::{
    AnyParams, CloseCode, ConnectionId, ErrorCode, ExecutorId, ExecutorRegisterParams, JSONRPCError, ProtocolVersion,
};
use crate::rng::Rng;
use crate::rpc::{self, Event, Peer, RequestId, Side};

/// Connections of an executor that it may name when it comes back: the answers
/// of so many registrations can get lost in a row.
const MAX_CONNECTIONS: usize = 16;

/// The close code of a refusal that passes: "try again later" (WebSocket registry).
const TRY_AGAIN: u16 = 1013;

/// What authentication knows of a connection. An executor only ever belongs to
/// one principal: nobody else can resume it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Principal {
    /// Whose credential it was, such as an account or the name of a token; never
    /// the credential itself. Two credentials with equal subjects are the same to
    /// the registry, and so are all that have none.
    pub subject: Option<String>,
    /// Pins the identity: the connection can only be this executor. Where it is
    /// not known, an executor that comes back has to name its last connection as well.
    pub executor_id: Option<ExecutorId>,
}

impl Principal {
    /// Nothing is known but that the connection may come in.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// Somebody that may have any number of executors.
    pub fn subject(subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), executor_id: None }
    }

    /// The one executor that the credential belongs to.
    pub fn pinned(executor_id: ExecutorId) -> Self {
        Self { subject: None, executor_id: Some(executor_id) }
    }
}

/// The first frame of a control connection.
#[derive(Clone, Debug)]
pub struct Registration {
    pub(super) request: RequestId,
    /// The id of its connection, once it is placed.
    pub(super) connection_id: Option<ConnectionId>,
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
            return Ok(Registration { request: id.request_id().clone(), connection_id: None, params });
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
    /// Turns the registration down. The close code says whether that is for good:
    /// 1013 for a `retryable` error, else 4002 (or 4003 for another protocol).
    pub fn refuse(&self, error: &JSONRPCError) -> Refusal {
        let code = match error.known_code() {
            _ if error.is_retryable() => TRY_AGAIN,
            Some(ErrorCode::UnsupportedProtocol) => CloseCode::UnsupportedProtocol.number(),
            _ => CloseCode::RegistrationRefused.number(),
        };
        let mut peer: Peer<()> = Peer::new(rpc::Config::new(Side::Harness));
        peer.connect();
        let id = peer.adopt(self.request.clone());
        peer.refuse(id, error);
        Refusal { frame: peer.next_frame().unwrap_or_default(), code, reason: error.message.clone() }
    }
}

/// The executors that a harness knows, connected or within their lease.
#[derive(Clone, Debug)]
pub struct Registry {
    rng: Rng,
    max_executors: usize,
    executors: BTreeMap<ExecutorId, Known>,
}

/// An executor, and what proves that a connection belongs to it.
#[derive(Clone, Debug)]
struct Known {
    principal: Principal,
    /// Its connections since the one that it named last, oldest first. Any of
    /// them may be the last one that it knows of.
    connections: VecDeque<ConnectionId>,
}

impl Known {
    /// Whether the executor's last connection is one of these. Those before it are of no use any more.
    fn recognise(&mut self, last: Option<&ConnectionId>) -> bool {
        let Some(at) = self.connections.iter().position(|known| Some(known) == last) else { return false };
        self.connections.drain(..at);
        true
    }

    fn connected(&mut self, id: ConnectionId) {
        if self.connections.len() >= MAX_CONNECTIONS {
            // Not the first: that one it is known to have.
            self.connections.remove(1);
        }
        self.connections.push_back(id);
    }
}

impl Registry {
    /// An empty registry; `seed` makes the ids it gives out.
    pub fn new(config: &Config, seed: u64) -> Self {
        Self { rng: Rng::new(seed), max_executors: config.max_executors, executors: BTreeMap::new() }
    }

    /// Finds the executor that a connection belongs to, and names the connection.
    ///
    /// Where the principal pins no executor, knowing an executor's id is not
    /// enough to resume it: `last_connection_id` must be its last connection too.
    /// An executor that asks to resume one that is not known (any more), or that
    /// cannot name its connection, is a new one.
    ///
    /// # Errors
    /// The answer to write before closing: another protocol, another identity than
    /// the authenticated one, or no capacity.
    pub fn place(&mut self, principal: &Principal, registration: &mut Registration) -> Result<Placement, Refusal> {
        let params = &registration.params;
        if !matches!(params.protocol, ProtocolVersion::V1 | ProtocolVersion::V1_1) {
            let message = format!("protocol {:?} is not spoken here: use bma.executor.v1.1", params.protocol);
            return Err(registration.refuse(&ErrorCode::UnsupportedProtocol.error(message)));
        }
        let resume = params.resume.as_ref();
        let last_connection = resume.and_then(|resume| resume.last_connection_id.as_ref());
        let wanted = match (&principal.executor_id, resume.and_then(|resume| resume.executor_id.as_ref())) {
            (Some(pinned), Some(resume)) if pinned != resume => {
                let message = format!("the credential belongs to executor {pinned}, not {resume}");
                return Err(registration.refuse(&ErrorCode::Forbidden.error(message)));
            }
            (Some(pinned), _) => Some(pinned),
            (None, resume) => resume,
        };
        let known = wanted.and_then(|id| Some((id.clone(), self.executors.get_mut(id)?)));
        if let Some((id, known)) = known {
            if known.principal != *principal {
                let message = format!("executor {id} belongs to another credential");
                return Err(registration.refuse(&ErrorCode::Forbidden.error(message)));
            }
            if principal.executor_id.is_some() || known.recognise(last_connection) {
                let connection: ConnectionId = self.rng.id("conn_");
                known.connected(connection.clone());
                registration.connection_id = Some(connection);
                return Ok(Placement::Known(id));
            }
        }
        if self.executors.len() >= self.max_executors {
            let message = format!("{} executors are registered already: try again later", self.executors.len());
            return Err(registration.refuse(&ErrorCode::ExecutorBusy.error(message).with_retryable(true)));
        }
        let id = match &principal.executor_id {
            Some(pinned) => pinned.clone(),
            None => self.rng.id("exec_"),
        };
        let connection: ConnectionId = self.rng.id("conn_");
        let known = Known { principal: principal.clone(), connections: VecDeque::from([connection.clone()]) };
        self.executors.insert(id.clone(), known);
        registration.connection_id = Some(connection);
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
