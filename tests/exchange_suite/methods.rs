//! The methods of the catalogue, served and called in both directions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bma_runtime::proto::contract::{
    AnyParams, Capabilities, ErrorCode, InteractionRequestParams, JSONRPCError, Json, Method, ProcessListParams,
    ProcessStartParams, ProcessState, ProcessStateName, ProcessStatusParams, SessionEventParams, SessionEventResult,
    SessionStatus, SessionStatusParams, methods,
};
use bma_runtime::proto::harness::CallError;
use bma_runtime::proto::rpc::RequestError;
use bma_runtime::sync::Event;
use bma_runtime::{
    Client, ClientError, Executor, ExecutorEvent, Harness, HarnessMethod, RequestContext, Runtime, ServedMethod,
};

use super::{Count, Rig, assert_code, options, refused};
use crate::support::logs;

/// Everything that a method can need.
const EVERYTHING: &str = r#"{
    "process": {"enabled": true}, "terminal": {"enabled": true}, "skills": {"install": true},
    "workspace": {"backup": true}, "agent": {"enabled": true}, "fs": {"fuse": true}
}"#;

fn capabilities(json: &str) -> Capabilities {
    serde_json::from_str(json).unwrap()
}

/// A client with these capabilities, not started.
fn client_with(rig: &Rig, json: &str) -> Client {
    let mut options = options("machine", &rig.url(), &rig.token);
    options.capabilities = capabilities(json);
    rig.client_of(options)
}

/// The error in an answer to a client.
#[track_caller]
fn refused_client<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> JSONRPCError {
    match outcome {
        Err(ClientError::Request(RequestError::Refused(error))) => *error,
        other => panic!("not refused: {other:?}"),
    }
}

