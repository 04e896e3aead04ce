"""What tells a repeat from a run: the worker's log, the signal, and the events that Flower shows."""

import threading
from typing import Any

from segmented.dedup.celery import once_repeated
from tests.support.workers.once_workers import OnceSide

SOON = 60


def test_repeats_drops_and_takeovers_are_told_in_the_log_and_as_events(once: OnceSide) -> None:
    seen: dict[str, Any] = {}
    tasks = once.app.events.State()
    with once.app.connection() as connection:
        receiver = once.app.events.Receiver(connection, handlers={"*": lambda event: _note(seen, tasks, event)})
        watcher = threading.Thread(target=receiver.capture, kwargs={"timeout": 2 * SOON, "wakeup": False})
        watcher.start()
        once.wait_for(once.broker.pubsub_numpat)
        dying = once.start(once.changed(fail="in_body"))
        lost = once.task("plain").delay("taken-over")
        dying.died()
        worker = once.start(once.changed(worker_send_task_events=True))
        foreign = once.app.send_task("plain", ("taken-over",))
        assert foreign.get(timeout=SOON) == ["taken-over", 0]
        kept = once.task("kept").delay("kept", 1)
        assert kept.get(timeout=SOON) == ["kept", 1]
        repeat = once.app.send_task("kept", ("kept", 1))
        assert repeat.get(timeout=SOON) == ["kept", 1]
        retried = once.task("retried").delay("retried", 1, "late")
        once.wait_for(lambda: once.runs("retried"))
        once.app.send_task("retried", ("retried", 1, "late"), task_id=retried.id)
        assert retried.get(timeout=SOON) == 1
        once.wait_for(lambda: len(seen) == 2)
        receiver.should_stop = True
        watcher.join(SOON)
    assert seen == {repeat.id: (kept.id, "answered"), retried.id: (retried.id, "dropped")}
    said = worker.said()
    for line in (
        f"task plain[{foreign.id}] runs in place of {lost.id}, whose worker did not say how it ended (taken over)",
        f"task kept[{repeat.id}] did not run: it repeats {kept.id}, and got its outcome (answered)",
        f"task retried[{retried.id}] did not run: another copy or a later attempt of {retried.id} does (dropped)",
    ):
        assert said.count(line) == 1


def _note(seen: dict[str, Any], tasks: Any, event: dict[str, Any]) -> None:  # noqa: ANN401  # Celery's own state
    tasks.event(event)
    if event["type"] == "task-repeated":
        assert tasks.tasks[event["uuid"]].state == "REPEATED"
        seen[event["uuid"]] = event["first"], event["decision"]


def test_a_publisher_hears_of_each_repeat_and_of_a_message_that_it_sends_again(once: OnceSide) -> None:
    told: list[tuple[str, str, str]] = []

    def hear(sender: str, message_id: str, decision: str, **_: object) -> None:
        told.append((sender, message_id, decision))

    once_repeated.connect(hear)
    try:
        first = once.task("lost").delay("heard")
        once.wait_for(lambda: once.task("lost").delay("heard") == first and len(told) > 1 and told[-2][2] == "resent")
    finally:
        once_repeated.disconnect(hear)
    assert set(told) == {("lost", first.id, "returned"), ("lost", first.id, "resent")}
