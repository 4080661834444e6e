//! Our requests that have no answer yet.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde_json::value::RawValue;

use super::id::own_number;
use crate::contract::Method;
use crate::time::Time;

/// A request of ours that has no answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) method: Method,
    pub(super) expires: Time,
    pub(super) timeout: Duration,
}

/// Open requests, and the times at which they expire.
///
/// Numbers only grow, so the order of coming is the order of numbers; and answers
/// come in about that order, so what ends stands near the front.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    open: VecDeque<Open>,
    /// Earliest first. One that has ended stays until it is first, or until they are many: the
    /// first is always that of an open request.
    expiries: BinaryHeap<Reverse<(Time, u64)>>,
}

/// Expiries of ended requests that are kept, beside as many as there are open ones.
const STALE: usize = 64;

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Takes a request whose number is higher than all before it.
    pub(super) fn push(&mut self, request: Open) {
        self.expiries.push(Reverse((request.expires, request.number)));
        self.open.push_back(request);
    }

    pub(super) fn get(&self, number: u64) -> Option<&Open> {
        self.open.get(self.place(number)?)
    }

    /// The method of the request that an answer with this id is for.
    pub(super) fn method_of(&self, id: &RawValue) -> Option<Method> {
        self.get(own_number(id)?).map(|request| request.method)
    }

    /// Ends a request; tells the place that it had.
    pub(super) fn remove(&mut self, number: u64) -> Option<usize> {
        let place = self.place(number)?;
        self.open.remove(place)?;
        self.forget_expiries();
        Some(place)
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.expiries.clear();
    }

    /// The request that expires first, and when.
    pub(super) fn next_expiry(&self) -> Option<(Time, u64)> {
        self.expiries.peek().map(|Reverse(expiry)| *expiry)
    }

    fn place(&self, number: u64) -> Option<usize> {
        match self.open.front() {
            Some(first) if first.number == number => Some(0),
            _ => self.open.binary_search_by_key(&number, |request| request.number).ok(),
        }
    }

    fn forget_expiries(&mut self) {
        while self.next_expiry().is_some_and(|(_, number)| self.place(number).is_none()) {
            self.expiries.pop();
        }
        if self.expiries.len() > 2 * self.open.len() + STALE {
            self.expiries = self.open.iter().map(|request| Reverse((request.expires, request.number))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(number: u64, expires: u64) -> Open {
        Open { number, method: Method::ProcessList, expires: Time::from_millis(expires), timeout: Duration::ZERO }
    }

    /// Ended in any order, the first expiry is always that of an open request, and what has ended is forgotten.
    #[test]
    fn the_first_expiry_is_that_of_an_open_request() {
        let mut pending = Pending::default();
        for number in 0..1000 {
            pending.push(open(number, (number * 7919) % 1000));
        }
        for step in 0..1000 {
            let number = (step * 331) % 1000;
            assert!(pending.get(number).is_some());
            assert!(pending.remove(number).is_some());
            assert_eq!(pending.remove(number), None);
            let earliest = pending.open.iter().map(|request| (request.expires, request.number)).min();
            assert_eq!(pending.next_expiry(), earliest);
            assert!(pending.expiries.len() <= 2 * pending.len() + STALE);
        }
    }
}
