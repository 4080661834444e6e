//! A peer: jsonrpsee. A tool call is two of its calls one after the other, since each of them is two of the four frames.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::RpcModule;
use jsonrpsee::client_transport::ws::{Url, WsTransportClientBuilder};
use jsonrpsee::core::client::{Client, ClientT};
use jsonrpsee::core::params::ObjectParams;
use jsonrpsee::server::{Server, ServerHandle};
use serde_json::value::RawValue;

use super::{Caller, Contestant, at_once, in_turn};
use crate::support::plain::{Ack, Block, ToolCall, ToolResult};
use crate::support::{INPUT, TEXT};

pub(crate) struct Jsonrpsee {
    caller: Calls,
    _server: ServerHandle,
}

#[derive(Clone)]
struct Calls {
    client: Arc<Client>,
    input: Box<RawValue>,
}

impl Caller for Calls {
    async fn call(&self) {
        let mut params = ObjectParams::new();
        params.insert("session_id", "sess_01J9ZQ4T7R8X2M5N000001").unwrap();
        params.insert("tool_call_id", "call_bd34d3aef603e583401478bc").unwrap();
        params.insert("tool", "bash").unwrap();
        params.insert("input", &self.input).unwrap();
        let ack: Ack = self.client.request("tool.call", params).await.unwrap();
        assert!(ack.accepted);
        let text = Block { r#type: "text".to_owned(), text: Some(TEXT.to_owned()), data: None, mime_type: None };
        let mut params = ObjectParams::new();
        params.insert("session_id", "sess_01J9ZQ4T7R8X2M5N000001").unwrap();
        params.insert("tool_call_id", "call_bd34d3aef603e583401478bc").unwrap();
        params.insert("outcome", "succeeded").unwrap();
        params.insert("is_error", false).unwrap();
        params.insert("content", [text]).unwrap();
        params.insert("duration_ms", 0).unwrap();
        let ack: Ack = self.client.request("tool.result", params).await.unwrap();
        assert!(ack.accepted);
    }
}

impl Jsonrpsee {
    pub(crate) async fn connect() -> Self {
        let server = Server::builder().build("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let mut module = RpcModule::new(());
        module
            .register_method("tool.call", |params, (), _| params.parse::<ToolCall>().map(|_| Ack { accepted: true }))
            .unwrap();
        module
            .register_method("tool.result", |params, (), _| {
                params.parse::<ToolResult>().map(|_| Ack { accepted: true })
            })
            .unwrap();
        let server = server.start(module);
        let url = Url::parse(&format!("ws://{address}/")).unwrap();
        let (sender, receiver) = WsTransportClientBuilder::default().build(url).await.unwrap();
        let client = Client::builder().build_with_tokio(sender, receiver);
        let caller = Calls { client: Arc::new(client), input: RawValue::from_string(INPUT.to_owned()).unwrap() };
        Self { caller, _server: server }
    }
}

impl Contestant for Jsonrpsee {
    async fn one_at_a_time(&self, calls: usize) -> Vec<Duration> {
        in_turn(&self.caller, calls).await
    }

    async fn many(&self, calls: usize, in_flight: usize) {
        at_once(&self.caller, calls, in_flight).await;
    }
}
