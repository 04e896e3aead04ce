"""Locust's page serves this machine only, unless the user says otherwise, and no page of another site can use it.

Locust listens on all interfaces by default, answers any Host and Origin, and takes every option of its command line as
a field of `/swarm`, also those that name a file. A page of another site could so start tests and overwrite files.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from flask import Response, request
from locust import events
from locust.argument_parser import ui_extra_args_dict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

LOOPBACK: Final = "127.0.0.1"
FIELDS: Final = frozenset({"user_count", "spawn_rate", "host", "run_time", "user_classes", "shape_class", "profile"})
"""Fields of Locust's own page."""


def guard_page() -> None:
    """Register handlers of Locust's events, in a locustfile."""
    events.init_command_line_parser.add_listener(_listen_here)  # type: ignore[no-untyped-call]  # Locust has no types for it
    events.init.add_listener(_guard)  # type: ignore[no-untyped-call]  # as above


def _listen_here(parser: LocustArgumentParser, **_: object) -> None:
    """Let page and master listen on this machine only, unless their options say otherwise."""
    parser.set_defaults(web_host=LOOPBACK, master_bind_host=LOOPBACK)


def _guard(environment: Environment, **_: object) -> None:
    web_ui = environment.web_ui
    if web_ui is None or web_ui.app is None:
        return
    names = {"localhost", socket.gethostname(), socket.getfqdn(), web_ui.host} - {""}

    @web_ui.app.before_request
    def refuse() -> Response | None:
        why = wrong_host(request.host, names) or wrong_origin(request.headers.get("Origin"), request.host)
        if not why and request.method == "POST" and request.path.endswith("/swarm"):
            why = wrong_fields(request.form, ui_extra_args_dict())
        return Response(f"{why}\n", status=403, mimetype="text/plain") if why else None


def wrong_host(host: str, names: Iterable[str]) -> str | None:
    """Return why a request is refused: its Host is neither an address nor a name of this machine."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if name.casefold() not in {one.casefold() for one in names}:
            return f"the host {name!r} is not a name of this machine: use its address, or give the name with --web-host"
    return None


def wrong_origin(origin: str | None, host: str) -> str | None:
    """Return why a request is refused: a page of another site sent it."""
    if origin is None or urlsplit(origin).netloc.casefold() == host.casefold():
        return None
    return f"the request is of a page at {origin!r}, and this page is at {host!r}"


def wrong_fields(given: Iterable[str], known: Iterable[str]) -> str | None:
    """Return why a start is refused: it has fields that the page does not show, such as names of files."""
    foreign = sorted(set(given) - FIELDS - set(known))
    return f"the page has no field {', '.join(foreign)}: give it on the command line" if foreign else None
