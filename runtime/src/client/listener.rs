//! The reversed way: the executor listens, and the next harness that dials becomes its brain.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bma_proto_core::contract::{ProtocolVersion, Secret};
use bma_proto_core::executor::{Dial, DialError};
use bma_proto_core::websocket::{Channel, Limits, Output, ServerConfig};

use super::private_folder;
use crate::connect;
use crate::harness::Authenticator;
use crate::listening::{self, ListenError, Listening};
use crate::runtime::{Endpoint, Listener, Runtime, Stream, Timer};
use crate::sync::oneshot;
use crate::upgrade::{Places, admit, goodbye};
use crate::url::HarnessUrl;
use crate::wire::Wire;

/// Connections that may be in their upgrade, or wait for their turn, at a time.
const MAX_WAITING: usize = 16;

/// How long a harness waits for its turn while another one is the brain.
const TURN_WITHIN: Duration = Duration::from_secs(5);

/// A Unix socket on which an executor waits for a harness of its own machine.
///
/// The roles of the protocol stay as they are: the executor registers, the harness drives it. Only the dial is the
/// other way round. Give it to [`ClientOptions::listening`](super::ClientOptions::listening); a harness comes by
/// [`Harness::dial_executor`](crate::Harness::dial_executor), with the same token, or by anything that opens a
/// WebSocket there with `Authorization: Bearer`.
///
/// One harness is the brain at a time. Another one that dials waits up to 5 s for its turn and is then answered
/// 503; of 16 that wait, a further one is dropped. A wrong token is answered 401.
///
/// Nobody is let in before the client is started. Dropping the listener, or the end of the client that has it,
/// stops listening and removes the socket.
pub struct ExecutorListener {
    bound: Mutex<Option<Bound>>,
    endpoint: Endpoint,
    door: Arc<Door>,
}

enum Bound {
    /// Nobody asked for a harness yet.
    Waiting(Box<dyn Listener>),
    /// Until it is dropped.
    Serving { _listening: Listening },
}

impl fmt::Debug for ExecutorListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorListener").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ExecutorListener {
    /// Listens at `path`, in a folder that belongs to this user and that nobody else can enter: it is made (mode
    /// 0700) when it is missing. The socket has mode 0600. One that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// When others can enter the folder, another program listens there, the token is empty, or the system
    /// refuses. The message says what to do.
    pub async fn bind(runtime: &Arc<dyn Runtime>, path: &Path, token: Secret) -> Result<Self, ListenError> {
        let on = Endpoint::Unix(path.to_owned());
        let refused = |source| ListenError { endpoint: on.clone(), source };
        if token.is_empty() {
            return Err(refused(io::Error::new(io::ErrorKind::InvalidInput, "the token is empty: give one")));
        }
        private_folder::prepare(path).map_err(refused)?;
        let listener = listening::bind(runtime.as_ref(), &on).await?;
        private_folder::check_owner(path).map_err(refused)?;
        let endpoint = listener.local_endpoint().clone();
        let door = Door {
            runtime: Arc::clone(runtime),
            authenticator: Authenticator::bearer(token),
            places: Places::new(MAX_WAITING),
            takers: Mutex::default(),
            asked: event_listener::Event::new(),
        };
        Ok(Self { bound: Mutex::new(Some(Bound::Waiting(listener))), endpoint, door: Arc::new(door) })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        HarnessUrl::of_listener(&self.endpoint).to_string()
    }

    /// Waits for the next harness, for as long as it takes. Dropping the future gives the wait up.
    pub(super) async fn accept(
        self: Arc<Self>,
        dial: Dial,
        limits: Limits,
    ) -> Result<(Wire, ProtocolVersion), DialError> {
        self.open(&dial.protocol, limits);
        let (taker, taken) = oneshot::channel();
        self.door.takers().push_back(taker);
        self.door.asked.notify(1);
        taken.await.map_err(|_| DialError::Failed("nobody listens any more".to_owned()))
    }

    /// Lets connections in from now on.
    fn open(&self, protocol: &ProtocolVersion, limits: Limits) {
        // Nothing under the lock is left half done.
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        *bound = bound.take().map(|bound| match bound {
            Bound::Waiting(listener) => {
                let door = Arc::clone(&self.door);
                let config = ServerConfig { protocols: connect::offers(protocol), limits };
                let welcome = move |stream| Door::welcome(&door, stream, config.clone());
                Bound::Serving { _listening: listening::serve(&self.door.runtime, listener, welcome) }
            }
            serving @ Bound::Serving { .. } => serving,
        });
    }
}

