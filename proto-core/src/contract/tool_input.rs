//! The inputs of the built-in tools, and reading [`ToolCallParams::input`](super::ToolCallParams::input) as one of
//! them.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::enums::{ComputerAction, ToolName};
use super::ids::{SessionId, ToolCallId};
use super::json::{Json, JsonObject};
use super::rules::{empty_as_none, not_empty, null_as_default};
use super::shape::{self, ShapeError};
use super::text_map::TextMap;
use super::tool::ToolCallParams;

/// Every member that some built-in tool has, for code that reads inputs without knowing the tool. The exact inputs
/// are below.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolInput {
    /// `bash`: the command line.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// `bash`: the working directory.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `bash`: milliseconds until the command is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// `bash`: more environment variables.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub env: TextMap,
    /// A file or directory.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `read`: the first line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// `read`: how many lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// `write`: the new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `edit`: the text to replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_string: Option<String>,
    /// `edit`: its replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_string: Option<String>,
    /// `glob` and `grep`: what to look for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// `grep`: the files to look into.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// `computer_*`: the display.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// `computer_action`: what to do.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub action: Option<ComputerAction>,
}

/// Input of `bash`: runs a command line in a login shell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BashInput {
    /// The command line; not empty.
    #[serde(deserialize_with = "not_empty")]
    pub command: String,
    /// Working directory, relative to the workspace, which is the default.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Milliseconds until the command is ended; the executor's own limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// Environment variables to add. `Debug` shows their names only.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub env: TextMap,
}

/// Input of `read`: lines of a text file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadInput {
    /// The file, relative to the workspace.
    #[serde(deserialize_with = "not_empty")]
    pub path: String,
    /// The first line, counted from 1, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// How many lines at most; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// Input of `write`: creates or replaces a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WriteInput {
    /// The file, relative to the workspace.
    #[serde(deserialize_with = "not_empty")]
    pub path: String,
    /// The whole content. May be empty: that makes an empty file.
    pub content: String,
}

/// Input of `edit`: replaces the one occurrence of a text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EditInput {
    /// The file, relative to the workspace.
    #[serde(deserialize_with = "not_empty")]
    pub path: String,
    /// The text, which must occur exactly once. Read even when empty, so that the tool can explain its refusal to
    /// the model.
    pub old_string: String,
    /// Its replacement. May be empty: that deletes the text.
    pub new_string: String,
}

/// Input of `glob`: paths that match a pattern.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GlobInput {
    /// The pattern; not empty.
    #[serde(deserialize_with = "not_empty")]
    pub pattern: String,
    /// Directory to start from, relative to the workspace, which is the default.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Input of `grep`: lines that match a regular expression.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GrepInput {
    /// The regular expression; not empty.
    #[serde(deserialize_with = "not_empty")]
    pub pattern: String,
    /// File or directory to search, relative to the workspace, which is the default.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only files whose names match this.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
}

/// Input of `list_files`: the entries of a directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ListFilesInput {
    /// The directory, relative to the workspace, which is the default.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Input of `computer_observe`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComputerObserveInput {
    /// The display to look at; the main one when absent.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
}

/// Input of `computer_action`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComputerActionInput {
    /// What to do; not empty.
    #[serde(deserialize_with = "not_empty")]
    pub action: ComputerAction,
    /// The display to act on; the main one when absent.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
}

/// The input of a built-in tool, which names the tool.
pub trait TypedInput: Serialize + DeserializeOwned + Clone + fmt::Debug + Send + 'static {
    /// The tool.
    const TOOL: ToolName;
}

macro_rules! typed_inputs {
    ($($input:ident: $tool:ident),+ $(,)?) => {
        $( impl TypedInput for $input { const TOOL: ToolName = ToolName::$tool; } )+
    };
}

typed_inputs! {
    BashInput: Bash,
    ReadInput: Read,
    WriteInput: Write,
    EditInput: Edit,
    GlobInput: Glob,
    GrepInput: Grep,
    ListFilesInput: ListFiles,
    ComputerObserveInput: ComputerObserve,
    ComputerActionInput: ComputerAction,
}

/// A tool call's input cannot be read as what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolInputError {
    /// The call is for another tool than the input belongs to.
    #[error("the call is for the tool `{called}`, not for `{expected}`")]
    OtherTool {
        /// The tool that is called.
        called: ToolName,
        /// The tool that the input belongs to.
        expected: ToolName,
    },
    /// A member is missing, empty or of the wrong type.
    #[error("the input of `{tool}` cannot be read: {problem}")]
    Shape {
        /// The tool that is called.
        tool: ToolName,
        /// The member, and what is wrong with it.
        problem: ShapeError,
    },
}

impl ToolInputError {
    /// The member that is missing or wrong; empty when it is not about one member.
    pub fn member(&self) -> &str {
        match self {
            Self::OtherTool { .. } => "",
            Self::Shape { problem, .. } => problem.member(),
        }
    }
}

impl ToolCallParams {
    /// A call of a built-in tool, without deadline or permission.
    ///
    /// # Errors
    /// None in practice: every input has a JSON form.
    pub fn new<I: TypedInput>(
        session_id: SessionId,
        tool_call_id: ToolCallId,
        input: &I,
    ) -> Result<Self, serde_json::Error> {
        let input = Json::new(input)?;
        Ok(Self { session_id, tool_call_id, tool: I::TOOL, input, deadline_ms: None, permission: None })
    }

    /// Reads the input of a built-in tool. `null` counts as an empty object.
    ///
    /// # Errors
    /// When the call is for another tool, or a member is missing, of the wrong
    /// type, or empty where that says nothing (`command`, a required `path`,
    /// `pattern`, `action`). The error names the member.
    pub fn read_input<I: TypedInput>(&self) -> Result<I, ToolInputError> {
        if self.tool != I::TOOL {
            return Err(ToolInputError::OtherTool { called: self.tool.clone(), expected: I::TOOL });
        }
        self.read_input_as()
    }

    /// Reads the input of any tool as `T`: for tools of an executor's own.
    ///
    /// # Errors
    /// When a member is missing or of the wrong type. The error names the member.
    pub fn read_input_as<T: DeserializeOwned>(&self) -> Result<T, ToolInputError> {
        let input: Result<JsonObject, ShapeError> = shape::read(self.input.get());
        input
            .and_then(|input| shape::read(input.get()))
            .map_err(|problem| ToolInputError::Shape { tool: self.tool.clone(), problem })
    }
}
