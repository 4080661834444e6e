//! Frames as text.

use serde::Serialize;

use super::id::RequestId;
use crate::contract::{JSONRPCError, Method};

/// Room for a common frame, so that most are written without growing.
const USUAL_FRAME_BYTES: usize = 320;

pub(super) fn request<P: Serialize + ?Sized>(number: u64, method: Method, params: &P) -> Result<String, String> {
    let mut frame = Frame::new(USUAL_FRAME_BYTES);
    frame.text(r#"{"jsonrpc":"2.0","id":""#);
    frame.value(&number)?;
    frame.text(r#"","method":""#);
    frame.text(method.name());
    frame.text(r#"","params":"#);
    frame.end(params)
}

pub(super) fn notification<P: Serialize + ?Sized>(method: Method, params: &P) -> Result<String, String> {
    let mut frame = Frame::new(USUAL_FRAME_BYTES);
    frame.text(r#"{"jsonrpc":"2.0","method":""#);
    frame.text(method.name());
    frame.text(r#"","params":"#);
    frame.end(params)
}

pub(super) fn success<R: Serialize + ?Sized>(id: &RequestId, result: &R) -> Result<String, String> {
    answer(USUAL_FRAME_BYTES / 2, id, r#","result":"#, result)
}

pub(super) fn failure(id: &RequestId, error: &JSONRPCError) -> String {
    answer(USUAL_FRAME_BYTES, id, r#","error":"#, error).unwrap_or_else(|_| {
        // An error object has only strings, numbers and flags, which always have a JSON form.
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32603,"message":"internal_error"}}}}"#, id.as_json())
    })
}

fn answer<T: Serialize + ?Sized>(room: usize, id: &RequestId, member: &str, body: &T) -> Result<String, String> {
    let mut frame = Frame::new(room);
    frame.text(r#"{"jsonrpc":"2.0","id":"#);
    frame.text(id.as_json());
    frame.text(member);
    frame.end(body)
}

/// A frame that is being written. (Formatting macros take several times as long for these few words.)
struct Frame(Vec<u8>);

impl Frame {
    fn new(room: usize) -> Self {
        Self(Vec::with_capacity(room))
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), String> {
        serde_json::to_writer(&mut self.0, value).map_err(|error| error.to_string())
    }

    fn end<T: Serialize + ?Sized>(mut self, last: &T) -> Result<String, String> {
        self.value(last)?;
        self.0.push(b'}');
        String::from_utf8(self.0).map_err(|error| error.to_string())
    }
}
