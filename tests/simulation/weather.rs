//! What goes wrong.

use std::time::Duration;

use bma_runtime::proto::Time;

use super::brain::Brain;
use super::hands::Hands;
use super::wire::End;
use super::world::{Happening, World};

/// What the weather may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sky {
    /// Anything.
    Storm,
    /// Connections are cut, and both ends learn of it at once.
    Gusts,
    Clear,
}

/// What went wrong, by its kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Connections cut in the middle of what was under way, noticed at once, late or never.
    pub cuts: u64,
    /// Connections of which one direction went silent.
    pub half_open: u64,
    /// Connections that the harness closed because the token's time was over.
    pub tokens_expired: u64,
    /// Times in which no token was to be had and no dial succeeded.
    pub outages: u64,
    /// Executors' programs that were killed.
    pub executors_killed: u64,
    /// Harnesses' programs that were killed.
    pub harnesses_killed: u64,
    /// Machines that slept for a while, and found the clock ahead.
    pub sleeps: u64,
}

impl Faults {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cuts: self.cuts + other.cuts,
            half_open: self.half_open + other.half_open,
            tokens_expired: self.tokens_expired + other.tokens_expired,
            outages: self.outages + other.outages,
            executors_killed: self.executors_killed + other.executors_killed,
            harnesses_killed: self.harnesses_killed + other.harnesses_killed,
            sleeps: self.sleeps + other.sleeps,
        }
    }
}

impl World {
    /// One thing goes wrong, somewhere.
    pub(super) fn weather(&mut self) {
        let number = self.dice.below(self.sites.len() as u64) as usize;
        let connection = self.sites[number].connection;
        if self.sky == Sky::Gusts {
            // One that the storm has cut in silence is found out by its ends alone.
            if let Some(connection) = connection.filter(|it| !self.connections[it].is_cut()) {
                self.gust(connection);
            }
            return;
        }
        match (self.dice.below(20), connection) {
            (0, _) => self.kill_site(number),
            (1, _) => self.kill_brain(),
            (2 | 3, _) => {
                self.tally.faults.outages += 1;
                self.sites[number].outage = self.now + self.dice.up_to(Duration::from_secs(30));
            }
            (4, _) => {
                self.tally.faults.sleeps += 1;
                // Sometimes longer than the lease.
                self.sites[number].asleep = self.now + self.dice.up_to(Duration::from_secs(90));
            }
            (5 | 6, Some(connection)) => {
                self.tally.faults.half_open += 1;
                let to = if self.dice.one_in(2) { End::Hands } else { End::Brain };
                self.connections.get_mut(&connection).unwrap().break_way(to, self.now, &mut self.dice);
            }
            (7, Some(connection)) => {
                self.tally.faults.tokens_expired += 1;
                self.expel(connection, 4001);
            }
            (_, Some(connection)) => self.cut(connection),
            (_, None) => {}
        }
    }

    /// Breaks a connection. Each end learns of it at once, later, or by itself.
    fn cut(&mut self, connection: u64) {
        self.tally.faults.cuts += 1;
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
        self.tally.faults.cuts += 1;
        self.connections.get_mut(&connection).unwrap().break_at(self.now, &mut self.dice);
        for to in [End::Hands, End::Brain] {
            let after = self.dice.up_to(Duration::from_millis(200));
            self.plan(after, Happening::Closed { connection, to, code: None });
        }
    }

    /// An executor's program is killed, and started anew with nothing.
    fn kill_site(&mut self, number: usize) {
        self.tally.faults.executors_killed += 1;
        if let Some(connection) = self.sites[number].connection.take() {
            self.cut(connection);
        }
        self.start_site(number);
    }

    /// The program that was there is gone, and its sessions with it.
    pub(super) fn start_site(&mut self, number: usize) {
        for guest in self.brain.guests.values_mut().filter(|guest| guest.site == number) {
            guest.lose_program();
        }
        let run = self.sites[number].hands.run + 1;
        self.sites[number].hands = Hands::new(run, &mut self.dice);
        let after = self.dice.up_to(Duration::from_secs(3));
        self.plan(after, Happening::Starts { site: number, run });
    }

    /// The harness's program is killed, and started anew with nothing.
    fn kill_brain(&mut self) {
        self.tally.faults.harnesses_killed += 1;
        let connections: Vec<_> = self.owners.keys().copied().collect();
        self.owners.clear();
        for connection in connections {
            self.cut(connection);
        }
        // Connections that have not registered yet are lost as well.
        for wire in self.connections.values_mut() {
            wire.leave(End::Brain);
        }
        for number in 0..self.sites.len() {
            if let Some(connection) = self.sites[number].connection {
                self.cut(connection);
            }
        }
        self.brain = Brain::new(&mut self.dice);
        self.heard.clear();
    }

    /// Until when a happening has to wait, because the machine that it concerns sleeps.
    pub(super) fn asleep(&self, happening: &Happening) -> Option<Time> {
        let site = match happening {
            Happening::Arrives { connection, to: End::Hands, .. }
            | Happening::Closed { connection, to: End::Hands, .. } => self.connections[connection].site,
            Happening::Token { site, .. }
            | Happening::Dialed { site, .. }
            | Happening::Works { site, .. }
            | Happening::Starts { site, .. } => *site,
            Happening::Arrives { .. } | Happening::Closed { .. } | Happening::Whim | Happening::Weather => return None,
        };
        Some(self.sites[site].asleep).filter(|until| *until > self.now)
    }
}
