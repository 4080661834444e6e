//! Small pieces for handing things between tasks, bound to no executor.
//!
//! [`oneshot`] carries one value, [`events`] a bounded stream for a reader who
//! may be slow, `Subscribers` the same to many readers, and a [`StateCell`] a
//! value that others wait on.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub use futures_channel::oneshot;

/// What a full [`events`] stream gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest item: for states and previews, where the newest matters most.
    DropOldest,
    /// The item that does not fit: for logs, where the beginning matters most.
    DropNewest,
}

/// What the reader of an [`events`] stream gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// An item.
    Item(T),
    /// As many items were lost at this place in the stream, because the reader was slow.
    Lagged(u64),
}

/// A bounded stream of items from any number of senders to one reader.
///
/// Senders never wait. When `capacity` items (at least one) are waiting, one is
/// given up as `overflow` says, and the reader is told how many and where.
pub fn events<T>(capacity: usize, overflow: Overflow) -> (EventSender<T>, Events<T>) {
    let queue = EventQueue {
        capacity: capacity.max(1),
        overflow,
        waiting: VecDeque::new(),
        lost_last: 0,
        senders: 1,
        reader_gone: false,
        waker: None,
    };
    let shared = Arc::new(Mutex::new(queue));
    (EventSender { shared: shared.clone() }, Events { shared })
}

struct EventQueue<T> {
    capacity: usize,
    overflow: Overflow,
    /// Each item with the number that was lost just before it.
    waiting: VecDeque<(u64, T)>,
    /// Lost after the last item that waits.
    lost_last: u64,
    senders: usize,
    reader_gone: bool,
    waker: Option<Waker>,
}

impl<T> EventQueue<T> {
    /// Takes an item in and returns the one that had to go for it.
    fn push(&mut self, item: T) -> Option<T> {
        if self.waiting.len() < self.capacity {
            self.waiting.push_back((std::mem::take(&mut self.lost_last), item));
            return None;
        }
        match self.overflow {
            Overflow::DropNewest => {
                self.lost_last += 1;
                Some(item)
            }
            Overflow::DropOldest => {
                let (lost_before, oldest) = self.waiting.pop_front()?;
                self.waiting.push_back((0, item));
                if let Some((lost, _)) = self.waiting.front_mut() {
                    *lost += lost_before + 1;
                }
                Some(oldest)
            }
        }
    }

