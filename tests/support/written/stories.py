"""Stories: operations one after the other that together call every script that writes, each at work that it can do."""

from itertools import chain
from typing import Any, Final

from segmented import protocol as op
from segmented.models import Assignment, Cached, Cart, Order, Shard, ShardDirectory
from segmented.models.dedup import RecordName
from segmented.protocol import Operation
from segmented.protocol.fair import FairTimes
from tests.support.contract.locks.kinds import USES, Use

Story = tuple[Operation[Any], ...]


def _of(use: Use) -> Story:
    """Return what every kind of lock can do, on a name of its own."""
    name = str(use)
    ends = [use.release(name, "a"), use.acquire(name, "b"), op.RevokeLock(name, "r1")]
    return (use.acquire(name, "a"), use.acquire(name, "b"), use.renew(name, "a"), *ends)


LONG: Final = 600_000
TIMES: Final = FairTimes(LONG, LONG, LONG)
KEY: Final = RecordName("app", "k")


LOCKS: Final[Story] = (
    op.AcquireLock("n", "h", LONG),
    op.AcquireLock("n", "i", LONG, party="p"),
    op.AcquireLock("n", "j", LONG, party="q"),
    op.AdoptLock("n", "h", LONG),
    op.RenewLock("n", "h", LONG, delay_ms=1),
    op.RenameHolder("n", "h", "g"),
    op.ReleaseLock("n", "g", delay_ms=1),
    op.AcquireLock("n", "i", LONG, party="p"),
    op.RevokeLock("n", "r1"),
    op.AcquireLock("n", "h", LONG),
    op.AcquireLock("n", "i", LONG, party="p"),
    op.LeaveLine("n", "p"),
    op.LeaveLine("n", "q"),
    op.RevokeLock("n", "r2"),
    op.AcquireLock("n", "i", LONG),
    op.AcquireRead("rw", "a", LONG),
    op.AcquireRead("rw", "b", LONG),
    op.AcquireWrite("rw", "w", LONG, LONG),
    op.RenewReadWrite("rw", "a", LONG),
    op.ReleaseReadWrite("rw", "a"),
    op.ReleaseReadWrite("rw", "b"),
    op.AcquireWrite("rw", "w", LONG, LONG),
    op.ReleaseReadWrite("rw", "w"),
    op.AcquireReentrant("re", "o", "a", LONG),
    op.AcquireReentrant("re", "o", "b", LONG),
    op.AcquireReentrant("re", "x", "c", LONG, party="p"),
    op.RenewReentrant("re", "o", "a", LONG),
    op.ReleaseReentrant("re", "o", "a"),
    op.ReleaseReentrant("re", "o", "b"),
    op.AcquirePermit("semaphore-permit", "a", LONG, 1),
    op.AcquirePermit("semaphore-permit", "b", LONG, 1, party="p"),
    op.ReleasePermit("semaphore-permit", "a"),
    op.AcquireFair("fa", "a", "p1", LONG, TIMES),
    op.AcquireFair("fa", "b", "p2", LONG, TIMES),
    op.AcquireFair("fa", "c", "p1", LONG, TIMES),
    op.RenewFair("fa", "a", LONG),
    op.ReleaseFair("fa", "a", TIMES),
    op.AcquireFair("fa", "b", "p2", LONG, TIMES),
    op.ReleaseFair("fa", "c", TIMES),
    op.ReleaseFair("fa", "b", TIMES),
    op.AcquireVote("vo", "a", LONG, 3),
    op.RenewVote("vo", "a", LONG),
    op.RenewVote("vo", "b", LONG, reestablish=True),
    op.ReleaseVote("vo", "a", 3),
    op.SetNx("gs", "1"),
    op.GetSet("gs", "2"),
    op.DeleteValue("gs"),
    op.CheckSequencer("n", "exclusive", 1),
    op.FencedSet("door", "open", 5),
    op.FencedSet("door", "closed", 6),
    *chain.from_iterable(map(_of, USES)),
)

CACHES: Final[Story] = (
    op.ReadOrAcquire("c", "h", LONG, LONG),
    op.WriteCached("c", "h", 1 << 52, Cached("text", "body"), LONG, LONG),
    op.ReadOrAcquire("c", "h", LONG, LONG),
    op.WriteCached("c", "h", 1 << 52, Cached("text", "body"), LONG, 0),
    op.ReadOrAcquire("c", "i", LONG, LONG),
    op.ForgetCached("c"),
)

BEAT: Final[Story] = (
    op.ChangeEntry("app", "e", "keep", "{}"),
    op.LeadBeat("app", 5),
    op.MoveEntry("app", 5, "e", "", "a"),
    op.MoveEntry("app", 5, "e", "a", "b"),
    op.ChangeEntry("app", "e", "reset"),
    op.MoveEntry("app", 5, "e", "", "a"),
    op.MoveEntry("app", 5, "e", "a", ""),
    op.MoveEntry("app", 5, "e", "", "a"),
    op.ChangeEntry("app", "e", "remove"),
)

