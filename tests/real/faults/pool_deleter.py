"""Deletes a pool again and again; each time the process is killed one step later. Prints what was found each time.

Arguments: the server's URL, and the number of shards. A step is before or after an operation.
"""

import json
import os
import sys
from math import inf
from typing import Any

from segmented import protocol as op
from segmented.errors import PoolArchived
from segmented.stock import delete
from segmented.stores.redis import RedisStore
from tests.real.faults.archive_killer import SKU, KillingCounter, pool_of, sold, what_is_left


def killed_at(url: str, shards: int, step: int) -> bool:
    """Delete in a process that is killed at a step. Returns whether it was, or was done before."""
    child = os.fork()
    if child == 0:
        counter = KillingCounter(step)
        with RedisStore.from_url(url) as store:
            execute = store.execute

            def counted(operation: Any, *, deadline: float = inf) -> Any:  # noqa: ANN401  # of any answer
                counter.count()
                answer = execute(operation, deadline=deadline)
                counter.count()
                return answer

            store.execute = counted  # type: ignore[method-assign]  # to be killed
            delete(pool_of(store, shards))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main(url: str, shards: int) -> None:
    """Kill at step 1, 2, 3 ... until the pool is deleted first."""
    found: list[dict[str, Any]] = []
    step, is_killed = 0, True
    with RedisStore.from_url(url) as store:
        while is_killed:
            step += 1
            sold(store, shards)
            is_killed = killed_at(url, shards, step)
            left = what_is_left(store, shards)
            delete(pool_of(store, shards))
            again = delete(pool_of(store, shards))
            try:
                pool_of(store, shards).reserve("late")
                answer = "sold"
            except PoolArchived as error:
                answer = "removed" if error.is_removed else "removing"
            keys = [name for name in store.client.keys("*") if not name.endswith((b":directory", b":meta"))]
            listed = SKU in store.execute(op.ListPools())
            found.append({"left": left, "answer": answer, "keys": len(keys), "listed": listed, "replay": again.replay})
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
