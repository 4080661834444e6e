//! The upgrade between two channels: what each end learns, decides and bounds.

use std::slice::from_ref;
use std::time::Duration;

use bma_proto_core::contract::Secret;
use bma_proto_core::websocket::{
    Channel, ClientConfig, ConfigError, How, Limits, MAX_EARLY_BYTES, Misuse, Role, ServerConfig, Target, UpgradeError,
    Upgraded, Violation, accept_key,
};
use bma_proto_core::{Machine, Reason, Time};

use crate::support::*;

fn mcp() -> Target {
    Target::Mcp { session_id: "sess/1 ü".into(), server_key: "files&more".into() }
}

#[test]
fn both_ends_open_and_the_server_learns_who_dials() {
    let mut config = client_config();
    config.target = mcp();
    config.headers.push(("User-Agent".into(), "test/1".into()));
    let mut pair = Pair::new(config, ServerConfig::default());
    pair.settle();
    assert_eq!(pair.client_said, [Said::Open(V1_1.into())]);
    assert_eq!(pair.server_said, [Said::Request, Said::Open(V1_1.into())]);
    let request = &pair.requests[0];
    assert_eq!(request.path, "/executors");
    assert_eq!(
        request.query.as_deref(),
        Some("region=eu&channel=mcp&session_id=sess%2F1%20%C3%BC&server_key=files%26more")
    );
    assert_eq!(request.target, mcp());
    assert_eq!(request.bearer.as_ref().map(Secret::expose), Some(TOKEN));
    assert_eq!(request.protocols, [V1_1, "bma.executor.v1"]);
    assert_eq!(request.protocol.as_deref(), Some(V1_1));
    assert_eq!(request.header("user-agent"), Some("test/1"));
    assert_eq!(request.header("host"), Some("brain.example:8443"));
    assert_eq!(request.header("authorization"), None);
}

#[test]
fn the_token_stands_in_one_header_and_nowhere_else() {
    let config = client_config();
    assert!(!format!("{config:?}").contains(TOKEN));
    let mut channel = Channel::client(Time::ORIGIN, config).unwrap();
    assert!(!format!("{channel:?}").contains(TOKEN));
    let request = String::from_utf8(transmitted(&mut channel)).unwrap();
    let lines: Vec<_> = request.lines().filter(|line| line.contains(TOKEN)).collect();
    assert_eq!(lines, [format!("Authorization: Bearer {TOKEN}")]);

    let mut server = Channel::server(Time::ORIGIN, ServerConfig::default());
    server.receive(Time::ORIGIN, request.as_bytes());
    let output = server.poll().unwrap();
    assert!(!format!("{output:?}{server:?}").contains(TOKEN));

    let mut config = client_config();
    config.bearer = Some(Secret::new("two words"));
    let error = Channel::client(Time::ORIGIN, config).unwrap_err();
    assert_eq!(error, ConfigError::Bearer);
    assert!(!format!("{error}{error:?}").contains("two"));

    let mut config = client_config();
    config.bearer = Some(Secret::default());
    let mut channel = Channel::client(Time::ORIGIN, config).unwrap();
    assert!(!String::from_utf8(transmitted(&mut channel)).unwrap().contains("Authorization"));
}

#[test]
fn the_server_picks_by_its_own_preference() {
    for (ours, offered, chosen) in [
        (vec![V1_1, "bma.executor.v1"], vec!["bma.executor.v1", V1_1], V1_1),
        (vec![V1_1, "bma.executor.v1"], vec!["bma.executor.v9", "bma.executor.v1"], "bma.executor.v1"),
    ] {
        let mut config = client_config();
        config.protocols = offered.into_iter().map(str::to_owned).collect();
        let protocols = ours.into_iter().map(str::to_owned).collect();
        let mut pair = Pair::new(config, ServerConfig { protocols, ..ServerConfig::default() });
        pair.settle();
        assert_eq!(pair.client_said, [Said::Open(chosen.into())]);
    }
}

#[test]
fn without_a_common_subprotocol_both_ends_close_with_4003() {
    let mut config = client_config();
    config.protocols = vec!["bma.executor.v9".into()];
    let mut pair = Pair::new(config, ServerConfig::default());
    pair.settle();
    assert_eq!(pair.requests[0].protocol, None);
    let violation = |ours: &str| Violation::Subprotocol { ours: ours.into() };
    let (server, client) = (violation("bma.executor.v1.1, bma.executor.v1"), violation("bma.executor.v9"));
    let closed = |violation: Violation| closed(4003, &violation.to_string(), How::Violation(violation));
    assert_eq!(pair.server_said, [Said::Request, closed(server)]);
    assert_eq!(pair.client_said, [closed(client)]);
}

#[test]
fn a_client_that_offers_nothing_is_told_4003() {
    let mut pair = Pair::new(client_config(), ServerConfig::default());
    let request = String::from_utf8(transmitted(&mut pair.client)).unwrap();
    let request: String = request.split_inclusive("\r\n").filter(|line| !line.contains("Protocol")).collect();
    pair.server.receive(pair.now, request.as_bytes());
    pair.drain_server();
    let answer = transmitted(&mut pair.server);
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(close_sent(&answer[head..]).0, 4003);
}