POOL: Final[Story] = (
    op.OpenPool("poster", 40, 4, gated=False, limit_per_customer=20),
    op.Reserve("poster", Order("a", 2, "ann"), LONG),
    op.Reserve("poster", Order("b", 17, "bob"), LONG),
    op.ExtendHold("poster", "b", 2 * LONG),
    op.ChangeQuantity("poster", "b", 16),
    op.Reserve("poster", Order("late", 1, "cy"), 0),
    op.Grant("poster", Order("g", 3, "ann"), "h", LONG, LONG, keep_refusal=True),
    op.Grant("poster", Order("g", 3, "ann"), "h", LONG, LONG, keep_refusal=True, above=1 << 52),
    op.RenewGrant("poster", "g", "h", LONG, LONG),
    op.ReleaseGrant("poster", "g", "h"),
    op.Grant("poster", Order("g", 3, "ann"), "i", LONG, LONG, keep_refusal=True),
    op.Confirm("poster", "g", "i"),
    op.ReturnUnits("poster", "g", 1, "rma"),
    op.Cancel("poster", "a"),
    op.ExpireDue("poster", 10),
    op.Reserve("poster", Order("past", 1, "cy"), 0),
    op.Expire("poster", "past"),
    op.Restock("poster", "r1", 6),
    op.Withdraw("poster", "w1", 3),
    op.Resize("poster", 6),
    op.Resize("poster", 3),
    op.Grant("poster", Order("huge", 19, "dee"), "j", LONG, LONG, keep_refusal=True),
    op.ReserveMany("poster", (Order("m", 1, "ann"), Order("n", 1, "eve"), Order("o", 50, "eve")), LONG),
    op.SettleMany("poster", "confirmed", ("m", "huge")),
    op.SettleMany("poster", "cancelled", ("n",), unheard=True),
    op.TrimLedger("poster", 3),
    op.MendNumber("poster", "total", "reserved", 19, 5),
    op.MendNumber("poster", "segment", "0", 20, 5),
    op.MendRecord("poster", "order", "lost", 21, None, "c\t1\t0\t1", LONG),
    op.MendLedger("poster"),
    op.AssignPool("poster", Assignment("queue", "module:step")),
    op.ClosePool("poster"),
    op.FreezePool("poster", 1),
    op.ThawPool("poster", 2, 27, 40),
)

OUTBOX: Final[Story] = (
    op.OpenPool("poster", 40, 4, gated=False, limit_per_customer=20),
    op.NotePool("poster", submits=True),
    op.ReportProcess(op.ProcessReport("shop:1")),
    op.ReserveMany("poster", (Order("a", 2, "ann"), Order("b", 17, "bob")), LONG, publish_after_ms=0),
    op.QueueOrders("poster", (Order("q", 2, "ann"), Order("large", 50, "bob")), 0),
    op.NoteTraces("poster", ("a", "q"), "00-1-2-01"),
    op.SweepOutbox("poster", 10, None, 0, 0, LONG, 5),
    op.TakeOrders("poster", ("a", "q", "large"), "h", LONG, LONG, LONG, 5),
    op.RenewWork("poster", ("a", "q"), "h", LONG, LONG, LONG),
    op.PutOff("poster", ("a",), "h", 0, counts=True, begun_max=9, reason="rain"),
    op.PutOff("poster", ("b",), "h", 0, counts=True, begun_max=0, reason="rain"),
    op.ReplayDead("poster", ("b",)),
    op.SettleMany("poster", "confirmed", ("q",), holder_id="h"),
    op.MovePool("sweep", "poster", "0", None, LONG),
    op.KeepMessage("queue", "d", "bad", "text"),
    op.DropMessage("queue", "d"),
)

CARTS: Final[Story] = (
    op.OpenPool("poster", 40, 4, gated=False),
    op.OpenCart(Cart("c1", [("poster", 1)]), LONG),
    op.Reserve("poster", Order("c1.order", 1), LONG),
    op.PinOrder("poster", "c1.order", "poster"),
    op.DecideCart("poster", "c1", "reserved"),
    op.DecideCart("poster", "c1", "confirmed"),
    op.FinishCart("poster", "c1"),
)

GATED: Final[Story] = (
    op.OpenPool("poster", 40, 4, gated=True, sale_id="sale"),
    op.VerifyPool("poster", 1, 1, "", "sale"),
    op.Reserve("poster", Order("a", 2), LONG),
    op.Reserve("poster", Order("b", 3), LONG),
    op.Confirm("poster", "a", decided=True),
    op.Cancel("poster", "b", decided=True),
    op.NoteRelayed("poster", (1, 5)),
    op.TrimLedger("poster", 0, relayed_only=True),
    op.TrimLedger("poster", 0, relayed_only=True),
    op.ForgetOrders("poster", 4, 0, (("a", 4),)),
    op.ForgetOrders("poster", 4, 0, (("a", 4),)),
    op.FreezePool("poster", 1),
    op.RecountPool("poster", 0, 2, 0, 0, 4, 0, (1, 6)),
    op.ThawPool("poster", 2, 2, 40, is_stored=True, decided=(("a", "confirmed"),)),
)

