//! Request ids as they came.

use std::fmt;

use serde_json::value::RawValue;

/// The longest id of a request that is taken, in bytes of its JSON text. Ids go
/// back in answers, which have a limit of their own, and are kept as keys.
const MAX_ID_BYTES: usize = 1024;

/// The id of a request that we received: any JSON string, whole number or
/// `null`, kept as its JSON text so that the answer carries it with type and
/// value unchanged. `7` and `"7"` are different ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(Text);

/// Ids that count up are short: those are kept where they stand.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Text {
    Short { len: u8, bytes: [u8; Text::SHORT] },
    Long(Box<str>),
}

impl Text {
    /// The quotes and 20 digits.
    const SHORT: usize = 22;
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut bytes = [0; Self::SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short { len, bytes }
            }
            _ => Self::Long(text.into()),
        }
    }
}

impl RequestId {
    /// The id of an answer to a request whose own id could not be read.
    pub(super) fn null() -> Self {
        Self("null".into())
    }

    /// Takes an id from a frame; `None` when JSON-RPC gives it no meaning (an object,
    /// an array, a boolean, a number with a fraction or an exponent) or it is too long.
    pub(super) fn from_raw(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let usable = match text.as_bytes() {
            long if long.len() > MAX_ID_BYTES => false,
            [b'"', ..] | b"null" => true,
            [b'-' | b'0'..=b'9', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
            _ => false,
        };
        usable.then(|| Self(text.into()))
    }

    /// The id as JSON text: `"a-b"` with its quotes, or `7`.
    pub fn as_json(&self) -> &str {
        match &self.0 {
            Text::Short { len, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("it was taken from a whole text")
            }
            Text::Long(text) => text,
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

/// The number in an id that we gave out ourselves: exactly as we wrote it.
pub(super) fn own_number(raw: &RawValue) -> Option<u64> {
    /// As many digits as cannot overflow; the numbers that are given out never get there.
    const MAX_DIGITS: usize = 19;
    let digits = raw.get().strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    if digits.len() > MAX_DIGITS || !matches!(digits, [b'1'..=b'9', ..]) {
        return None;
    }
    digits.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}
