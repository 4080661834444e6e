//! Client and harness against each other over real sockets, whatever the runtime.
//!
//! [`exchange_suite!`](macro@crate::exchange_suite) makes one test of each case; a
//! runtime's test file calls it with a function that runs a future on it.

pub mod capabilities;
pub mod connection;
pub mod endings;
pub mod handlers;
pub mod methods;
pub mod recovery;
#[cfg(unix)]
pub mod reversed;
pub mod secrecy;
pub mod sessions;
pub mod streams;
pub mod tools;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bma_runtime::proto::contract::{
    BashInput, ErrorCode, ExecutorId, JSONRPCError, Secret, SessionAssignParams, SessionId, ToolResultParams,
};
use bma_runtime::proto::harness::CallError;
use bma_runtime::proto::rpc::RequestError;
use bma_runtime::sync::StateCell;
use bma_runtime::{
    Authenticator, Client, ClientOptions, Endpoint, Executor, Harness, HarnessOptions, Listening, Runtime, Session,
};

use crate::support::logs;
use crate::support::proxy::Proxy;
use crate::support::watched::Watched;

/// Makes a test of each case. `$run` takes `impl FnOnce(Arc<dyn Runtime>) -> impl Future<Output = ()>`.
#[macro_export]
macro_rules! exchange_suite {
    ($run:path) => {
        $crate::exchange_suite!(@ $run, tools:
            every_slot_carries_its_input_and_its_answer
            a_result_arrives_as_it_was_given
            progress_is_there_in_order_before_the_result
            a_cancel_reaches_the_handler_and_the_call_ends_canceled
            a_cancel_of_nothing_says_so
            a_deadline_reaches_the_handler
            errors_failures_and_panics_are_told_apart
            an_input_that_lacks_a_member_runs_nothing
            an_unknown_tool_is_refused_with_its_capability
            the_accept_hook_refuses_before_anything_runs
            a_hook_that_panics_refuses_the_call
            many_calls_at_once_get_each_its_own_answer
            a_dropped_call_runs_on_and_its_result_is_kept
            f75_a_repeated_id_runs_once_and_gets_the_same_result
            f76_a_call_without_an_answer_in_time_is_not_sent_again
            f74_a_result_over_the_frame_limit_is_cut_and_never_poisons_the_connection
            f70_a_reader_that_does_not_read_delays_nobody_and_is_told_what_it_lost
        );
        $crate::exchange_suite!(@ $run, sessions:
            a_session_is_set_up_used_and_torn_down
            a_handler_turns_sessions_down
            a_handler_that_panics_turns_the_session_down
            a_session_that_takes_its_time_is_ready_when_it_says_so
            a_session_id_is_bound_once
            an_executor_ends_its_session_by_itself
            a_stop_cancels_what_runs_and_waits_for_it
            a_stop_that_cannot_end_everything_is_over_all_the_same
            two_sessions_do_not_disturb_each_other
        );
        $crate::exchange_suite!(@ $run, handlers:
            handlers_of_one_session_id_follow_each_other
            a_late_handler_does_not_answer_for_a_later_call_of_its_id
            a_second_decider_is_refused_and_every_observer_is_told
        );
        $crate::exchange_suite!(@ $run, methods:
            a_served_method_gets_its_params_and_the_request_id
            a_method_that_is_not_advertised_is_not_sent
            a_method_that_is_advertised_and_not_served_is_refused_with_its_capability
            a_handlers_error_arrives_as_it_was_given
            a_harness_serves_what_executors_ask
            a_harness_that_does_not_serve_a_method_says_so
            an_event_is_accepted_by_default
            notifications_reach_the_harness_in_order
            every_request_of_the_catalogue_reaches_a_handler
        );
        $crate::exchange_suite!(@ $run, capabilities:
            a_slot_advertises_what_it_serves
            a_slot_that_comes_later_is_told
            replaced_capabilities_are_told
            a_returning_executor_tells_what_changed_meanwhile
        );
        $crate::exchange_suite!(@ $run, endings:
            a_drained_executor_leaves_once_its_sessions_have_ended
            a_drain_without_sessions_lets_go_at_once
            the_harness_closes_an_executor
            a_client_that_stops_ends_its_sessions_first
            a_call_that_runs_at_the_stop_is_reported_before_its_session_ends
            a_client_is_not_over_before_its_handlers_are
            an_orderly_stop_goes_on_when_nobody_waits_for_it
            a_client_stops_while_it_dials
            a_client_that_was_never_started_stops
            streams_of_events_end_with_what_they_tell_of
            a_harness_that_is_dropped_lets_its_executors_go
            a_released_executor_comes_back_at_the_first_step
            a_client_that_is_dropped_goes_on_until_it_is_told_to_stop
            a_port_in_use_is_named
            waits_are_answered_when_the_executor_is_lost
        );
        $crate::exchange_suite!(@ $run, connection:
            a_client_waits_for_a_harness_that_is_not_there_yet
            a_client_gives_up_after_the_attempts_it_was_given
            a_wrong_token_is_refused_and_ends_the_client
            a_token_source_that_panics_ends_nothing
            an_authenticator_that_panics_lets_nobody_in_and_blocks_nobody
            f61_a_token_is_fetched_for_every_dial
            f60_a_server_that_accepts_and_closes_is_dialled_ever_more_rarely
            f58_a_silent_connection_is_noticed_by_both_ends
            f64_a_slow_connection_is_not_taken_for_a_dead_one
            f62_a_second_program_of_the_same_identity_takes_over
            a_harness_without_the_protocol_ends_the_client
        );
        $crate::exchange_suite!(@ $run, recovery:
            a_cut_connection_comes_back_with_its_sessions
            a_result_that_was_under_way_arrives_once
            a_call_that_was_not_acknowledged_is_sent_again_and_runs_once
            a_call_made_while_nothing_is_connected_waits_for_the_return
            a_lease_that_runs_out_ends_everything_on_both_sides
            f66_a_harness_that_forgot_everything_gets_a_fresh_registration
            a_distant_executor_serves_many_calls_at_once
            cuts_at_any_time_lose_and_repeat_nothing
        );
        $crate::exchange_suite!(@ $run, secrecy:
            the_token_stands_in_one_header_and_nowhere_else
            nothing_that_is_printed_shows_the_token
        );
        #[cfg(unix)]
        $crate::exchange_suite!(@ $run, reversed:
            a_harness_dials_an_executor_that_listens
            a_client_that_waits_for_a_harness_stops
            the_next_harness_becomes_the_brain
            a_harness_that_dials_again_finds_its_sessions
            a_wrong_token_makes_nobody_the_brain
            a_place_that_others_reach_is_refused
        );
        $crate::exchange_suite!(@ $run, streams:
            a_unix_socket_carries_the_protocol
            a_stream_in_memory_carries_the_protocol
            somebody_elses_http_server_hands_its_upgrades_over
            a_connection_that_was_upgraded_elsewhere_must_register_in_time
        );
    };
    (@ $run:path, $area:ident: $($case:ident)*) => {
        mod $area {
            $(
                #[test]
                fn $case() {
                    let _watchdog = $crate::adapter_suite::Watchdog::new(module_path!(), stringify!($case));
                    $crate::support::logs::record();
                    $run($crate::adapter_suite::in_time($crate::exchange_suite::$area::$case));
                }
            )*
        }
    };
}

