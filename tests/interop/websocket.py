"""RFC 6455 over a socket, with nothing but the standard library.

Written from the RFC and from the protocol's contract, for peers in another
language than the project's: text messages, one JSON-RPC message each.
"""

import base64
import hashlib
import json
import os
import socket
import struct

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PROTOCOL = "bma.executor.v1.1"


def accept_key(key):
    digest = hashlib.sha1((key + GUID).encode()).digest()
    return base64.b64encode(digest).decode()


class Closed(Exception):
    """The peer has closed the connection."""

    def __init__(self, code):
        super().__init__("closed with code %s" % code)
        self.code = code


class WebSocket:
    """One connection. `masked` is true on the side that dialled."""

    def __init__(self, sock, masked):
        sock.settimeout(20)
        self.sock, self.masked, self.buffer = sock, masked, b""

    @classmethod
    def dial(cls, url, token):
        host, _, path = url[len("ws://"):].partition("/")
        name, _, port = host.rpartition(":")
        ws = cls(socket.create_connection((name, int(port)), 20), True)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /%s HTTP/1.1" % path, "Host: " + host, "Connection: keep-alive, Upgrade", "Upgrade: WebSocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key, "Sec-WebSocket-Protocol: " + PROTOCOL,
            "Authorization: Bearer " + token,
        ]
        ws.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = ws.head()
        assert " 101 " in head[0], head[0]
        assert "sec-websocket-accept: " + accept_key(key).lower() in [line.lower() for line in head], head
        return ws

    @classmethod
    def accept(cls, listener, token):
        sock, _ = listener.accept()
        ws = cls(sock, False)
        head = ws.head()
        headers = dict((name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:]))
        assert headers["authorization"] == "Bearer " + token, "the token"
        assert PROTOCOL in [offer.strip() for offer in headers["sec-websocket-protocol"].split(",")]
        lines = [
            "HTTP/1.1 101 Welcome", "upgrade: websocket", "connection: upgrade",
            "sec-websocket-accept: " + accept_key(headers["sec-websocket-key"]), "sec-websocket-protocol: " + PROTOCOL,
        ]
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return ws

    def head(self):
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head.decode().split("\r\n")

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Closed(None)
        self.buffer += data

    def take(self, count):
        while len(self.buffer) < count:
            self.more()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def frame(self):
        first, second = self.take(2)
        length = second & 127
        if length == 126:
            length, = struct.unpack(">H", self.take(2))
        elif length == 127:
            length, = struct.unpack(">Q", self.take(8))
        assert bool(second & 128) != self.masked, "frames of who dialled are masked, others are not"
        mask = self.take(4) if second & 128 else None
        data = self.take(length)
        if mask:
            data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        return first & 128, first & 15, data

    def write(self, opcode, data, fin=True):
        head = bytes([(128 if fin else 0) | opcode])
        bit = 128 if self.masked else 0
        if len(data) < 126:
            head += bytes([bit | len(data)])
        elif len(data) < 65536:
            head += bytes([bit | 126]) + struct.pack(">H", len(data))
        else:
            head += bytes([bit | 127]) + struct.pack(">Q", len(data))
        if self.masked:
            mask = os.urandom(4)
            head += mask
            data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        self.sock.sendall(head + data)

    def receive(self):
        """The next JSON message."""
        message = b""
        while True:
            fin, opcode, data = self.frame()
            if opcode == 9:
                self.write(10, data)
            elif opcode == 8:
                code = struct.unpack(">H", data[:2])[0] if data else None
                self.write(8, data[:2])
                raise Closed(code)
            elif opcode in (0, 1):
                message += data
                if fin:
                    return json.loads(message.decode())

    def send(self, message):
        data = json.dumps(message, ensure_ascii=False, indent=1).encode()
        middle = len(data) // 2
        self.write(1, data[:middle], fin=False)
        self.write(9, b"are you there")
        self.write(0, data[middle:])

    def close(self, code):
        self.write(8, struct.pack(">H", code))
        try:
            while True:
                self.frame()
        except (Closed, OSError):
            pass
        self.sock.close()


class Rpc:
    """Requests and answers on a connection; what is asked meanwhile goes to `serve`."""

    def __init__(self, ws, serve):
        self.ws, self.serve, self.last = ws, serve, 0

    def ask(self, method, params):
        self.last += 1
        # Numbers as ids: the contract allows them to be echoed.
        asked = self.last
        self.ws.send({"method": method, "params": params, "id": asked, "jsonrpc": "2.0"})
        while True:
            message = self.ws.receive()
            if "method" in message:
                self.handle(message)
            elif message["id"] == asked and type(message["id"]) is int:
                return message

    def handle(self, message):
        answer = self.serve(message["method"], message.get("params") or {})
        if "id" in message:
            key = "error" if "code" in answer else "result"
            self.ws.send({"id": message["id"], key: answer, "jsonrpc": "2.0"})
