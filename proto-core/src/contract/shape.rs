//! Reading a wire type so that a failure names the member that is wrong.

use std::fmt;

use serde::de::DeserializeOwned;

/// A JSON value has another shape than its type: which member is wrong, and how.
///
/// Values are never quoted: a member that came in the wrong place can be a
/// credential, and errors end up in logs and answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeError {
    member: String,
    problem: String,
}

impl ShapeError {
    /// The member as a path (`input[0].type`), empty for the value as a whole.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// From the path of the value that was being read (`""` or `"."` for the
    /// whole) and what serde_json says about it.
    pub fn new(path: &str, error: &serde_json::Error) -> Self {
        let path = if path == "." { "" } else { path };
        let said = error.to_string();
        let problem = said.rfind(" at line ").map_or(said.as_str(), |position| &said[..position]);

        if let Some(name) = problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            let member = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            return Self { member, problem: "is missing".to_owned() };
        }
        // "invalid type: string \"the value itself\", expected a map"
        let unquoted = problem.strip_prefix("invalid ").and_then(|rest| {
            let (what, _) = rest.split_once(": ")?;
            let (_, expected) = rest.rsplit_once(", expected ")?;
            Some(format!("invalid {what}, expected {expected}"))
        });
        Self { member: path.to_owned(), problem: unquoted.unwrap_or_else(|| problem.to_owned()) }
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.member.as_str(), self.problem.as_str()) {
            ("", problem) => f.write_str(problem),
            (member, problem) if problem.starts_with("is ") || problem.starts_with("must ") => {
                write!(f, "`{member}` {problem}")
            }
            (member, problem) => write!(f, "`{member}`: {problem}"),
        }
    }
}

impl std::error::Error for ShapeError {}

/// Reads one JSON value as a wire type. The text is read a second time, more
/// slowly, only when that fails.
///
/// # Errors
/// When the text is no JSON or has another shape. The error names the member.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, ShapeError> {
    serde_json::from_str(text).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Ok(_) => ShapeError::new("", &error), // something follows the value
            Err(tracked) => ShapeError::new(&tracked.path().to_string(), tracked.inner()),
        }
    })
}
