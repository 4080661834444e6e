//! First frames, and who is who.

use super::*;
use crate::contract::CloseCode;

fn pinned(id: &str) -> Principal {
    Principal { executor_id: Some(id.into()) }
}

fn refused(registry: &mut Registry, principal: &Principal, registration: &Registration) -> (i64, u16) {
    let refusal = registry.place(principal, registration).unwrap_err();
    let frame: Value = serde_json::from_str(&refusal.frame).unwrap();
    assert_eq!(frame["id"], "r", "answered under its id");
    assert!(!refusal.reason.is_empty());
    (frame["error"]["code"].as_i64().unwrap(), refusal.code)
}

#[test]
fn the_first_frame_is_a_registration_or_the_connection_ends() {
    let list =
        r#"{"jsonrpc":"2.0","id":5,"method":"executor.heartbeat","params":{"connection_id":"c","active_sessions":[]}}"#;
    let notification = r#"{"jsonrpc":"2.0","method":"executor.close","params":{"reason":""}}"#;
    let unanswered = r#"{"jsonrpc":"2.0","method":"executor.register","params":{}}"#;
    let bare = r#"{"jsonrpc":"2.0","id":5,"method":"executor.register","params":{}}"#;
    for (frame, code) in [(list, -32600), ("nonsense", -32700), ("[]", -32600), (bare, -32602)] {
        let refusal = read_registration(frame).unwrap_err();
        let answer: Value = serde_json::from_str(&refusal.frame).unwrap();
        assert_eq!((&answer["error"]["code"], refusal.code), (&json!(code), 4002), "{frame}");
    }
    for frame in [notification, unanswered] {
        let refusal = read_registration(frame).unwrap_err();
        assert_eq!((refusal.frame.as_str(), refusal.code), ("", 4002), "there is nobody to answer");
    }
}

#[test]
fn an_executor_gets_an_id_and_keeps_it() {
    let mut registry = Registry::new(&Config::default(), 3);
    let anybody = Principal::default();
    let Placement::New(id) = registry.place(&anybody, &registration(Value::Null)).unwrap() else { panic!("new") };
    let Placement::New(other) = registry.place(&anybody, &registration(Value::Null)).unwrap() else { panic!("new") };
    assert_ne!(id, other);
    let resume = registration(json!({"executor_id": id}));
    assert_eq!(registry.place(&anybody, &resume).unwrap(), Placement::Known(id.clone()));
    assert_eq!(registry.executors().count(), 2);
    // Once it is forgotten it is a new one, under a new id (F66).
    registry.remove(&id);
    let Placement::New(again) = registry.place(&anybody, &resume).unwrap() else { panic!("new") };
    assert_ne!(again, id);
}

#[test]
fn f62_a_pinned_identity_is_taken_over_by_its_next_connection() {
    let mut registry = Registry::new(&Config::default(), 3);
    let principal = pinned("mine");
    assert_eq!(registry.place(&principal, &registration(Value::Null)).unwrap(), Placement::New("mine".into()));
    // Started anew, with nothing to resume, while the old connection may still be there.
    assert_eq!(registry.place(&principal, &registration(Value::Null)).unwrap(), Placement::Known("mine".into()));
    let resume = registration(json!({"executor_id": "mine"}));
    assert_eq!(registry.place(&principal, &resume).unwrap(), Placement::Known("mine".into()));
}

#[test]
fn nobody_takes_over_somebody_elses_executor() {
    let mut registry = Registry::new(&Config::default(), 3);
    registry.place(&pinned("mine"), &registration(Value::Null)).unwrap();
    let theirs = registration(json!({"executor_id": "mine"}));
    let forbidden = (ErrorCode::Forbidden.number(), CloseCode::RegistrationRefused.number());
    assert_eq!(refused(&mut registry, &pinned("other"), &theirs), forbidden);
    assert_eq!(refused(&mut registry, &Principal::default(), &theirs), forbidden);
}

#[test]
fn another_protocol_is_refused_for_good() {
    let mut registry = Registry::new(&Config::default(), 3);
    let future = registration_with(Value::Null, "bma.executor.v2".into(), json!({}));
    let unsupported = (ErrorCode::UnsupportedProtocol.number(), CloseCode::UnsupportedProtocol.number());
    assert_eq!(refused(&mut registry, &Principal::default(), &future), unsupported);
    let older = registration_with(Value::Null, ProtocolVersion::V1, json!({}));
    assert!(registry.place(&Principal::default(), &older).is_ok());
}

#[test]
fn executors_are_bounded_and_known_ones_come_back_all_the_same() {
    let config = Config { max_executors: 1, ..Config::default() };
    let mut registry = Registry::new(&config, 3);
    let anybody = Principal::default();
    let Placement::New(id) = registry.place(&anybody, &registration(Value::Null)).unwrap() else { panic!("new") };
    assert_eq!(refused(&mut registry, &anybody, &registration(Value::Null)).0, ErrorCode::ExecutorBusy.number());
    assert!(registry.place(&anybody, &registration(json!({"executor_id": id}))).is_ok());
    registry.remove(&id);
    assert!(registry.place(&anybody, &registration(Value::Null)).is_ok());
}
