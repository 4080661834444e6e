//! Frames read in one scan, and the second look at those that fail it.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::id::RequestId;
use super::peer::{RequestError, Side};
use crate::contract::{AnyParams, AnyResult, ErrorCode, JSONRPCError, Kind, Method, ShapeError};

/// What a frame is to the side that got it.
pub(super) enum Frame<'a> {
    /// The other side asks for something.
    Request(RequestId, AnyParams),
    /// The other side tells something.
    Notification(AnyParams),
    /// What became of one of our own requests, by its raw id.
    Answer(&'a RawValue, Result<AnyResult, RequestError>),
    /// The method of a notification, with the id of a request.
    UnwantedId(RequestId, Method),
    /// The method of a request, without an id that it could be answered by.
    MissingId,
    /// None of these: take the second look.
    Broken,
}

/// Reads a frame in one scan. `method_of` finds the method of one of our own
/// requests by the raw id of its answer.
pub(super) fn read<'a>(text: &'a str, side: Side, method_of: &dyn Fn(&RawValue) -> Option<Method>) -> Frame<'a> {
    let mut scan = Scan::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = deserializer.deserialize_map(Envelope { scan: &mut scan, method_of });
    if read.and_then(|()| deserializer.end()).is_err() {
        return Frame::Broken;
    }
    let Some(method) = scan.method else {
        return match (scan.id, scan.result, scan.error) {
            (Some(id), Some(result), None) => Frame::Answer(id, Ok(result)),
            (Some(id), None, Some(error)) => Frame::Answer(id, Err(RequestError::Refused(Box::new(error)))),
            _ => Frame::Broken,
        };
    };
    let Some(params) = scan.params.filter(|_| side.accepts(method)) else { return Frame::Broken };
    match (scan.id.map(RequestId::from_raw), method.kind()) {
        (Some(Some(id)), Kind::Request) => Frame::Request(id, params),
        (Some(Some(id)), Kind::Notification) => Frame::UnwantedId(id, method),
        (Some(None), _) => Frame::Broken,
        (None, Kind::Request) => Frame::MissingId,
        (None, Kind::Notification) => Frame::Notification(params),
    }
}

/// Everything that one scan found in a well-formed frame.
#[derive(Default)]
struct Scan<'a> {
    id: Option<&'a RawValue>,
    method: Option<Method>,
    params: Option<AnyParams>,
    result: Option<AnyResult>,
    error: Option<JSONRPCError>,
}

/// Fills the scan in where it stands: it is large, and would be moved at every step out of serde.
struct Envelope<'f, 'de> {
    scan: &'f mut Scan<'de>,
    method_of: &'f dyn Fn(&RawValue) -> Option<Method>,
}

enum Key {
    JsonRpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Unknown,
}

impl<'de> Visitor<'de> for Envelope<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC 2.0 object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let scan = self.scan;
        let mut version = false;
        // Members that came before the one that says what their type is.
        let mut early_params: Option<&'de RawValue> = None;
        let mut early_result: Option<&'de RawValue> = None;
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match key {
                Key::JsonRpc if !version => {
                    version = map.next_value_seed(Literal("2.0"))?;
                    if !version {
                        return Err(de::Error::custom("another version"));
                    }
                }
                Key::Id if scan.id.is_none() => scan.id = Some(map.next_value()?),
                Key::Method if scan.method.is_none() => scan.method = Some(map.next_value_seed(MethodSeed)?),
                Key::Params if scan.params.is_none() && early_params.is_none() => match scan.method {
                    Some(method) => scan.params = Some(map.next_value_seed(ParamsSeed(method))?),
                    None => early_params = Some(map.next_value()?),
                },
                Key::Result if scan.result.is_none() && early_result.is_none() => {
                    match scan.id.and_then(self.method_of) {
                        Some(method) => scan.result = Some(map.next_value_seed(ResultSeed(method))?),
                        None => early_result = Some(map.next_value()?),
                    }
                }
                Key::Error if scan.error.is_none() => scan.error = map.next_value()?,
                Key::Unknown => drop(map.next_value::<IgnoredAny>()?),
                _ => return Err(de::Error::custom("a member stands there twice")),
            }
        }
        if !version {
            return Err(de::Error::missing_field("jsonrpc"));
        }
        if let (Some(raw), Some(method)) = (early_params, scan.method) {
            scan.params = Some(ParamsSeed(method).deserialize(raw).map_err(de::Error::custom)?);
        }
        if let (Some(raw), Some(method)) = (early_result, scan.id.and_then(self.method_of)) {
            scan.result = Some(ResultSeed(method).deserialize(raw).map_err(de::Error::custom)?);
        }
        Ok(())
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        Ok(match name {
            "jsonrpc" => Key::JsonRpc,
            "id" => Key::Id,
            "method" => Key::Method,
            "params" => Key::Params,
            "result" => Key::Result,
            "error" => Key::Error,
            _ => Key::Unknown,
        })
    }
}

