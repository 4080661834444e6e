//! What a tool's handler answers.

mod bash_result;

pub use bash_result::{BashResult, Captured};

use bma_proto_core::contract::{ArtifactRef, ContentBlock, ContentBlockType, ToolOutcome};

/// The answer of a handler; the ids and the duration are filled in by whoever runs it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// What the model is shown.
    pub content: Vec<ContentBlock>,
    /// The tool ran and reports an error to the model.
    pub is_error: bool,
    /// Uploaded files that belong to the answer.
    pub artifacts: Vec<ArtifactRef>,
    /// How the call ended: `succeeded` unless said otherwise.
    pub outcome: ToolOutcome,
}

impl ToolOutput {
    /// A success with these blocks.
    pub fn new(content: Vec<ContentBlock>) -> Self {
        Self { content, is_error: false, artifacts: Vec::new(), outcome: ToolOutcome::Succeeded }
    }

    /// A success with one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![text_block(text)])
    }

    /// One text block for the model that tells it of an error (outcome
    /// `succeeded`, `is_error` true).
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// A call that could not do its work (outcome `failed`).
    pub fn failed(text: impl Into<String>) -> Self {
        Self { is_error: true, outcome: ToolOutcome::Failed, ..Self::text(text) }
    }

    /// A call that was given up because somebody canceled it (outcome `canceled`).
    /// Say so only when nothing of it goes on.
    pub fn canceled(text: impl Into<String>) -> Self {
        Self { is_error: true, outcome: ToolOutcome::Canceled, ..Self::text(text) }
    }

    /// The text blocks, joined by line ends.
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(|block| block.text.as_deref()).collect();
        texts.join("\n")
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<BashResult> for ToolOutput {
    fn from(result: BashResult) -> Self {
        result.output()
    }
}

fn text_block(text: impl Into<String>) -> ContentBlock {
    ContentBlock { r#type: ContentBlockType::Text, text: Some(text.into()), ..ContentBlock::default() }
}

/// Why a handler has no ordinary answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool worked and has bad news for the model, as of a file that does not
    /// exist: outcome `succeeded`, `is_error` true.
    #[error("{}", ToolOutput::new(content.clone()).joined_text())]
    Reported {
        /// What the model is shown.
        content: Vec<ContentBlock>,
    },
    /// The tool could not do its work: outcome `failed`.
    #[error("{message}")]
    Failed {
        /// What was tried and what went wrong.
        message: String,
    },
}

impl ToolError {
    /// Bad news for the model, in one text block.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Reported { content: vec![text_block(text)] }
    }

    /// The tool could not do its work.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }

    /// The answer that reports this error.
    pub fn into_output(self) -> ToolOutput {
        match self {
            Self::Reported { content } => ToolOutput { is_error: true, ..ToolOutput::new(content) },
            Self::Failed { message } => ToolOutput::failed(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_the_model_are_told_apart_from_failures() {
        let reported = ToolError::new("no such file: a.txt");
        assert_eq!(reported.to_string(), "no such file: a.txt");
        let output = reported.into_output();
        assert_eq!((output.outcome.clone(), output.is_error), (ToolOutcome::Succeeded, true));
        assert_eq!(output.joined_text(), "no such file: a.txt");

        let output = ToolError::failed("the disk is gone").into_output();
        assert_eq!((output.outcome.clone(), output.is_error), (ToolOutcome::Failed, true));
    }
}
