//! Frames as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::id::RequestId;
use crate::contract::{JSONRPCError, Method};

/// Room for a common frame, so that most are written without growing.
const USUAL_FRAME_BYTES: usize = 320;

pub(super) fn request<P: Serialize + ?Sized>(number: u64, method: Method, params: &P) -> Result<String, String> {
    let mut text = String::with_capacity(USUAL_FRAME_BYTES);
    let _ = write!(text, r#"{{"jsonrpc":"2.0","id":"{number}","method":"{}","params":"#, method.name());
    finish(text, params)
}

pub(super) fn notification<P: Serialize + ?Sized>(method: Method, params: &P) -> Result<String, String> {
    let mut text = String::with_capacity(USUAL_FRAME_BYTES);
    let _ = write!(text, r#"{{"jsonrpc":"2.0","method":"{}","params":"#, method.name());
    finish(text, params)
}

pub(super) fn success<R: Serialize + ?Sized>(id: &RequestId, result: &R) -> Result<String, String> {
    let mut text = String::with_capacity(USUAL_FRAME_BYTES / 2);
    let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.as_json());
    finish(text, result)
}

pub(super) fn failure(id: &RequestId, error: &JSONRPCError) -> String {
    let mut text = String::with_capacity(USUAL_FRAME_BYTES);
    let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{},"error":"#, id.as_json());
    finish(text, error).unwrap_or_else(|_| {
        // An error object has only strings, numbers and flags, which always have a JSON form.
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32603,"message":"internal_error"}}}}"#, id.as_json())
    })
}

fn finish<T: Serialize + ?Sized>(head: String, body: &T) -> Result<String, String> {
    let mut bytes = head.into_bytes();
    serde_json::to_writer(&mut bytes, body).map_err(|error| error.to_string())?;
    bytes.push(b'}');
    String::from_utf8(bytes).map_err(|error| error.to_string())
}
