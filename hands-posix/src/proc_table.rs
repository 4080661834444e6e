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

    /// No environment is read past this: more does not fit into the arguments of an exec.
    const MAX_ENVIRON: u64 = 6 * 1024 * 1024;

    /// The living members of a tree. One pass over the system is not a moment in time: only two empty passes
    /// in a row say that a tree is empty.
    pub(crate) fn find(traits: &Traits<'_>) -> io::Result<Vec<Process>> {
        let all = living()?;
        let own = std::process::id().cast_signed();
        let mut members = BTreeSet::new();
        let mut buffer = Vec::new();
        for process in &all {
            let by_session = traits.leader.is_some_and(|leader| process.session == leader || process.group == leader);
            let by_memory = traits.known.get(&process.id) == Some(&process.began);
            if by_session || by_memory || has_marker(process.id, traits.marker, &mut buffer) {
                members.insert(process.id);
            }
        }
        members.remove(&own);
        add_descendants(&all, &mut members, own);
        Ok(all.into_iter().filter(|process| members.contains(&process.id)).collect())
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
        let all = ids()?.filter_map(|id| read_any(id).map(|(process, _)| process));
        Ok(all.filter(|process| process.parent == parent).map(|process| process.id).collect())
    }

    /// One living process.
    pub(crate) fn read(id: i32) -> Option<Process> {
        read_any(id).filter(|(_, alive)| *alive).map(|(process, _)| process)
    }

    fn living() -> io::Result<Vec<Process>> {
        check()?;
        Ok(ids()?.filter_map(read).collect())
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

    fn ids() -> io::Result<impl Iterator<Item = i32>> {
        let entries = fs::read_dir("/proc")?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
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

    fn has_marker(id: i32, marker: &str, buffer: &mut Vec<u8>) -> bool {
        marks(id, buffer).any(|one| one == marker.as_bytes())
    }

    /// Whether a process bears any tree's mark.
    pub(crate) fn has_any_mark(id: i32) -> bool {
        marks(id, &mut Vec::new()).next().is_some()
    }

    fn marks(id: i32, buffer: &mut Vec<u8>) -> impl Iterator<Item = &[u8]> {
        buffer.clear();
        // What is not ours to read (another user's process, or a protected one) bears none that we know of.
        let read =
            fs::File::open(format!("/proc/{id}/environ")).and_then(|file| file.take(MAX_ENVIRON).read_to_end(buffer));
        if read.is_err() {
            buffer.clear();
        }
        let lists = buffer
            .split(|&byte| byte == 0)
            .filter_map(|variable| variable.strip_prefix(crate::tree::MARKER_VARIABLE.as_bytes())?.strip_prefix(b"="));
        lists.flat_map(|list| list.split(|&byte| byte == b','))
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
