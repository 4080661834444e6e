//! The URL under which a harness is reached.
//!
//! | written | means |
//! |---|---|
//! | `ws://HOST[:PORT]/PATH?QUERY` | TCP, port 80 unless given |
//! | `wss://HOST[:PORT]/PATH?QUERY` | the same under TLS, port 443; recognised and refused as long as TLS is not built in |
//! | `unix:///PATH/TO.sock[?QUERY]` | a Unix domain socket |
//! | `npipe:////./pipe/NAME[?QUERY]` | a Windows named pipe |
//!
//! A URL ends up in logs, process lists and proxies, so one that carries a
//! credential is refused; and because anything may stand in a URL by mistake,
//! no error here repeats more of it than its scheme.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::runtime::Endpoint;

/// The longest scheme that an error repeats.
const SCHEME_SHOWN: usize = 16;

/// Query members that carry a credential, by the end of their name (lower case, without `-` and `_`).
const CREDENTIAL_NAMES: [&str; 10] =
    ["token", "secret", "password", "passwd", "apikey", "ticket", "bearer", "authorization", "jwt", "credential"];

/// A harness URL, taken apart. [`Display`](fmt::Display) writes it back in its normal form.
///
/// ```
/// use bma_runtime::url::HarnessUrl;
///
/// let url: HarnessUrl = "ws://[::1]:7000/executors?region=eu".parse()?;
/// assert_eq!(url.endpoint().to_string(), "[::1]:7000");
/// assert_eq!(url.host(), "[::1]:7000");
/// assert_eq!(url.target(), "/executors?region=eu");
/// assert_eq!(url.target_with(&[("channel", "mcp")]), "/executors?region=eu&channel=mcp");
/// # Ok::<(), bma_runtime::url::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HarnessUrl {
    scheme: Scheme,
    endpoint: Endpoint,
    host: String,
    target: String,
}

/// The scheme of a [`HarnessUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `ws`: WebSocket over TCP.
    Ws,
    /// `wss`: WebSocket over TLS.
    Wss,
    /// `unix`: WebSocket over a Unix domain socket.
    Unix,
    /// `npipe`: WebSocket over a Windows named pipe.
    NamedPipe,
}

