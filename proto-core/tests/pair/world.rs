//! Everything there is: two programs, their wire, the weather, and one clock.

use std::collections::BTreeMap;
use std::time::Duration;

use bma_proto_core::contract::{ConnectionState, ExecutorId, ExecutorTokenResponse, ProtocolVersion, SessionId};
use bma_proto_core::executor::{self, DialError, Event, TokenError};
use bma_proto_core::harness::{self, ExecutorPeer, Gone, Placement, Principal, read_registration};
use bma_proto_core::{Machine, Reason, Time};

use crate::brain::{Brain, Excuses, Guest, Told};
use crate::hands::{Hands, Ledger, Work};
use crate::wire::{Connection, Dice, End};

/// Steps of one world. Only a livelock needs more.
const MAX_STEPS: u64 = 500_000;

/// What the weather may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sky {
    /// Anything.
    Storm,
    /// Connections are cut, and both ends learn of it at once.
    Gusts,
    Clear,
}

/// What is going to happen.
#[derive(Clone, Debug)]
enum Happening {
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
        run: u64,
    },
    Dialed {
        run: u64,
    },
    Works {
        run: u64,
        work: Work,
    },
    Whim,
    Weather,
    /// The executor's program starts.
    Starts {
        run: u64,
    },
}

/// What happened in one world, to see that its weather is worth the name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) frames: usize,
    pub(crate) connections: usize,
    pub(crate) results: usize,
    pub(crate) unknown: usize,
    pub(crate) leases: usize,
}

impl Tally {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            connections: self.connections + other.connections,
            results: self.results + other.results,
            unknown: self.unknown + other.unknown,
            leases: self.leases + other.leases,
        }
    }
}

pub(crate) struct World {
    now: Time,
    steps: u64,
    dice: Dice,
    agenda: BTreeMap<(Time, u64), Happening>,
    hands: Hands,
    hands_connection: Option<u64>,
    brain: Brain,
    connections: BTreeMap<u64, Connection>,
    /// Which executor each connection is registered for.
    owners: BTreeMap<u64, ExecutorId>,
    heard: BTreeMap<ExecutorId, Time>,
    ledger: Ledger,
    /// Whether authentication pins the executor's identity.
    pinned: bool,
    sky: Sky,
    /// Whether something can still go wrong because of the storm.
    aftermath: bool,
    /// Tokens and dials fail until then.
    outage: Time,
    counter: u64,
    trace: Vec<String>,
    tally: Tally,
    ended: Option<executor::End>,
    /// Whether the executor's program is started anew when it ends.
    supervised: bool,
    /// Whether the trace is printed as it grows.
    shown: bool,
}

impl World {
    pub(crate) fn new(seed: u64, shown: bool) -> Self {
        let mut dice = Dice::new(seed);
        let hands = Hands::new(0, &mut dice);
        let brain = Brain::new(&mut dice);
        let pinned = dice.one_in(2);
        let mut world = Self {
            now: Time::from_millis(1),
            steps: 0,
            dice,
            agenda: BTreeMap::new(),
            hands,
            hands_connection: None,
            brain,
            connections: BTreeMap::new(),
            owners: BTreeMap::new(),
            heard: BTreeMap::new(),
            ledger: Ledger::default(),
            pinned,
            sky: Sky::Clear,
            aftermath: true,
            outage: Time::ORIGIN,
            counter: 0,
            trace: Vec::new(),
            tally: Tally::default(),
            ended: None,
            supervised: true,
            shown,
        };
        world.plan(Duration::ZERO, Happening::Starts { run: 0 });
        world
    }

    pub(crate) fn end(self) -> (Vec<String>, Tally) {
        let tally = Tally { frames: self.trace.len(), connections: self.connections.len(), ..self.tally };
        (self.trace, tally)
    }

    // The four acts.

    /// Some minutes of anything.
    pub(crate) fn stormy(&mut self) {
        self.sky = Sky::Storm;
        self.plan(Duration::ZERO, Happening::Whim);
        self.plan(Duration::from_secs(5), Happening::Weather);
        let minutes = Duration::from_secs(120) + self.dice.up_to(Duration::from_secs(120));
        self.run_for(minutes);
        self.outage = Time::ORIGIN;
    }

