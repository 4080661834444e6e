//! A TCP proxy that can do to connections what networks do: cut them, hold
//! their bytes back, slow them down. It runs on threads of its own, so that it
//! works the same whatever runtime is tested.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From who dialled.
    Up,
    /// To who dialled.
    Down,
}

/// A proxy in front of one address. Dropping it cuts everything.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    over: bool,
    /// New connections are closed at once.
    refusing: bool,
    accepted: usize,
    /// Each connection that was made, by its number.
    links: Vec<Link>,
    /// Bytes a second in each direction; none: as fast as it goes.
    pace: Option<usize>,
    /// What each byte waits before it goes on.
    delay: Duration,
    sent_up: Vec<u8>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Link {
    ends: [TcpStream; 2],
    held: [bool; 2],
    cut: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and connects to `target`.
    pub fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            target,
            over: false,
            refusing: false,
            accepted: 0,
            links: Vec::new(),
            pace: None,
            delay: Duration::ZERO,
            sent_up: Vec::new(),
            workers: Vec::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared))
        };
        Proxy { shared, address, acceptor: Some(acceptor) }
    }

    /// The URL to dial.
    pub fn url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    /// Where the next connections go.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.lock().target = target;
    }

    /// Ends all connections that are open, in both directions at once.
    pub fn cut(&self) {
        for link in &mut self.shared.lock().links {
            cut(link);
        }
        self.shared.changed.notify_all();
    }

    /// Closes new connections as soon as they are made, or no longer.
    pub fn refuse(&self, refusing: bool) {
        self.shared.lock().refusing = refusing;
    }

    /// Holds back what goes this way on the connections that are open, without closing anything.
    pub fn hold(&self, way: Way) {
        for link in &mut self.shared.lock().links {
            link.held[way as usize] = true;
        }
    }

    /// Lets everything that was held back go on.
    pub fn release(&self) {
        for link in &mut self.shared.lock().links {
            link.held = [false; 2];
        }
        self.shared.changed.notify_all();
    }

    /// Bytes a second from now on.
    pub fn pace(&self, bytes: Option<usize>) {
        self.shared.lock().pace = bytes;
    }

    /// How much later everything arrives from now on.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Connections that were accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.lock().accepted
    }

    /// Every byte that came from who dialled.
    pub fn sent_up(&self) -> Vec<u8> {
        self.shared.lock().sent_up.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.cut();
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let workers = std::mem::take(&mut self.shared.lock().workers);
        for worker in workers {
            let _ = worker.join();
        }
    }
}

fn cut(link: &mut Link) {
    link.cut = true;
    for end in &link.ends {
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((near, _)) = listener.accept() {
        let (target, refusing) = {
            let mut state = shared.lock();
            if state.over {
                return;
            }
            state.accepted += 1;
            (state.target, state.refusing)
        };
        if refusing {
            continue;
        }
        let Ok(far) = TcpStream::connect(target) else { continue };
        let _ = near.set_nodelay(true);
        let _ = far.set_nodelay(true);
        let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        let mut state = shared.lock();
        let (number, over) = (state.links.len(), state.over);
        state.links.push(Link { ends, held: [false; 2], cut: over });
        for (way, from, to) in [(Way::Up, near.try_clone().unwrap(), far.try_clone().unwrap()), (Way::Down, far, near)]
        {
            let shared = Arc::clone(shared);
            state.workers.push(thread::spawn(move || carry(&shared, number, way, from, to)));
        }
        if over {
            state.links.iter_mut().for_each(cut);
        }
    }
}

fn carry(shared: &Shared, number: usize, way: Way, mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let (pace, delay) = {
            let mut state = shared.lock();
            while state.links[number].held[way as usize] && !state.links[number].cut {
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.links[number].cut {
                break;
            }
            if way == Way::Up {
                state.sent_up.extend(&bytes[..read]);
            }
            (state.pace, state.delay)
        };
        thread::sleep(delay);
        let sent = match pace {
            None => to.write_all(&bytes[..read]),
            Some(pace) => bytes[..read].chunks((pace / 100).max(1)).try_for_each(|chunk| {
                thread::sleep(Duration::from_millis(10));
                to.write_all(chunk)
            }),
        };
        if sent.is_err() {
            break;
        }
    }
    // The other way may go on: only what this one carried has ended.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