/// Why a text is no harness URL, or no listen address. Names the part and the fix, and repeats no part but the scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// There is no `scheme://` in front.
    #[error("the URL has no scheme: write ws://HOST:PORT/, unix:///PATH or npipe:////./pipe/NAME")]
    NoScheme,
    /// The scheme is none of ours.
    #[error("URL scheme {scheme:?} is not supported: use ws://, wss://, unix:// or npipe://")]
    Scheme {
        /// The scheme, cut to a few characters.
        scheme: String,
    },
    /// The scheme is that of plain HTTP, which the URL of a web page has.
    #[error("URL scheme \"{http}\" does not name a WebSocket: write {instead}:// instead")]
    Http {
        /// `http` or `https`.
        http: &'static str,
        /// `ws` or `wss`.
        instead: &'static str,
    },
    /// `wss://`, and TLS is not built in.
    #[error(
        "URL scheme \"wss\" needs TLS, which this build does not have yet: use ws:// on a trusted network \
         or through a tunnel, or unix://"
    )]
    TlsUnavailable,
    /// There is a user name, a password or a token in it.
    #[error("the {part} of the URL carries a credential: take it out (URLs reach logs) and give the token separately")]
    Credential {
        /// The part: `user information` or `query`.
        part: &'static str,
    },
    /// The host cannot be one.
    #[error("the host of the URL {problem}")]
    Host {
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// The port cannot be one.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The path cannot be one.
    #[error("the path of the URL {problem}")]
    Path {
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// There is a `#fragment`, which is never sent.
    #[error("the URL has a fragment (#...): remove it, or write # as %23")]
    Fragment,
    /// A space, a control character, or one outside of ASCII.
    #[error("character {position} of the URL cannot stand in one: write it as %XX")]
    Character {
        /// Which, counted from one.
        position: usize,
    },
    /// What to listen on is not written as such.
    #[error("the address to listen on {problem}")]
    Listen {
        /// What is wrong, and what to do.
        problem: &'static str,
    },
}

impl HarnessUrl {
    /// Takes a URL apart. White space around it is ignored, and the case of scheme and host.
    ///
    /// # Errors
    /// A [`UrlError`], for the first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let url = Self::recognise(text)?;
        match url.scheme {
            Scheme::Wss => Err(UrlError::TlsUnavailable),
            Scheme::Ws | Scheme::Unix | Scheme::NamedPipe => Ok(url),
        }
    }

    /// As [`parse`](Self::parse), whatever is built in.
    fn recognise(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        let scheme = Scheme::parse(scheme)?;
        check_characters(text, scheme)?;
        if rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
            return Err(UrlError::Credential { part: "user information" });
        }
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        if query.is_some_and(has_credential) {
            return Err(UrlError::Credential { part: "query" });
        }
        let (endpoint, host, path) = match scheme {
            Scheme::Ws | Scheme::Wss => {
                let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
                let (host, port) = parse_authority(authority).map_err(|error| match error {
                    // A password may hold a slash, and then this was none of a host.
                    _ if rest.contains('@') => UrlError::Credential { part: "user information" },
                    error => error,
                })?;
                let default_port = if scheme == Scheme::Ws { 80 } else { 443 };
                let port = port.unwrap_or(default_port);
                let header = host_header(&host, port, default_port);
                (Endpoint::Tcp { host, port }, header, if path.is_empty() { "/" } else { path })
            }
            Scheme::Unix => (Endpoint::Unix(parse_socket_path(place)?), LOCALHOST.to_owned(), "/"),
            Scheme::NamedPipe => (Endpoint::NamedPipe(parse_pipe_name(place)?), LOCALHOST.to_owned(), "/"),
        };
        let target = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        Ok(HarnessUrl { scheme, endpoint, host, target })
    }

    /// The URL under which a listener is reached, to be printed for those who dial it.
    pub fn of_listener(endpoint: &Endpoint) -> Self {
        let (scheme, host) = match endpoint {
            Endpoint::Tcp { host, port } => (Scheme::Ws, host_header(host, *port, 80)),
            Endpoint::Unix(_) => (Scheme::Unix, LOCALHOST.to_owned()),
            Endpoint::NamedPipe(_) => (Scheme::NamedPipe, LOCALHOST.to_owned()),
        };
        HarnessUrl { scheme, endpoint: endpoint.clone(), host, target: "/".to_owned() }
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Where to dial.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The value of the `Host` header: the port is left out when it is the scheme's own.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Path and query as the request line has them. Begins with `/`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The [`target`](Self::target) with members added to its query, encoded as needed.
    pub fn target_with(&self, members: &[(&str, &str)]) -> String {
        let mut target = self.target.clone();
        for (name, value) in members {
            if !target.contains('?') {
                target.push('?');
            } else if !target.ends_with(['?', '&']) {
                target.push('&');
            }
            percent_encode(name.as_bytes(), b"", &mut target);
            target.push('=');
            percent_encode(value.as_bytes(), b"", &mut target);
        }
        target
    }
}

impl FromStr for HarnessUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        HarnessUrl::parse(text)
    }
}

impl fmt::Display for HarnessUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = String::new();
        match &self.endpoint {
            Endpoint::Tcp { .. } => return write!(f, "{}://{}{}", self.scheme, self.host, self.target),
            Endpoint::Unix(path) => percent_encode(&path_bytes(path), b"/", &mut place),
            Endpoint::NamedPipe(name) => {
                place.push_str("//./pipe/");
                percent_encode(name.as_bytes(), b"", &mut place);
            }
        }
        // The target of these is "/", and a query perhaps.
        write!(f, "{}://{place}{}", self.scheme, self.target.strip_prefix('/').unwrap_or_default())
    }
}

