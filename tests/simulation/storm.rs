//! A fleet that loses its harness at one moment: when do its dials come, and when is everybody back?
//!
//! The executors are the real machines with the real back-off; the harness is a door that is shut for
//! a while and then lets a number of them in each second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bma_runtime::proto::contract::{ExecutorInfo, ExecutorTokenResponse, ProtocolVersion, defaults};
use bma_runtime::proto::executor::{Config, DialError, Executor, Input, Output};
use bma_runtime::proto::{Machine, Time};

/// How long the network takes for a dial.
const DIAL: Duration = Duration::from_millis(20);

/// A dial that is not served within this fails: sooner than the executor would give it up.
const PATIENCE: Duration = Duration::from_secs(20);

/// When the harness is lost: every registration has proven itself.
const LOST_AT: Time = Time::from_millis(20_000);

/// What the harness answers: the contract's intervals.
const HEARTBEAT_MS: u64 = defaults::HARNESS_HEARTBEAT_INTERVAL_MS;
const LEASE_MS: u64 = defaults::HARNESS_LEASE_TTL_MS;

/// What a storm was like.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    /// The most dials that came in one second, from the moment of the loss on.
    pub peak_dials: u64,
    /// The most dials in one second once the harness was back.
    pub peak_dials_back: u64,
    /// The most registrations in one second.
    pub peak_registrations: u64,
    /// From the harness's return until the last executor is registered.
    pub all_back: Duration,
    /// Dials that came to nothing.
    pub failed_dials: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Due,
    Dialed,
    GaveUp,
    Served,
}

struct Fleet {
    executors: Vec<Executor>,
    registered: Vec<bool>,
    /// The deadline of each that stands on the agenda.
    due: Vec<Option<Time>>,
    agenda: BinaryHeap<Reverse<(Time, u32, Happening)>>,
    now: Time,
    /// The harness is there again from then on.
    back_at: Time,
    /// What one registration takes the harness.
    service: Duration,
    busy_until: Time,
    dials: Vec<u64>,
    registrations: Vec<u64>,
    failed: u64,
    missing: usize,
}

/// Lets `executors` lose their harness, which is back after `outage` and takes `capacity` registrations a
/// second; 0 is any number.
pub fn run(executors: u32, outage: Duration, capacity: u32, seed: u64) -> Storm {
    let mut fleet = Fleet {
        executors: Vec::new(),
        registered: vec![true; executors as usize],
        due: vec![None; executors as usize],
        agenda: BinaryHeap::new(),
        now: Time::ORIGIN,
        back_at: LOST_AT + outage,
        service: if capacity == 0 { Duration::ZERO } else { Duration::from_secs(1) / capacity },
        busy_until: Time::ORIGIN,
        dials: Vec::new(),
        registrations: Vec::new(),
        failed: 0,
        missing: 0,
    };
    for number in 0..executors {
        let config = Config::new(ExecutorInfo::default(), seed.wrapping_mul(1_000_003) ^ u64::from(number));
        let mut executor = Executor::new(config);
        executor.start(Time::ORIGIN);
        executor.feed(Time::ORIGIN, Input::Token(Ok(ExecutorTokenResponse::default())));
        executor.feed(Time::ORIGIN, Input::Connected(ProtocolVersion::V1_1));
        fleet.executors.push(executor);
        fleet.drain(number);
    }
    fleet.run_until(LOST_AT);
    // Only what comes of the loss counts.
    (fleet.dials, fleet.registrations, fleet.failed) = Default::default();
    fleet.missing = executors as usize;
    for number in 0..executors {
        fleet.registered[number as usize] = false;
        fleet.feed(number, Input::Disconnected { code: None, reason: "" });
    }
    while fleet.missing > 0 {
        fleet.step();
    }
    let peak = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0);
    let since_back = usize::try_from(outage.as_secs()).unwrap_or(usize::MAX).min(fleet.dials.len());
    Storm {
        peak_dials: peak(&fleet.dials),
        peak_dials_back: peak(&fleet.dials[since_back..]),
        peak_registrations: peak(&fleet.registrations),
        all_back: fleet.now.saturating_since(fleet.back_at),
        failed_dials: fleet.failed,
    }
}

