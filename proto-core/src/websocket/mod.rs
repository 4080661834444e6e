//! websocket
