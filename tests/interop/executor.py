"""An executor for any harness: `executor.py URL`, the token in TOKEN.

It serves `bash` by echoing the command, in whatever order it likes, and ends
when the harness lets it go.
"""

import os
import sys

from websocket import PROTOCOL, Closed, Rpc, WebSocket


def main():
    ws = WebSocket.dial(sys.argv[1], os.environ["TOKEN"])
    later, ended = [], []

    def serve(method, params):
        if method == "session.assign":
            lease = params["lease"]["token"]
            later.append(lambda: rpc.ask("session.ready", {
                "session_id": params["session_id"], "work_id": params["work_id"], "lease_token": lease}))
            return {"accepted": True, "session_id": params["session_id"], "unknown": None}
        if method == "tool.call":
            result = {
                "session_id": params["session_id"], "tool_call_id": params["tool_call_id"], "outcome": "succeeded",
                "is_error": False, "content": [{"type": "text", "text": params["input"]["command"]}]}
            # The result first, and again until it is acknowledged; then the acknowledgement.
            answer = rpc.ask("tool.result", result)
            assert answer["result"] == {"accepted": True}, answer
            return {"accepted": True}
        if method == "tool.cancel":
            return {"canceled": False}
        if method == "session.stop":
            later.append(lambda: rpc.ask("session.ended", {"session_id": params["session_id"], "reason": "asked"}))
            return {"stopped": True}
        if method == "executor.close":
            ended.append(params["reason"])
            return {}
        return {"code": -32012, "message": method, "data": {"capability": method}}

    rpc = Rpc(ws, serve)
    registered = rpc.ask("executor.register", {
        "protocol": PROTOCOL, "environment_id": "", "capabilities": {"shell": {"enabled": True}},
        "executor": {"name": "snake", "os": sys.platform, "arch": "any", "version": "1"}})
    print("registered", registered["result"]["executor_id"], flush=True)
    try:
        while True:
            while later:
                later.pop(0)()
            rpc.handle(ws.receive())
    except Closed as closed:
        print("closed", closed.code, *ended, flush=True)


main()
