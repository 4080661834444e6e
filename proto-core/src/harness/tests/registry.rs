//! First frames, and who is who.

use super::*;
use crate::contract::{CloseCode, ConnectionId};

fn pinned(id: &str) -> Principal {
    Principal::pinned(id.into())
}

/// Places a connection that resumes, and gives its id too.
fn place(registry: &mut Registry, principal: &Principal, resume: Value) -> (Placement, ConnectionId) {
    let mut registration = registration(resume);
    let placement = registry.place(principal, &mut registration).unwrap();
    (placement, registration.connection_id.unwrap())
}

fn refused(registry: &mut Registry, principal: &Principal, registration: Registration) -> (i64, u16) {
    let refusal = registry.place(principal, &mut { registration }).unwrap_err();
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
    let anybody = Principal::anonymous();
    let (Placement::New(id), connection) = place(&mut registry, &anybody, Value::Null) else { panic!("new") };
    let (Placement::New(other), _) = place(&mut registry, &anybody, Value::Null) else { panic!("new") };
    assert_ne!(id, other);
    let resume = json!({"executor_id": id, "last_connection_id": connection});
    assert_eq!(place(&mut registry, &anybody, resume.clone()).0, Placement::Known(id.clone()));
    assert_eq!(registry.executors().count(), 2);
    // Once it is forgotten it is a new one, under a new id (F66).
    registry.remove(&id);
    let (Placement::New(again), _) = place(&mut registry, &anybody, resume) else { panic!("new") };
    assert_ne!(again, id);
}

#[test]
fn f62_a_pinned_identity_is_taken_over_by_its_next_connection() {
    let mut registry = Registry::new(&Config::default(), 3);
    let principal = pinned("mine");
    assert_eq!(place(&mut registry, &principal, Value::Null).0, Placement::New("mine".into()));
    // Started anew, with nothing to resume, while the old connection may still be there.
    for _ in 0..100 {
        assert_eq!(place(&mut registry, &principal, Value::Null).0, Placement::Known("mine".into()));
    }
    assert_eq!(place(&mut registry, &principal, json!({"executor_id": "mine"})).0, Placement::Known("mine".into()));
}

#[test]
fn nobody_takes_over_somebody_elses_executor() {
    let mut registry = Registry::new(&Config::default(), 3);
    let forbidden = (ErrorCode::Forbidden.number(), CloseCode::RegistrationRefused.number());
    place(&mut registry, &pinned("mine"), Value::Null);
    let theirs = || registration(json!({"executor_id": "mine"}));
    assert_eq!(refused(&mut registry, &pinned("other"), theirs()), forbidden);
    assert_eq!(refused(&mut registry, &Principal::anonymous(), theirs()), forbidden);
    // Not by another credential either that knows everything about it.
    let (Placement::New(id), connection) = place(&mut registry, &Principal::subject("a"), Value::Null) else {
        panic!("new")
    };
    let resume = json!({"executor_id": id, "last_connection_id": connection});
    for other in [Principal::subject("b"), Principal::anonymous(), pinned(id.as_str())] {
        assert_eq!(refused(&mut registry, &other, registration(resume.clone())), forbidden, "{other:?}");
    }
    assert_eq!(place(&mut registry, &Principal::subject("a"), resume).0, Placement::Known(id));
}

#[test]
fn an_executors_id_alone_does_not_resume_it() {
    for anybody in [Principal::anonymous(), Principal::subject("a")] {
        let mut registry = Registry::new(&Config::default(), 3);
        let (Placement::New(id), first) = place(&mut registry, &anybody, Value::Null) else { panic!("new") };
        for last in [Value::Null, json!("conn_guessed"), json!("")] {
            let (placement, _) = place(&mut registry, &anybody, json!({"executor_id": id, "last_connection_id": last}));
            assert!(matches!(&placement, Placement::New(other) if *other != id), "{placement:?}");
        }
        // The answers of its next registrations may get lost: it goes on naming the last that came.
        let resume = |last: &ConnectionId| json!({"executor_id": id, "last_connection_id": last});
        let mut later = Vec::new();
        for _ in 0..100 {
            let (placement, connection) = place(&mut registry, &anybody, resume(&first));
            assert_eq!(placement, Placement::Known(id.clone()));
            later.push(connection);
        }
        // Any of the last ones is good, and then those before it are not.
        let [.., before, last] = later.as_slice() else { panic!("many") };
        assert_eq!(place(&mut registry, &anybody, resume(before)).0, Placement::Known(id.clone()));
        assert_eq!(place(&mut registry, &anybody, resume(last)).0, Placement::Known(id.clone()));
        for stale in [&first, before] {
            assert!(matches!(place(&mut registry, &anybody, resume(stale)).0, Placement::New(_)));
        }
    }
}

#[test]
fn another_protocol_is_refused_for_good() {
    let mut registry = Registry::new(&Config::default(), 3);
    let future = registration_with(Value::Null, "bma.executor.v2".into(), json!({}));
    let unsupported = (ErrorCode::UnsupportedProtocol.number(), CloseCode::UnsupportedProtocol.number());
    assert_eq!(refused(&mut registry, &Principal::anonymous(), future), unsupported);
    let mut older = registration_with(Value::Null, ProtocolVersion::V1, json!({}));
    assert!(registry.place(&Principal::anonymous(), &mut older).is_ok());
}

#[test]
fn executors_are_bounded_and_known_ones_come_back_all_the_same() {
    let config = Config { max_executors: 1, ..Config::default() };
    let mut registry = Registry::new(&config, 3);
    let anybody = Principal::anonymous();
    let (Placement::New(id), connection) = place(&mut registry, &anybody, Value::Null) else { panic!("new") };
    // To try again later: not one of the refusals that an executor gives up after.
    let busy = (ErrorCode::ExecutorBusy.number(), 1013);
    assert_eq!(refused(&mut registry, &anybody, registration(Value::Null)), busy);
    place(&mut registry, &anybody, json!({"executor_id": id, "last_connection_id": connection}));
    registry.remove(&id);
    place(&mut registry, &anybody, Value::Null);
}

#[test]
fn a_refusal_closes_for_good_or_for_a_while() {
    let registration = registration(Value::Null);
    for code in [ErrorCode::ExecutorBusy, ErrorCode::Timeout] {
        assert_eq!(registration.refuse(&code.error("")).code, 1013, "{code}");
        assert_eq!(registration.refuse(&code.error("").with_retryable(false)).code, 4002, "{code}");
    }
    for code in [ErrorCode::Forbidden, ErrorCode::InternalError] {
        assert_eq!(registration.refuse(&code.error("")).code, 4002, "{code}");
        assert_eq!(registration.refuse(&code.error("").with_retryable(true)).code, 1013, "{code}");
    }
}
