//! A finished command, and the text a model reads of it.

use bma_proto_core::contract::ToolOutcome;
use bma_proto_core::contract::defaults::CORE_INLINE_RESULT_BYTES;

use super::ToolOutput;

/// A finished command.
///
/// Its text is stdout, then stderr, each ended by a newline if it lacks one, then
/// the notices, a line each, then always `exit_code: N` without a final newline.
/// Text over the limit (48 KiB unless said otherwise), and output marked as
/// truncated, is cut to a preview: half of the limit for stdout and a quarter for
/// stderr, of each the beginning and the end, and the last line becomes
/// `exit_code: N (output truncated to fit the result; M bytes total)`.
/// Bytes that are no UTF-8 are shown as U+FFFD; cuts fall between characters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BashResult {
    /// What the command wrote to its standard output.
    pub stdout: Captured,
    /// What the command wrote to its standard error.
    pub stderr: Captured,
    /// The exit code; 128 + n after death by signal n. Not zero is no error of the tool.
    pub exit_code: i64,
    /// The output was already cut short by whoever made this.
    pub truncated: bool,
    /// What else the model must know, a line each: a signal's name, a survivor, a time-out.
    pub notices: Vec<String>,
    /// The command did not run to its own end (a time-out, say).
    pub is_error: bool,
    /// How the call ended: `succeeded` unless said otherwise.
    pub outcome: ToolOutcome,
}

/// One stream of a command: its beginning, its end, and how long it was in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl Captured {
    /// A stream of `total` bytes of which the beginning and the end were kept.
    /// When they are all of it, `tail` begins where `head` ends.
    pub fn new(head: Vec<u8>, tail: Vec<u8>, total: u64) -> Self {
        let total = total.max((head.len() + tail.len()) as u64);
        Self { head, tail, total }
    }

    /// How many bytes the stream had.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// How many bytes between beginning and end were not kept.
    pub fn omitted_bytes(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The bytes that were kept, the end directly after the beginning.
    pub fn kept(&self) -> Vec<u8> {
        [self.head.as_slice(), self.tail.as_slice()].concat()
    }

    fn is_whole(&self) -> bool {
        self.omitted_bytes() == 0
    }

    /// All of it as text, ended by a newline if there is any.
    fn push_whole(&self, out: &mut String) {
        let start = out.len();
        out.push_str(&String::from_utf8_lossy(&self.kept()));
        end_line(out, start);
    }

    /// At most `budget` bytes of text, the beginning and the end, with a line
    /// between them that counts what was left out.
    fn push_preview(&self, out: &mut String, budget: usize) {
        let start = out.len();
        let kept;
        let (head, tail): (&[u8], &[u8]) = if self.is_whole() {
            kept = self.kept();
            let text = String::from_utf8_lossy(&kept);
            if text.len() < budget {
                out.push_str(&text);
                return end_line(out, start);
            }
            (&kept, &kept)
        } else {
            (&self.head, &self.tail)
        };
        let budget = budget.saturating_sub(LEFT_OUT_LINE);
        let (first, first_bytes) = prefix(head, budget / 2);
        let (last, last_bytes) = suffix(tail, budget - budget / 2);
        let left_out = self.total.saturating_sub((first_bytes + last_bytes) as u64);
        out.push_str(&first);
        end_line(out, start);
        out.push_str(&format!("[... {left_out} bytes left out ...]\n"));
        let start = out.len();
        out.push_str(&last);
        end_line(out, start);
    }
}

impl From<Vec<u8>> for Captured {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes, Vec::new(), 0)
    }
}

impl From<String> for Captured {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<&str> for Captured {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl BashResult {
    /// A command that ran to its end.
    pub fn new(stdout: impl Into<Captured>, stderr: impl Into<Captured>, exit_code: i64) -> Self {
        Self {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit_code,
            truncated: false,
            notices: Vec::new(),
            is_error: false,
            outcome: ToolOutcome::Succeeded,
        }
    }

    /// Adds a line of our own before the last one.
    pub fn notice(mut self, text: impl Into<String>) -> Self {
        self.notices.push(text.into());
        self
    }

    /// How many bytes the command wrote, on both streams.
    pub fn total_bytes(&self) -> u64 {
        self.stdout.total.saturating_add(self.stderr.total)
    }

    /// The text, in at most `limit` bytes (no less than 1 KiB), and in at most a quarter more as a JSON string,
    /// where control characters grow sixfold.
    pub fn text_within(&self, limit: usize) -> String {
        let limit = limit.max(1_024);
        let notices = self.notice_lines(limit / 8);
        let whole = self.stdout.is_whole() && self.stderr.is_whole() && !self.truncated;
        if whole && self.total_bytes() <= limit as u64 {
            let mut text = String::with_capacity(self.total_bytes() as usize + notices.len() + 32);
            self.stdout.push_whole(&mut text);
            self.stderr.push_whole(&mut text);
            text.push_str(&notices);
            text.push_str(&format!("exit_code: {}", self.exit_code));
            if text.len() <= limit && json_len(&text) <= json_limit(limit) {
                return text;
            }
        }
        let mut budget = limit;
        loop {
            let text = self.preview(budget, &notices);
            let json = json_len(&text);
            if json <= json_limit(limit) || budget == 0 {
                return text;
            }
            // In proportion, and a little less, since not every part of the text grows alike.
            budget = (budget * json_limit(limit) / json).saturating_sub(64);
        }
    }