    fn pop(&mut self) -> Option<Event<T>> {
        let lost = self.waiting.front_mut().map_or(&mut self.lost_last, |(lost, _)| lost);
        if *lost > 0 {
            return Some(Event::Lagged(std::mem::take(lost)));
        }
        self.waiting.pop_front().map(|(_, item)| Event::Item(item))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks is left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sending side of [`events`]. The stream ends when the last clone is dropped.
pub struct EventSender<T> {
    shared: Arc<Mutex<EventQueue<T>>>,
}

impl<T> EventSender<T> {
    /// Sends an item, or gives one up at the bound; never waits.
    ///
    /// # Errors
    /// The item comes back when the reader is gone.
    pub fn send(&self, item: T) -> Result<(), T> {
        let mut queue = lock(&self.shared);
        if queue.reader_gone {
            return Err(item);
        }
        let given_up = queue.push(item);
        let waker = queue.waker.take();
        drop(queue);
        // Outside of the lock, since both run code that is not ours.
        drop(given_up);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Whether the reader is gone, so that nothing needs to be sent any more.
    pub fn is_closed(&self) -> bool {
        lock(&self.shared).reader_gone
    }
}

impl<T> Clone for EventSender<T> {
    fn clone(&self) -> Self {
        lock(&self.shared).senders += 1;
        EventSender { shared: self.shared.clone() }
    }
}

impl<T> Drop for EventSender<T> {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared);
        queue.senders -= 1;
        let waker = if queue.senders == 0 { queue.waker.take() } else { None };
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> fmt::Debug for EventSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSender").finish_non_exhaustive()
    }
}

/// The reading side of [`events`]; also a [`Stream`](futures_core::Stream).
pub struct Events<T> {
    shared: Arc<Mutex<EventQueue<T>>>,
}

impl<T> Events<T> {
    /// The next item, or a mark where items were lost; `None` when all senders
    /// are gone and nothing is left.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event<T>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// What [`next`](Self::next) would give at once; `None` when it would wait or has ended.
    pub fn try_next(&mut self) -> Option<Event<T>> {
        lock(&self.shared).pop()
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event<T>>> {
        let mut queue = lock(&self.shared);
        if let Some(event) = queue.pop() {
            return Poll::Ready(Some(event));
        }
        if queue.senders == 0 {
            return Poll::Ready(None);
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl<T> futures_core::Stream for Events<T> {
    type Item = Event<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<T>>> {
        self.poll_event(cx)
    }
}

impl<T> Drop for Events<T> {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared);
        queue.reader_gone = true;
        let unread = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(unread);
    }
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The readers of what one source tells: each has an [`events`] stream of its own.
///
/// Items and wakers are the readers' own code: none of it runs under the lock.
pub(crate) struct Subscribers<T> {
    /// `None` once the source has ended. Shared, so that telling holds no lock.
    senders: Mutex<Option<Arc<Vec<EventSender<T>>>>>,
    /// How many items a reader may be behind before its oldest are dropped.
    capacity: usize,
}

impl<T: Clone> Subscribers<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { senders: Mutex::new(Some(Arc::default())), capacity }
    }

    /// What is told from now on; nothing more when the source has ended.
    pub(crate) fn subscribe(&self) -> Events<T> {
        let (sender, receiver) = events(self.capacity, Overflow::DropOldest);
        // Readers that are gone leave here as well: a quiet source would keep them for ever.
        self.renew(Some(sender));
        receiver
    }

    /// Tells every reader. What one caller tells arrives in its order.
    pub(crate) fn publish(&self, item: &T) {
        let Some(senders) = lock(&self.senders).clone() else { return };
        let gone = senders.iter().filter(|sender| sender.send(item.clone()).is_err()).count();
        drop(senders);
        if gone > 0 {
            self.renew(None);
        }
    }

    /// The source has ended: its readers' streams end after what was told.
    pub(crate) fn end(&self) {
        let senders = lock(&self.senders).take();
        drop(senders);
    }

    /// Lets the readers go that are gone, and one in.
    fn renew(&self, added: Option<EventSender<T>>) {
        let mut locked = lock(&self.senders);
        let Some(senders) = locked.take() else { return };
        let there = senders.iter().filter(|sender| !sender.is_closed()).cloned().chain(added).collect();
        *locked = Some(Arc::new(there));
        drop(locked);
        drop(senders);
    }
}

/// A value that one side changes and any number of others look at and wait on.
///
/// Clones share the value. There is no closing: an owner that ends sets a last
/// value which says so.
#[derive(Clone)]
pub struct StateCell<T> {
    shared: Arc<State<T>>,
}

struct State<T> {
    value: Mutex<T>,
    changed: event_listener::Event,
}

impl<T> StateCell<T> {
    /// A cell that holds `value`.
    pub fn new(value: T) -> Self {
        StateCell { shared: Arc::new(State { value: Mutex::new(value), changed: event_listener::Event::new() }) }
    }

    /// Puts `value` in, wakes those who wait, and returns the old value.
    pub fn replace(&self, value: T) -> T {
        let old = std::mem::replace(&mut *lock(&self.shared.value), value);
        self.shared.changed.notify(usize::MAX);
        old
    }

    /// A copy of the value.
    pub fn value(&self) -> T
    where
        T: Clone,
    {
        lock(&self.shared.value).clone()
    }

