"""I: decorators: the body runs under the lock from its first step to its last, or not at all."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.rows import must, row


class BodyFailed(Exception):
    """What the decorated function raised."""


@row("I1", "a decorated function does not run while another holds its lock", needs=("decorator",))
def i1_a_busy_lock(lab: Lab) -> None:
    ran: list[bool] = []
    decorated = _decorated(lab, _body(lab, lambda: ran.append(True)))
    lab.caller().take(lab.lock())
    lab.caller().error_of(decorated)
    must(not ran, "the body ran without the lock")


@row("I2", "the lock of a decorated function is released when it returns, and when it raises", needs=("decorator",))
def i2_the_end_of_the_body(lab: Lab) -> None:
    def fail() -> None:
        raise BodyFailed

    caller, ran = lab.caller(), list[bool]()
    error = caller.error_of(_decorated(lab, _body(lab, lambda: ran.append(True))))
    must(error is None and ran, f"the call failed: {told(error)}" if error else "the body did not run")
    must(lab.is_open(), "the lock stayed taken after the function had returned")
    must(isinstance(caller.error_of(_decorated(lab, _body(lab, fail))), BodyFailed), "its error did not come through")
    must(lab.is_open(), "the lock stayed taken after the function had raised")


@row("I3", "a generator and a coroutine hold the lock for their whole body", needs=("decorator", "wire"))
def i3_bodies_that_run_in_parts(lab: Lab) -> None:
    seen: dict[str, list[bool]] = {"a coroutine function": [], "a generator": []}

    async def coroutine() -> None:
        for _ in range(2):
            seen["a coroutine function"].append(lab.is_kept())
            await asyncio.sleep(0)

    def generator() -> Iterator[int]:
        for index in range(2):
            seen["a generator"].append(lab.is_kept())
            yield index

    async def asynchronous_generator() -> AsyncIterator[int]:
        for index in generator():
            yield index

    _run_to_the_end(lab, coroutine)
    has_run = _run_to_the_end(lab, asynchronous_generator if lab.contender.is_async else generator)
    faults = [f"the body of {what} runs without the lock" for what, held in seen.items() if not all(held)]
    must(not faults, "; ".join(faults))
    must(seen["a generator"] or not has_run, "a decorated generator gives nothing")
    must(lab.is_open(), "the lock stayed taken")


@row("I4", "the lock is released after the commit that follows the body", needs=("decorator", "transaction", "wire"))
def i4_a_commit_after_the_body(lab: Lab) -> None:
    caller = lab.caller()
    call, commit = lab.made(lab.contender.decorate_in_transaction, _body(lab, lambda: None))
    caller.do(call)
    must(lab.is_kept(), "the lock was released before the commit")
    caller.do(commit)
    lab.wait_until(lab.is_open, "the lock stayed taken after the commit")


def _body(lab: Lab, step: Callable[[], object]) -> Callable[[], Any]:
    async def asynchronous() -> None:
        step()

    def synchronous() -> None:
        step()

    return asynchronous if lab.contender.is_async else synchronous


def _decorated(lab: Lab, function: Callable[[], Any]) -> Callable[[], Any]:
    decorated: Callable[[], Any] = lab.made(lab.contender.decorate, function)
    return decorated


def _run_to_the_end(lab: Lab, function: Callable[[], Any]) -> bool:
    try:
        decorated = _decorated(lab, function)
    except lab.contender.refusals:
        return False  # refused, so that nothing runs without the lock
    lab.caller().do(_all_of if lab.contender.is_async else _all_of_here, decorated)
    return True


async def _all_of(decorated: Callable[[], Any]) -> None:
    found = decorated()
    if inspect.isawaitable(found):
        await found
    else:
        async for _ in found:
            pass


def _all_of_here(decorated: Callable[[], Any]) -> None:
    found = decorated()
    if inspect.iscoroutine(found):
        asyncio.run(found)
    else:
        for _ in found:
            pass
