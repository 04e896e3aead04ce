# provider.py
"""A fake payment provider, and its client.

Run it with: python provider.py http://localhost:8001 http://localhost:8000/webhooks

It signs its webhooks, and sends each again until the shop answers with 2xx. The customer pays with
POST /payments/ID/pay: `how` says whether the webhooks come once, twice, four at once, in the wrong order, late
(with POST /payments/ID/send), or never.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import threading
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

SECRET = b"whsec_test"
TRIES_MAX, PAUSE_SECONDS, TIMEOUT = 600, 0.1, 30
HOW = {
    "once": ["created", "paid"],
    "twice": ["created", "paid", "paid"],
    "four at once": ["paid paid paid paid"],
    "wrong order": ["paid", "created"],
    "late": [],
    "never": [],
}


def signed(data: bytes) -> str:
    return hmac.new(SECRET, data, hashlib.sha256).hexdigest()


def post(url: str, body: dict[str, Any]) -> Any:  # noqa: ANN401  # whatever the answer is
    """Send JSON, signed, and return the answer. Raises OSError unless it is 2xx."""
    data = json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json", "Signature": signed(data)})  # noqa: S310  # http
    with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310  # as above
        return json.load(answer)


# --- the client, which a real provider has in its package ---


class Provider:
    """Calls to the provider. Each is safe to repeat: `order_id` and `key` are idempotency keys."""

    def __init__(self, url: str) -> None:
        """Use the provider at `url`."""
        self.url = url

    def event(self, data: bytes, signature: str | None) -> dict[str, Any]:
        """Return the event of a webhook. Raises ValueError if the provider has not signed it."""
        if not hmac.compare_digest(signed(data), signature or ""):
            message = "the provider has not signed this webhook"
            raise ValueError(message)
        event: dict[str, Any] = json.loads(data)
        return event

    def charge(self, sku: str, order_id: str, units: int) -> dict[str, Any]:
        """Create the payment of an order, or change its amount while it is not paid."""
        payment: dict[str, Any] = post(f"{self.url}/payments", {"sku": sku, "order_id": order_id, "units": units})
        return payment

    def refund(self, payment_id: str, units: int, *, key: str) -> None:
        """Give the price of some units back."""
        post(f"{self.url}/payments/{payment_id}/refund", {"units": units, "key": key})

    def paid(self) -> list[dict[str, Any]]:
        """Return every payment that was made, whether or not a webhook told the shop."""
        return [payment for payment in post(f"{self.url}/payments/all/list", {}) if payment["status"] == "paid"]


# --- the server ---

payments: dict[str, dict[str, Any]] = {}
changing = threading.Lock()


def deliver(event: dict[str, Any]) -> None:
    for _ in range(TRIES_MAX):
        try:
            post(sys.argv[2], event)
        except (OSError, HTTPException):  # the shop is away, or has answered with an error
            time.sleep(PAUSE_SECONDS)
        else:
            break


def deliver_all(payment: dict[str, Any], steps: list[str]) -> None:
    """Deliver the events of a step at the same time, and the steps one after the other."""
    for step in steps:
        events = [{"type": f"payment.{kind}", **payment} for kind in step.split()]
        senders = [threading.Thread(target=deliver, args=(event,)) for event in events]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    with changing:
        payment["undelivered"] -= 1


def answer(name: str, action: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Return the status and the answer of a call."""
    if action == "list":
        return 200, [*payments.values()]
    if not name:
        name = f"{body['sku']}-{body['order_id']}-{body.get('attempt', 1)}".replace("/", ".")
        new = {"id": name, "status": "created", "refunds": {}, "undelivered": 0, **body}
        payment = payments.setdefault(name, new)
        if payment["status"] == "created":
            payment["units"] = body["units"]
        return 200, payment
    payment = payments[name]
    if action == "refund":
        refunds = {**payment["refunds"], body["key"]: body["units"]}
        if payment["status"] != "paid" or sum(refunds.values()) > payment["units"]:
            return 409, "more than was paid"
        payment["refunds"] = refunds
    elif action == "send" or payment["status"] == "created":
        steps = ["paid"] if action == "send" else HOW[body["how"]]
        payment["status"], payment["how"] = "paid", body.get("how", "late")
        payment["undelivered"] += 1
        threading.Thread(target=deliver_all, args=(payment, steps)).start()
    return 200, payment


class Handler(BaseHTTPRequestHandler):
    """Serves POST /payments, and /payments/ID/pay, /send and /refund."""

    def do_POST(self) -> None:
        """Answer a call."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _, _, name, action, *_ = [*self.path.split("/"), "", ""]
        with changing:
            status, answered = answer(name, action, body)
            data = json.dumps(answered).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("localhost", urlsplit(sys.argv[1]).port or 80), Handler) as server:
        print("ready", flush=True)
        server.serve_forever()