#[test]
fn a_refusal_reaches_the_client_with_status_and_text() {
    for status in [401, 403, 404, 503] {
        let mut pair = Pair::new(client_config(), ServerConfig::default());
        pair.accepting = false;
        pair.settle();
        let message = format!("token {TOKEN} is\r\nnot known");
        assert_eq!(pair.server.refuse(pair.now, 302, "no"), Err(Misuse::Status(302)));
        pair.server.refuse(pair.now, status, &message).unwrap();
        assert_eq!(pair.server.refuse(pair.now, status, &message), Err(Misuse::NoRequest));
        pair.settle();
        pair.drain_server();
        let rejected = UpgradeError::Rejected { status, body: "token (token) is not known".into() };
        assert_eq!(rejected.is_unauthorized(), status < 404);
        assert_eq!(pair.client_said, [upgrade_failed(rejected)]);
        assert_eq!(pair.server_said, [Said::Request, upgrade_failed(UpgradeError::Refused { status, message })]);
    }
}

#[test]
fn what_comes_while_the_server_decides_is_kept_up_to_a_bound() {
    let request = |pair: &mut Pair| transmitted(&mut pair.client);
    let text = frame(0x81, b"early", true);

    let mut pair = Pair::new(client_config(), ServerConfig::default());
    let mut bytes = request(&mut pair);
    bytes.extend_from_slice(&text);
    pair.server.receive(pair.now, &bytes);
    pair.server.receive(pair.now, &frame(0x89, b"ping", true));
    pair.drain_server();
    assert_eq!(pair.server_said, [Said::Request, Said::Open(V1_1.into()), Said::Text("early".into())]);
    // The pong to an early ping follows the head, never the other way round.
    let answer = transmitted(&mut pair.server);
    assert!(answer.starts_with(b"HTTP/1.1 101 ") && answer.ends_with(b"\x8a\x04ping"));

    let mut pair = Pair::new(client_config(), ServerConfig::default());
    pair.accepting = false;
    let bytes = request(&mut pair);
    pair.server.receive(pair.now, &bytes);
    for _ in 0..100 {
        pair.server.receive(pair.now, &[0x81; 1024]);
        assert!(pair.server.buffer_bytes() <= 2 * MAX_EARLY_BYTES);
    }
    pair.drain_server();
    let message = "a client waits for the answer before it sends frames".to_owned();
    assert_eq!(pair.server_said, [Said::Request, upgrade_failed(UpgradeError::Refused { status: 400, message })]);
    assert_eq!(pair.server.accept(pair.now), Err(Misuse::NoRequest));
}

#[test]
fn a_client_that_leaves_while_the_server_decides_ends_the_channel() {
    let mut pair = Pair::new(client_config(), ServerConfig::default());
    pair.accepting = false;
    pair.settle();
    pair.server.end_of_stream(pair.now);
    pair.drain_server();
    assert_eq!(pair.server_said, [Said::Request, upgrade_failed(UpgradeError::Ended)]);
    assert_eq!(pair.server.accept(pair.now), Err(Misuse::NoRequest));
    assert!(transmitted(&mut pair.server).is_empty());
}

#[test]
fn an_upgrade_that_takes_too_long_ends_at_its_deadline() {
    let limits = Limits { handshake_timeout: Duration::from_secs(3), ..Limits::default() };
    let end = Time::from_millis(3_001);
    let timeout = upgrade_failed(UpgradeError::Timeout { after: Duration::from_secs(3) });

    // The client has no answer; the server has half a request.
    let config = ClientConfig { limits, ..client_config() };
    let mut pair = Pair::new(config.clone(), ServerConfig { limits, ..ServerConfig::default() });
    let request = transmitted(&mut pair.client);
    pair.server.receive(pair.now, &request[..20]);
    for channel in [&mut pair.client, &mut pair.server] {
        assert_eq!(channel.deadline(), Some((end, Reason::HandshakeTimeout)));
        channel.tick(Time::from_millis(3_000));
        assert!(channel.poll().is_none());
        channel.tick(end);
        assert_eq!(channel.deadline().unwrap().1, Reason::OutputQueued);
        assert_eq!(drain(channel), from_ref(&timeout));
    }
    assert!(transmitted(&mut pair.server).starts_with(b"HTTP/1.1 408 "));
    assert_eq!(pair.server.deadline(), None);

    // The server does not decide.
    let mut pair = Pair::new(config, ServerConfig { limits, ..ServerConfig::default() });
    pair.accepting = false;
    pair.settle();
    pair.server.tick(end);
    assert_eq!(drain(&mut pair.server), [timeout]);
    assert!(transmitted(&mut pair.server).starts_with(b"HTTP/1.1 503 "));
    assert_eq!(pair.server.accept(end), Err(Misuse::NoRequest));
}

