//! Each type has the contract's members: their names, which may be absent, and
//! what stands in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bma_proto_core::contract::*;
use serde_json::{Value, json};

use crate::description::{CONTRACT, Extent, Kind, Member, TYPES, object, plain};
use crate::table::{OPEN_ENUMS, WIRE_TYPES, WireType, members_of};

/// Goes through every member of every type.
fn each_member(mut check: impl FnMut(&WireType, &Member)) {
    for wire_type in WIRE_TYPES {
        for member in &TYPES[wire_type.name] {
            check(wire_type, member);
        }
    }
}

/// Reads `value` and gives what is written back.
#[track_caller]
fn written(wire_type: &WireType, value: &Value) -> Value {
    match (wire_type.read)(&value.to_string()) {
        Ok(written) => serde_json::from_str(&written.json).unwrap(),
        Err(error) => panic!("{} cannot be read: {error}\n{value}", wire_type.name),
    }
}

/// Reads `value`, which must be refused, and gives the member that is blamed.
#[track_caller]
fn refused(wire_type: &WireType, value: &Value) -> ShapeError {
    match (wire_type.read)(&value.to_string()) {
        Ok(written) => panic!("{} must not be read: {value}\nwritten back: {}", wire_type.name, written.json),
        Err(error) => error,
    }
}

fn full(wire_type: &WireType) -> Value {
    Value::Object(object(wire_type.name, Extent::Full, &plain))
}

fn required(wire_type: &WireType) -> Value {
    Value::Object(object(wire_type.name, Extent::Required, &plain))
}

fn with(mut value: Value, member: &str, member_value: Value) -> Value {
    value[member] = member_value;
    value
}

fn without(mut value: Value, member: &str) -> Value {
    value.as_object_mut().unwrap().remove(member);
    value
}

#[test]
fn every_type_of_the_contract_is_there_and_no_other() {
    let ours: Vec<&str> = WIRE_TYPES.iter().map(|wire_type| wire_type.name).collect();
    let contracts: Vec<&str> = TYPES.keys().map(String::as_str).collect();
    assert_eq!(ours, contracts);
    assert_eq!(ours.len(), 157, "152 types and five inferred ones");
}

#[test]
fn every_type_of_the_source_is_the_contract_s_or_known_to_be_ours() {
    // What these files declare is the machinery that the wire types are made with.
    const MACHINERY: &[&str] =
        &["catalogue.rs", "ids.rs", "json.rs", "open_enum.rs", "secret.rs", "shape.rs", "text_map.rs"];
    // What reads wire types, and error and close codes, which have tests of their own.
    const OURS: &[&str] = &["AgentEvent", "CloseCode", "ErrorCode", "ToolInputError"];

    let mut unknown = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/contract")).unwrap() {
        let path = entry.unwrap().path();
        if MACHINERY.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line = line.trim_start();
            let declared = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
            let Some(name) = declared.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric()).next()) else {
                continue;
            };
            if !TYPES.contains_key(name) && CONTRACT["enums"][name].is_null() && !OURS.contains(&name) {
                unknown.push(format!("{name} in {}", path.display()));
            }
        }
    }
    assert!(unknown.is_empty(), "types that the contract does not have: {unknown:?}");
}

#[test]
fn every_type_reads_the_contract_s_members_and_no_other() {
    for wire_type in WIRE_TYPES {
        let ours: BTreeSet<&str> = (wire_type.members)().iter().copied().collect();
        let mut contracts: BTreeSet<&str> = TYPES[wire_type.name].iter().map(|member| member.name.as_str()).collect();
        if wire_type.name == "Lease" {
            contracts.insert("lease_token"); // its other spelling, never written
        }
        assert_eq!(ours, contracts, "members of {}", wire_type.name);
    }
}

#[test]
fn a_full_value_is_written_back_as_it_came() {
    for wire_type in WIRE_TYPES {
        let value = full(wire_type);
        assert_eq!(written(wire_type, &value), value, "{}", wire_type.name);
    }
}

#[test]
fn a_value_with_only_the_required_members_is_written_back_as_it_came() {
    for wire_type in WIRE_TYPES {
        let value = required(wire_type);
        assert_eq!(written(wire_type, &value), value, "{}", wire_type.name);
    }
}

#[test]
fn a_missing_required_member_is_refused_by_its_name() {
    each_member(|wire_type, member| {
        if member.may_be_absent() {
            return;
        }
        let error = refused(wire_type, &without(full(wire_type), &member.name));
        let said = error.to_string();
        assert!(said.contains(&format!("`{}`", member.name)), "{}.{}: {said}", wire_type.name, member.name);
        assert!(said.contains("missing"), "{}.{}: {said}", wire_type.name, member.name);
    });
}

