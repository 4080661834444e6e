//! The frames of a tool call as plain structs: what somebody writes who needs no more than JSON.

use std::hint::black_box;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Any frame, its members unread.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    pub(crate) jsonrpc: &'a str,
    pub(crate) id: Option<String>,
    pub(crate) method: Option<&'a str>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Request<'a, P> {
    jsonrpc: &'a str,
    id: &'a str,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Response<'a, R> {
    jsonrpc: &'a str,
    id: &'a str,
    result: &'a R,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) session_id: String,
    pub(crate) tool_call_id: String,
    pub(crate) tool: String,
    pub(crate) input: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_ms: Option<i64>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ToolResult {
    pub(crate) session_id: String,
    pub(crate) tool_call_id: String,
    pub(crate) outcome: String,
    pub(crate) is_error: bool,
    pub(crate) content: Vec<Block>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<i64>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mime_type: Option<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Ack {
    pub(crate) accepted: bool,
}

pub(crate) fn write_request<P: Serialize>(id: &str, method: &str, params: &P) -> String {
    serde_json::to_string(&Request { jsonrpc: "2.0", id, method, params }).unwrap()
}

pub(crate) fn write_ack(id: &str) -> String {
    serde_json::to_string(&Response { jsonrpc: "2.0", id, result: &Ack { accepted: true } }).unwrap()
}

pub(crate) fn read_request<P: for<'de> Deserialize<'de>>(frame: &str) -> (String, P) {
    let envelope: Envelope<'_> = serde_json::from_str(frame).unwrap();
    assert!(envelope.jsonrpc == "2.0" && envelope.method.is_some());
    (envelope.id.unwrap(), serde_json::from_str(envelope.params.unwrap().get()).unwrap())
}

pub(crate) fn read_ack(frame: &str) -> bool {
    let envelope: Envelope<'_> = serde_json::from_str(frame).unwrap();
    assert!(envelope.jsonrpc == "2.0" && envelope.error.is_none());
    black_box(envelope.id);
    serde_json::from_str::<Ack>(envelope.result.unwrap().get()).unwrap().accepted
}