/// Whether a string is the one expected, without copying it.
struct Literal(&'static str);

impl<'de> DeserializeSeed<'de> for Literal {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Literal {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(text == self.0)
    }
}

struct MethodSeed;

impl<'de> DeserializeSeed<'de> for MethodSeed {
    type Value = Method;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Method, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MethodSeed {
    type Value = Method;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a method of the catalogue")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Method, E> {
        Method::from_name(name).ok_or_else(|| E::custom("unknown method"))
    }
}

struct ParamsSeed(Method);

impl<'de> DeserializeSeed<'de> for ParamsSeed {
    type Value = AnyParams;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AnyParams, D::Error> {
        AnyParams::deserialize(self.0, ObjectOnly(deserializer))
    }
}

struct ResultSeed(Method);

impl<'de> DeserializeSeed<'de> for ResultSeed {
    type Value = AnyResult;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AnyResult, D::Error> {
        AnyResult::deserialize(self.0, ObjectOnly(deserializer))
            .unwrap_or_else(|| Err(de::Error::custom("a notification has no result")))
    }
}

/// Takes a struct from an object only: derived code would take an array by position as well.
struct ObjectOnly<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// What a second look makes of a frame that the scan refused.
#[derive(Debug)]
pub(super) enum Verdict<'a> {
    /// A request: answer it with this error.
    Refuse(RequestId, JSONRPCError),
    /// A notification or an answer that is of no use: there is nobody to answer.
    Ignore,
    /// An answer to one of our own requests, in a shape that the contract does not give
    /// it: its error where one can be made out, else what is wrong.
    BadAnswer(&'a RawValue, Result<JSONRPCError, String>),
}

impl Verdict<'_> {
    fn refuse(id: RequestId, code: ErrorCode, message: impl Into<String>) -> Self {
        Verdict::Refuse(id, code.error(message))
    }
}

/// The members of an object that could be a frame, unread.
#[derive(Default, serde::Deserialize)]
struct Loose<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// `null` is a value here: an id of null is not the same as no id.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    serde::Deserialize::deserialize(deserializer).map(Some)
}

/// Finds the error code that a frame which failed the scan deserves.
/// `accepts` says whether a method may come from the peer at all; `method_of` is that of [`read`].
pub(super) fn diagnose<'a>(
    text: &'a str,
    accepts: &dyn Fn(Method) -> bool,
    method_of: &dyn Fn(&RawValue) -> Option<Method>,
) -> Verdict<'a> {
    let null = RequestId::null;
    let value: &RawValue = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Verdict::refuse(null(), ErrorCode::ParseError, format!("the frame is not JSON: {error}")),
    };
    if value.get().starts_with('[') {
        let message = "batches are not supported: send one request in each frame";
        return Verdict::refuse(null(), ErrorCode::InvalidRequest, message);
    }
    if !value.get().starts_with('{') {
        return Verdict::refuse(null(), ErrorCode::InvalidRequest, "the frame is no JSON object");
    }
    let loose: Loose<'_> = match serde_json::from_str(value.get()) {
        Ok(loose) => loose,
        Err(error) => return Verdict::refuse(null(), ErrorCode::InvalidRequest, problem(&error)),
    };
    let Some(method) = loose.method else {
        // An answer is never answered: two sides could go on about it for ever.
        let is_answer = loose.result.is_some() || loose.error.is_some();
        return match loose.id {
            Some(id) if is_answer => Verdict::BadAnswer(id, bad_answer(&loose, method_of(id))),
            None if is_answer => Verdict::Ignore,
            id => Verdict::refuse(
                id.and_then(RequestId::from_raw).unwrap_or_else(null),
                ErrorCode::InvalidRequest,
                "`method` is missing",
            ),
        };
    };
    let id = match loose.id.map(RequestId::from_raw) {
        None => None,
        Some(Some(id)) => Some(id),
        Some(None) => {
            let message = "`id` must be a string or a whole number, of 1024 bytes at most";
            return Verdict::refuse(null(), ErrorCode::InvalidRequest, message);
        }
    };
    match request_error(&loose, method, accepts) {
        (ErrorCode::InvalidRequest, message) => {
            Verdict::refuse(id.unwrap_or_else(null), ErrorCode::InvalidRequest, message)
        }
        (code, message) => match id {
            Some(id) => Verdict::refuse(id, code, message),
            None => Verdict::Ignore,
        },
    }
}