/// A harness that listens, and a place for the clients of one case.
pub struct Rig {
    /// What everything of the case runs on.
    pub runtime: Arc<dyn Runtime>,
    /// The harness.
    pub harness: Harness,
    /// What its executors must show.
    pub token: Secret,
    watched: Arc<Watched>,
    listening: Listening,
    clients: Mutex<Vec<Client>>,
}

impl Rig {
    /// A harness with short times.
    pub async fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self::with(runtime, |_| {}).await
    }

    /// A harness whose options are changed first.
    pub async fn with(runtime: Arc<dyn Runtime>, change: impl FnOnce(&mut HarnessOptions)) -> Self {
        let watched = Watched::new(runtime);
        let token = Secret::new(format!("secret-{:016x}", watched.seed()));
        let runtime: Arc<dyn Runtime> = watched.clone();
        let mut options = HarnessOptions::new(Authenticator::bearer(token.clone()));
        options.config.heartbeat_interval = Duration::from_secs(2);
        options.channel.close_timeout = Duration::from_millis(300);
        change(&mut options);
        let harness = Harness::new(Arc::clone(&runtime), options);
        let listening = harness.listen(&localhost(0)).await.unwrap();
        Rig { runtime, harness, token, watched, listening, clients: Mutex::new(Vec::new()) }
    }

    /// The URL of the harness.
    pub fn url(&self) -> String {
        self.listening.url()
    }

    /// A proxy in front of the harness.
    pub fn proxy(&self) -> Proxy {
        Proxy::new(self.address())
    }

    /// Where the harness listens.
    pub fn address(&self) -> SocketAddr {
        address_of(self.listening.endpoint())
    }

    /// A client for the harness, not started.
    pub fn client(&self) -> Client {
        self.client_of(options("machine", &self.url(), &self.token))
    }

    /// A client that reaches the harness by a proxy, not started.
    pub fn client_by(&self, proxy: &Proxy) -> Client {
        self.client_of(options("machine", &proxy.url(), &self.token))
    }

    /// A client with these options, not started.
    pub fn client_of(&self, options: ClientOptions) -> Client {
        let client = Client::new(Arc::clone(&self.runtime), options).unwrap();
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        client
    }

    /// Starts a client and finds it at the harness.
    pub async fn join(&self, client: &Client) -> Executor {
        let registered = client.start().await.unwrap();
        self.executor(&registered.executor_id).await
    }

    /// An executor of the harness, once it is attached.
    pub async fn executor(&self, id: &ExecutorId) -> Executor {
        let found = || self.harness.executor(id).filter(Executor::is_connected);
        eventually(&self.runtime, "the executor is registered", || found().is_some()).await;
        found().unwrap()
    }

    /// A session that is ready.
    pub async fn session(&self, executor: &Executor, id: &str) -> Session {
        let session = executor.assign(assignment(id)).await.unwrap();
        session.ready().await.unwrap();
        session
    }

    /// Ends everything, and fails when something is left.
    pub async fn finish(self) {
        let Rig { runtime, harness, token, watched, listening, clients } = self;
        let clients = clients.into_inner().unwrap_or_else(PoisonError::into_inner);
        for client in &clients {
            client.stop("the case is over").await;
        }
        drop(clients);
        harness.close("the case is over").await;
        let address = address_of(listening.endpoint());
        listening.stop();
        drop(harness);
        watched.assert_all_over().await;
        // A program that another test starts has it until it execs.
        eventually(&runtime, "the port is free again", || std::net::TcpListener::bind(address).is_ok()).await;
        drop(runtime);
        assert!(!logs::contains(token.expose()), "the token is in the log");
        logs::assert_no_unexpected_error();
    }
}

