//! The lines that come in.

use bma_runtime_tokio::proto::contract::{
    ErrorCode, ExecutorId, Json, MCPServerConfig, SessionId, ShapeError, TextMap, ToolCallId, ToolName, ToolPermission,
    read,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::answer::Fault;
use super::lines::{Line, MAX_LINE_BYTES};

/// A request: what to do, and the id that the answer repeats.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Json,
    pub(crate) op: Op,
}

/// Declares the operations: the name in a line, and the members beside `id` and `op`.
macro_rules! ops {
    ($( $(#[$meta:meta])* $name:literal $op:ident { $( $(#[$fmeta:meta])* $field:ident: $type:ty, )* } )+) => {
        /// What can be asked for.
        #[derive(Debug)]
        pub(crate) enum Op { $( $(#[$meta])* $op($op), )+ }

        $(
            $(#[$meta])*
            #[derive(Debug, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub(crate) struct $op {
                #[serde(rename = "id")]
                _id: IgnoredAny,
                #[serde(rename = "op")]
                _op: IgnoredAny,
                $( $(#[$fmeta])* pub(crate) $field: $type, )*
            }
        )+

        const NAMES: &[&str] = &[$($name),+];

        fn read_op(name: &str, line: &str) -> Result<Op, Fault> {
            match name {
                $( $name => match read::<$op>(line) {
                    Ok(op) => Ok(Op::$op(op)),
                    Err(error) => Err(Fault::new(ErrorCode::InvalidParams, error.to_string())),
                }, )+
                _ => Err(Fault::new(
                    ErrorCode::InvalidRequest,
                    format!("`op` is {:?}, and there is no such operation: there are {}", shown(name), NAMES.join(", ")),
                )),
            }
        }
    };
}

ops! {
    /// List the executors.
    "executors" Executors {}
    /// Give a session to an executor, and wait until it is ready.
    "assign" Assign {
        #[serde(default)]
        executor: Option<ExecutorId>,
        #[serde(default)]
        session_id: Option<SessionId>,
        #[serde(default)]
        agent_id: Option<String>,
        #[serde(default)]
        environment_id: Option<String>,
        #[serde(default)]
        deadline_ms: Option<i64>,
        #[serde(default)]
        resources: Vec<Json>,
        #[serde(default)]
        mcp_servers: Vec<MCPServerConfig>,
        #[serde(default)]
        metadata: TextMap,
    }
    /// Call a tool, and wait for its result.
    "call" Call {
        #[serde(default)]
        executor: Option<ExecutorId>,
        session_id: SessionId,
        tool: ToolName,
        input: Json,
        #[serde(default)]
        tool_call_id: Option<ToolCallId>,
        #[serde(default)]
        deadline_ms: Option<i64>,
        #[serde(default)]
        permission: Option<ToolPermission>,
    }
    /// Ask a tool call to end.
    "cancel" Cancel {
        #[serde(default)]
        executor: Option<ExecutorId>,
        session_id: SessionId,
        tool_call_id: ToolCallId,
        #[serde(default)]
        reason: String,
    }
    /// End a session.
    "stop" Stop {
        #[serde(default)]
        executor: Option<ExecutorId>,
        session_id: SessionId,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        deadline_ms: Option<i64>,
    }
    /// Send any method of the catalogue.
    "request" Any {
        #[serde(default)]
        executor: Option<ExecutorId>,
        method: String,
        #[serde(default)]
        params: Option<Json>,
    }
    /// Have one executor, or all, take no new sessions.
    "drain" Drain {
        #[serde(default)]
        executor: Option<ExecutorId>,
        #[serde(default)]
        reason: String,
    }
    /// Have one executor, or all, end.
    "close" Close {
        #[serde(default)]
        executor: Option<ExecutorId>,
        #[serde(default)]
        reason: String,
    }
}

impl Request {
    /// Reads a line; `None` for an empty one. A fault comes with the id, when there is a usable one.
    pub(crate) fn read(line: Line) -> Result<Option<Self>, (Option<Json>, Fault)> {
        let line = match line {
            Line::Text(line) => line,
            Line::NotText => return Err((None, Fault::new(ErrorCode::ParseError, "the line is not UTF-8"))),
            Line::TooLong => {
                let message = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                return Err((None, Fault::new(ErrorCode::PayloadTooLarge, message)));
            }
        };
        if line.trim().is_empty() {
            return Ok(None);
        }
        // An array of the members' values would do as well, for serde.
        if !line.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(&line).is_ok() {
            let message = "the line is no request: it must be one JSON object";
            return Err((None, Fault::new(ErrorCode::InvalidRequest, message)));
        }
        let head: Head = read(&line).map_err(|error| (None, not_a_request(&line, &error)))?;
        let id = head.id.filter(is_id);
        let Some(id) = id else {
            let message = "`id` must be a string or a whole number; the answer repeats it";
            return Err((None, Fault::new(ErrorCode::InvalidRequest, message)));
        };
        let op = match head.op.as_ref().map(Json::parse::<String>) {
            Some(Ok(name)) => read_op(&name, &line),
            wrong => {
                let problem = if wrong.is_none() { "is missing" } else { "must be a string" };
                Err(Fault::new(ErrorCode::InvalidRequest, format!("`op` {problem}: there are {}", NAMES.join(", "))))
            }
        };
        match op {
            Ok(op) => Ok(Some(Self { id, op })),
            Err(fault) => Err((Some(id), fault)),
        }
    }
}

/// What every request has.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    id: Option<Json>,
    #[serde(default)]
    op: Option<Json>,
}

/// So much of a name as an answer repeats.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

fn is_id(id: &Json) -> bool {
    let text = id.get();
    text.starts_with('"') || text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit())
}

fn not_a_request(line: &str, error: &ShapeError) -> Fault {
    match serde_json::from_str::<IgnoredAny>(line) {
        Ok(_) => Fault::new(ErrorCode::InvalidRequest, format!("the line is no request: {error}")),
        Err(error) => Fault::new(ErrorCode::ParseError, format!("the line is not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    fn read(line: &str) -> Result<Option<Request>, (Option<String>, String)> {
        Request::read(Line::Text(line.to_owned())).map_err(|(id, fault)| {
            let fault = serde_json::to_value(fault).unwrap();
            (id.map(|id| id.get().to_owned()), format!("{} {}", fault["code"], fault["message"].as_str().unwrap()))
        })
    }

    #[test]
    fn a_request_is_read_with_its_id_and_input_as_they_are() {
        let line = r#"{"op":"call","id":"a\u0062","session_id":"s","tool":"x","input":{"n":1.0e400}}"#;
        let request = read(line).unwrap().unwrap();
        assert_eq!(request.id.get(), r#""a\u0062""#);
        assert!(matches!(request.op, Op::Call(call) if call.input.get() == r#"{"n":1.0e400}"#));
        assert!(read("  ").unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_with_a_line_is_named() {
        for (line, id, said) in [
            ("nonsense", None, "-32700"),
            ("{\"id\":1", None, "-32700"),
            ("[]", None, "-32600"),
            (r#"[1, "executors"]"#, None, "-32600"),
            ("{}", None, "`id`"),
            (r#"{"id":1.5,"op":"executors"}"#, None, "`id`"),
            (r#"{"id":{},"op":"executors"}"#, None, "`id`"),
            (r#"{"id":null,"op":"executors"}"#, None, "`id`"),
            (r#"{"id":7}"#, Some("7"), "`op`"),
            (
                r#"{"id":7,"op":"fly"}"#,
                Some("7"),
                "\"fly\", and there is no such operation: there are executors, assign, call",
            ),
            (r#"{"id":7,"op":"call","session_id":"s","tool":"bash"}"#, Some("7"), "`input` is missing"),
            (r#"{"id":7,"op":5}"#, Some("7"), "`op` must be a string: there are executors"),
            (
                r#"{"id":7,"op":"stop","session_id":"s","dead_line":1}"#,
                Some("7"),
                "`dead_line` is not known here: there are `id`, `op`, `executor`, `session_id`, `reason`, `deadline_ms`",
            ),
            (
                r#"{"id":7,"op":"stop","session_id":5}"#,
                Some("7"),
                "-32602 `session_id` must be a string, not a whole number",
            ),
            (r#"{"id":7,"op":"stop","session_id":""}"#, Some("7"), "-32602 `session_id` must not be empty"),
            (r#"{"id":7,"op":"stop","session_id":"s","session_id":"t"}"#, Some("7"), "`session_id` is there twice"),
            (r#"{"id":7,"op":"assign","resources":5}"#, Some("7"), "`resources` must be an array, not a whole number"),
            (r#"{"id":7,"op":"assign","metadata":{"a":[]}}"#, Some("7"), "`metadata.a` must be a string, not an array"),
            (
                r#"{"id":7,"op":"assign","mcp_servers":[{"server_key":7}]}"#,
                Some("7"),
                "`mcp_servers[0].server_key` must be a string, not a whole number",
            ),
            (r#"{"id":7,"op":"assign","mcp_servers":[{}]}"#, Some("7"), "`mcp_servers[0].server_key` is missing"),
            (
                r#"{"id":7,"op":"assign","deadline_ms":1.5}"#,
                Some("7"),
                "`deadline_ms` must be a whole number of 64 bits, not a number with a fraction",
            ),
            (r#"{"id":7,"op":"assign","executor":false}"#, Some("7"), "`executor` must be a string, not a boolean"),
            (
                r#"{"id":7,"op":"call","session_id":"s","tool":"t","input":{},"permission":[1]}"#,
                Some("7"),
                "`permission",
            ),
        ] {
            let (told_id, told) = read(line).map(drop).unwrap_err();
            assert_eq!(told_id.as_deref(), id, "{line}: {told}");
            assert!(told.contains(said), "{line}: {told}");
        }
    }
}