impl Scheme {
    fn parse(scheme: &str) -> Result<Self, UrlError> {
        match scheme.to_ascii_lowercase().as_str() {
            "ws" => Ok(Scheme::Ws),
            "wss" => Ok(Scheme::Wss),
            "unix" => Ok(Scheme::Unix),
            "npipe" => Ok(Scheme::NamedPipe),
            "http" => Err(UrlError::Http { http: "http", instead: "ws" }),
            "https" => Err(UrlError::Http { http: "https", instead: "wss" }),
            other => Err(UrlError::Scheme { scheme: other.chars().take(SCHEME_SHOWN).collect() }),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Ws => "ws",
            Scheme::Wss => "wss",
            Scheme::Unix => "unix",
            Scheme::NamedPipe => "npipe",
        })
    }
}

/// Takes apart what a listener is given: `HOST:PORT`, where port 0 picks a free
/// one, or a `unix:` or `npipe:` URL as it is written for dialling. `ws://` may stand before the host.
///
/// # Errors
/// A [`UrlError`], for the first thing that is wrong with it.
pub fn parse_listen(text: &str) -> Result<Endpoint, UrlError> {
    let text = text.trim();
    let authority = match text.split_once("://") {
        None if text.starts_with(['/', '.', '~'])
            || text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("unix:")) =>
        {
            return Err(UrlError::Listen {
                problem: "is no HOST:PORT: a socket is written unix:///PATH, with three slashes",
            });
        }
        None => text,
        Some((scheme, rest)) => match Scheme::parse(scheme)? {
            Scheme::Ws => rest.strip_suffix('/').unwrap_or(rest),
            Scheme::Wss => return Err(UrlError::TlsUnavailable),
            Scheme::Unix | Scheme::NamedPipe => {
                let url = HarnessUrl::recognise(text)?;
                return match url.target.as_str() {
                    "/" => Ok(url.endpoint),
                    _ => Err(UrlError::Listen { problem: "has a query, which only a URL to dial can have: remove it" }),
                };
            }
        },
    };
    if authority.contains('@') {
        return Err(UrlError::Credential { part: "user information" });
    }
    if authority.contains(['/', '?', '#']) {
        return Err(UrlError::Listen { problem: "has a path, which only a URL to dial can have: write HOST:PORT" });
    }
    match authority.rsplit_once(':') {
        Some(("", _)) => Err(UrlError::Listen {
            problem: "has no host: write 127.0.0.1:PORT for this machine alone, 0.0.0.0:PORT for every network",
        }),
        Some((host, "0")) => Ok(Endpoint::Tcp { host: parse_host(host)?, port: 0 }),
        _ => match parse_authority(authority)? {
            (host, Some(port)) => Ok(Endpoint::Tcp { host, port }),
            (_, None) => {
                Err(UrlError::Listen { problem: "has no port: write HOST:PORT, with port 0 for any free one" })
            }
        },
    }
}

/// What stands for the host where there is none.
const LOCALHOST: &str = "localhost";

/// Whether every character may stand where it does. What is sent in the request
/// must be visible ASCII; the name of a file may be written as it is.
fn check_characters(text: &str, scheme: Scheme) -> Result<(), UrlError> {
    let mut sent = matches!(scheme, Scheme::Ws | Scheme::Wss);
    for (before, c) in text.chars().enumerate() {
        sent |= c == '?';
        if c.is_control() || (sent && !c.is_ascii_graphic()) {
            return Err(UrlError::Character { position: before + 1 });
        }
    }
    Ok(())
}

fn has_credential(query: &str) -> bool {
    query.split(['&', ';']).any(|member| {
        let name = member.split('=').next().unwrap_or_default();
        // A name that cannot be decoded is none that a server looks for.
        let mut name = percent_decode(name).and_then(|name| String::from_utf8(name).ok()).unwrap_or_default();
        name.retain(|c| c != '-' && c != '_');
        name.make_ascii_lowercase();
        CREDENTIAL_NAMES.iter().any(|credential| name.ends_with(credential))
    })
}