    /// Connections are still cut now and then. Once the storm's consequences are over
    /// (a silent connection noticed, a lease run out), nothing goes wrong any more.
    pub(crate) fn gusty(&mut self) {
        self.sky = Sky::Gusts;
        self.run_for(Duration::from_secs(120));
        self.aftermath = false;
        self.run_for(Duration::from_secs(60));
    }

    /// The weather clears, nobody asks for anything new, and everything drains.
    pub(crate) fn calm(&mut self) {
        self.sky = Sky::Clear;
        self.run_for(Duration::from_secs(30));
        for guest in self.brain.guests.values() {
            assert!(!guest.waits(), "everything has its end: {}", guest.describe());
        }
        let now = self.now;
        for guest in self.brain.guests.values_mut() {
            for session in guest.session_list() {
                self.counter += 1;
                guest.stop(now, &session, self.counter);
            }
        }
        self.run_for(Duration::from_secs(10));
        assert_eq!(self.hands.machine.state(), &ConnectionState::Ready, "connected again");
        assert_eq!(self.hands.machine.active_sessions(), [] as [SessionId; 0]);
        assert_eq!(self.hands.open_calls(), 0);
        assert_eq!(self.brain.guests.len(), 1, "executors that were lost are forgotten");
        for guest in self.brain.guests.values() {
            assert!(guest.is_idle() && guest.machine.open_calls() == 0, "{}", guest.describe());
            let reason = guest.machine.deadline().unwrap().1;
            assert_eq!(reason, Reason::LeaseExpiry, "nothing else is waited for");
        }
        assert_eq!(self.hands.machine.deadline().unwrap().1, Reason::Heartbeat);
    }

    /// In good weather, everything works.
    pub(crate) fn exam(&mut self) {
        self.hands.willing = true;
        let session = SessionId::from("exam");
        let results = self.tally.results;
        self.with_guest(|guest, now, counter| {
            *counter += 2;
            guest.assign(now, "exam".into(), *counter);
            guest.wait_ready(&"exam".into(), *counter + 1);
            *counter += 1;
        });
        self.run_for(Duration::from_secs(3));
        assert_eq!(self.hands.machine.active_sessions(), [session]);
        for _ in 0..5 {
            self.with_guest(|guest, now, counter| {
                *counter += 1;
                guest.call(now, &"exam".into(), format!("call-{counter}").as_str().into(), *counter);
            });
        }
        self.run_for(Duration::from_secs(10));
        assert_eq!(self.tally.results, results + 5);
        self.with_guest(|guest, now, counter| {
            *counter += 1;
            guest.stop(now, &"exam".into(), *counter);
        });
        self.run_for(Duration::from_secs(6));
        let guest = self.brain.guests.values().next().unwrap();
        assert!(guest.is_idle(), "{}", guest.describe());
        assert_eq!(self.hands.machine.active_sessions(), []);
    }

    /// The two part in order.
    pub(crate) fn farewell(&mut self) {
        self.supervised = false;
        let expected = if self.dice.one_in(2) {
            self.with_guest(|guest, now, counter| {
                *counter += 1;
                guest.drain(now, *counter);
            });
            (executor::End::Drained, Gone::Drained)
        } else {
            self.hands.machine.stop(self.now, "enough");
            (executor::End::Stopped, Gone::Closed("enough".to_owned()))
        };
        self.run_for(Duration::from_secs(2));
        assert_eq!((self.ended.take(), self.brain.gone.pop()), (Some(expected.0), Some(expected.1)));
        assert!(self.brain.guests.is_empty());
        assert_eq!(self.hands.machine.deadline(), None);
    }

    fn with_guest(&mut self, ask: impl FnOnce(&mut Guest, Time, &mut u64)) {
        let guest = self.brain.guests.values_mut().next().unwrap();
        ask(guest, self.now, &mut self.counter);
    }

