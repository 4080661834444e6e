//! Lines from stdin and to stdout, on two threads of their own: neither can be waited for without blocking.

use std::io::{self, BufRead, Write as _};
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::answer::Out;
use crate::common::{Failure, tell};

/// The longest line taken, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;

/// Lines that were read and not looked at.
const LINES_AHEAD: usize = 16;

/// Lines that wait to be written. Whoever has one more waits.
const LINES_WAITING: usize = 1024;

/// One line of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Text(String),
    TooLong,
    NotText,
}

/// Reads stdin to its end; then the channel closes.
pub(crate) fn reader() -> Result<mpsc::Receiver<Line>, Failure> {
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    // It cannot be asked to stop while it waits for input, and ends with the process.
    start("bma-stdin", move || {
        let mut stdin = io::stdin().lock();
        loop {
            match read_line(&mut stdin) {
                Ok(Some(line)) => {
                    if sender.blocking_send(line).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return tell(&format!("bma brain: stdin: {error}; it counts as ended")),
            }
        }
    })?;
    Ok(receiver)
}

/// Writes lines to stdout until all senders are gone; the receiver then says whether all were.
pub(crate) fn writer() -> Result<(Out, oneshot::Receiver<()>), Failure> {
    let (sender, mut lines) = mpsc::channel::<String>(LINES_WAITING);
    let (all_written, written) = oneshot::channel();
    start("bma-stdout", move || {
        let mut stdout = io::stdout().lock();
        while let Some(mut line) = lines.blocking_recv() {
            line.push('\n');
            if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
                // Closing the channel is how the others learn of it.
                return;
            }
        }
        // Nobody may be waiting.
        let _ = all_written.send(());
    })?;
    Ok((Out::new(sender), written))
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| Failure::not_done(format!("no thread can be started: {error}")))
}

/// The next line, without its end; `None` at the end of the input.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let (mut any, mut too_long) = (false, false);
    loop {
        let bytes = match input.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        any |= !bytes.is_empty();
        if line.len() + piece.len() > MAX_LINE_BYTES {
            // The rest is read to nowhere.
            too_long = true;
            line = Vec::new();
        }
        if !too_long {
            line.extend_from_slice(piece);
        }
        let (used, over) = (piece.len() + usize::from(end.is_some()), end.is_some() || bytes.is_empty());
        input.consume(used);
        if over {
            break;
        }
    }
    Ok(match any {
        false => None,
        true if too_long => Some(Line::TooLong),
        true => Some(String::from_utf8(line).map_or(Line::NotText, Line::Text)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use std::io::BufReader;

    use super::*;

    fn read(input: &[u8]) -> Vec<Line> {
        // A small buffer, so that lines come in pieces.
        let mut input = BufReader::with_capacity(7, input);
        std::iter::from_fn(|| read_line(&mut input).unwrap()).collect()
    }

    fn text(text: &str) -> Line {
        Line::Text(text.to_owned())
    }

    #[test]
    fn lines_come_whole_and_the_last_one_needs_no_end() {
        assert_eq!(read(b""), []);
        assert_eq!(read(b"\n"), [text("")]);
        assert_eq!(
            read(b"one\n\ntwo and a bit\r\nthree"),
            [text("one"), text(""), text("two and a bit\r"), text("three")]
        );
        assert_eq!(read(b"\xff\nnext\n"), [Line::NotText, text("next")]);
    }

    #[test]
    fn a_line_over_the_limit_is_left_out_and_the_next_one_is_read() {
        let longest = "x".repeat(MAX_LINE_BYTES);
        assert_eq!(read(format!("{longest}\nnext").as_bytes()), [text(&longest), text("next")]);
        assert_eq!(read(format!("{longest}x\nnext").as_bytes()), [Line::TooLong, text("next")]);
        assert_eq!(read(format!("{longest}{longest}{longest}").as_bytes()), [Line::TooLong]);
    }
}
