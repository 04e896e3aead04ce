"""The admin: pages of pools, orders and held keys, which show and change nothing.

They need the permission to view the model, such as `segmented.view_pool`, which Django's groups give.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.template.response import TemplateResponse

from segmented.dedup.operator import list_keys
from segmented.django.apps import gate, gate_alias, store
from segmented.django.models import HeldKey, Order, Pool
from segmented.errors import SegmentedError
from segmented.models.ids import plural
from segmented.protocol import ListPools
from segmented.stock import find_pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Rows = Iterable[tuple[object, ...]]

SHOWN_MAX: Final = 200


class ReadOnlyPage(admin.ModelAdmin):
    """A page with one table, and a form of search terms. Not for editing, and without a page for each row."""

    heads: ClassVar[tuple[str, ...]]
    terms: ClassVar[tuple[str, ...]] = ()
    """Names of the search terms, each a field of the form."""

    def rows(self, terms: Mapping[str, str]) -> Rows:
        """Return the rows for the terms. Raises SegmentedError, whose sentence is shown."""
        raise NotImplementedError

    def has_add_permission(self, *_: object) -> bool:
        """Return False: nothing is edited here."""
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def changelist_view(self, request: Any, extra_context: dict[str, Any] | None = None) -> TemplateResponse:  # noqa: ANN401  # Django's own
        """Show the first rows, or why there are none."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        terms = {name: request.GET.get(name, "").strip() for name in self.terms}
        rows: list[tuple[object, ...]] = []
        error = ""
        try:
            rows = list(islice(self.rows(terms), SHOWN_MAX + 1))
        except SegmentedError as found:
            error = str(found)
        context = {
            **self.admin_site.each_context(request),
            "title": self.opts.verbose_name_plural.capitalize(),
            "opts": self.opts,
            "heads": self.heads,
            "terms": terms,
            "rows": rows[:SHOWN_MAX],
            "error": error,
            "more": f"only the first {SHOWN_MAX} are shown" if len(rows) > SHOWN_MAX else "",
            **(extra_context or {}),
        }
        return TemplateResponse(request, "segmented/table.html", context)


@admin.register(Pool)
class PoolPage(ReadOnlyPage):
    """The pools of the server."""

    heads = ("sku", "available", "reserved", "confirmed", "segments", "state")

    def rows(self, _: Mapping[str, str]) -> Rows:
        """Return a row for each pool."""
        for sku in store().execute(ListPools()):
            try:
                state: Any = find_pool(store(), sku).state()
            except SegmentedError as error:
                yield sku, "", "", "", "", str(error)
                continue
            word = f"{state.condition}, gated" if state.gated else state.condition
            yield sku, state.available, state.reserved, state.confirmed, state.segment_count, word


@admin.register(Order)
class OrderPage(ReadOnlyPage):
    """The orders of one pool, or one order; of a gated pool with what the order database says."""

    heads = ("order", "state", "units", "customer", "segment", "fencing token", "order database")
    terms = ("sku", "order")

    def rows(self, terms: Mapping[str, str]) -> Rows:
        """Return a row for each order of the pool in no particular order, or for the one that is named."""
        sku, order = terms["sku"], terms["order"]
        if not sku:
            return
        pool: Any = find_pool(store(), sku)
        decided = gate() if gate_alias() is not None and pool.state().gated else None
        records = iter(filter(None, [pool.order(order)] if order else pool.orders()))
        while some := tuple(islice(records, SHOWN_MAX)):
            rows = {} if decided is None else decided.orders(sku, tuple(one.order_id for one in some))
            for one in some:
                row = rows.get(one.order_id)
                said = "" if row is None else f"{row.state}, {row.quantity} {plural(row.quantity, 'unit')}"
                token = one.fencing_token or ""
                yield one.order_id, one.state, one.quantity, one.customer_id or "", one.segment, token, said


@admin.register(HeldKey)
class HeldKeyPage(ReadOnlyPage):
    """The keys of `Once` and of idempotent requests that are held, soonest to end first. Results are never shown."""

    heads = ("state", "ends in, s", "task", "message", "attempt", "namespace", "key")
    terms = ("namespace",)

    def rows(self, terms: Mapping[str, str]) -> Rows:
        """Return a row for each key."""
        for one in list_keys(store(), terms["namespace"] or None, limit=SHOWN_MAX + 1).keys:
            left = "" if one.ends_in_ms is None else f"{one.ends_in_ms / 1000:.0f}"
            yield one.state, left, one.task, one.message, one.attempt, one.namespace, one.key
