//! So many at a time, and the others in the order in which they came.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bma_runtime::sync::oneshot;

/// When so many wait, those that wait no longer are forgotten.
const MANY_WAITING: usize = 256;

/// A number of turns. Whoever has one gives it back by dropping it.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to be at work. Dropping it lets the next one have it.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Turns>>);

impl Turns {
    pub(super) fn new(number: usize) -> Arc<Self> {
        let state = State { free: number, waiting: VecDeque::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Waits for a turn. Dropping the future gives up the place in the queue.
    pub(super) async fn take(self: &Arc<Self>) -> Turn {
        loop {
            let next = {
                let mut state = self.state();
                if state.free > 0 {
                    state.free -= 1;
                    return Turn(Some(Arc::clone(self)));
                }
                if state.waiting.len() >= MANY_WAITING {
                    state.waiting.retain(|next| !next.is_canceled());
                }
                let (next, turn) = oneshot::channel();
                state.waiting.push_back(next);
                turn
            };
            // Whoever gives a turn back sends it; a queue is never dropped while somebody waits in it.
            if let Ok(turn) = next.await {
                return turn;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is whole at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let next = {
                let mut state = turns.state();
                let Some(next) = state.waiting.pop_front() else {
                    state.free += 1;
                    return;
                };
                next
            };
            match next.send(Turn(Some(Arc::clone(&turns)))) {
                Ok(()) => return,
                // It waits no longer: this is not given back once more.
                Err(mut refused) => drop(refused.0.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_go_round_in_order_and_none_is_lost() {
        let turns = Turns::new(2);
        let mut have: Vec<_> = (0..2).filter_map(|_| poll(pin!(turns.take()))).collect();
        assert_eq!(have.len(), 2);
        let (mut first, mut second) = (pin!(turns.take()), pin!(turns.take()));
        {
            let mut given_up = pin!(turns.take());
            assert!(poll(given_up.as_mut()).is_none());
        }
        assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
        {
            // Gives up when its turn has come already.
            let mut third = Box::pin(turns.take());
            assert!(poll(third.as_mut()).is_none());
            have.clear();
            assert!(turns.state().waiting.len() == 1, "two turns, and the one that gave up is passed by");
            assert!(poll(second.as_mut()).is_some_and(|turn| turn.0.is_some()), "the second's turn goes to the third");
            drop(third);
        }
        drop(poll(first.as_mut()));
        let state = turns.state();
        assert_eq!((state.free, state.waiting.len()), (2, 0));
    }

    #[test]
    fn those_that_wait_no_longer_are_forgotten() {
        let turns = Turns::new(1);
        let _have = poll(pin!(turns.take()));
        for _ in 0..MANY_WAITING * 10 {
            assert!(poll(pin!(turns.take())).is_none());
        }
        assert!(turns.state().waiting.len() <= MANY_WAITING);
    }
}
