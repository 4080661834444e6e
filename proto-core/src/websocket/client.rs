//! The dialling end of the upgrade: writes the request, reads the answer.

use httparse::{Header, Response, Status};

use super::config::{ClientConfig, ConfigError};
use super::error::{UpgradeError, Violation};
use super::{MAX_HEAD_BYTES, http};
use crate::contract::Secret;

/// How much of a refusal's body is read for the error.
const MAX_EXCERPT_BYTES: usize = 1024;

/// A token is kept out of an excerpt also where the excerpt cuts it off, from this length on.
const MIN_TELLING_BYTES: usize = 6;

/// A text that holds a token this long holds it by no coincidence. A shorter one can be a word like any other: blotting
/// that out would garble the text, and tell the token to whoever knows how the text reads.
const MIN_UNMISTAKABLE_BYTES: usize = 12;

/// In the place of a text that holds a short token, perhaps by coincidence.
const LEFT_OUT: &str = "(what it said is left out: the token, or a word like it, is in there)";

/// Waits for the answer to an upgrade request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The `Sec-WebSocket-Accept` that must come.
    accept: String,
    protocols: Vec<String>,
    bearer: Option<Secret>,
    head: Vec<u8>,
    rejected: Option<Rejected>,
}

/// An answer other than 101, whose body is still coming.
#[derive(Debug)]
struct Rejected {
    status: u16,
    body: Vec<u8>,
    length: Length,
}

#[derive(Debug)]
enum Length {
    Known(u64),
    Chunked,
    UntilEnd,
}

/// What came of some bytes.
#[derive(Debug)]
pub(super) enum Step {
    More,
    Upgraded {
        /// The subprotocol the server chose, or why that is none.
        protocol: Result<String, Violation>,
        /// How many of the bytes belonged to the head.
        consumed: usize,
    },
    Failed(UpgradeError),
}

impl Answer {
    /// Appends the request and waits for its answer.
    pub(super) fn new(config: ClientConfig, out: &mut Vec<u8>) -> Result<Self, ConfigError> {
        config.check()?;
        let target = config.request_target()?;
        let key = http::new_key();
        out.extend_from_slice(format!("GET {target} HTTP/1.1\r\n").as_bytes());
        http::push_header(out, "Host", &config.host);
        http::push_header(out, "Upgrade", "websocket");
        http::push_header(out, "Connection", "Upgrade");
        http::push_header(out, "Sec-WebSocket-Version", "13");
        http::push_header(out, "Sec-WebSocket-Key", &key);
        http::push_header(out, "Sec-WebSocket-Protocol", &config.protocols.join(", "));
        let bearer = config.bearer.filter(|bearer| !bearer.is_empty());
        if let Some(bearer) = &bearer {
            out.extend_from_slice(b"Authorization: Bearer ");
            out.extend_from_slice(bearer.expose().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        for (name, value) in &config.headers {
            http::push_header(out, name, value);
        }
        out.extend_from_slice(b"\r\n");
        if out.len() > MAX_HEAD_BYTES {
            return Err(ConfigError::TooLarge { bytes: out.len() });
        }
        let accept = http::accept_key(&key);
        Ok(Self { accept, protocols: config.protocols, bearer, head: Vec::new(), rejected: None })
    }

    pub(super) fn capacity(&self) -> usize {
        self.head.capacity() + self.rejected.as_ref().map_or(0, |rejected| rejected.body.capacity())
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Step {
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            if let Some(rejected) = &mut self.rejected {
                return if rejected.receive(rest) { Step::Failed(self.give_up()) } else { Step::More };
            }
            let before = self.head.len();
            let taken = rest.len().min(MAX_HEAD_BYTES - before);
            self.head.extend_from_slice(&rest[..taken]);
            let mut headers = [httparse::EMPTY_HEADER; http::MAX_HEADERS];
            let mut response = Response::new(&mut headers);
            let length = match response.parse(&self.head) {
                Ok(Status::Complete(length)) => length,
                Ok(Status::Partial) if self.head.len() < MAX_HEAD_BYTES => return Step::More,
                Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return Step::Failed(UpgradeError::HeadTooLarge);
                }
                Err(_) => return Step::Failed(UpgradeError::Answer("it is not HTTP/1.1")),
            };
            // `before` bytes were no complete head, so the head ends in these bytes.
            consumed += length.saturating_sub(before);
            match response.code.unwrap_or_default() {
                101 => {
                    return match read_upgrade(&response, &self.accept, &self.protocols) {
                        Ok(protocol) => Step::Upgraded { protocol, consumed },
                        Err(why) => Step::Failed(UpgradeError::Answer(why)),
                    };
                }
                // Informational: the answer proper follows.
                100..=199 => {}
                status => {
                    let length = body_length(status, response.headers);
                    self.rejected = Some(Rejected { status, body: Vec::new(), length });
                }
            }
            self.head.clear();
        }
    }

    /// The error when the stream ends: what was read of a refusal, or that it ended too early.
    pub(super) fn end_of_stream(&mut self) -> UpgradeError {
        if self.rejected.is_some() { self.give_up() } else { UpgradeError::Ended }
    }

    /// The refusal as far as it has come, if it is one.
    pub(super) fn rejection(&mut self) -> Option<UpgradeError> {
        self.rejected.is_some().then(|| self.give_up())
    }

    fn give_up(&mut self) -> UpgradeError {
        let Some(rejected) = self.rejected.take() else { return UpgradeError::Ended };
        let body = excerpt(&rejected.text(), self.bearer.as_ref());
        UpgradeError::Rejected { status: rejected.status, body }
    }
}

impl Rejected {
    /// Takes more of the body; true when nothing more is wanted.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_EXCERPT_BYTES - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let enough = match self.length {
            Length::Known(length) => self.body.len() as u64 >= length,
            Length::Chunked => decode_chunks(&self.body).1,
            Length::UntilEnd => false,
        };
        enough || self.body.len() == MAX_EXCERPT_BYTES
    }

    fn text(&self) -> Vec<u8> {
        match self.length {
            Length::Known(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.body.len());
                self.body[..length].to_vec()
            }
            Length::Chunked => decode_chunks(&self.body).0,
            Length::UntilEnd => self.body.clone(),
        }
    }
}

