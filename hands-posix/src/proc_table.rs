//! Looking for the members of a tree among all processes of the system.

use std::collections::BTreeMap;
use std::io;

/// By what a tree's members are known.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // only Linux has a table to read
pub(crate) struct Traits<'a> {
    /// The leader, if there is one: its session and group bear its id.
    pub(crate) leader: Option<i32>,
    /// The random text in the environment.
    pub(crate) marker: &'a str,
    /// Members seen before, by id, with the time at which they began. They may have lost their parent since.
    pub(crate) known: &'a BTreeMap<i32, u64>,
}

/// A living process.
#[derive(Clone, Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // as above
pub(crate) struct Process {
    pub(crate) id: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// When it began, in clock ticks since boot. With the id, this means one process and no other.
    pub(crate) began: u64,
    pub(crate) name: String,
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{children_of, descendants, find, has_any_mark, now, read};

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read as _;
    use std::mem::MaybeUninit;
    use std::time::Duration;

    use rustix::fs::{Mode, OFlags, RawDir};

    /// No environment is read past this: more does not fit into the arguments of an exec.
    const MAX_ENVIRON: u64 = 6 * 1024 * 1024;

    /// How young a process is whose environment may be empty because it is not there yet, in ticks of 10 ms. Members
    /// that have lived for longer were found at another moment.
    const BARE_TICKS: u64 = 20;

    /// How long such a process is waited for.
    const BARE_PAUSE: Duration = Duration::from_millis(1);

    /// As often is it looked for members while others were gone before they could be looked at.
    const MAX_LOOKS: usize = 20;

    /// The living members of a tree. One pass over the system is not a moment in time: only two empty passes
    /// in a row say that a tree is empty.
    ///
    /// A member may do nothing but start the next one and end. It is on every list, and gone when it is looked at. So
    /// a pass in which anybody was gone does not say that a tree is empty.
    pub(crate) fn find(traits: &Traits<'_>) -> io::Result<Vec<Process>> {
        check()?;
        for _ in 0..MAX_LOOKS {
            let (found, missed) = look(traits)?;
            if !found.is_empty() || !missed {
                return Ok(found);
            }
        }
        Err(io::Error::other("processes come and go faster than they can be looked at"))
    }

    /// The members that were found, and whether any process was gone before it could be looked at.
    fn look(traits: &Traits<'_>) -> io::Result<(Vec<Process>, bool)> {
        let own = std::process::id().cast_signed();
        let (mut all, mut members, mut bare) = (Vec::new(), BTreeSet::new(), Vec::new());
        let mut missed = false;
        let mut buffer = Vec::new();
        let is_marked = |marks: &[u8]| has_mark(marks, |one| one == traits.marker.as_bytes());
        // Each at once, as long as it is there.
        each_id(|id| {
            let Some((process, alive)) = read_any(id) else {
                missed = true;
                return;
            };
            if !alive {
                return;
            }
            let by_session = traits.leader.is_some_and(|leader| process.session == leader || process.group == leader);
            if by_session || traits.known.get(&id) == Some(&process.began) {
                members.insert(id);
            } else if !read_environment(id, &mut buffer) {
                missed = true;
                return;
            } else if is_marked(&buffer) {
                members.insert(id);
            } else if buffer.is_empty() && process.began + BARE_TICKS > now() {
                bare.push((id, process.parent));
            }
            all.push(process);
        })?;
        // While a program takes another's place, it has no environment for a moment.
        if !bare.is_empty() {
            std::thread::sleep(BARE_PAUSE);
        }
        let adopters = adopters(&all, own);
        for (id, parent) in bare {
            if !read_environment(id, &mut buffer) {
                // Not one that is the child of somebody else to this day.
                missed |= adopters.contains(&parent) || all.iter().all(|process| process.id != parent);
            } else if is_marked(&buffer) {
                members.insert(id);
            }
        }
        members.remove(&own);
        add_descendants(&all, &mut members, own);
        Ok((all.into_iter().filter(|process| members.contains(&process.id)).collect(), missed))
    }

    /// Who may have become the parent of an orphan of ours: the system's first process or another one above this, or a
    /// keeper, which is a child of this.
    fn adopters(all: &[Process], own: i32) -> BTreeSet<i32> {
        let mut adopters: BTreeSet<i32> =
            all.iter().filter(|process| process.parent == own).map(|process| process.id).collect();
        let mut next = Some(own);
        while let Some(id) = next.filter(|id| adopters.insert(*id)) {
            next = all.iter().find(|process| process.id == id).map(|process| process.parent);
        }
        adopters
    }

    /// All living descendants of `ancestor`.
    pub(crate) fn descendants(ancestor: i32) -> io::Result<Vec<Process>> {
        let all = living()?;
        let mut members = BTreeSet::from([ancestor]);
        add_descendants(&all, &mut members, 0);
        members.remove(&ancestor);
        Ok(all.into_iter().filter(|process| members.contains(&process.id)).collect())
    }

    fn add_descendants(all: &[Process], members: &mut BTreeSet<i32>, except: i32) {
        if members.is_empty() {
            return;
        }
        loop {
            let before = members.len();
            let children = all.iter().filter(|process| process.id != except && members.contains(&process.parent));
            let found: Vec<i32> = children.map(|process| process.id).collect();
            members.extend(found);
            if members.len() == before {
                return;
            }
        }
    }

