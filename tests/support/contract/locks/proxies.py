"""The proxies before one server, or before several of a quorum: a fault is injected into all of them at once."""

from collections.abc import Sequence

from tests.support.proxy import RedisProxy


class Proxies:
    """A proxy before each server."""

    def __init__(self, servers: Sequence[str]) -> None:
        """Create a proxy for each of the servers at these URLs."""
        self.each = [RedisProxy(server) for server in servers]
        self.urls = [proxy.url for proxy in self.each]

    def close(self) -> None:
        """Close every proxy."""
        for proxy in self.each:
            proxy.__exit__()

    @property
    def swallowed(self) -> int:
        """How many replies were lost."""
        return sum(proxy.swallowed for proxy in self.each)

    @property
    def answered(self) -> int:
        """How many requests were answered in the server's place."""
        return sum(proxy.answered for proxy in self.each)

    def vanish(self) -> None:
        """Cut every connection, and refuse new ones."""
        for proxy in self.each:
            proxy.vanish()

    def cut(self) -> None:
        """Cut every connection, and accept new ones."""
        for proxy in self.each:
            proxy.cut()

    def come_back(self) -> None:
        """Accept connections again."""
        for proxy in self.each:
            proxy.come_back()

    def swallow_replies(self, to: bytes) -> None:
        """Let each server run the next request that matches, and cut the connection instead of the reply."""
        for proxy in self.each:
            proxy.swallow_replies(1, to=to)

    def answer(self, reply: bytes, to: bytes) -> None:
        """Answer the next request that matches in each server's place."""
        for proxy in self.each:
            proxy.answer(reply, to=to)

    def hold(self, request: bytes) -> None:
        """Keep back each request that matches, until `let_go`."""
        for proxy in self.each:
            proxy.hold(request)

    def hold_replies(self, to: bytes) -> None:
        """Let the servers run each request that matches, and keep the replies back, until `let_go`."""
        for proxy in self.each:
            proxy.hold_replies(to)

    def is_holding(self) -> bool:
        """Return whether each proxy holds something."""
        return all(proxy.holding.is_set() for proxy in self.each)

    def let_go(self) -> None:
        """Pass on what is held."""
        for proxy in self.each:
            proxy.let_go()

    def delay(self, seconds: float) -> None:
        """Pass each request on this much later."""
        for proxy in self.each:
            proxy.delay_seconds = seconds