fn event() -> SessionEventParams {
    SessionEventParams {
        session_id: "s".into(),
        sequence: Some(1),
        event: Json::from_text(r#"{"type":"agent.future_thing","n":18446744073709551615}"#.to_owned()).unwrap(),
        ..SessionEventParams::default()
    }
}

/// Params and result are equal on both sides, and each request has an id of its own.
pub async fn a_served_method_gets_its_params_and_the_request_id(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = client_with(&rig, EVERYTHING);
    let ids = Arc::new(Mutex::new(Vec::new()));
    {
        let ids = Arc::clone(&ids);
        client.handle::<methods::ProcessStart>(move |params: ProcessStartParams, context: RequestContext| {
            ids.lock().unwrap().push(context.request_id.as_json().to_owned());
            async move {
                futures_lite::future::yield_now().await;
                Ok(ProcessState {
                    process_id: params.process_id,
                    state: ProcessStateName::Exited,
                    exit_code: Some(4_294_967_295),
                    reason: Some(params.argv.join(" ")),
                    ..ProcessState::default()
                })
            }
        });
    }
    let executor = rig.join(&client).await;
    rig.session(&executor, "s").await;
    let params = ProcessStartParams {
        session_id: "s".into(),
        process_id: "p".into(),
        argv: vec!["echo".to_owned(), "\u{2028}".to_owned()],
        ..ProcessStartParams::default()
    };
    for _ in 0..2 {
        let state = executor.call::<methods::ProcessStart>(params.clone()).await.unwrap();
        assert_eq!((state.process_id.as_str(), &state.state), ("p", &ProcessStateName::Exited));
        assert_eq!((state.exit_code, state.reason.as_deref()), (Some(4_294_967_295), Some("echo \u{2028}")));
    }
    let ids = ids.lock().unwrap().clone();
    assert!(ids.len() == 2 && ids[0] != ids[1] && ids.iter().all(|id| id.starts_with('"')), "{ids:?}");
    rig.finish().await;
}

/// The caller is told what lacks, and the executor hears nothing.
pub async fn a_method_that_is_not_advertised_is_not_sent(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let served = Count::default();
    {
        let served = served.clone();
        client.handle::<methods::ProcessList>(move |_: ProcessListParams, _: RequestContext| {
            served.add();
            std::future::ready(Err(ErrorCode::InternalError.error("never")))
        });
    }
    let executor = rig.join(&client).await;
    let params = ProcessListParams { session_id: "s".into() };
    match executor.call::<methods::ProcessList>(params).await {
        Err(CallError::NotServed { method, missing }) => {
            assert_eq!(method, "process.list");
            assert!(missing.contains("process.enabled"), "{missing}");
        }
        other => panic!("sent: {other:?}"),
    }
    assert_eq!(served.value(), 0);
    rig.finish().await;
}

/// -32012, from the executor.
pub async fn a_method_that_is_advertised_and_not_served_is_refused_with_its_capability(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = client_with(&rig, EVERYTHING);
    let executor = rig.join(&client).await;
    let error = refused(executor.call::<methods::ProcessList>(ProcessListParams { session_id: "s".into() }).await);
    assert_code(&error, ErrorCode::CapabilityUnavailable);
    assert_eq!(error.data.and_then(|data| data.capability).as_deref(), Some("process.enabled"));
    rig.finish().await;
}

/// Code, message and data; a panic is an internal error without details.
pub async fn a_handlers_error_arrives_as_it_was_given(runtime: Arc<dyn Runtime>) {
    logs::expect("a method handler panicked");
    let rig = Rig::new(runtime).await;
    let client = client_with(&rig, EVERYTHING);
    let given = JSONRPCError { code: -31_999, message: "of my own \"code\"".to_owned(), data: None }
        .with_reason("a_reason_of_the_future".into())
        .with_retryable(true);
    {
        let given = given.clone();
        client.handle::<methods::ProcessList>(move |params: ProcessListParams, _: RequestContext| {
            assert!(params.session_id.as_str() != "panic", "secret details");
            std::future::ready(Err(given.clone()))
        });
    }
    let executor = rig.join(&client).await;
    rig.session(&executor, "s").await;
    rig.session(&executor, "panic").await;
    let call = |id: &str| executor.call::<methods::ProcessList>(ProcessListParams { session_id: id.into() });
    assert_eq!(refused(call("s").await), given);
    let error = refused(call("panic").await);
    assert_code(&error, ErrorCode::InternalError);
    assert!(!error.message.contains("secret details"));
    assert_eq!(refused(call("s").await), given, "and it is served as before");
    rig.finish().await;
}

/// With the executor at hand.
pub async fn a_harness_serves_what_executors_ask(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    {
        let asked = Arc::clone(&asked);
        rig.harness.handle::<methods::SessionEvent, _, _>(
            move |executor: Executor, params: SessionEventParams, context: RequestContext| {
                asked.lock().unwrap().push((executor.id().clone(), context.request_id.as_json().to_owned()));
                assert_eq!(params.event.get(), event().event.get(), "kept as it came");
                async move {
                    futures_lite::future::yield_now().await;
                    Ok(SessionEventResult { accepted: true, event_id: "evt-of-mine".into(), acked_sequence: Some(41) })
                }
            },
        );
    }
    let client = rig.client();
    let executor = rig.join(&client).await;
    let result = client.request::<methods::SessionEvent>(event()).await.unwrap();
    assert_eq!((result.event_id.as_str(), result.acked_sequence), ("evt-of-mine", Some(41)));
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(&asked[0].0, executor.id());
    rig.finish().await;
}

/// -32601, and the connection goes on.
pub async fn a_harness_that_does_not_serve_a_method_says_so(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    rig.join(&client).await;
    let params = InteractionRequestParams {
        session_id: "s".into(),
        turn_id: "t".into(),
        interaction_id: "i".into(),
        kind: "permission".into(),
        ..InteractionRequestParams::default()
    };
    let error = refused_client(client.request::<methods::InteractionRequest>(params).await);
    assert_code(&error, ErrorCode::MethodNotFound);
    assert!(error.message.contains("interaction.request"), "{}", error.message);
    assert!(client.request::<methods::SessionEvent>(event()).await.unwrap().accepted);
    rig.finish().await;
}

/// With the event's own id, or one that is made up and never given twice.
pub async fn an_event_is_accepted_by_default(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    rig.join(&client).await;
    let named = SessionEventParams { event_id: Some("mine".into()), ..event() };
    let result = client.request::<methods::SessionEvent>(named).await.unwrap();
    assert_eq!((result.accepted, result.event_id.as_str(), result.acked_sequence), (true, "mine", Some(1)));
    let one = client.request::<methods::SessionEvent>(event()).await.unwrap().event_id;
    let two = client.request::<methods::SessionEvent>(event()).await.unwrap().event_id;
    assert!(!one.is_empty() && one != two, "{one} {two}");
    rig.finish().await;
}

/// Each kind has an event of its own.
pub async fn notifications_reach_the_harness_in_order(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let executor = rig.join(&client).await;
    let mut events = executor.events();
    for number in 0..50 {
        let status = SessionStatusParams {
            session_id: "s".into(),
            status: SessionStatus::from("of_the_future"),
            detail: Some(number.to_string()),
        };
        assert!(client.session_status(&status).unwrap());
        let status = ProcessStatusParams {
            session_id: "s".into(),
            process_id: "p".into(),
            state: ProcessStateName::Running,
            exit_code: Some(number),
            ..ProcessStatusParams::default()
        };
        assert!(client.notify::<methods::ProcessStatus>(&status).unwrap());
    }
    for number in 0..50 {
        let Some(Event::Item(ExecutorEvent::SessionStatus(status))) = events.next().await else { panic!("{number}") };
        assert_eq!((status.status.as_str(), status.detail), ("of_the_future", Some(number.to_string())));
        let Some(Event::Item(ExecutorEvent::ProcessStatus(status))) = events.next().await else { panic!("{number}") };
        assert_eq!(status.exit_code, Some(number));
    }
    rig.finish().await;
}

/// Serves a method with an error that names it, so that no result is needed.
fn serve<M: ServedMethod>(client: &Client) {
    client.handle::<M>(|_: M::Params, _: RequestContext| std::future::ready(Err(served(M::METHOD))));
}

fn serve_at<M: HarnessMethod>(harness: &Harness) {
    harness
        .handle::<M, _, _>(|_: Executor, _: M::Params, _: RequestContext| std::future::ready(Err(served(M::METHOD))));
}

fn served(method: Method) -> JSONRPCError {
    ErrorCode::Conflict.error(format!("served {}", method.name()))
}

/// What a request of a method looks like: its required members.
fn samples() -> BTreeMap<Method, &'static str> {
    use Method::*;
    BTreeMap::from([
        (ProcessStart, r#"{"session_id":"s","process_id":"p","argv":["true"]}"#),
        (ProcessRead, r#"{"session_id":"s","process_id":"p","stream":"stdout","cursor":0}"#),
        (ProcessWrite, r#"{"session_id":"s","process_id":"p","data":"AA=="}"#),
        (ProcessInterrupt, r#"{"session_id":"s","process_id":"p"}"#),
        (ProcessTerminate, r#"{"session_id":"s","process_id":"p"}"#),
        (ProcessList, r#"{"session_id":"s"}"#),
        (TerminalOpen, r#"{"terminal_id":"t","kind":"shell"}"#),
        (
            TerminalAttach,
            r#"{"terminal_id":"t","epoch":1,"stream_id":"x","can_write":true,"from_seq":0,"ack_seq":0,
                "host":{"url":"wss://h/","ticket":"k"}}"#,
        ),
        (TerminalClose, r#"{"terminal_id":"t"}"#),
        (
            SkillInstall,
            r#"{"machine_id":"m","skill_id":"k","revision_id":"r","digest":"sha256:0","download_token":"d",
                "download_expires_at":1}"#,
        ),
        (WorkspaceBackup, r#"{"backup_id":"b","paths":["x"]}"#),
        (
            FsMount,
            r#"{"session_id":"s","service_url":"https://h/",
                "mounts":[{"view":"uploads","path":"/u","readonly":true,"token":"t"}]}"#,
        ),
        (FsUnmount, r#"{"session_id":"s"}"#),
        (TurnStart, r#"{"session_id":"s","turn_id":"t","input_id":"i","input":[{"type":"text","text":"hi"}]}"#),
        (TurnInput, r#"{"session_id":"s","turn_id":"t","input_id":"i","input":[{"type":"text","text":"hi"}]}"#),
        (TurnCancel, r#"{"session_id":"s","turn_id":"t"}"#),
        (SessionClose, r#"{"session_id":"s","reason":"done"}"#),
        (InteractionResponse, r#"{"session_id":"s","interaction_id":"i","outcome":"allow"}"#),
        (AgentCustomToolResult, r#"{"session_id":"s","tool_use_id":"u","content":[]}"#),
        // Of the executor.
        (ExecutorTokenRefresh, r#"{"token":"t","channel":"control"}"#),
        (SessionEvent, r#"{"session_id":"s","event":{"type":"agent.message"}}"#),
        (InteractionRequest, r#"{"session_id":"s","turn_id":"t","interaction_id":"i","kind":"permission"}"#),
        (InteractionCancel, r#"{"session_id":"s","interaction_id":"i","reason":"turn_ended"}"#),
        (ModelTokenRefresh, r#"{"session_id":"s","turn_id":"t"}"#),
        (ToolsTokenRefresh, r#"{"session_id":"s","turn_id":"t"}"#),
    ])
}

/// Every method that the two machines do not settle between themselves.
pub async fn every_request_of_the_catalogue_reaches_a_handler(runtime: Arc<dyn Runtime>) {
    use bma_runtime::proto::contract::{Direction, Kind};
    let rig = Rig::new(runtime).await;
    let client = client_with(&rig, EVERYTHING);
    macro_rules! each {
        ($serve:ident $at:expr => $($method:ident)*) => { $( $serve::<methods::$method>($at); )* };
    }
    each!(serve &client =>
        ProcessStart ProcessRead ProcessWrite ProcessInterrupt ProcessTerminate ProcessList TerminalOpen TerminalAttach
        TerminalClose SkillInstall WorkspaceBackup FsMount FsUnmount TurnStart TurnInput TurnCancel SessionClose
        InteractionResponse AgentCustomToolResult);
    each!(serve_at &rig.harness =>
        ExecutorTokenRefresh SessionEvent InteractionRequest InteractionCancel ModelTokenRefresh ToolsTokenRefresh);
    let executor = rig.join(&client).await;
    rig.session(&executor, "s").await;
    let samples = samples();
    let own = [
        Method::ExecutorRegister,
        Method::ExecutorHeartbeat,
        Method::ExecutorDrain,
        Method::SessionAssign,
        Method::SessionReady,
        Method::SessionStop,
        Method::SessionEnded,
        Method::ToolCall,
        Method::ToolResult,
        Method::ToolCancel,
    ];
    for method in Method::ALL.iter().copied().filter(|method| method.kind() == Kind::Request) {
        let Some(sample) = samples.get(&method) else {
            assert!(own.contains(&method), "{} is not tried", method.name());
            continue;
        };
        let params = AnyParams::read(method, sample).unwrap_or_else(|error| panic!("{}: {error}", method.name()));
        let error = if method.direction() == Direction::HarnessToExecutor {
            refused(executor.call_any(&params).await)
        } else {
            refused_client(ask(&client, params).await)
        };
        assert_eq!(error, served(method));
    }
    rig.finish().await;
}

/// Sends a request whose method is known at run time.
async fn ask(client: &Client, params: AnyParams) -> Result<(), ClientError> {
    macro_rules! by_method {
        ($($method:ident)*) => {
            match params {
                $( AnyParams::$method(params) => {
                    let params = <methods::$method as bma_runtime::proto::contract::MethodSpec>::unwrap(AnyParams::$method(params));
                    client.request::<methods::$method>(params.unwrap()).await.map(drop)
                } )*
                other => panic!("{} is no request of an executor", other.method().name()),
            }
        };
    }
    by_method!(ExecutorTokenRefresh SessionEvent InteractionRequest InteractionCancel ModelTokenRefresh ToolsTokenRefresh)
}
