//! The accepting end of the upgrade: reads the request, writes the answer.

use std::borrow::Cow;
use std::fmt;

use httparse::{Header, Request, Status};

use super::target::Target;
use super::{MAX_HEAD_BYTES, http};
use crate::contract::Secret;

/// A well-formed upgrade request, for the application to accept or refuse.
///
/// A browser's page can reach a harness on its user's machine: where there is no
/// token to check, look at `header("origin")`, which only browsers send.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpgradeRequest {
    /// The path, as it came (percent-encoded).
    pub path: String,
    /// The query, as it came, without the question mark.
    pub query: Option<String>,
    /// What the connection is for, from the query.
    pub target: Target,
    /// The token of an `Authorization: Bearer` header; `None` also for other schemes.
    pub bearer: Option<Secret>,
    /// The subprotocols that the client offers, in its order.
    pub protocols: Vec<String>,
    /// The one that will be chosen. `None`: nothing in common, and accepting the
    /// request makes the channel close with 4003 right after the upgrade.
    pub protocol: Option<String>,
    /// The headers in their order, without `Authorization` and `Proxy-Authorization`.
    /// Bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
}

impl UpgradeRequest {
    /// The first header of this name, in any case of letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for UpgradeRequest {
    /// Leaves out what may be a credential: the query and the values of headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("UpgradeRequest")
            .field("path", &self.path)
            .field("target", &self.target)
            .field("bearer", &self.bearer)
            .field("protocols", &self.protocols)
            .field("protocol", &self.protocol)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// An answer other than 101.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: Cow<'static, str>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into() }
    }

    /// Appends the answer.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("HTTP/1.1 {} {}\r\n", self.status, http::phrase(self.status)).as_bytes());
        match self.status {
            401 => http::push_header(out, "WWW-Authenticate", "Bearer"),
            405 => http::push_header(out, "Allow", "GET"),
            426 => {
                http::push_header(out, "Upgrade", "websocket");
                http::push_header(out, "Sec-WebSocket-Version", "13");
            }
            _ => {}
        }
        http::push_header(out, "Connection", "close");
        http::push_header(out, "Content-Type", "text/plain; charset=utf-8");
        http::push_header(out, "Content-Length", &(self.message.len() + 1).to_string());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.message.as_bytes());
        out.push(b'\n');
    }
}

/// Appends the answer that opens the channel.
pub(super) fn write_accepted(accept: &str, protocol: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    http::push_header(out, "Upgrade", "websocket");
    http::push_header(out, "Connection", "Upgrade");
    http::push_header(out, "Sec-WebSocket-Accept", accept);
    if let Some(protocol) = protocol {
        http::push_header(out, "Sec-WebSocket-Protocol", protocol);
    }
    out.extend_from_slice(b"\r\n");
}

/// Collects the request's head.
#[derive(Debug)]
pub(super) struct RequestHead {
    bytes: Vec<u8>,
    protocols: Vec<String>,
}

/// What came of some bytes.
#[derive(Debug)]
pub(super) enum Step {
    More,
    Request {
        request: Box<UpgradeRequest>,
        /// The `Sec-WebSocket-Accept` to answer with.
        accept: String,
        /// How many of the bytes belonged to the head.
        consumed: usize,
    },
    Refuse(Refusal),
}

impl RequestHead {
    pub(super) fn new(protocols: Vec<String>) -> Self {
        Self { bytes: Vec::new(), protocols }
    }

    pub(super) fn protocols(&self) -> &[String] {
        &self.protocols
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) -> Step {
        let before = self.bytes.len();
        let taken = bytes.len().min(MAX_HEAD_BYTES - before);
        self.bytes.extend_from_slice(&bytes[..taken]);
        let mut headers = [httparse::EMPTY_HEADER; http::MAX_HEADERS];
        let mut head = Request::new(&mut headers);
        let too_large = || Step::Refuse(Refusal::new(431, format!("the request head is over {MAX_HEAD_BYTES} bytes")));
        match head.parse(&self.bytes) {
            // `before` bytes were no complete head, so the head ends in these bytes.
            Ok(Status::Complete(length)) => match read_request(&head, &self.protocols) {
                Ok((request, accept)) => {
                    Step::Request { request: Box::new(request), accept, consumed: length.saturating_sub(before) }
                }
                Err(refusal) => Step::Refuse(refusal),
            },
            Ok(Status::Partial) if self.bytes.len() < MAX_HEAD_BYTES => Step::More,
            Ok(Status::Partial) => too_large(),
            Err(httparse::Error::TooManyHeaders) => {
                Step::Refuse(Refusal::new(431, format!("the request has more than {} headers", http::MAX_HEADERS)))
            }
            Err(httparse::Error::Version) => Step::Refuse(Refusal::new(505, "the request must be HTTP/1.1")),
            Err(error) => Step::Refuse(Refusal::new(400, format!("this is no HTTP request: {error}"))),
        }
    }
}

