//! Everything there is: programs, their wires, and one clock. The acts of the play, and what must be true after each.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;

use bma_runtime::proto::contract::{ConnectionState, ExecutorId};
use bma_runtime::proto::executor;
use bma_runtime::proto::harness::{self, Gone};
use bma_runtime::proto::{Machine, Reason, Time};
use foldhash::fast::FixedState;

use super::brain::{Brain, Guest};
use super::hands::{Hands, Ledger, Work};
use super::weather::{Faults, Sky};
use super::wire::{Connection, Dice, End};

/// Steps of one world. Only a livelock needs more.
const MAX_STEPS: u64 = 2_000_000;

/// What is going to happen.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Arrives {
        connection: u64,
        to: End,
        frame: String,
    },
    /// An end learns that its connection is gone.
    Closed {
        connection: u64,
        to: End,
        code: Option<u16>,
    },
    Token {
        site: usize,
        run: u64,
    },
    Dialed {
        site: usize,
        run: u64,
        dial: u64,
    },
    Works {
        site: usize,
        run: u64,
        work: Work,
    },
    Whim,
    Weather,
    /// An executor's program starts.
    Starts {
        site: usize,
        run: u64,
    },
}

/// What happened in a world, to see that its weather is worth the name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Everything that happened, deadlines included.
    pub events: u64,
    /// Frames that were written.
    pub frames: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Tool calls that ended with their result.
    pub results: u64,
    /// Tool calls of which nothing is known.
    pub unknown: u64,
    /// Executors that were given up because their lease had run out.
    pub leases: u64,
    /// Virtual time.
    pub time: Duration,
    /// What went wrong on purpose.
    pub faults: Faults,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            frames: self.frames + other.frames,
            connections: self.connections + other.connections,
            results: self.results + other.results,
            unknown: self.unknown + other.unknown,
            leases: self.leases + other.leases,
            time: self.time + other.time,
            faults: self.faults.plus(other.faults),
        }
    }
}

/// Everything that was written, as one number; and shown as it grows where a seed is replayed.
pub(super) struct Trace {
    hasher: FixedState,
    pub(super) hash: u64,
    pub(super) shown: bool,
}

impl Trace {
    fn new(shown: bool) -> Self {
        Self { hasher: FixedState::with_seed(0), hash: 0, shown }
    }

    pub(super) fn note(&mut self, at: Time, connection: u64, what: &str, text: &str) {
        if self.shown {
            println!("{at} {connection} {what} {text}");
        }
        self.hash = self.hasher.hash_one((self.hash, at, connection, what, text));
    }

    /// Shows what an application is told.
    pub(super) fn tell(&self, at: Time, site: usize, event: &executor::Event) {
        if self.shown {
            println!("{at} machine {site} {event:?}");
        }
    }
}

/// A machine with its executor's program.
pub(super) struct Site {
    pub(super) hands: Hands,
    pub(super) connection: Option<u64>,
    /// Dials so far: only the last one is of use.
    pub(super) dials: u64,
    pub(super) ledger: Ledger,
    /// When its program last heard of the harness.
    pub(super) heard: Time,
    /// Tokens and dials fail until then.
    pub(super) outage: Time,
    /// The machine sleeps until then: nothing reaches its program, not even time.
    pub(super) asleep: Time,
    /// Whether the program is started anew when it ends.
    pub(super) supervised: bool,
    pub(super) ended: Option<executor::End>,
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) dice: Dice,
    pub(super) sites: Vec<Site>,
    pub(super) brain: Brain,
    pub(super) connections: BTreeMap<u64, Connection>,
    /// Which executor each connection is registered for.
    pub(super) owners: BTreeMap<u64, ExecutorId>,
    pub(super) heard: BTreeMap<ExecutorId, Time>,
    /// Whether authentication pins the executors' identities.
    pub(super) pinned: bool,
    pub(super) sky: Sky,
    /// Whether something can still go wrong because of the storm.
    pub(super) aftermath: bool,
    pub(super) counter: u64,
    pub(super) trace: Trace,
    pub(super) tally: Tally,
    agenda: BTreeMap<(Time, u64), Happening>,
    planned: u64,
}