#[test]
fn an_optional_member_is_the_same_absent_and_null() {
    each_member(|wire_type, member| {
        if !member.may_be_absent() {
            return;
        }
        let absent = without(full(wire_type), &member.name);
        let null = with(full(wire_type), &member.name, Value::Null);
        let expected = if member.optional { &absent } else { &null }; // one that must be there is written as null
        assert_eq!(written(wire_type, &absent), *expected, "{}.{} absent", wire_type.name, member.name);
        assert_eq!(written(wire_type, &null), *expected, "{}.{} null", wire_type.name, member.name);
    });
}

#[test]
fn an_empty_optional_name_is_the_same_as_absent_and_an_empty_free_text_is_kept() {
    each_member(|wire_type, member| {
        if !member.may_be_absent() || !member.kind.is_text() {
            return;
        }
        let empty = with(full(wire_type), &member.name, json!(""));
        let expected = match (member.empty_is_absent(), member.optional) {
            (false, _) => empty.clone(),
            (true, true) => without(full(wire_type), &member.name),
            (true, false) => with(full(wire_type), &member.name, Value::Null),
        };
        assert_eq!(written(wire_type, &empty), expected, "{}.{}", wire_type.name, member.name);
    });
}

#[test]
fn an_empty_required_member_is_refused_by_its_name_where_it_says_nothing() {
    let mut refusals = 0;
    each_member(|wire_type, member| {
        if member.may_be_absent() || !member.kind.is_text() {
            return;
        }
        let empty = with(full(wire_type), &member.name, json!(""));
        if member.refuses_empty(wire_type.name) {
            let error = refused(wire_type, &empty);
            assert_eq!(error.member(), member.name, "{}: {error}", wire_type.name);
            assert!(error.to_string().contains("must not be empty"), "{}: {error}", wire_type.name);
            refusals += 1;
        } else {
            assert_eq!(written(wire_type, &empty), empty, "{}.{}", wire_type.name, member.name);
        }
    });
    assert!(refusals > 80, "only {refusals} members refuse the empty string");
}

#[test]
fn null_is_an_empty_list_or_object_where_one_must_be_there() {
    each_member(|wire_type, member| {
        if member.may_be_absent() || !member.kind.is_collection() {
            return;
        }
        let empty = if matches!(member.kind, Kind::List(_)) { json!([]) } else { json!({}) };
        let null = with(full(wire_type), &member.name, Value::Null);
        let expected = with(full(wire_type), &member.name, empty);
        assert_eq!(written(wire_type, &null), expected, "{}.{}", wire_type.name, member.name);
    });
}

#[test]
fn an_empty_optional_list_or_map_is_not_written() {
    each_member(|wire_type, member| {
        // An optional object is a value of its own even when it is empty.
        let object = matches!(&member.kind, Kind::Map(item) if **item == Kind::Json);
        if !member.optional || !member.kind.is_collection() || object {
            return;
        }
        let empty = if matches!(member.kind, Kind::List(_)) { json!([]) } else { json!({}) };
        let sent = with(full(wire_type), &member.name, empty);
        let expected = without(full(wire_type), &member.name);
        assert_eq!(written(wire_type, &sent), expected, "{}.{}", wire_type.name, member.name);
    });
}

#[test]
fn a_member_of_another_kind_is_refused_by_its_name() {
    each_member(|wire_type, member| {
        if (wire_type.name, member.name.as_str()) == ("JSONRPCError", "data") {
            return; // read whatever it is: see below
        }
        let Some(wrong) = member.kind.wrong_value("text") else { return };
        let error = refused(wire_type, &with(full(wire_type), &member.name, wrong));
        assert_eq!(error.member(), member.name, "{}: {error}", wire_type.name);
    });
}

#[test]
fn a_nested_mistake_is_named_by_its_path() {
    let turn = |blocks: Value| {
        let params = json!({ "session_id": "s", "turn_id": "t", "input_id": "i", "input": blocks });
        read::<TurnStartParams>(&params.to_string()).unwrap_err()
    };
    let missing = turn(json!([{ "type": "text" }, { "text": "hello" }]));
    assert_eq!(missing.to_string(), "`input[1].type` is missing");
    let wrong = turn(json!([{ "type": "text", "size_bytes": "many" }]));
    assert_eq!(wrong.to_string(), "`input[0].size_bytes` must be a whole number of 64 bits, not a string");
}

