//! Any value that a peer can send is read, and written back as the contract's
//! rules say: for every type, over generated values.

use bma_proto_core::contract::read;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::description::{Kind, Member, TYPES};
use crate::table::WIRE_TYPES;

/// What a peer sends, and what is written when it has been read.
type Case = (Value, Value);

/// The same of one member: `None` where it is left out.
#[derive(Clone, Debug)]
struct MemberCase {
    name: String,
    sent: Option<Value>,
    written: Option<Value>,
}

#[test]
fn every_type_is_written_back_as_the_rules_say() {
    for wire_type in WIRE_TYPES {
        let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&object(wire_type.name), |(sent, expected)| {
            let written = (wire_type.read)(&sent.to_string());
            let written = written.map_err(|error| TestCaseError::fail(format!("{error}\nsent: {sent}")))?;
            let written: Value = serde_json::from_str(&written.json).unwrap();
            prop_assert_eq!(&written, &expected, "sent: {}", sent);
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{}: {failure}", wire_type.name));
    }
}

#[test]
fn no_text_makes_any_type_panic() {
    let mut runner = TestRunner::new(Config { cases: 256, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&(json_value(), any::<prop::sample::Index>()), |(value, at)| {
        let text = value.to_string();
        let cut = text.char_indices().map(|(position, _)| position).nth(at.index(text.chars().count()));
        for text in [text.as_str(), &text[..cut.unwrap_or_default()]] {
            for wire_type in WIRE_TYPES {
                let _ = (wire_type.read)(text);
            }
            let _ = read::<bma_proto_core::contract::AgentEventType>(text);
        }
        Ok(())
    });
    outcome.unwrap();
}

fn object(name: &str) -> BoxedStrategy<Case> {
    let members: Vec<BoxedStrategy<MemberCase>> = TYPES[name].iter().map(|described| member(name, described)).collect();
    let unknown = vec(("x_[a-z]{1,8}", json_value()), 0..3);
    (members, unknown)
        .prop_map(|(members, unknown)| {
            let mut sent: Map<String, Value> = unknown.into_iter().collect();
            let mut written = Map::new();
            for member in members {
                sent.extend(member.sent.map(|value| (member.name.clone(), value)));
                written.extend(member.written.map(|value| (member.name, value)));
            }
            (Value::Object(sent), Value::Object(written))
        })
        .boxed()
}

fn member(owner: &str, described: &Member) -> BoxedStrategy<MemberCase> {
    let name = described.name.clone();
    let absent = if described.optional { None } else { Some(Value::Null) };
    let may_be_absent = described.may_be_absent();
    let empty_is_absent = described.empty_is_absent();
    // An optional object is a value of its own even when it is empty.
    let object = matches!(&described.kind, Kind::Map(item) if **item == Kind::Json);
    let empty_is_unwritten = described.optional && described.kind.is_collection() && !object;

    let nothing = absent.clone();
    let present = value(&described.kind, !described.refuses_empty(owner)).prop_map(move |(sent, written)| {
        let is_absent = empty_is_absent && sent == json!("")
            || empty_is_unwritten && (written == json!([]) || written == json!({}));
        (Some(sent), if is_absent { nothing.clone() } else { Some(written) })
    });
    let case = if may_be_absent {
        let null = (Some(Value::Null), absent.clone());
        prop_oneof![1 => Just((None, absent)), 1 => Just(null), 3 => present].boxed()
    } else {
        present.boxed()
    };
    case.prop_map(move |(sent, written)| MemberCase { name: name.clone(), sent, written }).boxed()
}

fn value(kind: &Kind, may_be_empty: bool) -> BoxedStrategy<Case> {
    let same = |value: Value| (value.clone(), value);
    match kind {
        Kind::Text | Kind::Time => text(may_be_empty).prop_map(move |text| same(Value::String(text))).boxed(),
        Kind::Bool => any::<bool>().prop_map(move |value| same(json!(value))).boxed(),
        Kind::I64 => whole().prop_map(move |value| same(json!(value))).boxed(),
        Kind::U64 => prop_oneof![Just(u64::MAX), Just((1 << 53) + 1), any::<u64>()]
            .prop_map(move |value| same(json!(value)))
            .boxed(),
        Kind::U16 => any::<u16>().prop_map(move |value| same(json!(value))).boxed(),
        // Eighths are exact in binary and in decimal.
        Kind::F64 => any::<i32>().prop_map(move |value| same(json!(f64::from(value) / 8.0))).boxed(),
        Kind::Json => json_value().prop_filter("null is absence", |value| !value.is_null()).prop_map(same).boxed(),
        Kind::List(item) => {
            // Identifiers in lists are never empty.
            vec(value(item, false), 0..3)
                .prop_map(|items| {
                    let (sent, written): (Vec<Value>, Vec<Value>) = items.into_iter().unzip();
                    (Value::Array(sent), Value::Array(written))
                })
                .boxed()
        }
        Kind::Map(item) if **item == Kind::Json => btree_map(text(true), json_value(), 0..3)
            .prop_map(move |map| same(Value::Object(map.into_iter().collect())))
            .boxed(),
        Kind::Map(item) => btree_map(text(true), value(item, true), 0..3)
            .prop_map(|map| {
                let sent = map.iter().map(|(name, (sent, _))| (name.clone(), sent.clone())).collect();
                let written = map.iter().map(|(name, (_, written))| (name.clone(), written.clone())).collect();
                (Value::Object(sent), Value::Object(written))
            })
            .boxed(),
        Kind::Object(name) => object(name),
    }
}

fn whole() -> impl Strategy<Value = i64> {
    prop_oneof![Just(i64::MIN), Just(i64::MAX), Just((1 << 53) + 1), Just(-(1 << 53) - 1), Just(0), any::<i64>(),]
}

/// Any text: enumeration values among it, known and unknown, line separators and
/// characters outside the basic plane.
fn text(may_be_empty: bool) -> BoxedStrategy<String> {
    let some = prop_oneof![
        vec(any::<char>(), 1..6).prop_map(String::from_iter),
        Just("a\u{2028}b\u{2029}c\u{85}d".to_owned()),
        Just("running".to_owned()),
        Just("future_thing".to_owned()),
        Just("null".to_owned()),
        Just("\"\\\u{0}\u{7f}\u{1f980}".to_owned()),
    ];
    if may_be_empty { prop_oneof![4 => some, 1 => Just(String::new())].boxed() } else { some.boxed() }
}

/// Any JSON value, whole numbers up to the ends of their range.
fn json_value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        whole().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text(true).prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(text(true), inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
    .boxed()
}