/// A TCP port of this machine.
pub fn localhost(port: u16) -> Endpoint {
    Endpoint::Tcp { host: "127.0.0.1".to_owned(), port }
}

/// The address that an endpoint stands for.
pub fn address_of(endpoint: &Endpoint) -> SocketAddr {
    endpoint.to_string().parse().unwrap()
}

/// Options with short times.
pub fn options(name: &str, url: &str, token: &Secret) -> ClientOptions {
    let mut options = ClientOptions::direct(name, url, token.clone()).unwrap();
    options.reconnect_base_delay = Duration::from_millis(5);
    options.reconnect_max_delay = Duration::from_millis(100);
    options
}

/// An assignment with everything made up but the id.
pub fn assignment(id: &str) -> SessionAssignParams {
    SessionAssignParams { session_id: id.into(), ..SessionAssignParams::default() }
}

/// The input of a command.
pub fn command(command: &str) -> BashInput {
    BashInput { command: command.to_owned(), ..BashInput::default() }
}

/// The text of a result.
pub fn text(result: &ToolResultParams) -> String {
    result.content.iter().filter_map(|block| block.text.as_deref()).collect()
}

/// The error that the other side answered with.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> JSONRPCError {
    match outcome {
        Err(CallError::Request(RequestError::Refused(error))) => *error,
        other => panic!("not refused: {other:?}"),
    }
}

/// Fails unless an error has this code.
#[track_caller]
pub fn assert_code(error: &JSONRPCError, code: ErrorCode) {
    assert_eq!(error.known_code(), Some(code), "{error:?}");
}

/// Waits until a condition that nobody announces holds.
pub async fn eventually(runtime: &Arc<dyn Runtime>, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = runtime.now() + Duration::from_secs(15);
    while !holds() {
        assert!(runtime.now() < deadline, "this did not come about: {what}");
        crate::adapter_suite::sleep(runtime, Duration::from_millis(1)).await;
    }
}

/// A future's output, or none when it takes longer.
pub async fn within<F: Future>(runtime: &Arc<dyn Runtime>, time: Duration, future: F) -> Option<F::Output> {
    let mut timer = runtime.timer();
    timer.set(Some(runtime.now() + time));
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.poll_expired(cx).map(|()| None),
    })
    .await
}

/// Runs a future as a task of its own; what is returned waits for its output.
pub fn start<T: Send + 'static>(
    runtime: &Arc<dyn Runtime>,
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    let (sender, receiver) = bma_runtime::sync::oneshot::channel();
    runtime.spawn(Box::pin(async move {
        let _ = sender.send(future.await);
    }));
    async move { receiver.await.expect("the task came to its end") }
}

/// Does what blocks on a thread of its own, so that a runtime with one thread goes on.
pub async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = bma_runtime::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    receiver.await.expect("the thread came to its end")
}

/// A count that others wait on.
#[derive(Clone, Debug)]
pub struct Count(StateCell<usize>, Arc<Mutex<()>>);

impl Default for Count {
    fn default() -> Self {
        Count(StateCell::new(0), Arc::default())
    }
}

impl Count {
    /// One more.
    pub fn add(&self) {
        let _alone = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.replace(self.0.value() + 1);
    }

    /// How many so far.
    pub fn value(&self) -> usize {
        self.0.value()
    }

    /// Waits until there are this many.
    pub async fn reaches(&self, wanted: usize) {
        self.0.wait_for(|count| *count >= wanted).await;
    }
}

/// How often something happened to each of many.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<String, usize>>>);

impl Tally {
    /// It happened once more.
    pub fn add(&self, to: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(to.to_owned()).or_default() += 1;
    }

    /// Each with how often.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The sessions that an executor holds, as text.
pub fn session_names(ids: &[SessionId]) -> Vec<&str> {
    ids.iter().map(SessionId::as_str).collect()
}
