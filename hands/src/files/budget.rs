//! How much text an answer may hold.

/// What the answer proper may take of 48 KiB; the rest is for notices.
const MAX_BODY_BYTES: usize = 46 * 1024;
/// What the answer proper may take once it is a JSON string: control characters grow sixfold there, and a
/// frame has 64 KiB.
const MAX_BODY_JSON_BYTES: usize = 54 * 1024;

/// What is left of an answer's size, as text and as JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    bytes: usize,
    json: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { bytes: MAX_BODY_BYTES, json: MAX_BODY_JSON_BYTES }
    }

    /// Takes `text`'s size off, or nothing when it does not fit.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let json = json_len(text);
        if text.len() > self.bytes || json > self.json {
            return false;
        }
        self.bytes -= text.len();
        self.json -= json;
        true
    }

    /// Gives back what [`take`](Self::take) took.
    pub(super) fn give_back(&mut self, text: &str) {
        self.bytes += text.len();
        self.json += json_len(text);
    }

    /// The length of the longest start of `text` that fits and ends between characters.
    pub(super) fn fitting(&self, text: &str) -> usize {
        let (mut bytes, mut json) = (0, 0);
        for c in text.chars() {
            json += json_len_of(c);
            if bytes + c.len_utf8() > self.bytes || json > self.json {
                break;
            }
            bytes += c.len_utf8();
        }
        bytes
    }
}

fn json_len(text: &str) -> usize {
    // All but the escaped ones keep their length.
    text.len() + text.bytes().map(escape_growth).sum::<usize>()
}

fn json_len_of(c: char) -> usize {
    c.len_utf8() + u8::try_from(c).map_or(0, |byte| if byte < 0x80 { escape_growth(byte) } else { 0 })
}

fn escape_growth(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        // Some encoders write DEL as \u007f; ours does not, another's may.
        0..0x20 | 0x7f => 5,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_length_is_never_below_what_serde_json_writes() {
        let text: String = (0..=0x17f_u32).filter_map(char::from_u32).chain("\u{2028}😀".chars()).collect();
        let written = serde_json::to_string(&text).map_or(0, |json| json.len() - 2);
        assert!(json_len(&text) >= written);
        assert_eq!(json_len(&text), text.chars().map(json_len_of).sum::<usize>());
    }

    #[test]
    fn a_cut_falls_between_characters_and_control_characters_count_as_they_are_escaped() {
        let budget = Budget { bytes: 10, json: 12 };
        assert_eq!(budget.fitting("€€€€"), 9);
        assert_eq!(budget.fitting("\0\0\0"), 2);
    }
}
