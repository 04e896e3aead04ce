"""Views of Django that run once: plain and async ones, of REST framework, in ATOMIC_REQUESTS, beside a commit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from segmented.servers import ValkeyServer
from tests.support.rings import require_module

LIMIT: Final = 120
"""Seconds that the process may take on a slow machine."""
PROGRAM: Final = """
import asyncio
import json
import logging
import sys

import django
import redis
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from segmented.dedup.operator import free, list_keys
from segmented.dedup.web import all_clients, current_run, idempotent

database = {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite", "ATOMIC_REQUESTS": True}
settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="of a test",
    DATABASES={"default": database},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "segmented.django"],
    MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware", "segmented.django.IdempotencyMiddleware"],
    SEGMENTED={"URL": sys.argv[1]},
)
django.setup()

from segmented.django import store
from segmented.models.dedup import RecordName
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

once = idempotent(scope=lambda request: request.header("Tenant"))
form_once = idempotent(header="X-Form", scope=all_clients)
ran = []


def worked(what):
    ran.append(what)
    return {"run": len(ran), "key": current_run().key}


@once
def plain(request):
    assert request.once is current_run()
    return JsonResponse(worked("plain"), status=201)


@transaction.non_atomic_requests
@once
async def coroutine(request):
    assert request.once is current_run()
    return JsonResponse(worked("coroutine"))


class Charges(APIView):
    @once
    def post(self, request):
        assert request.once is current_run()
        return Response({**worked("class"), "cents": request.data["cents"]}, status=201)


@api_view(["POST"])
@once
def function(request):
    return Response(worked("function"))


@form_once
def form(request):
    worked("form")
    return HttpResponse(request.POST["a"])


@once
def failing(request):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER)")
        cursor.execute("INSERT INTO rows VALUES (1)")
    transaction.on_commit(committed)
    return JsonResponse(worked("failing"))


def committed():
    if len(ran) == 1:
        raise DatabaseError("as a commit that fails")


@once
def large(request):
    worked("large")
    return StreamingHttpResponse([b"x"] * 3)


def parts(number):
    yield b"x"
    if number == 1:
        raise ValueError("in the middle")
    yield b"y"


async def async_parts(number):
    for part in parts(number):
        yield part


@once
def broken(request):
    return StreamingHttpResponse(parts(worked("broken")["run"]))


@transaction.non_atomic_requests
@once
async def async_broken(request):
    return StreamingHttpResponse(async_parts(worked("async_broken")["run"]))


@once
def stored(request):
    number = len(ran) + 1
    request.once.finish_in(connection, number)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO rows VALUES (2)")
    if request.GET.get("fails"):
        raise DatabaseError
    return JsonResponse(worked("stored"))


@once
def unrecorded(request):
    server.config_set("min-replicas-to-write", 1)  # the server refuses writes
    return JsonResponse(worked("unrecorded"))


class Recovery(logging.Handler):
    def emit(self, record):  # an answer could not be kept
        server.config_set("min-replicas-to-write", 0)


server = redis.Redis.from_url(sys.argv[1])
logging.getLogger("segmented.dedup.web").addHandler(Recovery())
urlpatterns = [
    path("stored", stored),
    path("unrecorded", unrecorded),
    path("plain", plain),
    path("coroutine", coroutine),
    path("class", Charges.as_view()),
    path("function", function),
    path("form", form),
    path("failing", failing),
    path("large", large),
    path("broken", broken),
    path("async_broken", async_broken),
]
client = Client(raise_request_exception=False)
said = {}


def post(place, body={"cents": 5}, key="k", tenant="ann", **more):
    headers = {"Idempotency-Key": key, "Tenant": tenant}
    return client.post(f"/{place}", json.dumps(body), "application/json", headers=headers, **more)


def seen(answer):
    return [answer.status_code, answer.get("Idempotency-Replayed"), answer.content.decode()]


for place in ("plain", "coroutine", "class", "function"):
    ran.clear()
    first, repeat = post(place), post(place)
    other, tenant = post(place, {"cents": 6}), post(place, tenant="bob")
    told = [first.content == repeat.content, repeat.get("Idempotency-Replayed"), other.json()["code"]]
    said[place] = [first.status_code, repeat.status_code, *told, tenant.status_code, len(ran)]