    fn preview(&self, budget: usize, notices: &str) -> String {
        let mut text = String::new();
        self.stdout.push_preview(&mut text, budget / 2);
        self.stderr.push_preview(&mut text, budget / 4);
        text.push_str(notices);
        text.push_str(&format!(
            "exit_code: {} (output truncated to fit the result; {} bytes total)",
            self.exit_code,
            self.total_bytes()
        ));
        text
    }

    /// The answer of a tool that ran this command, in at most 48 KiB.
    pub fn output(&self) -> ToolOutput {
        self.output_within(CORE_INLINE_RESULT_BYTES)
    }

    /// The answer of a tool that ran this command, in at most `limit` bytes of
    /// text. For a frame that the escapes of JSON made too large: ask again for less.
    pub fn output_within(&self, limit: usize) -> ToolOutput {
        ToolOutput {
            is_error: self.is_error,
            outcome: self.outcome.clone(),
            ..ToolOutput::text(self.text_within(limit))
        }
    }

    fn notice_lines(&self, budget: usize) -> String {
        let mut lines = String::new();
        for notice in &self.notices {
            let (line, _) = prefix(notice.as_bytes(), budget.saturating_sub(lines.len() + 1));
            lines.push_str(&line.replace('\n', " "));
            lines.push('\n');
        }
        lines
    }
}

fn json_limit(limit: usize) -> usize {
    limit + limit / 4
}

/// How long `text` is inside a JSON string, no less than any writer makes it.
fn json_len(text: &str) -> usize {
    text.chars()
        .map(|character| match character {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            '\0'..'\u{20}' | '\u{7f}' => 6,
            other => other.len_utf8(),
        })
        .sum()
}

/// Room for the longest line that counts what was left out, and for the newlines around it.
const LEFT_OUT_LINE: usize = "\n[... 18446744073709551615 bytes left out ...]\n\n".len();

fn end_line(out: &mut String, start: usize) {
    if out.len() > start && !out.ends_with('\n') {
        out.push('\n');
    }
}

/// The longest beginning of `bytes` whose text has at most `budget` bytes, and how many bytes it stands for.
fn prefix(bytes: &[u8], budget: usize) -> (String, usize) {
    let mut text = String::new();
    let mut used = 0;
    // Text is never shorter than the bytes it stands for less the two of a broken
    // four-byte character, so a window is enough to look at.
    for chunk in bytes[..bytes.len().min(budget + 4)].utf8_chunks() {
        let valid = chunk.valid();
        let fits = valid.floor_boundary(budget - text.len());
        text.push_str(&valid[..fits]);
        used += fits;
        let broken = chunk.invalid();
        // The last bytes of the window may be a character that only the window cut.
        let cut_by_window = used + broken.len() < bytes.len() && used + broken.len() >= budget;
        if fits < valid.len() || broken.is_empty() || cut_by_window || text.len() + REPLACEMENT.len() > budget {
            break;
        }
        text.push_str(REPLACEMENT);
        used += broken.len();
    }
    (text, used)
}

/// The longest end of `bytes` whose text has at most `budget` bytes, and how many bytes it stands for.
fn suffix(bytes: &[u8], budget: usize) -> (String, usize) {
    let mut start = bytes.len().saturating_sub(budget);
    // Not inside a character: its later bytes are 10xxxxxx, at most three of them.
    let limit = bytes.len().min(start + 3);
    while start > 0 && start < limit && bytes[start] & 0xC0 == 0x80 {
        start += 1;
    }
    let text = String::from_utf8_lossy(&bytes[start..]);
    if text.len() <= budget {
        return (text.into_owned(), bytes.len() - start);
    }
    // Broken bytes grow: drop whole chunks from the front until the rest fits.
    let mut excess = text.len() - budget;
    let mut kept = String::new();
    for chunk in bytes[start..].utf8_chunks() {
        let valid = chunk.valid();
        let dropped = if excess == 0 { 0 } else { valid.ceil_boundary(excess) };
        excess = excess.saturating_sub(dropped);
        kept.push_str(&valid[dropped..]);
        start += dropped;
        if chunk.invalid().is_empty() {
            continue;
        }
        if excess > 0 {
            excess = excess.saturating_sub(REPLACEMENT.len());
            start += chunk.invalid().len();
        } else {
            kept.push_str(REPLACEMENT);
        }
    }
    (kept, bytes.len() - start)
}

const REPLACEMENT: &str = "\u{FFFD}";

/// Character boundaries near an index (`str` has them only from Rust 1.91 on).
trait Boundary {
    fn floor_boundary(&self, index: usize) -> usize;
    fn ceil_boundary(&self, index: usize) -> usize;
}

impl Boundary for str {
    fn floor_boundary(&self, index: usize) -> usize {
        let mut index = index.min(self.len());
        while !self.is_char_boundary(index) {
            index -= 1;
        }
        index
    }

