//! The drivers of the programs: what arrives goes into a machine, what a machine wants is done.

use std::time::Duration;

use bma_runtime::proto::contract::{ExecutorId, ExecutorTokenResponse, ProtocolVersion};
use bma_runtime::proto::executor::{self, DialError, Event, TokenError};
use bma_runtime::proto::harness::{self, ExecutorPeer, Gone, Placement, Principal, read_registration};
use bma_runtime::proto::{Machine, Time};

use super::brain::{Excuses, Guest, Told};
use super::weather::Sky;
use super::wire::{Connection, End};
use super::world::{Happening, World};

impl World {
    pub(super) fn happen(&mut self, happening: Happening) {
        if let Some(until) = self.asleep(&happening) {
            return self.plan_at(until, happening);
        }
        match happening {
            Happening::Arrives { connection, to: End::Hands, frame } => {
                let site = &mut self.sites[self.connections[&connection].site];
                if site.connection == Some(connection) {
                    site.heard = self.now;
                    site.hands.machine.feed(self.now, executor::Input::Frame(&frame));
                }
            }
            Happening::Arrives { connection, to: End::Brain, frame } => self.arrives_at_brain(connection, &frame),
            Happening::Closed { connection, to: End::Hands, code } => {
                let wire = self.connections.get_mut(&connection).unwrap();
                wire.leave(End::Hands);
                let site = &mut self.sites[wire.site];
                if site.connection == Some(connection) {
                    site.connection = None;
                    site.hands.machine.feed(self.now, executor::Input::Disconnected { code, reason: "" });
                }
            }
            Happening::Closed { connection, to: End::Brain, .. } => {
                self.connections.get_mut(&connection).unwrap().leave(End::Brain);
                self.lost_by_brain(connection);
            }
            Happening::Token { site, run } if run == self.sites[site].hands.run => {
                let token = if self.now < self.sites[site].outage {
                    Err(TokenError::Unavailable("an outage".to_owned()))
                } else {
                    Ok(ExecutorTokenResponse::default())
                };
                self.sites[site].hands.machine.feed(self.now, executor::Input::Token(token));
            }
            Happening::Dialed { site, run, dial }
                if (run, dial) == (self.sites[site].hands.run, self.sites[site].dials) =>
            {
                self.dialed(site);
            }
            Happening::Works { site: number, run, work } if run == self.sites[number].hands.run => {
                let site = &mut self.sites[number];
                let next = site.hands.work(self.now, work, &mut site.ledger, &mut self.dice);
                if let Some((after, work)) = next {
                    self.plan(after, Happening::Works { site: number, run, work });
                }
            }
            Happening::Starts { site, run } if run == self.sites[site].hands.run => {
                self.sites[site].hands.machine.start(self.now);
            }
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
                    let after = self.dice.up_to(Duration::from_millis(700) / self.sites.len() as u32);
                    self.plan(after, Happening::Whim);
                }
            }
            Happening::Weather => {
                if self.sky != Sky::Clear {
                    self.weather();
                    let after = self.dice.up_to(Duration::from_secs(20) / self.sites.len() as u32);
                    self.plan(after, Happening::Weather);
                }
            }
        }
    }

    fn dialed(&mut self, number: usize) {
        let site = &mut self.sites[number];
        if self.now < site.outage || self.sky == Sky::Storm && self.dice.one_in(8) {
            let error = DialError::Failed("an outage".to_owned());
            return site.hands.machine.feed(self.now, executor::Input::DialFailed(error));
        }
        if site.hands.machine.end_state().is_some() {
            return;
        }
        let connection = self.connections.len() as u64;
        self.connections.insert(connection, Connection::new(number));
        site.connection = Some(connection);
        site.hands.machine.feed(self.now, executor::Input::Connected(ProtocolVersion::V1_1));
    }

    fn send(&mut self, connection: u64, to: End, frame: String) {
        self.tally.frames += 1;
        self.trace.note(self.now, connection, if to == End::Brain { ">" } else { "<" }, &frame);
        let wire = self.connections.get_mut(&connection).unwrap();
        if let Some(at) = wire.arrival(self.now, to, &mut self.dice) {
            self.plan_at(at, Happening::Arrives { connection, to, frame });
        }
    }

    /// One end closes: the other one learns of it behind what was sent before.
    fn close(&mut self, connection: u64, by: End, code: u16) {
        self.trace.note(self.now, connection, "close", &format!("{code} by {by:?}"));
        let wire = self.connections.get_mut(&connection).unwrap();
        wire.leave(by);
        if let Some(at) = wire.arrival(self.now, by.other(), &mut self.dice) {
            self.plan_at(at, Happening::Closed { connection, to: by.other(), code: Some(code) });
        }
        self.plan(Duration::from_millis(20), Happening::Closed { connection, to: by, code: None });
    }

    /// The harness ends a connection for a reason that its machine does not know of.
    pub(super) fn expel(&mut self, connection: u64, code: u16) {
        if self.connections[&connection].is_open(End::Brain) {
            self.close(connection, End::Brain, code);
            self.lost_by_brain(connection);
        }
    }

    fn lost_by_brain(&mut self, connection: u64) {
        let owner = self.owners.remove(&connection);
        if let Some(guest) = owner.and_then(|owner| self.brain.guests.get_mut(&owner))
            && guest.connection == Some(connection)
        {
            guest.connection = None;
            guest.machine.feed(self.now, harness::Input::Disconnected);
        }
    }

    pub(super) fn drain_site(&mut self, number: usize) {
        if self.sites[number].asleep > self.now {
            return;
        }
        while let Some(output) = self.sites[number].hands.machine.poll() {
            let site = &mut self.sites[number];
            let run = site.hands.run;
            match output {
                executor::Output::Frame(frame) => {
                    let connection = site.connection.expect("frames are for a connection");
                    self.send(connection, End::Brain, frame);
                }
                executor::Output::Close { code, .. } => match site.connection {
                    Some(connection) => self.close(connection, End::Hands, code),
                    // A dial is given up, and gone at once.
                    None => {
                        site.dials += 1;
                        site.hands.machine.feed(self.now, executor::Input::Disconnected { code: None, reason: "" });
                    }
                },
                executor::Output::FetchToken => {
                    let after = self.dice.up_to(Duration::from_millis(100));
                    self.plan(after, Happening::Token { site: number, run });
                }
                executor::Output::Dial(_) => {
                    site.dials += 1;
                    let dial = site.dials;
                    let after = self.dice.up_to(Duration::from_millis(200));
                    self.plan(after, Happening::Dialed { site: number, run, dial });
                }
                executor::Output::Event(Event::Ended(end)) => {
                    if site.supervised {
                        assert!(self.sky == Sky::Storm, "it does not end in good weather: {end}");
                        return self.start_site(number);
                    }
                    site.ended = Some(end);
                }
                executor::Output::Event(event) => {
                    self.trace.tell(self.now, number, &event);
                    for (after, work) in site.hands.event(event, &mut site.ledger, &mut self.dice) {
                        self.plan(after, Happening::Works { site: number, run, work });
                    }
                }
            }
        }
        let silent = self.now.saturating_since(self.sites[number].heard);
        let awake = self.now.saturating_since(self.sites[number].asleep);
        let machine = &mut self.sites[number].hands.machine;
        assert!(machine.poll().is_none(), "an idle poll stays idle");
        let deadline = machine.deadline();
        if deadline.is_some_and(|(at, _)| at <= self.now) {
            // Only one that wakes just now finds deadlines that are over.
            assert_eq!(self.sites[number].asleep, self.now, "{deadline:?} was due");
            let machine = &mut self.sites[number].hands.machine;
            machine.feed(self.now, executor::Input::Tick);
            assert!(machine.deadline() != deadline, "a tick moves it on: {deadline:?}");
            return self.drain_site(number);
        }
        // A machine that slept has to find out first that nobody answers any more.
        let lease = self.brain.config.lease_ttl;
        if silent > lease && awake > lease / 2 {
            assert_eq!(machine.active_sessions(), [], "no session outlives its lease");
        }
    }

    fn arrives_at_brain(&mut self, connection: u64, frame: &str) {
        let wire = &self.connections[&connection];
        let site = wire.site;
        if !wire.is_open(End::Brain) {
            return;
        }
        if let Some(owner) = self.owners.get(&connection) {
            if let Some(guest) = self.brain.guests.get_mut(owner).filter(|guest| guest.connection == Some(connection)) {
                self.heard.insert(owner.clone(), self.now);
                guest.machine.feed(self.now, harness::Input::Frame(frame));
            }
            return;
        }
        let principal = match self.pinned {
            true => Principal::pinned(format!("exec_pinned_{site}").as_str().into()),
            false => Principal::anonymous(),
        };
        let placed = read_registration(frame).and_then(|mut registration| {
            let placement = self.brain.registry.place(&principal, &mut registration)?;
            Ok((registration, placement))
        });
        let (registration, placement) = placed.unwrap_or_else(|refusal| panic!("refused: {}", refusal.frame));
        let id = match placement {
            Placement::New(id) => {
                let machine = ExecutorPeer::new(self.brain.config.clone(), id.clone(), self.now, self.dice.next());
                self.brain.guests.insert(id.clone(), Guest::new(machine, site));
                id
            }
            Placement::Known(id) => id,
        };
        self.heard.insert(id.clone(), self.now);
        self.owners.insert(connection, id.clone());
        let guest = self.brain.guests.get_mut(&id).unwrap();
        assert_eq!(guest.site, site, "{id} belongs to another machine");
        if let Some(old) = guest.connection.replace(connection) {
            self.owners.remove(&old);
            self.close(old, End::Brain, 4004);
        }
        let guest = self.brain.guests.get_mut(&id).unwrap();
        guest.machine.attach(self.now, registration, Duration::from_secs(1_767_225_600));
    }

    pub(super) fn drain_guest(&mut self, id: &ExecutorId) {
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
                    let ledger = &self.sites[guest.site].ledger;
                    let excuses = Excuses { ledger, weather: self.aftermath };
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
            let silent = self.now.saturating_since(self.heard.get(id).copied().unwrap_or(Time::ORIGIN));
            assert!(silent >= self.brain.config.lease_ttl, "it was heard of {silent:?} ago");
        }
        let guest = self.brain.guests.remove(id).unwrap();
        assert!(guest.is_idle(), "everything ends with it: {}", guest.describe());
        self.brain.registry.remove(id);
        self.brain.gone.insert(guest.site, gone);
    }
}
