//! Doing what the lines ask for.

use std::sync::Arc;

use bma_runtime_tokio::proto::contract::{
    AnyParams, AnyResult, Direction, ErrorCode, ExecutorId, Kind, Method, SessionAssignParams, SessionId,
    ToolCallParams, ToolResultParams,
};
use bma_runtime_tokio::{Executor, Runtime};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::answer::Fault;
use super::request::{Any, Assign, Call, Cancel, Close, Drain, Op, Stop};
use super::roster::{Description, Roster};

/// Does what is asked for. A cheap clone.
#[derive(Clone)]
pub(crate) struct Ops {
    roster: Roster,
    runtime: Arc<dyn Runtime>,
}

/// What a good answer has beside `id` and `ok`.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    Listed { executors: Vec<Description> },
    Assigned { executor: ExecutorId, session_id: SessionId },
    Called { result: Arc<ToolResultParams> },
    Canceled { canceled: bool },
    Answered { result: Box<AnyResult> },
    Told { executors: Vec<ExecutorId> },
    Done {},
}

impl Ops {
    pub(crate) fn new(roster: Roster, runtime: Arc<dyn Runtime>) -> Self {
        Self { roster, runtime }
    }

    pub(crate) async fn perform(&self, op: Op) -> Result<Answer, Fault> {
        match op {
            Op::Executors(_) => {
                Ok(Answer::Listed { executors: self.roster.all().iter().map(Description::of).collect() })
            }
            Op::Assign(assign) => self.assign(assign).await,
            Op::Call(call) => self.call(call).await,
            Op::Cancel(cancel) => self.cancel(cancel).await,
            Op::Stop(stop) => self.stop(stop).await,
            Op::Any(any) => self.any(any).await,
            Op::Drain(drain) => self.drain(drain).await,
            Op::Close(close) => self.close(close).await,
        }
    }

    async fn assign(&self, assign: Assign) -> Result<Answer, Fault> {
        let executor = self.roster.executor(assign.executor.as_ref())?;
        let made_up = || format!("ses_{:016x}", self.runtime.seed()).into();
        let params = SessionAssignParams {
            session_id: assign.session_id.unwrap_or_else(made_up),
            agent_id: assign.agent_id,
            environment_id: assign.environment_id.unwrap_or_default().into(),
            deadline_ms: assign.deadline_ms,
            resources: assign.resources,
            mcp_servers: assign.mcp_servers,
            metadata: assign.metadata,
            // The work and the lease are the harness's to make up.
            ..SessionAssignParams::default()
        };
        let session = executor.assign(params).await?;
        session.ready().await?;
        Ok(Answer::Assigned { executor: executor.id().clone(), session_id: session.id().clone() })
    }

    async fn call(&self, call: Call) -> Result<Answer, Fault> {
        let session = self.roster.session(call.executor.as_ref(), &call.session_id)?;
        let params = ToolCallParams {
            session_id: call.session_id,
            tool_call_id: call.tool_call_id.unwrap_or_default(),
            tool: call.tool,
            input: call.input,
            deadline_ms: call.deadline_ms,
            permission: call.permission,
        };
        Ok(Answer::Called { result: session.call_tool(params).await? })
    }

    async fn cancel(&self, cancel: Cancel) -> Result<Answer, Fault> {
        let session = self.roster.session(cancel.executor.as_ref(), &cancel.session_id)?;
        let canceled = session.cancel_tool(&cancel.tool_call_id, &cancel.reason).await?;
        Ok(Answer::Canceled { canceled })
    }

    async fn stop(&self, stop: Stop) -> Result<Answer, Fault> {
        let session = self.roster.session(stop.executor.as_ref(), &stop.session_id)?;
        session.stop_within(&stop.reason, stop.deadline_ms).await?;
        Ok(Answer::Done {})
    }