ran.clear()
asynchronous = AsyncClient()


async def asked():
    headers = {"Idempotency-Key": "a", "Tenant": "ann"}
    found = []
    for place in ("plain", "coroutine", "class"):
        for _ in range(2):
            answer = await asynchronous.post(f"/{place}", {"cents": 5}, "application/json", headers=headers)
            found.append(answer.get("Idempotency-Replayed"))
    return found


said["asgi"] = [asyncio.run(asked()), len(ran)]

ran.clear()
checking = Client(enforce_csrf_checks=True)
checking.cookies["csrftoken"] = token = "c" * 32
answers = [
    checking.post("/form", {"a": value, "csrfmiddlewaretoken": token}, headers={"X-Form": "f"}) for value in ("1", "1")
]
said["form"] = [[one.status_code, one.get("Idempotency-Replayed"), one.content.decode()] for one in answers]

ran.clear()
said["failing"] = [post("failing").status_code, post("failing").status_code, len(ran)]
ran.clear()
call_command("migrate", verbosity=0)


def rows():
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM rows WHERE number = 2), (SELECT count(*) FROM segmented_once)")
        return cursor.fetchone()


said["stored"] = [post("stored?fails=1").status_code, rows(), post("stored").status_code, rows()]
for held in list_keys(store()).keys:
    raise AssertionError(held)
with connections["default"].cursor() as cursor:
    cursor.execute("SELECT record_key FROM segmented_once")
    free(store(), RecordName("django", cursor.fetchone()[0]))  # Redis forgets, the database does not
said["forgotten"] = [post("stored").status_code, rows(), len(ran)]
said["streamed"] = [b"".join(post("large")).decode(), post("large").json()["code"]]


def whole(content):
    try:
        return b"".join(content).decode()
    except ValueError as error:
        return str(error)


async def async_whole():
    headers = {"Idempotency-Key": "b", "Tenant": "ann"}
    answer = await asynchronous.post("/async_broken", {"cents": 5}, "application/json", headers=headers)
    if not answer.streaming:
        return answer.json()["code"]
    try:
        return b"".join([part async for part in answer.streaming_content]).decode()
    except ValueError as error:
        return str(error)
    finally:
        await sync_to_async(answer.close)()


ran.clear()
said["broken"] = [whole(post("broken")), whole(post("broken")), post("broken").json()["code"], len(ran)]
ran.clear()
said["async_broken"] = [*(asyncio.run(async_whole()) for _ in range(3)), len(ran)]
ran.clear()
answers = [post("unrecorded")]
while answers[-1].status_code == 409 or len(answers) == 1:
    answers.append(post("unrecorded"))
said["unrecorded"] = [answers[0].status_code, answers[-1].get("Idempotency-Replayed"), len(ran)]
said["missing"] = client.post("/plain", {}, "application/json", headers={"Tenant": "ann"}).json()["detail"]
print(json.dumps(said))
"""


def test_views_of_every_kind_run_once(tmp_path: Path, valkey: ValkeyServer) -> None:
    require_module("Django", "django")
    require_module("Django REST framework", "rest_framework")
    (tmp_path / "views.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "views.py", valkey.url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for place, status in (("plain", 201), ("coroutine", 200), ("class", 201), ("function", 200)):
        assert said[place] == [status, status, True, "true", "other_payload", status, 2], place
    assert said["asgi"] == [[None, "true"] * 3, 3]
    assert said["form"] == [[200, None, "1"], [200, "true", "1"]]
    assert said["failing"] == [500, 200, 2]  # what was answered before a commit that failed is not kept
    assert said["stored"] == [500, [0, 0], 200, [1, 1]]
    assert said["forgotten"] == [500, [1, 1], 1]  # the row and the effect are one commit
    assert said["streamed"] == ["xxx", "answer_not_kept"]
    again = ["in the middle", "xy", "answer_not_kept", 2]  # what a stream does is a part of the work
    assert (said["broken"], said["async_broken"]) == (again, again)
    assert said["unrecorded"] == [200, "true", 1]  # its answer is kept when the server can
    assert said["missing"].startswith("POST /plain needs the header Idempotency-Key: send the same value")