/// The paths of everything inside of `value`, as errors write them, and as JSON pointers.
fn paths(value: &Value, path: &str, pointer: &str, all: &mut Vec<(String, String)>) {
    let inner: Vec<(String, String, &Value)> = match value {
        Value::Object(members) => {
            let dot = if path.is_empty() { "" } else { "." };
            let named = |(name, value)| (format!("{path}{dot}{name}"), format!("{pointer}/{name}"), value);
            members.iter().map(named).collect()
        }
        Value::Array(items) => {
            let numbered = |(n, value)| (format!("{path}[{n}]"), format!("{pointer}/{n}"), value);
            items.iter().enumerate().map(numbered).collect()
        }
        _ => return,
    };
    for (path, pointer, value) in inner {
        paths(value, &path, &pointer, all);
        all.push((path, pointer));
    }
}

#[test]
fn a_mistake_at_any_depth_of_any_type_is_named_with_what_is_wanted_and_nothing_of_the_value() {
    const SECRET: &str = "\", expected s3cret at line 7 (";
    let mut refusals = 0;
    for wire_type in WIRE_TYPES {
        let value = full(wire_type);
        let mut all = Vec::new();
        paths(&value, "", "", &mut all);
        for (path, pointer) in all {
            for (wrong, came) in [
                (json!(SECRET), "a string"),
                (json!([SECRET]), "an array"),
                (json!({ SECRET: SECRET }), "an object"),
                (json!(-7_316_429_875_i64), "whole number"),
                (json!(731_642.5), "a number with a fraction"),
                (json!(true), "a boolean"),
            ] {
                let mut value = value.clone();
                *value.pointer_mut(&pointer).unwrap() = wrong;
                // What is free, or of that kind, is taken.
                let Err(error) = (wire_type.read)(&value.to_string()) else { continue };
                let said = error.to_string();
                refusals += 1;
                assert!(!said.contains("s3cret") && !said.contains("7316429875") && !said.contains("731642"), "{said}");
                assert!(
                    error.member() == path || error.member().starts_with(&path),
                    "{}: {path}: {said}",
                    wire_type.name
                );
                // One that stands inside of a wrong value is told of what is missing there.
                if error.member() == path {
                    // Members of free shape that must be objects do not look at what else they are.
                    let (wanted, not) = error.problem().split_once(", not ").unwrap_or((error.problem(), came));
                    assert!(not.contains(came), "{}: {said}", wire_type.name);
                    let words = [
                        "a string",
                        "an array",
                        "an object",
                        "a whole number",
                        "a number",
                        "true or false",
                        "a JSON object",
                    ];
                    assert!(words.iter().any(|word| wanted.contains(word)), "{}: {said}", wire_type.name);
                }
            }
        }
    }
    assert!(refusals > 2_000, "only {refusals}");
}