/// Checks a complete head. Refuses in the order in which a person would want to know.
fn read_request(head: &Request<'_, '_>, ours: &[String]) -> Result<(UpgradeRequest, String), Refusal> {
    let headers = &*head.headers;
    if head.version != Some(1) {
        return Err(Refusal::new(505, "the request must be HTTP/1.1"));
    }
    if head.method != Some("GET") {
        return Err(Refusal::new(405, "a WebSocket upgrade is a GET request"));
    }
    once(headers, "host")?.ok_or_else(|| Refusal::new(400, "the Host header is missing"))?;
    if http::list(headers, "upgrade").next().is_none() {
        return Err(Refusal::new(426, "this is a WebSocket endpoint of the BMA Executor Protocol"));
    }
    if !http::has_token(headers, "upgrade", "websocket") {
        return Err(Refusal::new(426, "the Upgrade header must name websocket"));
    }
    if !http::has_token(headers, "connection", "upgrade") {
        return Err(Refusal::new(400, "the Connection header must name Upgrade"));
    }
    if once(headers, "sec-websocket-version")? != Some("13") {
        return Err(Refusal::new(426, "Sec-WebSocket-Version must be 13"));
    }
    let key = once(headers, "sec-websocket-key")?.filter(|key| http::is_key(key));
    let key = key.ok_or_else(|| Refusal::new(400, "Sec-WebSocket-Key must be 16 bytes in base64"))?;
    let body = once(headers, "content-length")?.is_some_and(|length| length != "0");
    if body || http::list(headers, "transfer-encoding").next().is_some() {
        return Err(Refusal::new(400, "an upgrade request has no body"));
    }
    let (path, query) = split_target(head.path.unwrap_or_default())
        .ok_or_else(|| Refusal::new(400, "the request's target must be a path and a query"))?;
    let target = Target::from_query(query.unwrap_or_default()).map_err(|why| Refusal::new(400, why))?;
    let bearer = once(headers, "authorization")?.and_then(bearer_token).map(Secret::new);
    let protocols = offered(headers)?;
    let protocol = ours.iter().find(|ours| protocols.contains(ours)).cloned();
    let request = UpgradeRequest {
        path: path.to_owned(),
        query: query.map(str::to_owned),
        target,
        bearer,
        protocols,
        protocol,
        headers: headers
            .iter()
            .filter(|header| !is_credential(header.name))
            .map(|header| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned()))
            .collect(),
    };
    Ok((request, http::accept_key(key)))
}

/// The value of a header that may stand once and is text.
fn once<'a>(headers: &[Header<'a>], name: &str) -> Result<Option<&'a str>, Refusal> {
    let value = http::single(headers, name)
        .map_err(|http::Duplicate| Refusal::new(400, format!("the {name} header stands more than once")))?;
    let text = value.map(std::str::from_utf8).transpose();
    text.map_err(|_| Refusal::new(400, format!("the {name} header is not UTF-8")))
}

fn offered(headers: &[Header<'_>]) -> Result<Vec<String>, Refusal> {
    let mut protocols: Vec<String> = Vec::new();
    for name in http::list(headers, "sec-websocket-protocol") {
        let text = std::str::from_utf8(name).ok().filter(|_| http::is_token(name));
        let text = text.ok_or_else(|| Refusal::new(400, "Sec-WebSocket-Protocol must be a list of tokens"))?;
        if !protocols.iter().any(|known| known == text) {
            protocols.push(text.to_owned());
        }
    }
    Ok(protocols)
}

/// Path and query of a request's target, which proxies may send in absolute form.
fn split_target(target: &str) -> Option<(&str, Option<&str>)> {
    let target = match target.split_once("://") {
        Some((scheme, rest))
            if ["http", "https", "ws", "wss"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) =>
        {
            match rest.find(['/', '?']) {
                Some(start) => &rest[start..],
                None => "/",
            }
        }
        _ => target,
    };
    if target.contains('#') || !target.starts_with(['/', '?']) {
        return None;
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    Some((if path.is_empty() { "/" } else { path }, query))
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn is_credential(name: &str) -> bool {
    name.eq_ignore_ascii_case("authorization") || name.eq_ignore_ascii_case("proxy-authorization")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_in_origin_and_absolute_form() {
        assert_eq!(split_target("/a/b?c=d?e"), Some(("/a/b", Some("c=d?e"))));
        assert_eq!(split_target("/"), Some(("/", None)));
        assert_eq!(split_target("HTTP://host:1/a?b"), Some(("/a", Some("b"))));
        assert_eq!(split_target("ws://host?b"), Some(("/", Some("b"))));
        assert_eq!(split_target("http://host"), Some(("/", None)));
        for bad in ["*", "host:1", "", "/a#b", "ftp://host/a"] {
            assert_eq!(split_target(bad), None, "{bad}");
        }
    }

    #[test]
    fn bearer_tokens() {
        assert_eq!(bearer_token("Bearer abc"), Some("abc"));
        assert_eq!(bearer_token("bEARER  abc "), Some("abc"));
        for other in ["Basic abc", "Bearer", "Bearer ", "", "abc"] {
            assert_eq!(bearer_token(other), None, "{other}");
        }
    }
}