    /// The children of this process, living and dead.
    pub(crate) fn children_of(parent: i32) -> io::Result<Vec<i32>> {
        check()?;
        if let Ok(text) = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
            return Ok(text.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect());
        }
        // A kernel without that file.
        let mut children = Vec::new();
        each_id(|id| children.extend(read_any(id).filter(|(process, _)| process.parent == parent).map(|_| id)))?;
        Ok(children)
    }

    /// One living process.
    pub(crate) fn read(id: i32) -> Option<Process> {
        read_any(id).filter(|(_, alive)| *alive).map(|(process, _)| process)
    }

    fn living() -> io::Result<Vec<Process>> {
        check()?;
        let mut all = Vec::new();
        each_id(|id| all.extend(read(id)))?;
        Ok(all)
    }

    /// Makes sure that there is a table, and that it is our pid namespace's: in another's the numbers mean other
    /// processes, and an empty `/proc` would say of every tree that it is gone.
    fn check() -> io::Result<()> {
        let own = fs::read_link("/proc/self").map_err(|error| {
            io::Error::new(error.kind(), format!("processes cannot be looked up without /proc: mount it ({error})"))
        })?;
        if own.to_str().and_then(|id| id.parse().ok()) == Some(std::process::id()) {
            return Ok(());
        }
        Err(io::Error::other(
            "processes cannot be looked up: /proc is of another pid namespace; mount one of this namespace",
        ))
    }

    /// Tells the id of every process, dead or alive, soon after it was listed.
    fn each_id(mut each: impl FnMut(i32)) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let table = rustix::fs::open("/proc", flags, Mode::empty())?;
        // Little is listed ahead.
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut entries = RawDir::new(table, &mut buffer);
        while let Some(entry) = entries.next() {
            if let Some(id) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                each(id);
            }
        }
        Ok(())
    }

    fn read_any(id: i32) -> Option<(Process, bool)> {
        parse_stat(id, &fs::read(format!("/proc/{id}/stat")).ok()?)
    }

    /// `id (name) state parent group session ...`; the name may hold anything, spaces and brackets too.
    fn parse_stat(id: i32, stat: &[u8]) -> Option<(Process, bool)> {
        let open = stat.iter().position(|&byte| byte == b'(')?;
        let close = stat.iter().rposition(|&byte| byte == b')')?;
        let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
        let rest = str::from_utf8(stat.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let alive = !matches!(fields.next()?, "Z" | "X" | "x");
        let mut next = || fields.next()?.parse().ok();
        let (parent, group, session) = (next()?, next()?, next()?);
        // Field 22 of the line; the session was field 6.
        let began = fields.nth(15)?.parse().ok()?;
        Some((Process { id, parent, group, session, began, name }, alive))
    }

    /// The present, as [`Process::began`] counts it.
    pub(crate) fn now() -> u64 {
        // Not from /proc/uptime, which need not be there. Linux's interface has a hundred clock ticks to a second.
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        boot.tv_sec.cast_unsigned() * 100 + boot.tv_nsec.cast_unsigned() / 10_000_000
    }

    /// Whether a process bears any tree's mark.
    pub(crate) fn has_any_mark(id: i32) -> bool {
        let mut environment = Vec::new();
        read_environment(id, &mut environment) && has_mark(&environment, |_| true)
    }

    /// Reads the environment of a process. `false`: it is gone.
    fn read_environment(id: i32, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        let read =
            fs::File::open(format!("/proc/{id}/environ")).and_then(|file| file.take(MAX_ENVIRON).read_to_end(buffer));
        if read.is_err() {
            // What is not ours to read (another user's process, or a protected one), or has no environment (the kernel's
            // own), bears no mark that we know of.
            buffer.clear();
            return read_any(id).is_some();
        }
        true
    }

    fn has_mark(environment: &[u8], is_it: impl Fn(&[u8]) -> bool) -> bool {
        let lists = environment
            .split(|&byte| byte == 0)
            .filter_map(|variable| variable.strip_prefix(crate::tree::MARKER_VARIABLE.as_bytes())?.strip_prefix(b"="));
        lists.flat_map(|list| list.split(|&byte| byte == b',')).any(is_it)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_hostile_name_does_not_shift_the_fields() {
            let rest = "S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
            let (process, alive) = parse_stat(5, format!("5 (a) Z 1 (b) {rest}").as_bytes()).expect("well formed");
            assert!(alive);
            assert_eq!((process.parent, process.group, process.session, process.began), (7, 8, 9, 4711));
            assert_eq!(process.name, "a) Z 1 (b");
            assert!(parse_stat(5, b"5 (a").is_none());
        }

        #[test]
        fn this_process_reads_itself() {
            let own = read(std::process::id().cast_signed()).expect("it lives");
            assert!(own.began > 0 && own.began <= now());
            // Both are 0 where the session was begun outside of our pid namespace.
            // SAFETY: getsid takes a number, touches no memory of ours and cannot fail for this process.
            #[allow(unsafe_code, reason = "no safe form of this call bears a session of 0")]
            let session = unsafe { libc::getsid(0) };
            assert_eq!(own.session, session);
        }
    }
}

/// Without a table to read: whether the group has anybody alive, under the leader's id.
#[cfg(not(target_os = "linux"))]
pub(crate) fn find(traits: &Traits<'_>) -> io::Result<Vec<Process>> {
    let Some(leader) = traits.leader else { return Ok(Vec::new()) };
    let group = crate::signal::Group::led_by(leader)?;
    let member = Process { id: leader, parent: 0, group: leader, session: leader, began: 0, name: "?".to_owned() };
    Ok(if group.has_living() { vec![member] } else { Vec::new() })
}