/// JSON can write half a character, and no text can hold it.
#[test]
fn half_a_surrogate_pair_is_told_as_such_with_the_member_that_holds_it() {
    let told = |text: &str| read::<BashInput>(text).unwrap_err().to_string();
    let half = "half of a surrogate pair (an escape from \\ud800 to \\udfff by itself): write both halves, or the \
                character as it is";
    for half_character in
        [r"a\ud83d", r"\ud83dz", r"\ud83d\u0041", r"\ud83d\ud83d", r"\ude00", r"\ude00\ud83d", r"\ud83d\n"]
    {
        let command = told(&format!(r#"{{"command":"{half_character}"}}"#));
        assert_eq!(command, format!("`command` must not hold {half}"), "{half_character}");
        let value = told(&format!(r#"{{"command":"x","env":{{"A":"{half_character}"}}}}"#));
        assert_eq!(value, format!("`env.A` must not hold {half}"));
        let name = told(&format!(r#"{{"command":"x","env":{{"{half_character}":"x"}}}}"#));
        assert_eq!(name, format!("`env` must not have a member whose name holds {half}"));
        let name = told(&format!(r#"{{"{half_character}":"x"}}"#));
        assert_eq!(name, format!("must not have a member whose name holds {half}"));
    }
    let whole: BashInput = read(r#"{"command":"\ud83d\ude00"}"#).unwrap();
    assert_eq!(whole.command, "\u{1f600}");
}

#[test]
fn a_path_of_any_length_does_not_make_an_error_of_any_length() {
    let long = "m".repeat(60_000);
    let error =
        read::<SessionAssignParams>(&json!({"session_id": "s", "metadata": {long: 7}}).to_string()).unwrap_err();
    assert!(error.member().starts_with("metadata.mmm") && error.to_string().len() < 300, "{error}");
}

#[test]
fn a_member_that_is_there_twice_is_refused_by_its_name() {
    let error = read::<ToolCancelParams>(r#"{"session_id":"a","tool_call_id":"c","session_id":"b"}"#).unwrap_err();
    assert!(error.to_string().contains("`session_id` is there twice"), "{error}");
}

#[test]
fn a_lease_is_read_by_either_name_of_its_token() {
    for text in [
        r#"{"token":"t"}"#,
        r#"{"lease_token":"t"}"#,
        r#"{"token":"t","lease_token":"t","expires_at":null}"#,
        r#"{"token":"t","lease_token":"another"}"#,
        r#"{"token":null,"lease_token":"t"}"#,
    ] {
        let lease: Lease = read(text).unwrap();
        assert_eq!(lease, Lease::new("t".into()), "{text}");
        assert_eq!(serde_json::to_string(&lease).unwrap(), r#"{"token":"t"}"#);
    }
}

#[test]
fn an_error_is_read_whatever_its_data_is() {
    let read_data = |data: &str| {
        let text = format!(r#"{{"code":-32000,"message":"no","data":{data}}}"#);
        read::<JSONRPCError>(&text).unwrap().data
    };
    assert_eq!(read_data("null"), None);
    assert_eq!(read_data(r#"{"retryable":true}"#).unwrap().retryable, Some(true));
    assert_eq!(read_data(r#""more about it""#).unwrap().detail.as_deref(), Some("more about it"));
    for other in ["7", "[1,2]", r#"{"retryable":"perhaps"}"#] {
        assert_eq!(read_data(other), None, "{other}");
    }
}

#[test]
fn an_error_whose_request_had_no_readable_id_has_a_null_or_empty_id() {
    for id in ["null", r#""""#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32700,"message":"parse_error"}}}}"#);
        let response: JSONRPCErrorResponse = read(&text).unwrap();
        assert_eq!(response.id, None);
        assert!(serde_json::to_string(&response).unwrap().contains(r#""id":null"#));
    }
}

#[test]
fn media_types_are_spelt_as_each_protocol_spells_them() {
    let ours = ContentBlock::image("AA==", "image/png");
    assert_eq!(
        serde_json::to_value(ours).unwrap(),
        json!({ "type": "image", "data": "AA==", "mime_type": "image/png" })
    );
    let mcp = MCPContentBlock { r#type: "image".into(), mime_type: Some("image/png".into()), ..Default::default() };
    assert_eq!(serde_json::to_value(mcp).unwrap(), json!({ "type": "image", "mimeType": "image/png" }));
}

#[test]
fn every_enumeration_has_the_contract_s_values_and_keeps_others() {
    let ours: BTreeMap<&str, &[&str]> = OPEN_ENUMS.iter().map(|open| (open.name, open.known)).collect();
    let contracts = CONTRACT["enums"].as_object().unwrap();
    assert_eq!(ours.keys().copied().collect::<Vec<_>>(), contracts.keys().map(String::as_str).collect::<Vec<_>>());

    for open in OPEN_ENUMS {
        assert_eq!(json!(open.known), contracts[open.name], "{}", open.name);
        for known in open.known {
            let text = json!(known).to_string();
            assert_eq!((open.read)(&text), (text, true), "{}", open.name);
        }
        for other in ["", "future_thing", "RUNNING", "\u{2028}\u{0}"] {
            let text = json!(other).to_string();
            assert_eq!((open.read)(&text), (text, false), "{}", open.name);
        }
    }
}

#[test]
fn every_tool_has_the_contract_s_input() {
    fn input<I: TypedInput>() -> (String, BTreeSet<&'static str>) {
        (I::TOOL.to_string(), members_of::<I>().iter().copied().collect())
    }
    let ours = BTreeMap::from([
        input::<BashInput>(),
        input::<ReadInput>(),
        input::<WriteInput>(),
        input::<EditInput>(),
        input::<GlobInput>(),
        input::<GrepInput>(),
        input::<ListFilesInput>(),
        input::<ComputerObserveInput>(),
        input::<ComputerActionInput>(),
    ]);
    let contracts = CONTRACT["tool_inputs"].as_object().unwrap();
    let members = |input: &'static Value| input.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(ours, contracts.iter().map(|(tool, input)| (tool.clone(), members(input))).collect());

    // The two descriptions that the contract gives of an input are the same one.
    for (tool, input) in contracts {
        let name: String = tool.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
        for member in &TYPES[&format!("{name}Input")] {
            assert_eq!(input[&member.name]["required"], json!(!member.optional), "{tool}.{}", member.name);
        }
    }
}
