//! Running what users hand in: a panic of theirs ends what they handed in, and nothing else.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::runtime::{BoxFuture, Runtime};

/// What a user's future came to: its output, or the text of its panic.
pub type Caught<T> = Result<T, String>;

/// A future whose panic is its output: the driver that polls it must live on,
/// and whoever waits for the answer must get one.
struct CatchPanic<T>(BoxFuture<T>);

impl<T> Future for CatchPanic<T> {
    type Output = Caught<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Caught<T>> {
        // After a panic the future is dropped and never polled again.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic_text(panic.as_ref()))),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}

/// Runs a short callback of the user's.
///
/// # Errors
/// The text of its panic.
pub fn call<T>(hook: impl FnOnce() -> T) -> Caught<T> {
    catch_unwind(AssertUnwindSafe(hook)).map_err(|panic| panic_text(panic.as_ref()))
}

/// Makes a future of the user's, which gives its output or the text of its panic.
pub fn catching<T: Send + 'static>(make: impl FnOnce() -> BoxFuture<T>) -> BoxFuture<Caught<T>> {
    match call(make) {
        Ok(future) => Box::pin(CatchPanic(future)),
        Err(panic) => Box::pin(std::future::ready(Err(panic))),
    }
}

/// Makes a future with `make`, polls it once here, and spawns it only if it
/// waits: an answer that is there at once leaves in the same write as what came before.
pub(crate) fn run<T: Send + 'static>(
    runtime: &Arc<dyn Runtime>,
    make: impl FnOnce() -> BoxFuture<T>,
    done: impl FnOnce(Caught<T>) + Send + 'static,
) {
    let mut future = match call(make) {
        Ok(future) => CatchPanic(future),
        Err(panic) => return done(Err(panic)),
    };
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => done(output),
        // The task polls it again at once, so no wake-up is lost.
        Poll::Pending => runtime.spawn(Box::pin(async move { done(future.await) })),
    }
}
