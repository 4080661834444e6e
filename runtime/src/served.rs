//! Which methods a handler of each end can serve.

use bma_proto_core::contract::{RequestMethod, methods};

/// A request of the harness that a handler of [`Client::handle`](crate::Client::handle) can serve.
///
/// The others cannot be: `session.assign`, `session.stop`, `tool.call`, `tool.cancel` and
/// `executor.drain` have hooks and tool slots of their own, because the client keeps the
/// books of sessions and calls; and what an executor sends never comes to it.
#[diagnostic::on_unimplemented(
    message = "a client's handler cannot serve `{Self}`",
    label = "not a request that a handler can serve",
    note = "sessions, tool calls and drains have hooks of their own (`on_session_assign`, `on_session_stop`, \
            `tools()`, `on_drain`); what an executor sends never comes to it"
)]
pub trait ServedMethod: RequestMethod {}

/// A request of executors that a handler of [`Harness::handle`](crate::Harness::handle) can serve.
///
/// The others cannot be: the harness answers registrations, heartbeats and what becomes of
/// sessions and tool calls itself; and what a harness sends never comes to it.
#[diagnostic::on_unimplemented(
    message = "a harness's handler cannot serve `{Self}`",
    label = "not a request that a handler can serve",
    note = "the harness keeps the books of connections, sessions and tool calls itself; \
            what a harness sends never comes to it"
)]
pub trait HarnessMethod: RequestMethod {}

macro_rules! served {
    ($name:ident $as:ident: $($method:ident)+) => {
        $( impl $as for methods::$method {} )+

        #[cfg(test)]
        const $name: &[bma_proto_core::contract::Method] = &[$( bma_proto_core::contract::Method::$method ),+];
    };
}

served! { BY_CLIENTS ServedMethod:
    ProcessStart ProcessRead ProcessWrite ProcessInterrupt ProcessTerminate ProcessList
    TerminalOpen TerminalAttach TerminalClose
    SkillInstall WorkspaceBackup FsMount FsUnmount
    TurnStart TurnInput TurnCancel SessionClose InteractionResponse AgentCustomToolResult
}

served! { BY_HARNESSES HarnessMethod:
    ExecutorTokenRefresh SessionEvent InteractionRequest InteractionCancel ModelTokenRefresh ToolsTokenRefresh
}

#[cfg(test)]
mod tests {
    use bma_proto_core::contract::{Direction, Kind, Method};

    use super::{BY_CLIENTS, BY_HARNESSES};

    #[track_caller]
    fn covers(served: &[Method], own: &[Method], not: Direction) {
        for method in Method::ALL.iter().copied() {
            let comes = method.kind() == Kind::Request && method.direction() != not;
            assert_eq!(served.contains(&method), comes && !own.contains(&method), "{}", method.name());
        }
    }

    #[test]
    fn every_request_has_a_handler_or_is_the_ends_own() {
        use Method::*;
        let hooks = [SessionAssign, SessionStop, ToolCall, ToolCancel, ExecutorDrain];
        covers(BY_CLIENTS, &hooks, Direction::ExecutorToHarness);
        let books = [ExecutorRegister, ExecutorHeartbeat, SessionReady, SessionEnded, ToolResult];
        covers(BY_HARNESSES, &books, Direction::HarnessToExecutor);
    }
}
