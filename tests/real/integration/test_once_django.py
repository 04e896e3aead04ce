"""A deduplicated task of a Django project: it is published when the transaction commits, and once."""

import json
import subprocess
import sys
from typing import Final

from tests.support.paths import ROOT
from tests.support.rings import require_module

LIMIT: Final = 120
"""Seconds that a process of its own may take on a slow machine."""
PROGRAM: Final = """
import json

import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()

from celery import Celery, shared_task
from django.db import transaction

from segmented import MemoryStore
from segmented.dedup.celery import unique
from segmented.django import Once

@shared_task(base=Once, once=unique("{order_id}", keep=3600))
def charge(order_id, amount):
    return amount


app = Celery("shop", broker="memory://", backend="cache+memory://")
app.conf.once_store = MemoryStore()
queued = []


def note():
    with app.connection_for_read() as connection, connection.SimpleQueue("celery") as queue:
        queued.append(queue.qsize())


with transaction.atomic():
    charge.delay_on_commit("o-7", 5)
    charge.apply_async_on_commit(("o-7", 5), countdown=1)
    note()
note()
repeat = charge.delay("o-7", 5)
note()
try:
    with transaction.atomic():
        charge.delay_on_commit("o-8", 5)
        raise KeyError
except KeyError:
    note()
first = charge.delay("o-8", 5)
note()
print(json.dumps([queued, repeat.is_repeat, first.is_repeat]))
"""


def test_a_shared_task_made_before_its_app_is_published_at_the_commit_and_once() -> None:
    """`segmented/celery` is no Django app: a program of its own configures Django, which is done once a process."""
    require_module("Django", "django")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[0, 1, 1, 1, 2], True, False]
