//! Which methods a client's handler can serve.

use bma_proto_core::contract::{RequestMethod, methods};

/// A request of the harness that a handler of [`Client::handle`](super::Client::handle) can serve.
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

macro_rules! served {
    ($($method:ident)+) => {
        $( impl ServedMethod for methods::$method {} )+

        #[cfg(test)]
        const SERVED: &[bma_proto_core::contract::Method] = &[$( bma_proto_core::contract::Method::$method ),+];
    };
}

served! {
    ProcessStart ProcessRead ProcessWrite ProcessInterrupt ProcessTerminate ProcessList
    TerminalOpen TerminalAttach TerminalClose
    SkillInstall WorkspaceBackup FsMount FsUnmount
    TurnStart TurnInput TurnCancel SessionClose InteractionResponse AgentCustomToolResult
}

#[cfg(test)]
mod tests {
    use bma_proto_core::contract::{Direction, Kind, Method};

    use super::SERVED;

    #[test]
    fn every_request_of_the_harness_has_a_handler_or_a_hook() {
        let hooks =
            [Method::SessionAssign, Method::SessionStop, Method::ToolCall, Method::ToolCancel, Method::ExecutorDrain];
        for method in Method::ALL.iter().copied() {
            let comes = method.kind() == Kind::Request && method.direction() != Direction::ExecutorToHarness;
            let served = SERVED.contains(&method);
            assert_eq!(served, comes && !hooks.contains(&method), "{}", method.name());
        }
    }
}
