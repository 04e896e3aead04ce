"""The additions of a cluster to exchanges: attempts counted over nodes, ASKING, batches by node, reading the map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis.exceptions import ResponseError

from segmented.errors import AcknowledgementUnknown, StoreUnavailable
from segmented.protocol.wire import Exchange, MakeExchange, Peer, Reply, Send
from segmented.stores.redis.addresses import Host
from segmented.stores.redis.cluster_map import ClusterMap, slot_of
from segmented.stores.redis.exchange import Seen, perform_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


def perform_again(
    operation: Operation[AnswerT], seen: Seen, number: int, peer: Peer, attempt: int
) -> Exchange[AnswerT]:
    """Perform an operation of a batch whose replies were lost."""
    return perform_one(operation, seen, number, peer, attempt + 1)


def may_have_moved(answer: object) -> bool:
    """Return whether another node may answer; a change whose acknowledgements are missing has been made."""
    return isinstance(answer, StoreUnavailable) and not isinstance(answer, AcknowledgementUnknown)


class Attempts(Generic[AnswerT]):
    """Creates the exchange of one request for each node that is asked, and counts the lost replies."""

    def __init__(self, make_exchange: MakeExchange[AnswerT]) -> None:
        self._make = make_exchange
        self._lost = 0
        self._tried = 0

    def direct(self, peer: Peer, attempt: int) -> Exchange[AnswerT]:
        """Create the exchange for a node."""
        self._tried = attempt
        return self._make(peer, self._lost + attempt)

    def asking(self, peer: Peer, attempt: int) -> Exchange[AnswerT]:
        """Create the exchange for a node to which the slot is migrating."""
        return asking(self.direct(peer, attempt))

    def failed(self, error: Exception) -> None:
        """Record how a node's attempts ended: with a lost reply or with a refusal."""
        self._lost += self._tried - 1 if isinstance(error, ResponseError) else self._tried
        self._tried = 0


def asking(exchange: Exchange[AnswerT]) -> Exchange[AnswerT]:
    """Send ASKING right before each command of an exchange."""
    try:
        send = next(exchange)
        while True:
            doubled = [command for one in send.commands for command in (("ASKING",), one)]
            replies = yield Send(doubled, send.patience)
            send = exchange.send(replies[1::2])
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # the exchange's return value has no type here


def reading_slots(_: Peer, __: int) -> Exchange[list[Reply]]:
    """Ask a node for the map."""
    (reply,) = yield Send((("CLUSTER", "SLOTS"),))
    if isinstance(reply, ResponseError):
        raise reply
    return list(reply)


def slot_for(operation: Operation[Any]) -> int:
    """Return the slot that decides which node is asked."""
    return slot_of(operation.call().key)


def shares(known: ClusterMap, operations: Sequence[Operation[Any]], *, size_max: int) -> list[tuple[int, list[int]]]:
    """Group operations by the owner of their slots; return a slot of each owner and the operations' indexes."""
    by_owner: dict[Host | int, tuple[int, list[int]]] = {}
    for place, operation in enumerate(operations):
        slot = slot_for(operation)
        by_owner.setdefault(known.owner(slot) or slot, (slot, []))[1].append(place)
    return [
        (slot, places[start : start + size_max])
        for slot, places in by_owner.values()
        for start in range(0, len(places), size_max)
    ]


def part_of(deadline: float, shares_left: int, *, now: float) -> float:
    """Return the deadline for one share of a batch, so that a node that does not answer leaves time for the others."""
    return now + (deadline - now) / shares_left


def seeds_of(client: Any) -> list[Host]:  # noqa: ANN401  # a RedisCluster, sync or async
    """Return the nodes that a client currently knows."""
    return [
        Host(node.host, int(node.port)) for node in [*client.get_nodes(), *client.nodes_manager.startup_nodes.values()]
    ]


def node_named(host: Host) -> str:
    """Return the name of a node for errors."""
    return f"{host.name}:{host.port} (a node of the cluster)"


def remapped(client: Any, host: Host) -> Host:  # noqa: ANN401  # a RedisCluster, sync or async
    """Translate an address that a node reported into a reachable one, if the client has an address mapping."""
    return Host(*client.nodes_manager.remap_host_port(*host))
