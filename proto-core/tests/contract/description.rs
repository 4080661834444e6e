//! The contract file, read as a description: what a type's members are, and
//! values made from that.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

/// The project's own copy of the contract.
pub(crate) static CONTRACT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../contract/executor-v1.1.json")).unwrap());

/// Every type by name, the inferred ones included.
pub(crate) static TYPES: LazyLock<BTreeMap<String, Vec<Member>>> = LazyLock::new(|| {
    let groups = ["types", "types_inferred"].map(|group| CONTRACT[group].as_object().unwrap());
    groups
        .into_iter()
        .flatten()
        .map(|(name, members)| {
            let mut members: Vec<Member> = members.as_array().unwrap().iter().map(Member::read).collect();
            if name == "JSONRPCErrorResponse" {
                members[1].nullable = true; // `id`, when the request's could not be read: JSON-RPC's own rule
            }
            (name.clone(), members)
        })
        .collect()
});

/// A member as the contract describes it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
    pub(crate) optional: bool,
}

impl Member {
    fn read(member: &Value) -> Self {
        let text = member["type"].as_str().unwrap();
        let (kind, nullable) = text.strip_suffix("|null").map_or((text, false), |kind| (kind, true));
        Self {
            name: member["name"].as_str().unwrap().to_owned(),
            kind: Kind::read(kind),
            nullable,
            optional: member["optional"].as_bool().unwrap(),
        }
    }

    /// Whether the member may be left out when it is read. One that must be
    /// there but can be null is read as null.
    pub(crate) fn may_be_absent(&self) -> bool {
        self.optional || self.nullable
    }

    /// Whether an empty string means the same as absent: in optional members, free
    /// text aside.
    pub(crate) fn empty_is_absent(&self) -> bool {
        const FREE_TEXT: &[&str] = &[
            "content",
            "data",
            "deny_message",
            "description",
            "detail",
            "error",
            "message",
            "new_string",
            "old_string",
            "pattern",
            "system",
            "text",
        ];
        self.may_be_absent() && self.kind.is_text() && !FREE_TEXT.contains(&self.name.as_str())
    }

    /// Whether an empty string is refused in this member of `owner`.
    pub(crate) fn refuses_empty(&self, owner: &str) -> bool {
        // In params: every required string that is no free text.
        const MAY_BE_EMPTY: &[&str] = &["environment_id", "message", "observed_at", "reason", "text"];
        // Elsewhere: what names or opens something.
        const ELSEWHERE: &[(&str, &str)] = &[
            ("AgentMCPToolResultEvent", "mcp_tool_use_id"),
            ("AgentToolResultEvent", "tool_use_id"),
            ("ArtifactRef", "artifact_id"),
            ("BashInput", "command"),
            ("ComputerActionInput", "action"),
            ("EditInput", "path"),
            ("ExecutorRegisterResult", "connection_id"),
            ("ExecutorRegisterResult", "executor_id"),
            ("ExecutorTokenResponse", "executor_id"),
            ("FsMount", "token"),
            ("GlobInput", "pattern"),
            ("GrepInput", "pattern"),
            ("MCPServerConfig", "server_key"),
            ("ModelTokenRefreshResult", "model_token"),
            ("ProcessReadResult", "process_id"),
            ("ProcessState", "process_id"),
            ("ReadInput", "path"),
            ("SessionContext", "id"),
            ("SessionMemoryResource", "memory_store_id"),
            ("TerminalHost", "ticket"),
            ("TerminalOpenResult", "terminal_id"),
            ("ToolsTokenRefreshResult", "tools_mcp_token"),
            ("WriteInput", "path"),
        ];
        let of_params = owner.ends_with("Params") && !owner.starts_with("MCP");
        !self.may_be_absent()
            && self.kind.is_text()
            && (of_params && !MAY_BE_EMPTY.contains(&self.name.as_str())
                || ELSEWHERE.contains(&(owner, self.name.as_str())))
    }
}

/// What a member's value is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Text,
    Time,
    Bool,
    I64,
    U64,
    U16,
    F64,
    Json,
    List(Box<Kind>),
    Map(Box<Kind>),
    Object(String),
}

impl Kind {
    fn read(text: &str) -> Self {
        if let Some(item) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return Self::List(Box::new(Self::read(item)));
        }
        if let Some(item) = text.strip_prefix("{string:").and_then(|rest| rest.strip_suffix('}')) {
            return Self::Map(Box::new(Self::read(item)));
        }
        match text {
            "string" => Self::Text,
            "rfc3339" => Self::Time,
            "bool" => Self::Bool,
            "int64" => Self::I64,
            "uint64" => Self::U64,
            "uint16" => Self::U16,
            "float64" => Self::F64,
            "json" => Self::Json,
            name => {
                assert!(
                    name.starts_with(char::is_uppercase),
                    "the contract has a type that the test cannot read: {name}"
                );
                Self::Object(name.to_owned())
            }
        }
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Text | Self::Time)
    }

    pub(crate) fn is_collection(&self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_))
    }

    /// A value of another kind, which must be refused; `None` when anything goes.
    pub(crate) fn wrong_value(&self, text: &str) -> Option<Value> {
        match self {
            Self::Json => None,
            Self::Text | Self::Time => Some(json!(7)),
            _ => Some(json!(text)),
        }
    }
}

/// Which members a made value has.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Extent {
    /// All that the contract names.
    Full,
    /// Those that it requires.
    Required,
}

/// A value of the type `name`, whose texts are made by `text` from type and member.
pub(crate) fn object(name: &str, extent: Extent, text: &dyn Fn(&str, &str) -> String) -> Map<String, Value> {
    let members = TYPES.get(name).unwrap_or_else(|| panic!("the contract does not describe {name}"));
    members
        .iter()
        .filter(|member| extent == Extent::Full || !member.optional)
        .map(|member| {
            let value = match extent {
                Extent::Required if member.nullable => Value::Null,
                _ => value(&member.kind, extent, &|| text(name, &member.name), text),
            };
            (member.name.clone(), value)
        })
        .collect()
}

fn value(kind: &Kind, extent: Extent, own: &dyn Fn() -> String, text: &dyn Fn(&str, &str) -> String) -> Value {
    match kind {
        Kind::Text | Kind::Time => Value::String(own()),
        Kind::Bool => Value::Bool(true),
        Kind::I64 => json!(i64::MIN + 1),
        Kind::U64 => json!(u64::MAX),
        Kind::U16 => json!(u16::MAX),
        Kind::F64 => json!(0.5),
        Kind::Json => json!({ "any": [own(), 1, null] }),
        Kind::List(_) | Kind::Map(_) if extent == Extent::Required => match kind {
            Kind::List(_) => json!([]),
            _ => json!({}),
        },
        Kind::List(item) => json!([value(item, extent, own, text)]),
        Kind::Map(item) => json!({ "name": value(item, extent, own, text) }),
        Kind::Object(name) => Value::Object(object(name, extent, text)),
    }
}

/// A text that says where it stands.
pub(crate) fn plain(owner: &str, member: &str) -> String {
    format!("{owner}/{member}")
}