    async fn any(&self, any: Any) -> Result<Answer, Fault> {
        let method = sendable(&any.method)?;
        let text = any.params.as_ref().map_or("{}", |params| params.get());
        let params = AnyParams::read(method, text)
            .map_err(|error| Fault::new(ErrorCode::InvalidParams, error.within("params").to_string()))?;
        let executor = match (&any.executor, session_of(text)) {
            (None, Some(session_id)) => match self.roster.session(None, &session_id) {
                Ok(session) => session.executor().clone(),
                // The executor knows best what it says to a session that is not bound here.
                Err(fault) if fault.is(ErrorCode::SessionNotActive) => self.roster.executor(None)?,
                Err(fault) => return Err(fault),
            },
            (named, _) => self.roster.executor(named.as_ref())?,
        };
        if method.kind() == Kind::Notification {
            executor.notify(&params)?;
            return Ok(Answer::Done {});
        }
        Ok(Answer::Answered { result: Box::new(executor.call_any(&params).await?) })
    }

    async fn drain(&self, drain: Drain) -> Result<Answer, Fault> {
        let executors = self.roster.executors(drain.executor.as_ref())?;
        let reason: Arc<str> = drain.reason.into();
        self.each(executors, move |executor| {
            let reason = Arc::clone(&reason);
            async move { executor.drain(&reason).await.map(drop).map_err(Fault::from) }
        })
        .await
    }

    async fn close(&self, close: Close) -> Result<Answer, Fault> {
        let executors = self.roster.executors(close.executor.as_ref())?;
        let reason: Arc<str> = close.reason.into();
        self.each(executors, move |executor| {
            let reason = Arc::clone(&reason);
            async move {
                executor.close(&reason).await;
                Ok(())
            }
        })
        .await
    }

    /// Does the same to several executors at once.
    async fn each<F, Fut>(&self, executors: Vec<Executor>, act: F) -> Result<Answer, Fault>
    where
        F: Fn(Executor) -> Fut,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        let told = executors.iter().map(|executor| executor.id().clone()).collect();
        let acting: JoinSet<_> = executors.into_iter().map(act).collect();
        acting.join_all().await.into_iter().collect::<Result<(), Fault>>()?;
        Ok(Answer::Told { executors: told })
    }
}

/// The method of this name, when it is a harness's to send and has no operation of its own.
fn sendable(name: &str) -> Result<Method, Fault> {
    let not_found = |why: &str| Fault::new(ErrorCode::MethodNotFound, format!("`method`: {name:?} {why}"));
    let method = Method::from_name(name).ok_or_else(|| not_found("is not in the catalogue"))?;
    if method.direction() == Direction::ExecutorToHarness {
        return Err(not_found("is sent by executors, not to them"));
    }
    // What the harness keeps account of goes through its own operations.
    let op = match method {
        Method::SessionAssign => "assign",
        Method::SessionStop => "stop",
        Method::ToolCall => "call",
        Method::ExecutorClose => "close",
        _ => return Ok(method),
    };
    Err(Fault::new(
        ErrorCode::InvalidRequest,
        format!("`method`: {name:?} has an operation of its own: use \"op\":{op:?}"),
    ))
}

/// The session that params belong to, when they name one.
fn session_of(params: &str) -> Option<SessionId> {
    #[derive(Deserialize)]
    struct OfSession {
        session_id: SessionId,
    }
    serde_json::from_str(params).ok().map(|OfSession { session_id }| session_id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    #[test]
    fn every_method_is_sendable_or_says_why_not() {
        for method in Method::ALL {
            let sendable = sendable(method.name());
            match method.direction() {
                Direction::ExecutorToHarness => assert!(sendable.is_err(), "{method:?}"),
                Direction::HarnessToExecutor | Direction::Bidirectional => match sendable {
                    Ok(same) => assert_eq!(same, *method),
                    Err(fault) => assert!(format!("{fault:?}").contains("use \\\"op\\\""), "{fault:?}"),
                },
            }
        }
        assert!(sendable("process.fly").is_err());
    }
}