impl World {
    pub(super) fn new(seed: u64, shown: bool) -> Self {
        let mut dice = Dice::new(seed);
        let site = |dice: &mut Dice| Site {
            hands: Hands::new(0, dice),
            connection: None,
            dials: 0,
            ledger: Ledger::default(),
            heard: Time::ORIGIN,
            outage: Time::ORIGIN,
            asleep: Time::ORIGIN,
            supervised: true,
            ended: None,
        };
        let number = 1 + dice.below(3) as usize;
        let sites: Vec<_> = std::iter::repeat_with(|| site(&mut dice)).take(number).collect();
        let brain = Brain::new(&mut dice);
        let pinned = dice.one_in(2);
        let mut world = Self {
            now: Time::from_millis(1),
            dice,
            sites,
            brain,
            connections: BTreeMap::new(),
            owners: BTreeMap::new(),
            heard: BTreeMap::new(),
            pinned,
            sky: Sky::Clear,
            aftermath: true,
            counter: 0,
            trace: Trace::new(shown),
            tally: Tally::default(),
            agenda: BTreeMap::new(),
            planned: 0,
        };
        for site in 0..number {
            world.plan(Duration::ZERO, Happening::Starts { site, run: 0 });
        }
        world
    }

    /// The hash of everything that was written, and the tally.
    pub(super) fn end(self) -> (u64, Tally) {
        let connections = self.connections.len() as u64;
        (self.trace.hash, Tally { connections, time: self.now.saturating_since(Time::ORIGIN), ..self.tally })
    }

    // The acts.

    /// Some minutes of anything.
    pub(super) fn stormy(&mut self) {
        self.sky = Sky::Storm;
        self.plan(Duration::ZERO, Happening::Whim);
        self.plan(Duration::from_secs(5), Happening::Weather);
        let minutes = Duration::from_secs(120) + self.dice.up_to(Duration::from_secs(120));
        self.run_for(minutes);
        for site in &mut self.sites {
            site.outage = Time::ORIGIN;
        }
    }

    /// Connections are still cut now and then. Once the storm's consequences are over
    /// (a silent connection noticed, a lease run out), nothing goes wrong any more.
    pub(super) fn gusty(&mut self) {
        self.sky = Sky::Gusts;
        self.run_for(Duration::from_secs(200));
        self.aftermath = false;
        self.run_for(Duration::from_secs(60));
    }

    /// The weather clears, nobody asks for anything new, and everything drains.
    pub(super) fn calm(&mut self) {
        self.sky = Sky::Clear;
        self.run_for(Duration::from_secs(30));
        for guest in self.brain.guests.values() {
            assert!(!guest.waits(), "everything has its end: {}", guest.describe());
        }
        self.each_guest(|guest, now, counter| {
            for session in guest.session_list() {
                *counter += 1;
                guest.stop(now, &session, *counter);
            }
        });
        self.run_for(Duration::from_secs(10));
        assert_eq!(self.brain.guests.len(), self.sites.len(), "executors that were lost are forgotten");
        for site in &self.sites {
            let machine = &site.hands.machine;
            assert_eq!(machine.state(), &ConnectionState::Ready, "connected again");
            assert!(machine.active_sessions().is_empty() && site.hands.open_calls() == 0 && machine.held_bytes() == 0);
            assert_eq!(machine.deadline().unwrap().1, Reason::Heartbeat);
        }
        for guest in self.brain.guests.values() {
            assert!(guest.is_idle() && guest.machine.open_calls() == 0, "{}", guest.describe());
            let reason = guest.machine.deadline().unwrap().1;
            assert_eq!(reason, Reason::LeaseExpiry, "nothing else is waited for");
        }
    }

    /// In good weather, everything works.
    pub(super) fn exam(&mut self) {
        const CALLS: u64 = 5;
        for site in &mut self.sites {
            site.hands.willing = true;
        }
        let results = self.tally.results;
        self.each_guest(|guest, now, counter| {
            *counter += 2;
            guest.assign(now, "exam".into(), *counter);
            guest.wait_ready(&"exam".into(), *counter - 1);
        });
        self.run_for(Duration::from_secs(3));
        for site in &self.sites {
            assert_eq!(site.hands.machine.active_sessions(), ["exam".into()]);
        }
        for _ in 0..CALLS {
            self.each_guest(|guest, now, counter| {
                *counter += 1;
                guest.call(now, &"exam".into(), format!("call-{counter}").as_str().into(), *counter);
            });
        }
        self.run_for(Duration::from_secs(10));
        assert_eq!(self.tally.results, results + CALLS * self.sites.len() as u64);
        self.each_guest(|guest, now, counter| {
            *counter += 1;
            guest.stop(now, &"exam".into(), *counter);
        });
        self.run_for(Duration::from_secs(6));
        assert!(self.brain.guests.values().all(Guest::is_idle));
        assert!(self.sites.iter().all(|site| site.hands.machine.active_sessions().is_empty()));
    }

