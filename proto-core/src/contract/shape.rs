//! Reading a wire type so that a failure names the member that is wrong.

use std::fmt;

use serde::de::DeserializeOwned;

/// The longest path that is told, in characters.
const MAX_PATH_CHARS: usize = 200;

/// What is no text, although JSON can write it.
const HALF: &str = "half of a surrogate pair (an escape from \\ud800 to \\udfff by itself): write both halves, or the \
                    character as it is";

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
        let said = said.rfind(" at line ").map_or(said.as_str(), |position| &said[..position]);
        let (member, problem) = explain(path, said);
        Self { member: shortened(member), problem }
    }

    /// The same of a value that is a member of another one.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        Self { member: joined(outer, &self.member), ..self }
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

/// The member that is meant, and what is wrong with it, from what serde_json says of the value at `path`.
fn explain(path: &str, said: &str) -> (String, String) {
    for (mark, problem) in [("missing field `", "is missing"), ("duplicate field `", "is there twice")] {
        if let Some(name) = said.strip_prefix(mark).and_then(|rest| rest.strip_suffix('`')) {
            return (joined(path, name), problem.to_owned());
        }
    }
    if let Some(rest) = said.strip_prefix("unknown field `") {
        // The name is the sender's and can hold anything: ours are behind the last mark.
        let (name, known) = rest.rsplit_once("`, expected ").unwrap_or((rest, ""));
        let name = name.strip_suffix("`, there are no fields").unwrap_or(name);
        let known = known.strip_prefix("one of ").unwrap_or(known);
        let instead = if known.is_empty() { "no member is".to_owned() } else { format!("there are {known}") };
        // The path leads to the unknown member itself where there is one.
        let holder = path.strip_suffix(name).map_or(path, |holder| holder.strip_suffix('.').unwrap_or(holder));
        return (joined(holder, name), format!("is not known here: {instead}"));
    }
    // "invalid type: string \"the value itself\", expected a map"
    for (mark, another) in [("invalid type: ", false), ("invalid value: ", true)] {
        if let Some((came, expected)) = said.strip_prefix(mark).and_then(|rest| rest.rsplit_once(", expected ")) {
            let expected = in_json_terms(expected);
            let problem = match kind_of(came) {
                Some((_, kind)) if another => format!("must be {expected}, not another {kind}"),
                Some((article, kind)) => format!("must be {expected}, not {article}{kind}"),
                None => format!("must be {expected}"),
            };
            return (path.to_owned(), problem);
        }
    }
    // Derived code takes an object's members by position as well, if there are enough of them.
    if said.starts_with("invalid length ") && said.contains(", expected struct ") {
        return (path.to_owned(), "must be an object, not an array".to_owned());
    }
    if matches!(said, "lone leading surrogate in hex escape" | "unexpected end of hex escape") {
        // A name that cannot be read is a question mark in the path.
        return match path.strip_suffix('?').filter(|holder| holder.is_empty() || holder.ends_with('.')) {
            Some(holder) => {
                (holder.trim_end_matches('.').to_owned(), format!("must not have a member whose name holds {HALF}"))
            }
            None => (path.to_owned(), format!("must not hold {HALF}")),
        };
    }
    let problem = if path.is_empty() { said } else { without_name(said) };
    (path.to_owned(), problem.to_owned())
}

fn joined(outer: &str, member: &str) -> String {
    match (outer, member) {
        ("", one) | (one, "") => one.to_owned(),
        (outer, member) if member.starts_with('[') => format!("{outer}{member}"),
        (outer, member) => format!("{outer}.{member}"),
    }
}

/// Names in a path can be the sender's, of any length.
fn shortened(path: String) -> String {
    match path.char_indices().nth(MAX_PATH_CHARS) {
        Some((end, _)) => format!("{}...", &path[..end]),
        None => path,
    }
}

/// A type that serde names, as JSON calls it.
fn in_json_terms(expected: &str) -> String {
    let whole = |sign: &str, bits: &str| format!("a whole number {sign}of {bits} bits");
    match without_name(expected) {
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "i8" | "i16" | "i32" | "i64" => whole("", &expected[1..]),
        "u8" | "u16" | "u32" | "u64" => whole("from 0 up, ", &expected[1..]),
        structure if structure.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

/// The kind of a value that serde quotes, with its article. Nothing of the value itself.
fn kind_of(came: &str) -> Option<(&'static str, &'static str)> {
    let kinds = [
        ("boolean", ("a ", "boolean")),
        ("integer", ("a ", "whole number")),
        // A whole number of too many digits is read as one as well.
        ("floating point", ("a ", "number with a fraction, an exponent or too many digits")),
        ("string", ("a ", "string")),
        ("null", ("", "null")),
        ("sequence", ("an ", "array")),
        ("map", ("an ", "object")),
    ];
    kinds.into_iter().find(|(begins, _)| came.starts_with(begins)).map(|(_, kind)| kind)
}

/// Without the ` (name)` by which a type says which member it is for, for when there is no path that does.
fn without_name(text: &str) -> &str {
    text.split_once(" (").filter(|(_, name)| name.ends_with(')')).map_or(text, |(text, _)| text)
}