fn parse_authority(authority: &str) -> Result<(String, Option<u16>), UrlError> {
    // The last colon, but for those inside of brackets.
    let inside = authority.find(']').unwrap_or_default();
    let (host, port) = match authority[inside..].rfind(':') {
        Some(colon) => (&authority[..inside + colon], Some(&authority[inside + colon + 1..])),
        None => (authority, None),
    };
    let port = match port {
        None => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => return Err(UrlError::Port),
            Ok(port) => Some(port),
        },
        // Several colons without brackets: the port is not what is wrong.
        Some(_) if host.contains(':') && !host.starts_with('[') => return Err(UNBRACKETED),
        Some(_) => return Err(UrlError::Port),
    };
    Ok((parse_host(host)?, port))
}

const UNBRACKETED: UrlError = UrlError::Host { problem: "is an IPv6 address without brackets: write [ADDRESS]:PORT" };

fn parse_host(host: &str) -> Result<String, UrlError> {
    let problem = |problem| Err(UrlError::Host { problem });
    if let Some(address) = host.strip_prefix('[') {
        return match address.strip_suffix(']').map(str::parse::<Ipv6Addr>) {
            Some(Ok(address)) => Ok(address.to_string()),
            Some(Err(_)) if address.contains('%') => problem("has a zone (%...), which is not supported: leave it out"),
            _ => problem("is no IPv6 address: write [ADDRESS]:PORT"),
        };
    }
    if host.is_empty() {
        return problem("is missing: write ws://HOST:PORT/");
    }
    if host.contains(':') {
        return Err(UNBRACKETED);
    }
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return problem("has a character that no host name has (write names of other scripts in their xn-- form)");
    }
    let labels = host.strip_suffix('.').unwrap_or(host);
    if host.len() > 253 || labels.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return problem("has an empty part or one that is too long");
    }
    let numeric = labels.rsplit('.').next().is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit()));
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return problem("is no IPv4 address: write four numbers from 0 to 255");
    }
    Ok(host.to_ascii_lowercase())
}

fn host_header(host: &str, port: u16, default_port: u16) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port { host } else { format!("{host}:{port}") }
}

fn parse_socket_path(place: &str) -> Result<PathBuf, UrlError> {
    let problem = |problem| Err(UrlError::Path { problem });
    if !place.starts_with('/') {
        return problem("is not absolute: write unix:///PATH with three slashes");
    }
    if place.ends_with('/') {
        return problem("names a folder: write the socket's own name");
    }
    match percent_decode(place) {
        None => problem("has a % that two hexadecimal digits do not follow: write % as %25"),
        Some(path) if path.contains(&0) => problem("holds a zero byte"),
        Some(path) => match path_from_bytes(path) {
            Some(path) => Ok(path),
            None => problem("is not UTF-8"),
        },
    }
}

fn parse_pipe_name(place: &str) -> Result<String, UrlError> {
    const EXAMPLE: UrlError = UrlError::Path { problem: "is no pipe of this machine: write npipe:////./pipe/NAME" };
    let name = place.strip_prefix("//./pipe/").or_else(|| place.strip_prefix("./pipe/")).ok_or(EXAMPLE)?;
    let name = percent_decode(name).and_then(|name| String::from_utf8(name).ok()).ok_or(EXAMPLE)?;
    let allowed = |c: char| !c.is_control() && c != '\\' && c != '/';
    if name.is_empty() || name.len() > 240 || !name.chars().all(allowed) {
        return Err(UrlError::Path { problem: "has a pipe name that is empty, too long, or has a slash in it" });
    }
    Ok(name)
}

#[cfg(unix)]
fn path_from_bytes(path: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::ffi::OsString::from_vec(path).into())
}

#[cfg(not(unix))]
fn path_from_bytes(path: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(path).ok().map(PathBuf::from)
}

fn path_bytes(path: &Path) -> Vec<u8> {
    // The platform's own bytes on Unix, where alone such a path is of use.
    path.as_os_str().as_encoded_bytes().to_vec()
}

/// `None` when a `%` stands without its two digits.
fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?,
            byte => byte,
        });
    }
    Some(decoded)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Appends `bytes`, all but unreserved characters and those in `keep` encoded.
fn percent_encode(bytes: &[u8], keep: &[u8], out: &mut String) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') || keep.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests;
