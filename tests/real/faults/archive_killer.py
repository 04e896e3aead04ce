"""Archives a pool again and again; each time the process is killed one step later. Prints what was found each time.

Arguments: the server's URL, a folder, and the number of shards. A step is before or after an operation, and before or
after the file takes its name.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, Final

from segmented.errors import PoolArchived
from segmented.models import Cart
from segmented.stock import Carts, Pool, ShardedPool
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import FileArchive, archive, lines_of
from segmented.stores.redis import RedisStore
from tests.support.dying import StepCounter

SKU: Final = "concert"
ORDERS: Final = 7


class KillingCounter(StepCounter):
    """Kills this process at one of its steps."""

    def count(self) -> None:
        self.counted += 1
        if self.counted == self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


class KilledFile(FileArchive):
    """A file whose writer may be killed just before it is complete, and just after."""

    def __init__(self, file: Path, counter: StepCounter) -> None:
        super().__init__(file)
        self._counter = counter

    @contextmanager
    def writing(self) -> Iterator[Callable[[str], None]]:
        with super().writing() as write:
            yield write
            self._counter.count()
        self._counter.count()


def pool_of(store: RedisStore, shards: int) -> Pool | ShardedPool:
    return Pool(store, SKU) if shards == 1 else ShardedPool(store, SKU)


def sold(store: RedisStore, shards: int) -> None:
    """Open a pool, sell some orders and a cart, and close it."""
    store.client.flushdb()
    pool = pool_of(store, shards)
    if isinstance(pool, Pool):
        pool.open(stock=40, segments=4)
        carts, cart = Carts(store), Cart("basket", [(SKU, 2)])
        carts.reserve(cart)
        carts.confirm(cart.cart_id, home=SKU)
    else:
        pool.open(stock=40, segments=4, shards=shards)
        pool.reserve("basket")
        pool.confirm("basket")
    for number in range(ORDERS - 1):
        pool.reserve(f"order {number}")
        pool.confirm(f"order {number}")
    pool.restock(3, restock_id="more")
    pool.close()


def killed_at(url: str, file: Path, shards: int, step: int) -> bool:
    """Archive in a process that is killed at a step. Returns whether it was, or was done before."""
    child = os.fork()
    if child == 0:
        counter = KillingCounter(step)
        with RedisStore.from_url(url) as store:
            execute, execute_many = store.execute, store.execute_many

            def counted(operation: Any, *, deadline: float = inf) -> Any:  # noqa: ANN401  # of any answer
                counter.count()
                answer = execute(operation, deadline=deadline)
                counter.count()
                return answer

            def many_counted(operations: Any, *, deadline: float = inf) -> Any:  # noqa: ANN401  # as above
                counter.count()
                answers = execute_many(operations, deadline=deadline)
                counter.count()
                return answers

            store.execute, store.execute_many = counted, many_counted  # type: ignore[method-assign]  # to be killed
            archive(pool_of(store, shards), KilledFile(file, counter))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def what_is_left(store: RedisStore, shards: int) -> str:
    """Judge what a killed process has left: a whole pool, or a part of one that is being removed, or a note."""
    phases = {
        str((store.client.hget(name, "archive") or b"whole -").decode()).split(" ")[0]
        for name in store.client.keys("*:meta")
    }
    if phases <= {"whole", "exporting"}:
        report = pool_of(store, shards).audit()
        return "whole" if report.is_clean and report.state.order_count == ORDERS else "damaged"
    return "removing" if phases != {"archived"} else "archived"


def main(url: str, folder: Path, shards: int) -> None:
    """Kill at step 1, 2, 3 ... until the archive is done first."""
    found: list[dict[str, Any]] = []
    step, is_killed = 0, True
    with RedisStore.from_url(url) as store:
        while is_killed:
            step += 1
            file = folder / f"{step}.jsonl.gz"
            sold(store, shards)
            is_killed = killed_at(url, file, shards, step)
            left, has_file = what_is_left(store, shards), file.exists()
            again = archive(pool_of(store, shards), file)
            repeated = archive(pool_of(store, shards), file)
            checked = check_archive(lines_of(file), str(file))
            try:
                pool_of(store, shards).reserve("late")
                answer = "sold"
            except PoolArchived as error:
                answer = "archived" if error.is_removed else "archiving"
            keys = len([name for name in store.client.keys("*") if not name.endswith((b":directory", b":meta"))])
            found.append(
                {
                    "left": left,
                    "file": has_file,
                    "orders": [again.orders, checked.orders],
                    "same": again.digest == checked.digest == repeated.digest,
                    "replay": [again.replay, repeated.replay],
                    "answer": answer,
                    "keys": keys,
                    "names": sorted(one.name for one in folder.iterdir() if one.name.startswith(".")),
                }
            )
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
