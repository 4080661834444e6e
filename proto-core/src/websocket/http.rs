//! The little of HTTP/1.1 that both ends of an upgrade share.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use httparse::Header;
use sha1::{Digest as _, Sha1};

/// More headers than a sane upgrade has; past it the head counts as too large.
pub(super) const MAX_HEADERS: usize = 64;

/// The `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`, for a server
/// that upgrades by itself and goes on with [`Channel::upgraded`](super::Channel::upgraded).
pub fn accept_key(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"); // RFC 6455, section 1.3
    BASE64.encode(hash.finalize())
}

/// A fresh `Sec-WebSocket-Key`.
pub(super) fn new_key() -> String {
    BASE64.encode(rand::random::<[u8; 16]>())
}

/// Whether `key` is 16 bytes in base64, as a `Sec-WebSocket-Key` must be.
pub(super) fn is_key(key: &str) -> bool {
    BASE64.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// A header that stands more than once although it may not.
#[derive(Debug)]
pub(super) struct Duplicate;

/// The value of a header that may stand once, without surrounding blanks.
pub(super) fn single<'a>(headers: &[Header<'a>], name: &str) -> Result<Option<&'a [u8]>, Duplicate> {
    let mut values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let first = values.next().map(|header| header.value.trim_ascii());
    if values.next().is_some() { Err(Duplicate) } else { Ok(first) }
}

/// The elements of a header that is a list, over all its lines; empty elements are left out.
pub(super) fn list<'h, 'a>(headers: &'h [Header<'a>], name: &'h str) -> impl Iterator<Item = &'a [u8]> {
    headers
        .iter()
        .filter(move |header| header.name.eq_ignore_ascii_case(name))
        .flat_map(|header| header.value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Whether a list header holds this token, in any case of letters.
pub(super) fn has_token(headers: &[Header<'_>], name: &str, token: &str) -> bool {
    list(headers, name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
}

/// Whether these bytes are a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// Whether this byte may stand in the value of a header that we write.
pub(super) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || matches!(byte, b' '..=b'~')
}

/// Whether a header belongs to the upgrade itself, so that no further one of its name may be added.
pub(super) fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 6] =
        ["host", "upgrade", "connection", "authorization", "content-length", "transfer-encoding"];
    let name = name.to_ascii_lowercase();
    name.starts_with("sec-websocket-") || RESERVED.contains(&name.as_str())
}

/// The reason phrase of a status that is refused with.
pub(super) fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        421 => "Misdirected Request",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Refused",
    }
}

/// Appends one header line.
pub(super) fn push_header(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_that_of_the_rfc() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(is_key("dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(is_key(&new_key()));
        assert!(!is_key("dGhlIHNhbXBsZQ==") && !is_key("") && !is_key("dGhlIHNhbXBsZSBub25jZQ"));
    }
}
