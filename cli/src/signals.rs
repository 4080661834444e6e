//! SIGINT and SIGTERM: the first one asks for an orderly end, a second one ends at once.

use std::fmt;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::common::Failure;

/// Tells of the first signal. The second ends this process where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Signals(watch::Receiver<Option<Caught>>);

/// Which one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    Interrupt,
    Terminate,
}

impl Caught {
    /// What a shell shows for a program that this signal ended.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Caught::Interrupt => 128 + 2,
            Caught::Terminate => 128 + 15,
        }
    }
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Caught::Interrupt => "SIGINT",
            Caught::Terminate => "SIGTERM",
        })
    }
}

impl Signals {
    /// Catches them from now on. Must be called on the runtime.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught =
            |kind| signal(kind).map_err(|error| Failure::not_done(format!("signals cannot be caught: {error}")));
        let (mut interrupt, mut terminate) = (caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?);
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            loop {
                let caught = tokio::select! {
                    Some(()) = interrupt.recv() => Caught::Interrupt,
                    Some(()) = terminate.recv() => Caught::Terminate,
                    // The runtime ends.
                    else => return,
                };
                if sender.send_replace(Some(caught)).is_some() {
                    std::process::exit(i32::from(caught.exit_code()));
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Waits for the first one, or gives it when it came already. Dropping the future loses nothing.
    pub(crate) async fn caught(&mut self) -> Caught {
        match self.0.wait_for(Option::is_some).await.map(|caught| *caught) {
            Ok(Some(caught)) => caught,
            // Nobody listens any more: the runtime ends.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}
