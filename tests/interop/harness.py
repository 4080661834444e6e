"""A harness for any executor: `harness.py`, the token in TOKEN.

It prints the URL that it listens on, takes one executor through a session,
and prints what it saw. The executor is expected to echo the commands of `bash`.
"""

import os
import socket

from websocket import Closed, Rpc, WebSocket

ODD = "a\u2028b \u20ac \U0001f600 \"quoted\" \\ \t end"


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)
    print("ws://127.0.0.1:%d/" % listener.getsockname()[1], flush=True)
    ws = WebSocket.accept(listener, os.environ["TOKEN"])
    seen, results = [], {}

    def serve(method, params):
        seen.append(method)
        if method == "executor.register":
            return {
                "executor_id": "e-1", "connection_id": "c-1", "server_time": "2026-01-01T00:00:00Z",
                "heartbeat_interval_ms": 50, "lease_ttl_ms": 5000, "max_control_frame_bytes": 65536,
                "max_mcp_frame_bytes": 65536, "drain": False, "unknown": [{}]}
        if method == "executor.heartbeat":
            return {"server_time": "", "lease_ttl_ms": 5000, "drain": False}
        if method == "tool.result":
            results[params["tool_call_id"]] = params
        return {"accepted": True}

    rpc = Rpc(ws, serve)

    def until(done):
        while not done():
            rpc.handle(ws.receive())

    until(lambda: seen)
    assert seen == ["executor.register"], seen
    answer = rpc.ask("session.assign", {
        "session_id": "s", "work_id": "w", "environment_id": "", "lease": {"lease_token": "l"}, "mcp_servers": None})
    assert answer["result"]["accepted"] is True, answer
    until(lambda: "session.ready" in seen)
    for number in range(20):
        answer = rpc.ask("tool.call", {
            "session_id": "s", "tool_call_id": "call %d" % number, "tool": "bash", "input": {"command": ODD * number}})
        if number == 0:
            # An empty command is no command: acknowledged, and then failed.
            assert answer["result"] == {"accepted": True}, answer
            until(lambda: "call 0" in results)
            assert results["call 0"]["outcome"] == "failed", results
            continue
        assert answer["result"] == {"accepted": True}, answer
        until(lambda: "call %d" % number in results)
        assert results["call %d" % number]["content"] == [{"type": "text", "text": ODD * number}]
    answer = rpc.ask("tool.call", {"session_id": "s", "tool_call_id": "x", "tool": "glob", "input": {}})
    assert answer["error"]["code"] == -32012 and answer["error"]["data"]["capability"] == "tool:glob", answer
    until(lambda: seen.count("executor.heartbeat") >= 3)
    answer = rpc.ask("executor.drain", {"reason": "over"})
    assert answer["result"]["active_sessions"] == ["s"], answer
    answer = rpc.ask("session.stop", {"session_id": "s", "reason": "over"})
    assert answer["result"] == {"stopped": True}, answer
    until(lambda: "session.ended" in seen)
    ws.close(4005)
    print("done", len(results), flush=True)


main()
