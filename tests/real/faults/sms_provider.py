"""A provider of text messages on loopback, in a process of its own: it writes each call to a file that only grows.

`python -m tests.real.faults.sms_provider FILE` prints its port. POST /send takes `to`, `reference`, `key` (a second
call with the same key sends nothing) and `kill` (a process to kill after the message was sent, before
the answer).
GET /sent?reference=... tells whether there was a call with that reference.
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_guard = threading.Lock()


class Provider(ThreadingHTTPServer):
    """What was sent, by key and by reference."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, file: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.file = file
        self.keys: dict[str, str] = {}
        self.references: dict[str, str] = {}
        self.count = 0

    def send(self, call: dict[str, Any]) -> str:
        """Send, unless the key is known; return the id of the message."""
        with _guard:
            key = call["key"]
            sms = self.keys.get(key) if key else None
            is_sent = sms is None
            if sms is None:
                self.count += 1
                sms = f"sms-{self.count}"
            if key:
                self.keys[key] = sms
            self.references[call["reference"]] = sms
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"to": call["to"], "is_sent": is_sent}) + "\n")
        return sms


class Handler(BaseHTTPRequestHandler):
    """The two calls."""

    server: Provider

    def do_POST(self) -> None:
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sms = self.server.send(call)
        if call["kill"]:
            os.kill(call["kill"], signal.SIGKILL)
        self.answer({"sms": sms})

    def do_GET(self) -> None:
        with _guard:
            self.answer({"sms": self.server.references.get(self.path.partition("=")[2])})

    def answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # who asked is dead
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with Provider(Path(sys.argv[1])) as provider:
        print(provider.server_address[1], flush=True)  # noqa: T201  # the parent reads it
        provider.serve_forever()
