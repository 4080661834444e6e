//! Credentials show in nothing that ends up in a log.

use bma_proto_core::contract::*;
use serde_json::{Value, json};

use crate::description::{Extent, TYPES, object, plain};
use crate::table::WIRE_TYPES;

const CREDENTIAL: &str = "s3cr3t";

/// Members that hold a credential, or texts by name of which one can be a credential.
const HOLDERS: &[&str] = &[
    "download_token",
    "env",
    "lease_token",
    "metadata",
    "model_token",
    "options",
    "secret_env",
    "ticket",
    "token",
    "tools_mcp_token",
];

/// Members of kind `json` or of any object, in which a peer can put anything.
fn holds_anything(owner: &str, member: &str) -> bool {
    use crate::description::Kind;
    let Some(member) = TYPES[owner].iter().find(|described| described.name == member) else { return false };
    fn json(kind: &Kind) -> bool {
        match kind {
            Kind::Json => true,
            Kind::List(item) | Kind::Map(item) => json(item),
            _ => false,
        }
    }
    json(&member.kind)
}

#[test]
fn debug_shows_no_credential() {
    let text = |owner: &str, member: &str| {
        let secret = HOLDERS.contains(&member) || holds_anything(owner, member);
        if secret { CREDENTIAL.to_owned() } else { plain(owner, member) }
    };
    let mut with_credential = 0;
    for wire_type in WIRE_TYPES {
        let sent = Value::Object(object(wire_type.name, Extent::Full, &text)).to_string();
        let written = (wire_type.read)(&sent).unwrap_or_else(|error| panic!("{}: {error}", wire_type.name));
        assert_eq!(written.json.matches(CREDENTIAL).count(), sent.matches(CREDENTIAL).count(), "it is written");
        assert!(!written.debug.contains(CREDENTIAL), "{} shows it: {}", wire_type.name, written.debug);
        with_credential += usize::from(sent.contains(CREDENTIAL));
    }
    assert!(with_credential > 40, "only {with_credential} types hold a credential or anything");
}

#[test]
fn an_error_about_a_member_does_not_quote_it() {
    for wire_type in WIRE_TYPES {
        let full = object(wire_type.name, Extent::Full, &plain);
        for member in &TYPES[wire_type.name] {
            let Some(wrong) = member.kind.wrong_value(CREDENTIAL) else { continue };
            for wrong in [wrong, json!({ CREDENTIAL: CREDENTIAL }), json!([CREDENTIAL]), json!(CREDENTIAL)] {
                let mut sent = full.clone();
                sent.insert(member.name.clone(), wrong);
                if let Err(error) = (wire_type.read)(&Value::Object(sent).to_string()) {
                    let problem = error.problem();
                    assert!(!problem.contains(CREDENTIAL), "{}.{}: {problem}", wire_type.name, member.name);
                }
            }
        }
    }
}

#[test]
fn a_credential_is_shown_by_nothing_but_expose_and_its_json() {
    let secret = Secret::new(CREDENTIAL);
    assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(..) Secret(..)");
    assert_eq!(secret.expose(), CREDENTIAL);
    assert_eq!(serde_json::to_value(&secret).unwrap(), json!(CREDENTIAL));
}

#[test]
fn a_credential_matches_itself_only() {
    let secret = Secret::new(CREDENTIAL);
    assert!(secret.matches(CREDENTIAL));
    for other in ["", "s", "s3cr3", "s3cr3t ", "S3cr3t", "s3cr3T"] {
        assert!(!secret.matches(other), "{other:?}");
    }
    assert!(Secret::default().matches("") && !Secret::default().matches("x"));
}

#[test]
fn a_map_of_texts_shows_its_names() {
    let env = TextMap::from([("API_KEY", CREDENTIAL), ("PATH", "/bin")]);
    assert_eq!(format!("{env:?}"), r#"{"API_KEY", "PATH"}"#);
    assert_eq!(env["PATH"], "/bin");
}

#[test]
fn a_raw_value_shows_its_kind_and_length() {
    for (text, shown) in [
        ("null", "Json(null)"),
        (" {\"a\":1} ", "Json(object, 7 bytes)"),
        ("[]", "Json(array, 2 bytes)"),
        (r#""s3cr3t""#, "Json(string, 8 bytes)"),
        ("-7", "Json(number, 2 bytes)"),
        ("true", "Json(boolean, 4 bytes)"),
    ] {
        assert_eq!(format!("{:?}", Json::from_text(text.to_owned()).unwrap()), shown);
    }
}