ONE, OTHER = Shard("mug", 0, "a"), Shard("mug", 1, "a")
SHARDS: Final[Story] = (
    op.WriteDirectory(ShardDirectory("mug", ("a", "a"), 40, 4, 1, None, is_open=False), 0),
    op.WriteDirectory(ShardDirectory("mug", ("a", "a"), 40, 4, 1, None, is_open=True), 0),
    op.OpenPool(ONE, 20, 2, gated=False),
    op.OpenPool(OTHER, 20, 2, gated=False),
    op.Reserve(ONE, Order("late", 1), 0),
    op.LookAtShard(ONE),
    op.SendUnits(ONE, 1, 5),
    op.ReceiveUnits(OTHER, 0, 1, 5, 1),
    op.AcknowledgeUnits(ONE, 1, 1, 1),
    op.NoteEpoch(OTHER, 0, 2),
    op.ArchiveDirectory(ShardDirectory("mug", ("a", "a"), 40, 4, 1, None, is_open=True), 0, LONG),
)

ARCHIVE: Final[Story] = (
    op.OpenPool("poster", 40, 4, gated=False),
    op.Reserve("poster", Order("a", 2), LONG),
    op.Confirm("poster", "a"),
    op.ClosePool("poster"),
    op.BeginArchive("poster"),
    op.AbandonArchive("poster"),
    op.BeginArchive("poster"),
    op.CompleteExport("poster", "abc", "file"),
    op.RemoveRecords("poster", "orders", ("a",)),
    op.RemoveRecords("poster", "stock", ("0", "1", "2", "3")),
    op.RemoveRecords("poster", "free", ("0", "1", "2", "3")),
    op.RemoveRecords("poster", "ledger"),
    op.RemovePool("poster", LONG),
    op.DropPool("poster"),
    op.OpenPool("plate", 40, 4, gated=False),
    op.Reserve("plate", Order("a", 2, "customer"), LONG),
    op.Confirm("plate", "a"),
    op.TrimLedger("plate", 0),
    op.EraseCustomer("plate", "customer", "orders", ("a",)),
    op.BeginArchive("plate", "drop"),
)


ONCE: Final[Story] = (
    op.ClaimKey(KEY, "m1", "p", "task", LONG, LONG),
    op.ClaimKey(KEY, "m2", "p", "task", LONG, LONG, delay_ms=5, delay_max_ms=LONG, call_text="[]"),
    op.BeginRun(KEY, "m1", "h", "p", "task", LONG, LONG),
    op.BeginRun(KEY, "m3", "i", "p", "task", LONG, LONG),
    op.RenewRun(KEY, "m1", "h", LONG, LONG),
    op.AbandonRun(KEY, "m1", "h", LONG, next_attempt=1, wait_ms=LONG),
    op.BeginRun(KEY, "m1", "h", "p", "task", LONG, LONG, attempt=1, on_lapse="unknown"),
    op.DoubtRun(KEY, "m1", "h", LONG),
    op.SettleRun(KEY, LONG, "value", "body", LONG),
    op.FreeKey(KEY),
    op.ClaimKey(KEY, "m4", "p", "task", LONG, LONG),
    op.CancelMessage(KEY, "m4", LONG),
    op.BeginRun(KEY, "m5", "h", "p", "task", 1, LONG),
    op.ReadRecord(KEY),
    op.ListClaims("app", 29, 10),
    op.BeginRun(KEY, "m6", "h", "p", "task", LONG, LONG, run_on="message", seat_end="none", at_once=2),
    op.AbandonRun(KEY, "m6", "h", LONG, seat_end="none", run_on="message"),
    op.BeginRun(KEY, "m7", "h", "p", "task", LONG, LONG, run_on="message", seat_end="none"),
    op.FinishRun(KEY, "m7", "h", 0, "value", "body", LONG, LONG, run_on="message"),
    op.CallNext(KEY),
    op.FreeKey(KEY),
    op.BeginRun(KEY, "m8", "h", "p", "task", LONG, LONG),
    op.FinishRun(KEY, "m8", "h", 0, "value", "body", LONG, LONG),
)

STORIES: Final[dict[str, Story]] = {
    "locks": LOCKS,
    "caches": CACHES,
    "pool": POOL,
    "outbox": OUTBOX,
    "carts": CARTS,
    "gated": GATED,
    "shards": SHARDS,
    "archive": ARCHIVE,
    "once": ONCE,
    "beat": BEAT,
}