    fn ceil_boundary(&self, index: usize) -> usize {
        let mut index = index.min(self.len());
        while !self.is_char_boundary(index) {
            index += 1;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use super::*;

    #[test]
    fn text_ends_each_stream_and_closes_with_the_exit_code() {
        let result = BashResult::new("out", "err", 3).notice("killed by SIGTERM");
        assert_eq!(result.text_within(49_152), "out\nerr\nkilled by SIGTERM\nexit_code: 3");
        assert_eq!(BashResult::new("out\n", "", 0).text_within(49_152), "out\nexit_code: 0");
        assert_eq!(BashResult::new("", "", 0).text_within(49_152), "exit_code: 0");
        let output = BashResult::new("", "no", 1).output();
        assert!(!output.is_error, "an exit code is no error of the tool");
    }

    #[test]
    fn bytes_that_are_no_utf8_become_replacement_characters() {
        let result = BashResult::new(b"caf\xe9!".to_vec(), "", 0);
        assert_eq!(result.text_within(49_152), "caf\u{FFFD}!\nexit_code: 0");
    }

    #[test]
    fn larger_output_is_cut_to_half_and_quarter() {
        let long = "x".repeat(100_000);
        let text = BashResult::new(long.clone(), long, 7).text_within(49_152);
        assert!(text.ends_with("exit_code: 7 (output truncated to fit the result; 200000 bytes total)"), "{text}");
        assert!(text.len() <= 49_152);
        let (out, err) = text.split_at(text.match_indices("left out ...]\n").next().unwrap().0);
        assert!(out.len() <= 24_576 && out.len() > 12_000 && err.len() < 26_000, "{} {}", out.len(), err.len());
        assert!(text.matches('x').count() > 36_000);
    }

    #[test]
    fn what_was_left_out_is_counted_exactly() {
        let bytes: Vec<u8> = (0..60_000u32).map(|i| b'a' + (i % 26) as u8).collect();
        let text = BashResult::new(bytes, "", 0).text_within(49_152);
        let letters: usize = text.lines().take(1).chain(text.lines().skip(2).take(1)).map(str::len).sum();
        let counted: usize = text.lines().nth(1).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(letters + counted, 60_000);
    }

    #[test]
    fn a_gap_of_the_capture_counts_as_left_out() {
        let captured = Captured::new(b"begin".to_vec(), b"end".to_vec(), 1_000_000_000);
        let text = BashResult::new(captured, "", 0).text_within(49_152);
        assert_eq!(
            text,
            "begin\n[... 999999992 bytes left out ...]\nend\n\
             exit_code: 0 (output truncated to fit the result; 1000000000 bytes total)"
        );
    }

    #[test]
    fn marked_as_truncated_says_so_even_when_small() {
        let mut result = BashResult::new("some\n", "", 0);
        result.truncated = true;
        assert_eq!(
            result.text_within(49_152),
            "some\nexit_code: 0 (output truncated to fit the result; 5 bytes total)"
        );
    }

    #[test]
    fn cuts_fall_between_characters() {
        for pad in 0..4 {
            let text = "a".repeat(pad) + &"€𝄞é".repeat(10_000);
            let shown = BashResult::new(text, "", 0).text_within(49_152);
            assert!(!shown.contains('\u{FFFD}'), "pad {pad}");
            assert!(shown.len() <= 49_152);
        }
    }

    #[test]
    fn control_characters_are_cut_before_a_frame_would_be() {
        for length in [20_000, 2_000_000] {
            let zeros = vec![0; length];
            let text = BashResult::new(zeros.clone(), zeros, 9).text_within(49_152);
            assert!(serde_json::to_string(&text).unwrap().len() <= 61_440 + 2);
            assert!(text.matches('\0').count() > 6_000, "{}", text.matches('\0').count());
            let last = format!("exit_code: 9 (output truncated to fit the result; {} bytes total)", 2 * length);
            assert!(text.ends_with(&last), "{}", &text[text.len() - 100..]);
        }
    }

    #[test]
    fn any_bytes_fit_any_limit() {
        let mut state = 1u64;
        for round in 0..400usize {
            let bytes: Vec<u8> = (0..round * 37)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let byte = (state >> 56) as u8;
                    if round % 3 == 0 { byte | 0x80 } else { byte }
                })
                .collect();
            for limit in [1_024, 1_500, 4_096] {
                let text = BashResult::new(bytes.clone(), bytes.clone(), -1).text_within(limit);
                assert!(text.len() <= limit, "{} > {limit}", text.len());
                assert!(serde_json::to_string(&text).unwrap().len() <= limit + limit / 4 + 2);
            }
        }
    }
}
