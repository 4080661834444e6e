//! What an executor holds for its harness is bounded, in number and in bytes.

use super::*;
use crate::rpc::Misuse;

const KIB: usize = 1024;

fn bounded(session: usize, all: usize) -> Rig {
    let mut config = config();
    config.max_session_bytes = session * KIB;
    config.max_held_bytes = all * KIB;
    Rig::up_with(config, registered())
}

impl Rig {
    /// Asks for a call with so much input.
    fn ask_large(&mut self, session: &str, id: &str, kib: usize) -> Value {
        let input = json!({"command": "x".repeat(kib * KIB)});
        self.ask("tool.call", json!({"session_id": session, "tool_call_id": id, "tool": "bash", "input": input}))
    }

    /// A call with so much input that is taken.
    #[track_caller]
    fn run_large(&mut self, session_id: &str, id: &str, kib: usize) {
        let asked = self.ask_large(session_id, id, kib);
        self.executor.accept_tool_call(&session(session_id), &call(id)).unwrap();
        self.drain();
        assert_eq!(self.answer(&asked)["result"], json!({"accepted": true}));
    }

    fn finish_large(&mut self, session_id: &str, id: &str, kib: usize) {
        self.executor.finish_tool_call(self.now, large(session_id, id, kib)).unwrap();
        self.drain();
    }

    /// Asks for a small call that is to come later.
    #[track_caller]
    fn is_busy(&mut self, session: &str) {
        let asked = self.ask_call(session, "one-more");
        let answer = self.answer(&asked);
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["retryable"]), (&json!(-32009), &json!(true)));
    }

    /// Asks for a small call that is taken, and turns it down.
    #[track_caller]
    fn has_room(&mut self, session_id: &str) {
        let asked = self.ask_call(session_id, "one-more");
        let no = ErrorCode::Forbidden.error("no");
        self.executor.refuse_tool_call(&session(session_id), &call("one-more"), &no).unwrap();
        self.drain();
        assert_eq!(self.code(&asked), ErrorCode::Forbidden.number());
    }
}

fn large(session_id: &str, id: &str, kib: usize) -> ToolResultParams {
    let content = vec![ContentBlock::text("x".repeat(kib * KIB))];
    ToolResultParams { content, ..result(session_id, id) }
}

#[test]
fn the_input_of_open_calls_is_bounded_in_bytes() {
    let mut rig = bounded(64, 1024);
    rig.assign("s");
    rig.assign("other");
    rig.run_large("s", "a", 40);
    rig.has_room("s");
    rig.run_large("s", "b", 40);
    rig.is_busy("s");
    rig.has_room("other");
    rig.finish("s", "a");
    rig.has_room("s");
}

#[test]
fn results_count_until_they_are_accepted() {
    let mut rig = bounded(64, 1024);
    rig.assign("s");
    rig.run("s", "a");
    // A call that was taken ends with its result, whatever that weighs.
    rig.run("s", "b");
    rig.finish_large("s", "a", 50);
    rig.finish_large("s", "b", 50);
    rig.is_busy("s");
    rig.accept("tool.result");
    rig.has_room("s");
    rig.finish_large_again("s", "b");
    rig.accept("tool.result");
    assert_eq!(rig.executor.held_bytes(), 0);
}

impl Rig {
    /// A result that is reported again is still the one that it was.
    #[track_caller]
    fn finish_large_again(&mut self, session_id: &str, id: &str) {
        let held = self.executor.held_bytes();
        self.executor.report_tool_result(self.now, large(session_id, id, 1)).unwrap();
        assert_eq!(self.executor.held_bytes(), held);
    }
}

#[test]
fn all_sessions_together_have_a_bound_as_well() {
    let mut rig = bounded(1024, 64);
    rig.assign("s");
    rig.assign("t");
    rig.run_large("s", "a", 40);
    rig.run_large("t", "a", 40);
    rig.is_busy("s");
    rig.is_busy("t");
    rig.finish("t", "a");
    rig.accept("tool.result");
    rig.has_room("s");
}

#[test]
fn whatever_ends_a_call_gives_its_bytes_back() {
    type Ending = fn(&mut Rig);
    let endings: [(&str, Ending); 5] = [
        ("its result was accepted", |rig| {
            rig.finish_large("s", "a", 30);
            rig.accept("tool.result");
        }),
        ("its result was refused", |rig| {
            rig.finish_large("s", "a", 30);
            let (id, _) = rig.request("tool.result");
            rig.fail(&id, json!({"code": -32007, "message": "no"}));
        }),
        ("its session has ended", |rig| {
            rig.end_session("s");
            rig.accept("tool.result");
            rig.accept("session.ended");
        }),
        ("its session was given up", |rig| {
            rig.disconnect(None);
            for _ in 0..61 {
                rig.wait(Duration::from_secs(1));
                while rig.orders.pop_front().is_some() {
                    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
                }
            }
        }),
        ("the executor has ended", |rig| {
            rig.frame(json!({"jsonrpc": "2.0", "method": "executor.close", "params": {"reason": "over"}}));
        }),
    ];
    for (what, ending) in endings {
        let mut rig = bounded(64, 64);
        rig.assign("s");
        rig.run_large("s", "a", 50);
        assert!(rig.executor.held_bytes() > 50 * KIB);
        ending(&mut rig);
        assert_eq!(rig.executor.held_bytes(), 0, "{what}");
    }
}

#[test]
fn results_without_a_record_count_too() {
    let mut rig = bounded(1024, 64);
    for id in ["a", "b"] {
        rig.executor.report_tool_result(rig.now, large("gone", id, 40)).unwrap();
    }
    let refused = rig.executor.report_tool_result(rig.now, result("gone", "c"));
    assert_eq!(refused, Err(CallError::Send(Misuse::Backlog(2))));
    rig.assign("s");
    rig.is_busy("s");
    rig.executor.report_tool_result(rig.now, large("gone", "a", 1)).unwrap();
    rig.has_room("s");
    rig.drain();
    rig.accept("tool.result");
    rig.accept("tool.result");
    assert_eq!(rig.executor.held_bytes(), 0);
}

#[test]
fn sessions_are_bounded() {
    let mut config = config();
    config.max_sessions = 2;
    let mut rig = Rig::up_with(config, registered());
    rig.assign("a");
    rig.assign("b");
    let asked = rig.ask_assign("c");
    let answer = rig.answer(&asked);
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["retryable"]), (&json!(-32009), &json!(true)));
    assert!(rig.events.is_empty(), "the application is not asked");
    // One that is there already is not a new one.
    let again = rig.ask_assign("a");
    assert_eq!(rig.answer(&again)["result"]["accepted"], true);
    rig.accept("session.ready");
    rig.end_session("a");
    rig.accept("session.ended");
    rig.assign("c");
}
