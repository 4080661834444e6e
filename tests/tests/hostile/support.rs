//! Somebody who keeps the rules while others do not.
#![allow(dead_code, reason = "two test programs share this file, and each uses a part of it")]

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bma_runtime_tokio::sync::Event;
use bma_runtime_tokio::{Client, Executor, HarnessEvent, HarnessOptions, Runtime, TokioRuntime, ToolError};
use bma_tests::exchange_suite::{Rig, command, on_a_thread, options, start, text, within};
use bma_tests::support::logs;
use bma_tests::support::raw::Raw;
use bma_tests::support::watched::Watched;

/// How long a call of the good one may take, on a machine that is busy with the attack.
const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// The runtime of the test that runs.
pub(crate) fn runtime() -> Arc<dyn Runtime> {
    logs::record();
    Arc::new(TokioRuntime::current())
}

/// Where to attack, and with what.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

/// A harness, and one executor that it is used with all the time.
pub(crate) struct Good {
    pub(crate) rig: Rig,
    pub(crate) executor: Executor,
    over: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    user: Box<dyn Future<Output = ()> + Send + Unpin>,
}

impl Good {
    /// With short times for the hostile ones.
    pub(crate) async fn new(change: impl FnOnce(&mut HarnessOptions)) -> Self {
        let rig = Rig::with(runtime(), |options| {
            options.channel.handshake_timeout = Duration::from_millis(700);
            change(options);
        })
        .await;
        let client = echo(&rig);
        let executor = rig.join(&client).await;
        let session = rig.session(&executor, "good").await;
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut comings = rig.harness.events();
        let user = start(&rig.runtime, {
            let (over, served, runtime) = (Arc::clone(&over), Arc::clone(&served), Arc::clone(&rig.runtime));
            let id = executor.id().clone();
            async move {
                while !over.load(Ordering::SeqCst) {
                    let asked = format!("call {}", served.load(Ordering::SeqCst));
                    let call = session.tools().bash(command(&asked));
                    let result = within(&runtime, SERVED_WITHIN, call).await.expect("the good one is served").unwrap();
                    assert_eq!(text(&result), asked);
                    served.fetch_add(1, Ordering::SeqCst);
                    while let Some(event) = comings.try_next() {
                        if let Event::Item(HarnessEvent::Disconnected(executor)) = event {
                            assert_ne!(*executor.id(), id, "the good one keeps its connection");
                        }
                    }
                    // Not a benchmark: leave room for the attack.
                    bma_tests::adapter_suite::sleep(&runtime, Duration::from_millis(1)).await;
                }
            }
        });
        Good { rig, executor, over, served, user: Box::new(Box::pin(user)) }
    }

    pub(crate) fn target(&self) -> Target {
        Target { address: self.rig.address(), token: self.rig.token.expose().to_owned() }
    }

    /// Attacks while the good one is used, and waits for the end of the attack.
    pub(crate) async fn attacked<T: Send + 'static>(&self, attack: impl FnOnce(Target) -> T + Send + 'static) -> T {
        let before = self.served.load(Ordering::SeqCst);
        let target = self.target();
        let outcome = on_a_thread(move || attack(target)).await;
        // A call that began after the attack is answered too.
        let wanted = self.served.load(Ordering::SeqCst).max(before) + 2;
        let served = || self.served.load(Ordering::SeqCst) >= wanted;
        bma_tests::exchange_suite::eventually(&self.rig.runtime, "the good one is served", served).await;
        outcome
    }

    /// Nothing of the hostile ones is left.
    pub(crate) async fn finish(self) {
        self.over.store(true, Ordering::SeqCst);
        self.user.await;
        self.rig.finish().await;
    }
}

/// A client that echoes commands.
pub(crate) fn echo(rig: &Rig) -> Client {
    let client = rig.client();
    client.tools().bash(|input, _| std::future::ready(Ok::<_, ToolError>(input.command)));
    client
}

/// Ends a connection by a reset: what the other end has not read is lost.
pub(crate) fn reset(stream: TcpStream) {
    #[cfg(unix)]
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// The id of a request, as it stands there.
pub(crate) fn id_of(request: &str) -> &str {
    request.split(r#""id":"#).nth(1).unwrap().split([',', '}']).next().unwrap()
}

/// The answer to a registration whose id stands in the request.
pub(crate) fn registration(request: &str) -> String {
    let id = id_of(request);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"executor_id":"e","connection_id":"c","server_time":"","drain":false,
        "heartbeat_interval_ms":15000,"lease_ttl_ms":45000,"max_control_frame_bytes":65536,"max_mcp_frame_bytes":65536}}}}"#
    )
}

/// Takes a client's registration.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<Raw> {
    let mut raw = Raw::accept(listener)?;
    let request = raw.read_text()?;
    raw.text(&registration(&request))?;
    Ok(raw)
}

/// A client that echoes, for a hostile harness on the listener.
pub(crate) fn victim(watched: &Arc<Watched>, listener: &TcpListener) -> Client {
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let mut options = options("victim", &url, &"a-token".into());
    options.request_timeout = Duration::from_millis(500);
    options.reconnect_max_delay = Duration::from_millis(20);
    let client = Client::new(watched.clone(), options).unwrap();
    client.tools().bash(|input, _| std::future::ready(Ok::<_, ToolError>(input.command)));
    client
}
