"""One route that runs once, in the frameworks: `@idempotent` and the dependency of FastAPI."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import fastapi
import flask
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from segmented import AsyncDedup, AsyncMemoryStore, Dedup, MemoryStore
from segmented.clock import ManualClock
from segmented.dedup import AsyncRun  # FastAPI reads the annotation
from segmented.dedup.web import IdempotencyMiddleware, WsgiIdempotencyMiddleware, all_clients, current_run, idempotent
from segmented.errors import InvalidInput
from tests.support.contract.dedup.web_apps import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.dedup.web import WebRequest
    from segmented.dedup.web.asgi import App, Message

    Ask = Callable[..., "Response"]


def event_id(_: WebRequest, body: bytes) -> object:
    return json.loads(body)["id"]


def by_user(request: WebRequest) -> object:
    return request.header("Authorization")[-3:]


charge_once = idempotent(scope=by_user)
github_once = idempotent(header="X-GitHub-Delivery", scope=all_clients)
stripe_once = idempotent(header=event_id, scope=all_clients, keep="7d")
ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


def worked(what: str) -> dict[str, object]:
    run = current_run()
    assert run is not None
    ran.append(what)
    return {"run": len(ran), "provider": run.provider_key("card"), "fence": run.fencing_token > 0}


def by_fastapi() -> App:
    app = fastapi.FastAPI()
    app.add_middleware(GZipMiddleware, minimum_size=1)
    app.add_middleware(IdempotencyMiddleware, dedup=AsyncDedup(AsyncMemoryStore(), "api"))

    @app.post("/charges", status_code=201)
    @charge_once
    async def charge(request: fastapi.Request, payload: dict[str, int]) -> dict[str, object]:
        if payload["cents"] == 9:
            raise fastapi.HTTPException(409, "locked")
        assert request.state.once is current_run()
        return worked("charge")

    @app.post("/hooks/github")
    @github_once
    def github(payload: Annotated[dict[str, Any], fastapi.Body()]) -> dict[str, object]:
        return worked(f"github {payload['id']}")

    @app.post("/hooks/stripe")
    async def stripe(
        payload: dict[str, Any], run: Annotated[AsyncRun, fastapi.Depends(stripe_once.begin)]
    ) -> dict[str, object]:
        assert run is current_run()
        return worked(f"stripe {payload['id']}")

    @app.post("/plain")
    async def plain() -> bool:
        return current_run() is None

    return app


def by_mounted_fastapi() -> App:
    """Return an application below one that turns errors into answers, with a middleware that has tasks of its own."""
    inner: Any = by_fastapi()
    outer = fastapi.FastAPI(debug=True)

    @outer.middleware("http")
    async def passed(request: fastapi.Request, call_next: Any) -> Any:  # noqa: ANN401  # Starlette's
        return await call_next(request)

    @outer.exception_handler(Exception)
    async def failed(_: fastapi.Request, error: Exception) -> JSONResponse:
        return JSONResponse({"failed": str(error)}, 500)

    inner.user_middleware.clear()
    outer.mount("/", inner)
    outer.add_middleware(IdempotencyMiddleware, dedup=AsyncDedup(AsyncMemoryStore(), "api"))
    return outer


def by_starlette() -> App:
    dedup = AsyncDedup(AsyncMemoryStore(), "api")

    @charge_once
    async def charge(request: Any) -> JSONResponse:  # noqa: ANN401  # Starlette's
        if (await request.json())["cents"] == 9:
            return JSONResponse({}, 409)
        return JSONResponse(worked("charge"), 201)

    @github_once
    def github(_: Any) -> JSONResponse:  # noqa: ANN401  # as above
        return JSONResponse(worked("github"))

    @stripe_once
    async def stripe(_: Any) -> JSONResponse:  # noqa: ANN401  # as above
        return JSONResponse(worked("stripe"))

    async def plain(_: Any) -> JSONResponse:  # noqa: ANN401  # as above
        return JSONResponse(current_run() is None)

    places = {"/charges": charge, "/hooks/github": github, "/hooks/stripe": stripe, "/plain": plain}
    return Starlette(
        routes=[Route(path, endpoint, methods=["POST"]) for path, endpoint in places.items()],
        middleware=[Middleware(IdempotencyMiddleware, dedup=dedup), Middleware(GZipMiddleware, minimum_size=1)],
    )


def by_flask() -> flask.Flask:
    app = flask.Flask(__name__)

    @app.post("/charges")
    @charge_once
    def charge() -> Any:  # noqa: ANN401  # whatever Flask takes
        if flask.request.json["cents"] == 9:
            flask.abort(409)
        assert flask.request.environ["segmented.once"] is current_run()
        return worked("charge"), 201

    @app.post("/hooks/github")
    @github_once
    def github() -> dict[str, object]:
        return worked("github")

    @app.post("/hooks/stripe")
    @stripe_once
    def stripe() -> dict[str, object]:
        return worked("stripe")

    @app.post("/plain")
    def plain() -> flask.Response:
        return flask.jsonify(current_run() is None)

    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, Dedup(MemoryStore(), "api"))  # type: ignore[method-assign]  # as Flask says
    return app


async def asked(app: App, path: str, body: bytes, headers: dict[str, str]) -> Response:
    given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": given}
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(dict(message))

    await app(scope, receive, send)
    found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return Response(sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent))


APPS: dict[str, Callable[[], Any]] = {
    "fastapi": by_fastapi,
    "mounted": by_mounted_fastapi,
    "starlette": by_starlette,
    "flask": by_flask,
}


@pytest.fixture(params=APPS)
def ask(request: pytest.FixtureRequest) -> Ask:
    app: Any = APPS[request.param]()

    def posted(path: str, given: object, **headers: str) -> Response:
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Accept-Encoding": "gzip"}
        sent.update(named)
        if request.param != "flask":
            return asyncio.run(asked(app, path, body, sent))
        got = app.test_client().post(path, data=body, headers=sent)
        return Response(got.status_code, {name.lower(): value for name, value in got.headers.items()}, got.data)

    return posted


def test_a_route_runs_once_and_other_routes_are_left_alone(ask: Ask) -> None:
    named = {"Idempotency_Key": "k", "Authorization": "old ann"}
    first = ask("/charges", {"cents": 5}, **named)
    assert (first.status, first.json["run"], first.json["fence"], first.is_replayed) == (201, 1, True, False)
    repeat = ask("/charges", b'{ "cents": 5 }', **{**named, "Authorization": "new ann"})
    assert (repeat.status, repeat.body, repeat.is_replayed) == (201, first.body, True)
    assert "content-encoding" not in first.headers
    other = ask("/charges", {"cents": 6}, **named)
    assert (other.status, other.json["code"]) == (422, "other_payload")
    assert ask("/charges", {"cents": 5}, **{**named, "Authorization": "old bob"}).json["run"] == 2
    assert ask("/plain", {}).json is True
    assert ran == ["charge", "charge"]


def test_an_answer_that_refuses_is_not_kept_and_the_corrected_request_runs(ask: Ask) -> None:
    named = {"Idempotency_Key": "k", "Authorization": "ann"}
    assert ask("/charges", {"cents": 9}, **named).status == 409
    assert ask("/charges", {"cents": 5}, **named).status == 201
    assert ran == ["charge"]


def test_a_webhook_runs_once_by_any_header_or_by_an_id_in_its_body(ask: Ask) -> None:
    sent = [ask("/hooks/github", {"id": 1}, X_GitHub_Delivery=name).is_replayed for name in ("a", "a", "b")]
    assert sent == [False, True, False]
    events = [ask("/hooks/stripe", {"id": name}).is_replayed for name in ("e1", "e1", "e2")]
    assert events == [False, True, False]
    assert len(ran) == 4


def test_a_webhook_without_its_id_is_one_sentence_that_names_the_cure(ask: Ask) -> None:
    missing = ask("/hooks/github", {"id": 1})
    assert (missing.status, missing.json["code"]) == (400, "missing_key")
    assert missing.json["detail"] == (
        "POST /hooks/github needs the header X-GitHub-Delivery: send the same value when you send the request again"
    )
    unreadable = ask("/hooks/stripe", {"type": "charge"})
    assert (unreadable.status, unreadable.json["code"]) == (400, "malformed_key")
    large = ask("/hooks/github", b'{"id": "' + b"x" * 1_048_576 + b'"}', X_GitHub_Delivery="c")
    assert (large.status, large.json["code"]) == (413, "too_large")
    assert ran == []


def test_a_route_without_the_middleware_names_it() -> None:
    app = flask.Flask(__name__)
    app.testing = True
    app.post("/")(charge_once(lambda: "done"))
    with pytest.raises(InvalidInput, match="needs the middleware of the framework"):
        app.test_client().post("/")


def test_a_wrong_option_is_refused_where_the_route_is_made() -> None:
    for wrong, said in (
        ({"header": ""}, "header is the name"),
        ({"scope": None}, "scope is missing"),
        ({"keep": -1}, "keep"),
    ):
        with pytest.raises(InvalidInput, match=said):
            idempotent(**{"scope": all_clients, **wrong})  # type: ignore[arg-type]  # wrong on purpose


def test_a_route_keeps_its_answers_for_a_time_of_its_own() -> None:
    clock = ManualClock()
    app = flask.Flask(__name__)
    app.post("/long", endpoint="long")(stripe_once(lambda: worked("long")))
    app.post("/short", endpoint="short")(charge_once(lambda: worked("short")))
    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, Dedup(MemoryStore(clock=clock), "api", keep=60))  # type: ignore[method-assign]  # as Flask says
    named = {"Idempotency-Key": "k", "Authorization": "ann"}
    for _ in range(2):
        app.test_client().post("/long", json={"id": 1})
        app.test_client().post("/short", json={}, headers=named)
        clock.advance(3_600)
    assert ran == ["long", "short", "short"]