impl Fleet {
    fn run_until(&mut self, until: Time) {
        while self.agenda.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            self.step();
        }
        self.now = until;
    }

    fn step(&mut self) {
        let Reverse((at, number, happening)) = self.agenda.pop().expect("executors go on for ever");
        self.now = at;
        match happening {
            // A deadline that was put off meanwhile stands on the agenda anew.
            Happening::Due if self.deadline(number).is_some_and(|due| due <= at) => self.feed(number, Input::Tick),
            Happening::Due => {}
            Happening::Dialed if at < self.back_at => self.fail(number),
            Happening::Dialed => {
                let served = self.busy_until.max(at) + self.service;
                if served.saturating_since(at) > PATIENCE {
                    return self.plan(at + PATIENCE, number, Happening::GaveUp);
                }
                self.busy_until = served;
                self.plan(served, number, Happening::Served);
            }
            Happening::GaveUp => self.fail(number),
            Happening::Served => self.feed(number, Input::Connected(ProtocolVersion::V1_1)),
        }
    }

    fn fail(&mut self, number: u32) {
        self.failed += 1;
        self.feed(number, Input::DialFailed(DialError::Failed("refused".to_owned())));
    }

    fn plan(&mut self, at: Time, number: u32, happening: Happening) {
        self.agenda.push(Reverse((at, number, happening)));
    }

    fn deadline(&self, number: u32) -> Option<Time> {
        self.executors[number as usize].deadline().map(|(at, _)| at)
    }

    fn feed(&mut self, number: u32, input: Input<'_>) {
        self.executors[number as usize].feed(self.now, input);
        self.drain(number);
    }

    fn drain(&mut self, number: u32) {
        while let Some(output) = self.executors[number as usize].poll() {
            match output {
                Output::FetchToken => {
                    let token = Input::Token(Ok(ExecutorTokenResponse::default()));
                    self.executors[number as usize].feed(self.now, token);
                }
                Output::Dial(_) => {
                    let second = self.now.saturating_since(LOST_AT).as_secs();
                    count(&mut self.dials, second);
                    self.plan(self.now + DIAL, number, Happening::Dialed);
                }
                Output::Frame(frame) => {
                    if frame.contains("executor.register")
                        && !std::mem::replace(&mut self.registered[number as usize], true)
                    {
                        self.missing -= 1;
                        let second = self.now.saturating_since(LOST_AT).as_secs();
                        count(&mut self.registrations, second);
                    }
                    let answer = answer(&frame);
                    self.executors[number as usize].feed(self.now, Input::Frame(&answer));
                }
                Output::Close { .. } => panic!("nothing goes wrong but what is meant to"),
                Output::Event(_) => {}
            }
        }
        let deadline = self.deadline(number);
        if let Some(at) = deadline.filter(|_| self.due[number as usize] != deadline) {
            self.due[number as usize] = deadline;
            self.plan(at, number, Happening::Due);
        }
    }
}

fn count(counts: &mut Vec<u64>, second: u64) {
    let second = usize::try_from(second).unwrap_or(usize::MAX);
    if counts.len() <= second {
        counts.resize(second + 1, 0);
    }
    counts[second] += 1;
}

/// What the harness says to a registration or a heartbeat.
fn answer(request: &str) -> String {
    let id = request.split(r#""id":""#).nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let result = if request.contains("executor.register") {
        format!(
            r#""executor_id":"e","connection_id":"c","heartbeat_interval_ms":{HEARTBEAT_MS},"max_control_frame_bytes":65536,
            "max_mcp_frame_bytes":65536,"#
        )
    } else {
        String::new()
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","result":{{{result}"server_time":"","lease_ttl_ms":{LEASE_MS},"drain":false}}}}"#
    )
}
