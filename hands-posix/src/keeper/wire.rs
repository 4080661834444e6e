//! What a program and its keeper say to each other: small fixed messages, with descriptors beside them.
//!
//! Both ends are the same executable, so there are no versions. Numbers are in the machine's own order.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use crate::shell::Shell;
use crate::spawn::Program;

/// The most descriptors that go with a message.
const MAX_DESCRIPTORS: usize = 8;

/// The longest message.
pub(super) const MAX_MESSAGE: usize = 4 * (MAX_ADOPTED + 1);

/// The most adopted processes that are told at once.
pub(super) const MAX_ADOPTED: usize = 1_023;

/// No command line and environment is longer than this.
const MAX_PAYLOAD: u64 = 8 * 1024 * 1024;

/// What a program asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Start a program. Descriptors: the payload, the directory, standard output, standard error, the pipe for
    /// the status, then standard input and the pipe of the beginning, where there are such.
    Spawn { stdin: bool, begun: bool },
    /// Collect the status of a leader that has exited.
    Release(i32),
    /// Kill the group of a leader and collect its status. Not answered.
    Abandon(i32),
    /// Tell which processes were adopted.
    Adopted,
}

impl Request {
    pub(super) fn encode(self) -> [u8; 8] {
        let (kind, flags, id) = match self {
            Request::Spawn { stdin, begun } => (1, u8::from(stdin) | u8::from(begun) << 1, 0),
            Request::Release(id) => (2, 0, id),
            Request::Abandon(id) => (3, 0, id),
            Request::Adopted => (4, 0, 0),
        };
        let [a, b, c, d] = id.to_ne_bytes();
        [kind, flags, 0, 0, a, b, c, d]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[kind, flags, 0, 0, a, b, c, d] = bytes else { return None };
        let id = i32::from_ne_bytes([a, b, c, d]);
        match kind {
            1 => Some(Request::Spawn { stdin: flags & 1 != 0, begun: flags & 2 != 0 }),
            2 => Some(Request::Release(id)),
            3 => Some(Request::Abandon(id)),
            4 => Some(Request::Adopted),
            _ => None,
        }
    }
}

/// What the keeper answers to a spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpawnReply {
    Started(i32),
    /// With the number of the error.
    DirectoryFailed(i32),
    ProgramFailed(i32),
    SystemFailed(i32),
}

impl SpawnReply {
    pub(super) fn encode(self) -> [u8; 8] {
        let (kind, number) = match self {
            SpawnReply::Started(id) => (0i32, id),
            SpawnReply::DirectoryFailed(error) => (1, error),
            SpawnReply::ProgramFailed(error) => (2, error),
            SpawnReply::SystemFailed(error) => (3, error),
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, number] = numbers(bytes)[..] else { return None };
        match kind {
            0 => Some(SpawnReply::Started(number)),
            1 => Some(SpawnReply::DirectoryFailed(number)),
            2 => Some(SpawnReply::ProgramFailed(number)),
            3 => Some(SpawnReply::SystemFailed(number)),
            _ => None,
        }
    }
}

/// Reads a message of numbers.
pub(super) fn numbers(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks().0.iter().map(|&number| i32::from_ne_bytes(number)).collect()
}

/// Sends one message. Blocks while the other end reads nothing.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(SendFlags::empty(), socket, bytes, descriptors)
}

/// Sends one message, or fails with `WouldBlock` while the other end reads nothing.
pub(super) fn send_now(socket: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    send_with(SendFlags::DONTWAIT, socket, bytes, &[])
}

fn send_with(flags: SendFlags, socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one message: its length, 0 at the end of the connection. Blocks until there is one.
pub(super) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
            Ok(message) => {
                let rights = control.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                    _ => None,
                });
                return Ok((message.bytes, rights.flatten().collect()));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Puts a program and its environment into a file without a name, which any length fits into.
pub(super) fn write_payload(program: &Program, env: &[(OsString, OsString)]) -> io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    match program {
        Program::Shell { shell, command } => {
            put_number(&mut bytes, 0);
            put_text(&mut bytes, shell.path().as_os_str());
            put_text(&mut bytes, command.as_ref());
        }
        Program::Argv(argv) => {
            put_number(&mut bytes, 1);
            put_number(&mut bytes, argv.len());
            argv.iter().for_each(|argument| put_text(&mut bytes, argument));
        }
    }
    put_number(&mut bytes, env.len());
    for (name, value) in env {
        put_text(&mut bytes, name);
        put_text(&mut bytes, value);
    }
    let file = rustix::fs::memfd_create("bma-spawn", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Reads what [`write_payload`] wrote.
pub(super) fn read_payload(file: OwnedFd) -> io::Result<(Program, Vec<(OsString, OsString)>)> {
    let mut file = std::fs::File::from(file);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_PAYLOAD).read_to_end(&mut bytes)?;
    decode_payload(&bytes).ok_or_else(|| io::Error::other("the request is damaged or too long"))
}

fn decode_payload(mut bytes: &[u8]) -> Option<(Program, Vec<(OsString, OsString)>)> {
    let bytes = &mut bytes;
    let program = match take_number(bytes)? {
        0 => {
            let shell = Shell::at(take_text(bytes)?.into());
            Program::Shell { shell, command: take_text(bytes)?.into_string().ok()? }
        }
        1 => Program::Argv(take_list(bytes, take_text)?),
        _ => return None,
    };
    let env = take_list(bytes, |bytes| Some((take_text(bytes)?, take_text(bytes)?)))?;
    bytes.is_empty().then_some((program, env))
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&number.to_ne_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &OsStr) {
    put_number(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(usize::from_ne_bytes(*number))
}

fn take_text(bytes: &mut &[u8]) -> Option<OsString> {
    let length = take_number(bytes)?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(OsString::from_vec(text.to_vec()))
}

fn take_list<T>(bytes: &mut &[u8], mut one: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = take_number(bytes)?;
    // Grown one by one: a damaged count allocates nothing.
    (0..count).map(|_| one(bytes)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let requests = [
            Request::Spawn { stdin: true, begun: false },
            Request::Spawn { stdin: false, begun: true },
            Request::Release(7),
            Request::Abandon(-1),
            Request::Adopted,
        ];
        for request in requests {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        assert_eq!(Request::decode(&[9; 8]), None);
        assert_eq!(Request::decode(&[1; 7]), None);
        for reply in [SpawnReply::Started(12), SpawnReply::ProgramFailed(2), SpawnReply::SystemFailed(11)] {
            assert_eq!(SpawnReply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn payloads_come_back_as_they_were_and_damaged_ones_do_not() {
        let env = vec![(OsString::from("A"), OsString::from_vec(vec![0xff, b'=']))];
        let argv = vec![OsString::from("x"), OsString::new(), "y".repeat(300_000).into()];
        let file = write_payload(&Program::Argv(argv.clone()), &env).unwrap();
        let (program, read_env) = read_payload(file).unwrap();
        assert!(matches!(program, Program::Argv(read) if read == argv));
        assert_eq!(read_env, env);

        let shell = Program::Shell { shell: Shell::at("/bin/bash".into()), command: "echo €".into() };
        let mut bytes = Vec::new();
        std::fs::File::from(write_payload(&shell, &env).unwrap()).rewind().unwrap();
        let mut file = std::fs::File::from(write_payload(&shell, &env).unwrap());
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert!(matches!(decode_payload(&bytes), Some((Program::Shell { command, .. }, _)) if command == "echo €"));
        for length in 0..bytes.len() {
            assert!(decode_payload(&bytes[..length]).is_none());
        }
    }
}