    /// They part in order.
    pub(super) fn farewell(&mut self) {
        let mut expected = Vec::new();
        for number in 0..self.sites.len() {
            self.sites[number].supervised = false;
            if self.dice.one_in(2) {
                let now = self.now;
                self.counter += 1;
                let guest = self.brain.guests.values_mut().find(|guest| guest.site == number).unwrap();
                guest.drain(now, self.counter);
                expected.push((executor::End::Drained, Gone::Drained));
            } else {
                self.sites[number].hands.machine.stop(self.now, "enough");
                expected.push((executor::End::Stopped, Gone::Closed("enough".to_owned())));
            }
        }
        self.run_for(Duration::from_secs(2));
        for (number, (end, gone)) in expected.into_iter().enumerate() {
            let site = &mut self.sites[number];
            assert_eq!((site.ended.take(), self.brain.gone.remove(&number)), (Some(end), Some(gone)));
            assert_eq!(site.hands.machine.deadline(), None);
        }
        assert!(self.brain.guests.is_empty());
    }

    fn each_guest(&mut self, mut ask: impl FnMut(&mut Guest, Time, &mut u64)) {
        for guest in self.brain.guests.values_mut() {
            ask(guest, self.now, &mut self.counter);
        }
    }

    // Time.

    pub(super) fn plan(&mut self, after: Duration, happening: Happening) {
        self.plan_at(self.now + after, happening);
    }

    pub(super) fn plan_at(&mut self, at: Time, happening: Happening) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), happening);
    }

    fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        self.settle();
        while let Some(at) = self.next_moment().filter(|at| *at <= until) {
            self.tally.events += 1;
            assert!(self.tally.events < MAX_STEPS, "a livelock at {at}");
            self.now = self.now.max(at);
            match self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now) {
                Some(entry) => {
                    let happening = entry.remove();
                    self.happen(happening);
                }
                None => self.tick(),
            }
            self.settle();
        }
        self.now = until;
    }

    /// When something is due: on the agenda, or in a machine.
    fn next_moment(&self) -> Option<Time> {
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let sites = self.sites.iter().filter_map(Site::next_moment);
        let guests = self.brain.guests.values().filter_map(|guest| guest.machine.deadline()).map(|(at, _)| at);
        planned.into_iter().chain(sites).chain(guests).min()
    }

    /// Feeds a tick to each machine that is due, which must move on.
    fn tick(&mut self) {
        let now = self.now;
        let due = |deadline: Option<(Time, Reason)>| deadline.filter(|(at, _)| *at <= now);
        for number in 0..self.sites.len() {
            let site = &mut self.sites[number];
            if site.asleep > now {
                continue;
            }
            if let Some((at, reason)) = due(site.hands.machine.deadline()) {
                site.hands.machine.feed(now, executor::Input::Tick);
                self.drain_site(number);
                let next = self.sites[number].hands.machine.deadline();
                assert!(next.is_none_or(|(next, _)| next > at), "the executor stays at {reason:?}");
            }
        }
        let ids: Vec<_> = self.brain.guests.keys().cloned().collect();
        for id in ids {
            let machine = &mut self.brain.guests.get_mut(&id).unwrap().machine;
            if let Some((at, reason)) = due(machine.deadline()) {
                machine.feed(now, harness::Input::Tick);
                self.drain_guest(&id);
                let next = self.brain.guests.get(&id).and_then(|guest| guest.machine.deadline());
                assert!(next.is_none_or(|(next, _)| next > at), "the harness stays at {reason:?}");
            }
        }
    }

    /// Drains all programs: calls queue output as inputs do.
    fn settle(&mut self) {
        for number in 0..self.sites.len() {
            self.drain_site(number);
        }
        let ids: Vec<_> = self.brain.guests.keys().cloned().collect();
        for id in ids {
            self.drain_guest(&id);
        }
    }
}

impl Site {
    fn next_moment(&self) -> Option<Time> {
        self.hands.machine.deadline().map(|(at, _)| at.max(self.asleep))
    }
}