    // Time.

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.plan_at(self.now + after, happening);
    }

    fn plan_at(&mut self, at: Time, happening: Happening) {
        self.steps += 1;
        self.agenda.insert((at, self.steps), happening);
    }

    fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        self.settle();
        while let Some(at) = self.next_moment().filter(|at| *at <= until) {
            self.steps += 1;
            assert!(self.steps < MAX_STEPS, "a livelock at {at}");
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
        let hands = self.hands.machine.deadline().map(|(at, _)| at);
        let guests = self.brain.guests.values().filter_map(|guest| guest.machine.deadline()).map(|(at, _)| at);
        planned.into_iter().chain(hands).chain(guests).min()
    }

    /// Feeds a tick to each machine that is due, which must move on.
    fn tick(&mut self) {
        let now = self.now;
        let due = |deadline: Option<(Time, Reason)>| deadline.filter(|(at, _)| *at <= now);
        if let Some((at, reason)) = due(self.hands.machine.deadline()) {
            self.hands.machine.feed(now, executor::Input::Tick);
            self.drain_hands();
            let next = self.hands.machine.deadline();
            assert!(next.is_none_or(|(next, _)| next > at), "the executor stays at {reason:?}");
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

    /// Drains both programs: calls queue output as inputs do.
    fn settle(&mut self) {
        self.drain_hands();
        let ids: Vec<_> = self.brain.guests.keys().cloned().collect();
        for id in ids {
            self.drain_guest(&id);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrives { connection, to: End::Hands, frame } => {
                if self.hands_connection == Some(connection) {
                    self.hands.machine.feed(self.now, executor::Input::Frame(&frame));
                }
            }
            Happening::Arrives { connection, to: End::Brain, frame } => self.arrives_at_brain(connection, &frame),
            Happening::Closed { connection, to: End::Hands, code } => {
                self.connections.get_mut(&connection).unwrap().leave(End::Hands);
                if self.hands_connection == Some(connection) {
                    self.hands_connection = None;
                    self.hands.machine.feed(self.now, executor::Input::Disconnected { code, reason: "" });
                }
            }
            Happening::Closed { connection, to: End::Brain, .. } => {
                self.connections.get_mut(&connection).unwrap().leave(End::Brain);
                let owner = self.owners.remove(&connection);
                if let Some(guest) = owner.and_then(|owner| self.brain.guests.get_mut(&owner))
                    && guest.connection == Some(connection)
                {
                    guest.connection = None;
                    guest.machine.feed(self.now, harness::Input::Disconnected);
                }
            }
            Happening::Token { run } if run == self.hands.run => {
                let token = if self.now < self.outage {
                    Err(TokenError::Unavailable("an outage".to_owned()))
                } else {
                    Ok(ExecutorTokenResponse::default())
                };
                self.hands.machine.feed(self.now, executor::Input::Token(token));
            }
            Happening::Dialed { run } if run == self.hands.run => {
                if self.now < self.outage || self.sky == Sky::Storm && self.dice.one_in(8) {
                    let error = DialError::Failed("an outage".to_owned());
                    return self.hands.machine.feed(self.now, executor::Input::DialFailed(error));
                }
                if self.hands.machine.end_state().is_some() {
                    return;
                }
                let connection = self.connections.len() as u64;
                self.connections.insert(connection, Connection::new());
                self.hands_connection = Some(connection);
                self.hands.machine.feed(self.now, executor::Input::Connected(ProtocolVersion::V1_1));
            }
            Happening::Works { run, work } if run == self.hands.run => {
                let next = self.hands.work(self.now, work, &mut self.ledger, &mut self.dice);
                if let Some((after, work)) = next {
                    self.plan(after, Happening::Works { run, work });
                }
            }
            Happening::Starts { run } if run == self.hands.run => self.hands.machine.start(self.now),
            // Of a program that is gone.
            Happening::Token { .. } | Happening::Dialed { .. } | Happening::Works { .. } | Happening::Starts { .. } => {
            }
            Happening::Whim => {
                if self.sky != Sky::Clear {
                    let guests: Vec<_> = self.brain.guests.keys().cloned().collect();
                    if let Some(id) = self.dice.pick(&guests) {
                        let guest = self.brain.guests.get_mut(id).unwrap();
                        guest.whim(self.now, &mut self.dice, &mut self.counter);
                    }
                    let after = self.dice.up_to(Duration::from_millis(700));
                    self.plan(after, Happening::Whim);
                }
            }
            Happening::Weather => {
                if self.sky != Sky::Clear {
                    self.weather();
                    let after = self.dice.up_to(Duration::from_secs(20));
                    self.plan(after, Happening::Weather);
                }
            }
        }
    }

    // The weather.

    fn weather(&mut self) {
        match self.dice.below(16) {
            _ if self.sky == Sky::Gusts => {
                // One that the storm has cut in silence is found out by its ends alone.
                if let Some(connection) = self.hands_connection.filter(|it| !self.connections[it].is_cut()) {
                    self.gust(connection);
                }
            }
            0 => self.kill_hands(),
            1 => self.kill_brain(),
            2 | 3 => self.outage = self.now + self.dice.up_to(Duration::from_secs(30)),
            _ => {
                if let Some(connection) = self.hands_connection {
                    self.cut(connection);
                }
            }
        }
    }

    /// Breaks a connection. Each end learns of it at once, later, or by itself.
    fn cut(&mut self, connection: u64) {
        self.connections.get_mut(&connection).unwrap().break_at(self.now, &mut self.dice);
        for to in [End::Hands, End::Brain] {
            let after = match self.dice.below(4) {
                0 => continue,
                1 => self.dice.up_to(Duration::from_secs(20)),
                _ => self.dice.up_to(Duration::from_millis(200)),
            };
            self.plan(after, Happening::Closed { connection, to, code: None });
        }
    }

    /// Breaks a connection, and both ends learn of it at once.
    fn gust(&mut self, connection: u64) {
        self.connections.get_mut(&connection).unwrap().break_at(self.now, &mut self.dice);
        for to in [End::Hands, End::Brain] {
            let after = self.dice.up_to(Duration::from_millis(200));
            self.plan(after, Happening::Closed { connection, to, code: None });
        }
    }

    /// The executor's program is killed, and started anew with nothing.
    fn kill_hands(&mut self) {
        if let Some(connection) = self.hands_connection.take() {
            self.cut(connection);
        }
        for guest in self.brain.guests.values_mut() {
            guest.lose_program();
        }
        self.start_hands();
    }

    fn start_hands(&mut self) {
        let run = self.hands.run + 1;
        self.hands = Hands::new(run, &mut self.dice);
        let after = self.dice.up_to(Duration::from_secs(3));
        self.plan(after, Happening::Starts { run });
    }

    /// The harness's program is killed, and started anew with nothing.
    fn kill_brain(&mut self) {
        let connections: Vec<_> = self.owners.keys().copied().collect();
        self.owners.clear();
        for connection in connections {
            self.connections.get_mut(&connection).unwrap().leave(End::Brain);
            self.cut(connection);
        }
        // Connections that have not registered yet are lost as well.
        for wire in self.connections.values_mut() {
            wire.leave(End::Brain);
        }
        if let Some(connection) = self.hands_connection {
            self.cut(connection);
        }
        self.brain = Brain::new(&mut self.dice);
        self.heard.clear();
    }

    // The programs' drivers.

    /// Keeps a line, and shows it at once where one seed is replayed: a failure loses the rest.
    fn note(&mut self, line: String) {
        let line = format!("{} {line}", self.now);
        if self.shown {
            println!("{line}");
        }
        self.trace.push(line);
    }

    fn send(&mut self, connection: u64, to: End, frame: String) {
        let arrow = if to == End::Brain { ">" } else { "<" };
        self.note(format!("{connection} {arrow} {frame}"));
        let wire = self.connections.get_mut(&connection).unwrap();
        if let Some(at) = wire.arrival(self.now, to, &mut self.dice) {
            self.plan_at(at, Happening::Arrives { connection, to, frame });
        }
    }

    /// One end closes: the other one learns of it behind what was sent before.
    fn close(&mut self, connection: u64, by: End, code: u16) {
        self.note(format!("{connection} close {code} by {by:?}"));
        let wire = self.connections.get_mut(&connection).unwrap();
        wire.leave(by);
        if let Some(at) = wire.arrival(self.now, by.other(), &mut self.dice) {
            self.plan_at(at, Happening::Closed { connection, to: by.other(), code: Some(code) });
        }
        self.plan(Duration::from_millis(20), Happening::Closed { connection, to: by, code: None });
    }

    fn drain_hands(&mut self) {
        while let Some(output) = self.hands.machine.poll() {
            let run = self.hands.run;
            match output {
                executor::Output::Frame(frame) => {
                    let connection = self.hands_connection.expect("frames are for a connection");
                    self.send(connection, End::Brain, frame);
                }
                executor::Output::Close { code, .. } => {
                    let connection = self.hands_connection.expect("one that is gone is not closed");
                    self.close(connection, End::Hands, code);
                }
                executor::Output::FetchToken => {
                    let after = self.dice.up_to(Duration::from_millis(100));
                    self.plan(after, Happening::Token { run });
                }
                executor::Output::Dial(_) => {
                    let after = self.dice.up_to(Duration::from_millis(200));
                    self.plan(after, Happening::Dialed { run });
                }
                executor::Output::Event(Event::Ended(end)) => {
                    if self.supervised {
                        assert!(self.sky == Sky::Storm, "it does not end in good weather: {end}");
                        for guest in self.brain.guests.values_mut() {
                            guest.lose_program();
                        }
                        return self.start_hands();
                    }
                    self.ended = Some(end);
                }
                executor::Output::Event(event) => {
                    for (after, work) in self.hands.event(event, &mut self.ledger, &mut self.dice) {
                        self.plan(after, Happening::Works { run, work });
                    }
                }
            }
        }
        assert!(self.hands.machine.poll().is_none(), "an idle poll stays idle");
        let deadline = self.hands.machine.deadline();
        assert!(deadline.is_none_or(|(at, _)| at > self.now), "{deadline:?} was due, now is {}", self.now);
    }

    fn arrives_at_brain(&mut self, connection: u64, frame: &str) {
        if !self.connections[&connection].is_open(End::Brain) {
            return;
        }
        if let Some(owner) = self.owners.get(&connection) {
            if let Some(guest) = self.brain.guests.get_mut(owner).filter(|guest| guest.connection == Some(connection)) {
                self.heard.insert(owner.clone(), self.now);
                guest.machine.feed(self.now, harness::Input::Frame(frame));
            }
            return;
        }
        let principal = if self.pinned { Principal::pinned("exec_pinned".into()) } else { Principal::anonymous() };
        let placed = read_registration(frame).and_then(|mut registration| {
            let placement = self.brain.registry.place(&principal, &mut registration)?;
            Ok((registration, placement))
        });
        let (registration, placement) = placed.unwrap_or_else(|refusal| panic!("refused: {}", refusal.frame));
        let id = match placement {
            Placement::New(id) => {
                let machine = ExecutorPeer::new(self.brain.config.clone(), id.clone(), self.now, self.dice.next());
                self.brain.guests.insert(id.clone(), Guest::new(machine));
                id
            }
            Placement::Known(id) => id,
        };
        self.heard.insert(id.clone(), self.now);
        self.owners.insert(connection, id.clone());
        let guest = self.brain.guests.get_mut(&id).unwrap();
        if let Some(old) = guest.connection.replace(connection) {
            self.owners.remove(&old);
            self.close(old, End::Brain, 4004);
        }
        let guest = self.brain.guests.get_mut(&id).unwrap();
        guest.machine.attach(self.now, registration, Duration::from_secs(1_767_225_600));
    }

    fn drain_guest(&mut self, id: &ExecutorId) {
        loop {
            let Some(guest) = self.brain.guests.get_mut(id) else { return };
            let Some(output) = guest.machine.poll() else { break };
            match output {
                harness::Output::Frame(frame) => {
                    let connection = guest.connection.expect("frames are for a connection");
                    self.send(connection, End::Hands, frame);
                }
                harness::Output::Close { code, .. } => {
                    let connection = guest.connection.take().expect("one that is gone is not closed");
                    self.owners.remove(&connection);
                    self.close(connection, End::Brain, code);
                }
                harness::Output::Event(event) => {
                    let excuses = Excuses { ledger: &self.ledger, weather: self.aftermath };
                    match guest.event(self.now, event, &excuses) {
                        Told::Nothing => {}
                        Told::Result => self.tally.results += 1,
                        Told::Unknown => self.tally.unknown += 1,
                        Told::Gone(gone) => self.gone(id, gone),
                    }
                }
            }
        }
        let guest = &self.brain.guests[id];
        let deadline = guest.machine.deadline();
        assert!(deadline.is_none_or(|(at, _)| at > self.now), "{deadline:?} was due, now is {}", self.now);
    }

    fn gone(&mut self, id: &ExecutorId, gone: Gone) {
        if gone == Gone::LeaseExpired {
            self.tally.leases += 1;
            let silent = self.now.saturating_since(self.heard[id]);
            assert!(silent >= self.brain.config.lease_ttl, "it was heard of {silent:?} ago");
        }
        let guest = self.brain.guests.remove(id).unwrap();
        assert!(guest.is_idle(), "everything ends with it: {}", guest.describe());
        self.brain.registry.remove(id);
        self.brain.gone.push(gone);
    }
}
