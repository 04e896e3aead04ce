"""G: replicas, and servers that forget."""

from tests.support.contract.locks.lab import Lab
from tests.support.contract.locks.rows import must, row


@row(
    "G1",
    "an acquire that too few replicas acknowledged is undone, and raises",
    needs=("replicas", "wire"),
)
def g1_too_few_replicas(lab: Lab) -> None:
    holder = lab.caller()
    error = holder.error_of(lab.contender.try_acquire, lab.made(lab.contender.make_replicated, 1))
    must(error is not None, "it reported a lock that no replica has")
    must(lab.is_open(), "the lock that no replica has stayed taken")


@row("G2", "a fencing token grows also after the server forgot the last one", needs=("fencing", "wire"))
def g2_a_forgotten_counter(lab: Lab) -> None:
    holder, lock = lab.caller(), lab.lock()
    tokens = []
    for forgets in (False, True, False):
        if forgets:
            lab.forget_everything()
        hold = holder.take(lock)
        tokens.append(holder.do(lab.contender.fencing_token, hold))
        holder.release(hold)
    must(tokens == sorted(set(tokens)), f"the tokens were {tokens}")
