//! How a path is written in an answer, one to a line whatever its bytes are.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A path as it stands, or in double quotes with C's escapes when it holds control characters,
/// is not UTF-8, or begins with a double quote itself.
pub(super) fn show(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !text.starts_with('"') && !text.chars().any(char::is_control) => Cow::Borrowed(text),
        _ => Cow::Owned(quote(path)),
    }
}

fn quote(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len() + 8);
    out.push('"');
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|byte| octal(&mut out, byte));
                }
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| octal(&mut out, *byte));
    }
    out.push('"');
    out
}

fn octal(out: &mut String, byte: u8) {
    // Writing to a String does not fail.
    let _ = write!(out, "\\{byte:03o}");
}

/// `1 file`, `2 files`: a count with its noun.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// 1234567 as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_take_one_line_and_stay_apart() {
        assert_eq!(show(b"src/a b.rs"), "src/a b.rs");
        assert_eq!(show("größe.txt".as_bytes()), "größe.txt");
        assert_eq!(show(b"a\nb\t\\\"c"), r#""a\nb\t\\\"c""#);
        assert_eq!(show(b"caf\xe9"), r#""caf\351""#);
        assert_eq!(show(b"\"quoted\""), r#""\"quoted\"""#);
        assert_eq!(show(b"-rf"), "-rf");
        assert_eq!(show(b"bell\x07\xc2\x85"), r#""bell\007\302\205""#);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(1, "file", "files"), "1 file");
    }
}