/// Checks a 101 answer. `Ok(Err(..))` is an upgrade without a subprotocol that we could speak.
fn read_upgrade(
    response: &Response<'_, '_>,
    accept: &str,
    offered: &[String],
) -> Result<Result<String, Violation>, &'static str> {
    let headers = &*response.headers;
    if response.version != Some(1) {
        return Err("it is not HTTP/1.1");
    }
    if !http::has_token(headers, "upgrade", "websocket") {
        return Err("its Upgrade header does not name websocket");
    }
    if !http::has_token(headers, "connection", "upgrade") {
        return Err("its Connection header does not name Upgrade");
    }
    match http::single(headers, "sec-websocket-accept") {
        Ok(Some(value)) if value == accept.as_bytes() => {}
        Ok(_) => return Err("its Sec-WebSocket-Accept does not match the key"),
        Err(http::Duplicate) => return Err("its Sec-WebSocket-Accept stands more than once"),
    }
    if http::list(headers, "sec-websocket-extensions").next().is_some() {
        return Err("it names an extension that was not offered");
    }
    let chosen = http::single(headers, "sec-websocket-protocol")
        .map_err(|http::Duplicate| "its Sec-WebSocket-Protocol stands more than once")?;
    let known = offered.iter().find(|offered| chosen == Some(offered.as_bytes()));
    Ok(known.cloned().ok_or_else(|| Violation::Subprotocol { ours: offered.join(", ") }))
}

fn body_length(status: u16, headers: &[Header<'_>]) -> Length {
    if matches!(status, 204 | 304) {
        return Length::Known(0);
    }
    if http::has_token(headers, "transfer-encoding", "chunked") {
        return Length::Chunked;
    }
    let length = http::single(headers, "content-length").ok().flatten();
    let length = length.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    length.map_or(Length::UntilEnd, Length::Known)
}

/// The content of a chunked body as far as it goes, and whether its end was seen.
/// A malformed body ends where it is malformed: this is for an error's text only.
fn decode_chunks(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    loop {
        let (start, size) = match httparse::parse_chunk_size(body) {
            Ok(Status::Complete((_, 0))) | Err(_) => return (content, true),
            Ok(Status::Complete((start, size))) => (start, usize::try_from(size).unwrap_or(usize::MAX)),
            Ok(Status::Partial) => return (content, false),
        };
        let data = &body[start..];
        content.extend_from_slice(&data[..size.min(data.len())]);
        // Each chunk is followed by a line end.
        match size.checked_add(2).and_then(|length| data.get(length..)) {
            Some(rest) => body = rest,
            None => return (content, false),
        }
    }
}

/// One line of what a server said, without the token should it repeat that.
fn excerpt(body: &[u8], bearer: Option<&Secret>) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    if let Some(bearer) = bearer {
        let token = bearer.expose();
        let told = text.replace(token, "(token)");
        let cut_off = (MIN_TELLING_BYTES..token.len())
            .rev()
            .find(|length| told.as_bytes().ends_with(&token.as_bytes()[..*length]));
        if token.len() < MIN_UNMISTAKABLE_BYTES && (told != text || cut_off.is_some()) {
            return LEFT_OUT.to_owned();
        }
        text = told;
        // The token is ASCII, so this is a character boundary.
        text.truncate(text.len() - cut_off.unwrap_or(0));
    }
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_their_end_is_seen() {
        assert_eq!(decode_chunks(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), (b"abcde".to_vec(), true));
        assert_eq!(decode_chunks(b"3\r\nabc\r\n5\r\nde"), (b"abcde".to_vec(), false));
        assert_eq!(decode_chunks(b"3\r\nabc\r"), (b"abc".to_vec(), false));
        assert_eq!(decode_chunks(b"ffffffffffffffff\r\nabc"), (b"abc".to_vec(), false));
        assert_eq!(decode_chunks(b"zz\r\nabc"), (Vec::new(), true));
    }

    #[test]
    fn an_excerpt_never_shows_the_token() {
        let token = Secret::new("s3cr3t-token");
        assert_eq!(excerpt(b" bad \r\n\x1b[2Jtoken s3cr3t-token!\n", Some(&token)), "bad [2Jtoken (token)!");
        assert_eq!(excerpt(b"token s3cr3t-to", Some(&token)), "token");
        assert_eq!(excerpt(b"\xff\xfe", None), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_token_that_is_a_word_garbles_nothing_and_is_not_told_by_a_gap() {
        let said = "the bearer token is missing or wrong";
        for token in ["token", "the", "e", "wrong", "bearer", "wrongly-set"] {
            let shown = excerpt(said.as_bytes(), Some(&Secret::new(token)));
            let expected = if token == "wrongly-set" { said } else { LEFT_OUT };
            assert_eq!(shown, expected, "{token}");
        }
        assert_eq!(excerpt(b"no, missin", Some(&Secret::new("missing-1"))), LEFT_OUT);
        assert_eq!(excerpt(said.as_bytes(), Some(&Secret::new("my-token"))), said);
        assert_eq!(excerpt(b"I know my-token", Some(&Secret::new("my-token"))), LEFT_OUT);
    }
}
