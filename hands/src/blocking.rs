//! Plain calls, run off the threads that drive tasks.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bma_proto_core::Time;
use bma_runtime::sync::oneshot;
use bma_runtime::{Runtime, task};

/// The runtime ends and runs nothing any more; or what it ran, such as a hook of the host, panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it came to no end: the runtime is shutting down, or a hook panicked")]
pub struct RuntimeEnded;

/// Runs `work` on the blocking pool. Dropping the future abandons the answer; the work runs to its end.
pub(crate) async fn blocking<T: Send + 'static>(
    runtime: &Arc<dyn Runtime>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RuntimeEnded> {
    let (sender, receiver) = oneshot::channel();
    runtime.run_blocking(Box::new(move || match task::call(work) {
        // Nobody may be waiting any more.
        Ok(done) => drop(sender.send(done)),
        Err(panic) => tracing::error!(%panic, "a hook panicked"),
    }));
    receiver.await.map_err(|_| RuntimeEnded)
}

/// Waits until `at`.
pub(crate) async fn sleep_until(runtime: &Arc<dyn Runtime>, at: Time) {
    let mut timer = runtime.timer();
    timer.set(Some(at));
    std::future::poll_fn(|cx| timer.poll_expired(cx)).await;
}

/// Waits for `duration`.
pub(crate) async fn sleep(runtime: &Arc<dyn Runtime>, duration: Duration) {
    sleep_until(runtime, runtime.now() + duration).await;
}

/// Waits for the first of two; when both are ready, `first` wins. The other is dropped.
pub(crate) async fn either<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    let (mut first, mut second): (Pin<&mut A>, Pin<&mut B>) = (pin!(first), pin!(second));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(value));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}

/// Which of two came first.
#[derive(Debug)]
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}