type Taker = oneshot::Sender<(Wire, ProtocolVersion)>;

/// Where harnesses and the client that waits for one meet.
struct Door {
    runtime: Arc<dyn Runtime>,
    authenticator: Authenticator,
    places: Places,
    /// Those who wait for a harness: one for each client that has this listener.
    takers: Mutex<VecDeque<Taker>>,
    /// Told when there is one more of them.
    asked: event_listener::Event,
}

impl Door {
    fn takers(&self) -> MutexGuard<'_, VecDeque<Taker>> {
        // Nothing under the lock is left half done.
        self.takers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one who still waits for a harness.
    fn taker(&self) -> Option<Taker> {
        let mut takers = self.takers();
        std::iter::from_fn(|| takers.pop_front()).find(|taker| !taker.is_canceled())
    }

    fn welcome(door: &Arc<Self>, stream: Box<dyn Stream>, config: ServerConfig) {
        let Some(place) = door.places.take() else {
            tracing::warn!(bound = MAX_WAITING, "too many harnesses wait for this executor: one was dropped");
            return;
        };
        let task = {
            let door = Arc::clone(door);
            async move {
                let _place = place;
                if let Some(wire) = door.lead_in(stream, config).await {
                    goodbye(door.runtime.as_ref(), wire).await;
                }
            }
        };
        door.runtime.spawn(Box::pin(task));
    }

    /// From a stream to the client that waits for it. What is returned only has goodbye to say.
    async fn lead_in(&self, stream: Box<dyn Stream>, config: ServerConfig) -> Option<Wire> {
        let runtime = self.runtime.as_ref();
        let begun = runtime.now();
        let deadline = begun + config.limits.handshake_timeout;
        let mut timer = runtime.timer();
        let mut wire = Wire::new(stream, Channel::server(begun, config));
        let Some(admitted) = admit(&self.authenticator, runtime, timer.as_mut(), &mut wire, deadline).await else {
            return Some(wire);
        };
        if !admitted.speaks {
            let _ = wire.channel().accept(runtime.now()); // which tells the harness that nothing is in common
            return Some(wire);
        }
        timer.set(Some(runtime.now() + TURN_WITHIN));
        loop {
            let asked = self.asked.listen();
            if let Some(taker) = self.taker() {
                return self.hand_over(wire, taker);
            }
            match turn(asked, &mut wire, timer.as_mut(), runtime).await {
                Turn::Asked => {}
                Turn::Gone => return Some(wire),
                Turn::TooLate => {
                    let answer = "another harness drives this executor: try again once that has let it go";
                    let _ = wire.channel().refuse(runtime.now(), 503, answer);
                    return Some(wire);
                }
            }
        }
    }

    fn hand_over(&self, mut wire: Wire, taker: Taker) -> Option<Wire> {
        let accepted = wire.channel().accept(self.runtime.now());
        match wire.output() {
            Some(Output::Open { protocol }) if accepted.is_ok() => {
                // Given back when the client has ended in this moment.
                taker.send((wire, ProtocolVersion::from(protocol))).err().map(|(wire, _)| wire)
            }
            // The harness has gone: the next one has the place.
            _ => {
                self.takers().push_front(taker);
                self.asked.notify(1);
                Some(wire)
            }
        }
    }
}

/// What ends a wait at the door.
enum Turn {
    /// Somebody asks for a harness.
    Asked,
    /// The harness has gone.
    Gone,
    TooLate,
}

async fn turn(
    asked: event_listener::EventListener,
    wire: &mut Wire,
    timer: &mut dyn Timer,
    runtime: &dyn Runtime,
) -> Turn {
    let mut asked = pin!(asked);
    poll_fn(|cx| {
        if asked.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Turn::Asked);
        }
        while wire.poll_receive(cx, runtime.now()).is_ready() {
            // Whatever it is but bytes for later, nothing more comes of this connection.
            if wire.output().is_some() || wire.channel().is_over() {
                return Poll::Ready(Turn::Gone);
            }
        }
        timer.poll_expired(cx).map(|()| Turn::TooLate)
    })
    .await
}
