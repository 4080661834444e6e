//! What a connection is for, as the query of the upgrade's URL says it.

use std::fmt::Write as _;

use crate::contract::SessionId;

/// Which channel a connection carries: `?channel=mcp&session_id=..&server_key=..`
/// in the query, or the control channel when there is no `channel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Target {
    /// The executor's control channel.
    #[default]
    Control,
    /// The channel to one MCP server of a session.
    Mcp {
        /// The session that the server belongs to.
        session_id: SessionId,
        /// Which of the session's servers.
        server_key: String,
    },
}

/// The names this module reads and writes; everything else in a query is the user's.
const CHANNEL: &str = "channel";
const SESSION_ID: &str = "session_id";
const SERVER_KEY: &str = "server_key";

impl Target {
    /// `path_and_query` with this target merged in. For the control channel that
    /// is the text as it came; for an MCP channel the three parameters replace
    /// those of the same name and the rest of the query stays.
    pub(super) fn merge_into(&self, path_and_query: &str) -> String {
        let mut merged = String::with_capacity(path_and_query.len() + 96);
        let Target::Mcp { session_id, server_key } = self else {
            merged.push_str(path_and_query);
            return merged;
        };
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        merged.push_str(path);
        let mut separator = '?';
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            if percent_decode(name).is_some_and(|name| is_ours(&name)) {
                continue;
            }
            merged.push(separator);
            merged.push_str(pair);
            separator = '&';
        }
        for (name, value) in [(CHANNEL, "mcp"), (SESSION_ID, session_id.as_str()), (SERVER_KEY, server_key)] {
            merged.push(separator);
            merged.push_str(name);
            merged.push('=');
            percent_encode(value, &mut merged);
            separator = '&';
        }
        merged
    }

    /// Reads the target from a raw query.
    ///
    /// # Errors
    /// A sentence for the client: a parameter of ours stands twice, is no
    /// percent-encoded UTF-8, is missing for an MCP channel, or names an unknown channel.
    pub(super) fn from_query(query: &str) -> Result<Self, &'static str> {
        let (mut channel, mut session_id, mut server_key) = (None, None, None);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A name that cannot be decoded is none of ours.
            let Some(name) = percent_decode(name) else { continue };
            let slot = match name.as_str() {
                CHANNEL => &mut channel,
                SESSION_ID => &mut session_id,
                SERVER_KEY => &mut server_key,
                _ => continue,
            };
            let value = percent_decode(value)
                .ok_or("channel, session_id and server_key must be percent-encoded UTF-8 in the query")?;
            if slot.replace(value).is_some() {
                return Err("channel, session_id and server_key may each stand only once in the query");
            }
        }
        match channel.as_deref() {
            None | Some("" | "control") => Ok(Target::Control),
            Some("mcp") => match (session_id, server_key) {
                (Some(session_id), Some(server_key)) if !session_id.is_empty() && !server_key.is_empty() => {
                    Ok(Target::Mcp { session_id: session_id.into(), server_key })
                }
                _ => Err("an mcp channel needs session_id and server_key in the query"),
            },
            Some(_) => Err("unknown channel in the query: it is control or mcp"),
        }
    }
}

fn is_ours(name: &str) -> bool {
    matches!(name, CHANNEL | SESSION_ID | SERVER_KEY)
}

/// Appends `text`, with everything but RFC 3986's unreserved characters encoded.
fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_encoded(byte, out);
        }
    }
}

/// Appends `byte` as `%XX`.
pub(super) fn push_encoded(byte: u8, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "%{byte:02X}");
}

/// Decodes a form component: `%XX`, and `+` for a space. `None` when it is malformed or not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    // A test panics on purpose.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn mcp(session_id: &str, server_key: &str) -> Target {
        Target::Mcp { session_id: session_id.into(), server_key: server_key.into() }
    }

    #[test]
    fn a_query_of_the_url_is_kept_and_ours_replaces_its_namesakes() {
        assert_eq!(Target::Control.merge_into("/a?x=1&channel=control"), "/a?x=1&channel=control");
        assert_eq!(mcp("s 1", "k/é").merge_into("/"), "/?channel=mcp&session_id=s%201&server_key=k%2F%C3%A9");
        assert_eq!(
            mcp("s", "k").merge_into("/a?x=%31&&channel=control&session%5Fid=old&y"),
            "/a?x=%31&y&channel=mcp&session_id=s&server_key=k"
        );
    }

    #[test]
    fn malformed_queries_are_refused_with_a_sentence() {
        for bad in [
            "channel=other",
            "channel=mcp",
            "channel=mcp&session_id=&server_key=k",
            "channel=mcp&channel=mcp&session_id=s&server_key=k",
            "channel=mcp&session_id=%GG&server_key=k",
            "channel=mcp&session_id=%ff&server_key=k",
            "channel=mcp&session_id=%f&server_key=%",
        ] {
            assert!(Target::from_query(bad).is_err(), "{bad}");
        }
        assert_eq!(Target::from_query(""), Ok(Target::Control));
        assert_eq!(Target::from_query("%zz=1&channel="), Ok(Target::Control));
        assert_eq!(Target::from_query("channel=mcp&session_id=a+b&server_key=c%2Bd"), Ok(mcp("a b", "c+d")));
    }

    proptest! {
        #[test]
        fn what_is_merged_is_read_back(session_id in "\\PC{1,20}", server_key in "\\PC{1,20}", query in "[a-z=&%+]{0,20}") {
            let target = mcp(&session_id, &server_key);
            let merged = target.merge_into(&format!("/p?{query}"));
            let (_, query) = merged.split_once('?').unwrap();
            prop_assert!(merged.is_ascii());
            prop_assert_eq!(Target::from_query(query), Ok(target));
        }

        #[test]
        fn reading_any_query_never_panics(query in "\\PC{0,60}") {
            let _ = Target::from_query(&query);
        }
    }
}