#[test]
fn closing_during_the_upgrade_ends_it() {
    let mut pair = Pair::new(client_config(), ServerConfig::default());
    pair.accepting = false;
    pair.settle();
    let mut wire = Vec::new();
    assert_eq!(pair.client.send_text("early", &mut wire), Err(Misuse::NotOpen));
    assert_eq!(pair.server.send_text("early", &mut wire), Err(Misuse::NotOpen));
    assert!(wire.is_empty());
    pair.client.close(pair.now, 1001, "stopping").unwrap();
    pair.server.close(pair.now, 1001, "stopping").unwrap();
    assert_eq!(drain(&mut pair.client), [upgrade_failed(UpgradeError::Abandoned)]);
    assert_eq!(drain(&mut pair.server), [upgrade_failed(UpgradeError::Abandoned)]);
    assert!(transmitted(&mut pair.server).starts_with(b"HTTP/1.1 503 "));
}

#[test]
fn requests_that_cannot_be_made_are_refused_at_once() {
    type Change = fn(&mut ClientConfig);
    let table: [(&str, Change, ConfigError); 12] = [
        ("empty host", |c| c.host.clear(), ConfigError::Host),
        ("host with a header in it", |c| c.host = "a\r\nX: y".into(), ConfigError::Host),
        ("host with a path", |c| c.host = "a/b".into(), ConfigError::Host),
        ("host with user", |c| c.host = "me:pw@a".into(), ConfigError::Host),
        ("relative path", |c| c.path_and_query = "a".into(), ConfigError::Path("it must begin with /")),
        (
            "path with a line",
            |c| c.path_and_query = "/ HTTP/1.1\r\nX: y".into(),
            ConfigError::Path("spaces and control characters must be percent-encoded"),
        ),
        ("fragment", |c| c.path_and_query = "/#a".into(), ConfigError::Path("a fragment (#) is not sent to a server")),
        ("no protocol", |c| c.protocols.clear(), ConfigError::NoProtocol),
        ("odd protocol", |c| c.protocols.push("a,b".into()), ConfigError::Protocol("a,b".into())),
        ("protocol twice", |c| c.protocols.push(V1_1.into()), ConfigError::Protocol(V1_1.into())),
        ("reserved header", |c| c.headers = vec![("HOST".into(), "x".into())], ConfigError::Header("HOST".into())),
        ("split header", |c| c.headers = vec![("X-A".into(), "x\r\ny".into())], ConfigError::Header("X-A".into())),
    ];
    for (name, change, error) in table {
        let mut config = client_config();
        change(&mut config);
        assert_eq!(Channel::client(Time::ORIGIN, config).unwrap_err(), error, "{name}");
    }
    let mut config = client_config();
    config.headers.push(("X-Long".into(), "x".repeat(9000)));
    assert!(matches!(Channel::client(Time::ORIGIN, config), Err(ConfigError::TooLarge { .. })));
    let mut config = client_config();
    config.path_and_query = "/ü".into();
    let mut channel = Channel::client(Time::ORIGIN, config).unwrap();
    assert!(transmitted(&mut channel).starts_with(b"GET /%C3%BC HTTP/1.1\r\n"));
}

/// Somebody else's HTTP server did the upgrade.
#[test]
fn a_connection_upgraded_elsewhere_goes_on_as_a_channel() {
    let limits = Limits::default();
    let now = Time::ORIGIN;
    let mut client = Channel::client(now, client_config()).unwrap();
    let request = String::from_utf8(transmitted(&mut client)).unwrap();
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = accept_key(key);
    let upgraded = Upgraded { role: Role::Server, protocol: V1_1.into(), target: Target::Control, limits };
    let mut server = Channel::upgraded(now, upgraded);
    let mut wire = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: keep-alive, upgrade\r\nupgrade: WebSocket\r\n\
         sec-websocket-accept: {accept}\r\nsec-websocket-protocol: {V1_1}\r\n\r\n"
    )
    .into_bytes();
    server.send_text("hello", &mut wire).unwrap();
    client.receive(now, &wire);
    assert_eq!(drain(&mut client), [Said::Open(V1_1.into()), Said::Text("hello".into())]);
}

#[test]
fn a_generic_driver_sees_a_machine() {
    fn poll_all<M: Machine>(machine: &mut M) -> usize {
        std::iter::from_fn(|| machine.poll()).count()
    }
    let mut channel = opened(Role::Server, Limits::default());
    let bytes = frame(0x81, b"hi", true);
    Machine::feed(&mut channel, Time::ORIGIN, bma_proto_core::websocket::Input::Bytes(&bytes));
    assert_eq!(Machine::deadline(&channel), Some((Time::ORIGIN, Reason::OutputQueued)));
    assert_eq!(poll_all(&mut channel), 1);
    Machine::feed(&mut channel, Time::ORIGIN, bma_proto_core::websocket::Input::Tick);
    Machine::feed(&mut channel, Time::ORIGIN, bma_proto_core::websocket::Input::EndOfStream);
    assert_eq!(drain(&mut channel), [closed(None, "", How::Lost)]);
}