fn request_error(loose: &Loose<'_>, method: &RawValue, accepts: &dyn Fn(Method) -> bool) -> (ErrorCode, String) {
    if loose.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return (ErrorCode::InvalidRequest, r#"`jsonrpc` must be "2.0""#.to_owned());
    }
    let Ok(name) = serde_json::from_str::<String>(method.get()) else {
        return (ErrorCode::InvalidRequest, "`method` must be a string".to_owned());
    };
    let Some(method) = Method::from_name(&name).filter(|method| accepts(*method)) else {
        let shown: String = name.chars().take(64).collect();
        return (ErrorCode::MethodNotFound, format!("there is no method {shown:?} in this direction"));
    };
    let params = loose.params.map_or("{}", RawValue::get);
    let mut deserializer = serde_json::Deserializer::from_str(params);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
    match ParamsSeed(method).deserialize(tracked) {
        Ok(_) => (ErrorCode::InvalidRequest, "the frame is no JSON-RPC 2.0 request".to_owned()),
        Err(error) => {
            let error = ShapeError::new(&track.path().to_string(), &error);
            (ErrorCode::InvalidParams, error.within("params").to_string())
        }
    }
}

fn bad_answer(loose: &Loose<'_>, method: Option<Method>) -> Result<JSONRPCError, String> {
    /// An error whose `data` may have any shape.
    #[derive(serde::Deserialize)]
    struct LooseError {
        code: i64,
        #[serde(default)]
        message: String,
    }
    if loose.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return Err(r#"`jsonrpc` must be "2.0""#.to_owned());
    }
    // Null in either place is what some peers write for "none".
    let error = loose.error.filter(|error| error.get() != "null");
    match error {
        Some(_) if loose.result.is_some_and(|result| result.get() != "null") => {
            Err("the answer carries both `result` and `error`".to_owned())
        }
        Some(error) => match serde_json::from_str(error.get()).or_else(|_| {
            let loose: LooseError = serde_json::from_str(error.get())?;
            Ok(JSONRPCError { code: loose.code, message: loose.message, data: None })
        }) {
            Ok(error) => Ok(error),
            Err::<_, serde_json::Error>(error) => Err(format!("the error object cannot be read: {}", problem(&error))),
        },
        None => {
            let result = loose.result.map_or("null", RawValue::get);
            let read = method.and_then(|method| AnyResult::read(method, result));
            let problem = read.and_then(Result::err).map(|error| error.within("result").to_string());
            Err(problem.unwrap_or_else(|| "the result has another shape than the contract gives it".to_owned()))
        }
    }
}

/// What is wrong, without the position and without the offending value, which
/// could be a credential in the wrong place.
fn problem(error: &serde_json::Error) -> String {
    ShapeError::new("", error).to_string()
}

/// What can be said of a frame that is too large to be read.
pub(super) enum Oversized<'a> {
    /// An answer to a request of ours with this id.
    Answer(&'a RawValue),
    /// A request with this id, or something of which no id can be read.
    Request(RequestId),
    /// A notification, or an answer to nothing: there is nobody to answer.
    Unanswerable,
}

/// Looks for the id of a frame that is too large to be read.
pub(super) fn look_at_oversized(text: &str) -> Oversized<'_> {
    let object = text.trim_start().starts_with('{');
    match serde_json::from_str::<Loose<'_>>(text) {
        Ok(Loose { method: Some(_), id: Some(id), .. }) if object => {
            Oversized::Request(RequestId::from_raw(id).unwrap_or_else(RequestId::null))
        }
        Ok(Loose { method: None, id: Some(id), .. }) if object => Oversized::Answer(id),
        Ok(Loose { id: None, method, result, error, .. }) if object && method.or(result).or(error).is_some() => {
            Oversized::Unanswerable
        }
        _ => Oversized::Request(RequestId::null()),
    }
}