    /// Waits until `wanted` holds, and returns a copy of the value it held for.
    ///
    /// A value that is replaced again before the waiting task runs may go
    /// unseen. `wanted` must not use this cell. Dropping the future ends the
    /// wait and nothing else.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&T) -> bool) -> T
    where
        T: Clone,
    {
        let mut look = || {
            let value = lock(&self.shared.value);
            wanted(&value).then(|| value.clone())
        };
        loop {
            if let Some(value) = look() {
                return value;
            }
            let changed = self.shared.changed.listen();
            // Once more: it may have changed before anybody listened.
            if let Some(value) = look() {
                return value;
            }
            changed.await;
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for StateCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateCell").field(&*lock(&self.shared.value)).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Wakes {
        fn poll<F: Future + ?Sized>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
            future.poll(&mut Context::from_waker(&Waker::from(self.clone())))
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn drain<T>(events: &mut Events<T>) -> Vec<Event<T>> {
        std::iter::from_fn(|| events.try_next()).collect()
    }

    use Event::{Item, Lagged};

    #[test]
    fn the_oldest_items_are_given_up_and_the_gap_stands_before_the_rest() {
        let (sender, mut events) = events(2, Overflow::DropOldest);
        (1..=5).for_each(|n| sender.send(n).unwrap());
        assert_eq!(drain(&mut events), [Lagged(3), Item(4), Item(5)]);
        sender.send(6).unwrap();
        assert_eq!(drain(&mut events), [Item(6)]);
    }

    #[test]
    fn the_newest_items_are_given_up_and_the_gap_stands_where_they_would_be() {
        let (sender, mut events) = events(2, Overflow::DropNewest);
        (1..=5).for_each(|n| sender.send(n).unwrap());
        assert_eq!(events.try_next(), Some(Item(1)));
        sender.send(6).unwrap();
        sender.send(7).unwrap();
        assert_eq!(drain(&mut events), [Item(2), Lagged(3), Item(6), Lagged(1)]);
    }

    #[test]
    fn a_gap_that_was_half_read_goes_on_being_counted() {
        let (sender, mut events) = events(1, Overflow::DropOldest);
        (1..=3).for_each(|n| sender.send(n).unwrap());
        assert_eq!(events.try_next(), Some(Lagged(2)));
        sender.send(4).unwrap();
        assert_eq!(drain(&mut events), [Lagged(1), Item(4)]);
    }

    #[test]
    fn no_capacity_is_a_capacity_of_one() {
        let (sender, mut events) = events(0, Overflow::DropNewest);
        sender.send('a').unwrap();
        assert_eq!(drain(&mut events), [Item('a')]);
    }

    #[test]
    fn the_reader_is_woken_by_an_item_and_by_the_last_sender() {
        let (sender, mut events) = events(4, Overflow::DropOldest);
        let wakes = Arc::new(Wakes::default());
        {
            let mut next = pin!(events.next());
            assert!(wakes.poll(next.as_mut()).is_pending());
            sender.send('a').unwrap();
            assert_eq!(wakes.count(), 1);
            assert_eq!(wakes.poll(next), Poll::Ready(Some(Item('a'))));
        }
        let second = sender.clone();
        let mut next = pin!(events.next());
        assert!(wakes.poll(next.as_mut()).is_pending());
        drop(sender);
        assert_eq!(wakes.count(), 1);
        drop(second);
        assert_eq!(wakes.count(), 2);
        assert_eq!(wakes.poll(next), Poll::Ready(None));
    }

    #[test]
    fn what_was_sent_before_the_senders_went_is_still_read() {
        let (sender, mut events) = events(1, Overflow::DropNewest);
        sender.send('a').unwrap();
        sender.send('b').unwrap();
        drop(sender);
        let wakes = Arc::new(Wakes::default());
        let read: Vec<_> = (0..3).map(|_| wakes.poll(pin!(events.next()))).collect();
        assert_eq!(read, [Poll::Ready(Some(Item('a'))), Poll::Ready(Some(Lagged(1))), Poll::Ready(None)]);
    }

    #[test]
    fn a_reader_that_goes_frees_what_waits_and_the_sender_is_told() {
        let (sender, events) = events(4, Overflow::DropOldest);
        let item = Arc::new(());
        sender.send(item.clone()).unwrap();
        assert!(!sender.is_closed());
        drop(events);
        assert!(sender.is_closed());
        assert_eq!(Arc::strong_count(&item), 1);
        assert_eq!(sender.send(item.clone()), Err(item));
    }

    #[test]
    fn every_reader_gets_what_is_told_from_its_subscription_on() {
        let source = Subscribers::new(2);
        source.publish(&0);
        let mut first = source.subscribe();
        source.publish(&1);
        let mut second = source.subscribe();
        source.publish(&2);
        source.publish(&3);
        assert_eq!(drain(&mut first), [Lagged(1), Item(2), Item(3)]);
        source.end();
        source.publish(&4);
        let wakes = Arc::new(Wakes::default());
        let read: Vec<_> = (0..3).map(|_| wakes.poll(pin!(second.next()))).collect();
        assert_eq!(read, [Poll::Ready(Some(Item(2))), Poll::Ready(Some(Item(3))), Poll::Ready(None)]);
        assert_eq!(wakes.poll(pin!(source.subscribe().next())), Poll::Ready(None), "too late");
    }

    #[test]
    fn readers_that_are_gone_leave_a_source_that_is_quiet() {
        let source = Subscribers::<u8>::new(2);
        let held = || lock(&source.senders).as_ref().unwrap().len();
        for _ in 0..1000 {
            drop(source.subscribe());
        }
        assert!(held() <= 1, "{} are kept", held());
        let kept = source.subscribe();
        drop(source.subscribe());
        source.publish(&1);
        assert_eq!(held(), 1);
        drop(kept);
    }

    #[test]
    fn what_readers_bring_along_runs_outside_of_the_lock() {
        /// Asks for the source while it is dropped, cloned or woken.
        #[derive(Clone)]
        struct Nosy(Arc<Subscribers<Nosy>>);
        impl Drop for Nosy {
            fn drop(&mut self) {
                drop(self.0.subscribe());
            }
        }
        impl Wake for Nosy {
            fn wake(self: Arc<Self>) {
                self.0.publish(&Nosy(self.0.clone()));
            }
        }
        let source = Arc::new(Subscribers::new(1));
        let (mut reader, mut other) = (source.subscribe(), source.subscribe());
        let waker = Waker::from(Arc::new(Nosy(source.clone())));
        assert!(pin!(reader.next()).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        for _ in 0..3 {
            source.publish(&Nosy(source.clone())); // drops the one before
        }
        assert!(reader.try_next().is_some() && other.try_next().is_some());
        source.end();
    }

    #[test]
    fn many_threads_lose_only_what_is_counted() {
        let (sender, mut events) = events(8, Overflow::DropOldest);
        const EACH: u64 = 10_000;
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || (0..EACH).for_each(|n| sender.send(n).unwrap()))
            })
            .collect();
        drop(sender);
        let mut total = 0;
        while let Some(event) = block_on(events.next()) {
            total += match event {
                Item(_) => 1,
                Lagged(lost) => lost,
            };
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(total, 4 * EACH);
    }

    #[test]
    fn a_state_is_waited_for_by_all_who_want_it() {
        let cell = StateCell::new(0);
        let waiting: Vec<_> = (1..=3)
            .map(|wanted| {
                let cell = cell.clone();
                std::thread::spawn(move || block_on(cell.wait_for(|value| *value >= wanted)))
            })
            .collect();
        assert_eq!(cell.replace(1), 0);
        assert_eq!(cell.replace(7), 1);
        for thread in waiting {
            assert!(thread.join().unwrap() >= 1);
        }
        assert_eq!(cell.value(), 7);
        assert_eq!(block_on(cell.wait_for(|_| true)), 7);
    }

    #[test]
    fn a_wait_that_is_dropped_disturbs_nobody() {
        let cell = StateCell::new(false);
        let wakes = Arc::new(Wakes::default());
        let mut kept = Box::pin(cell.wait_for(|value| *value));
        {
            let mut dropped = Box::pin(cell.wait_for(|value| *value));
            assert!(wakes.poll(dropped.as_mut()).is_pending());
            assert!(wakes.poll(kept.as_mut()).is_pending());
        }
        cell.replace(true);
        assert_eq!(wakes.count(), 1);
        assert_eq!(wakes.poll(kept.as_mut()), Poll::Ready(true));
    }

    /// Parks the thread between polls.
    fn block_on<F: Future>(future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}
