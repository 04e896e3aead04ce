"""Carts that are not finished: `segmented pool carts` lists them, `finish-carts` finishes those that are due."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from segmented.cli.output import DEFAULT_URL, STDOUT, JsonOption, UrlOption, print_table, shown, span, write_json
from segmented.models import CartSweep, UnfinishedCart
from segmented.stock.carts import LIST_MAX, SWEEP_LIMIT, Carts
from segmented.stores.redis import RedisStore

EXIT_UNFINISHED: Final = 1

HomeArgument = Annotated[
    str, typer.Argument(metavar="SKU", help="Home pool of the carts: the first of a cart's skus in sorted order.")
]


def carts(
    sku: HomeArgument,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=LIST_MAX, help="Maximum number to list.")] = LIST_MAX,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List a home's unfinished carts, longest overdue first: id, state, due time, lines.

    One that is due stays on hold until somebody finishes it; the others are bought just now.
    """
    with RedisStore.from_url(url) as store:
        found = Carts(store).unfinished(sku, limit=limit)
    if json_file is not None:
        counts = {"count": found.count, "due_count": found.due_count}
        write_json(json_file, {"sku": sku} | counts | {"carts": [_as_json(one) for one in found.carts]})
    if json_file == STDOUT:
        return
    print_table(("cart", "state", "due", "lines"), [_row(one) for one in found.carts])
    if found.count > limit:
        typer.echo(f"there are {found.count}, {found.due_count} of them due: raise --limit to see more", err=True)


def finish_carts(
    sku: HomeArgument,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number to finish.")] = SWEEP_LIMIT,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Finish a home's overdue carts: their hold expired, or the process deciding them died. Safe to run twice.

    Any number may run at once. Exit code 1 if any cannot be finished now; the next run tries again.
    """
    with RedisStore.from_url(url) as store:
        sweep = Carts(store).finish(sku, limit=limit)
    if json_file is not None:
        failed = [{"cart_id": cart_id, "error": str(error)} for cart_id, error in sweep.failed]
        write_json(json_file, {"finished": [asdict(one) for one in sweep.finished], "failed": failed})
    if json_file != STDOUT:
        typer.echo(_said(sweep))
        if len(sweep.finished) + len(sweep.failed) >= limit:
            typer.echo(f"the limit of {limit} is reached: there may be more")
    for cart_id, error in sweep.failed:
        typer.echo(f"cart {shown(cart_id)} is not finished: {error}", err=True)
    if sweep.failed:
        raise typer.Exit(EXIT_UNFINISHED)


def _said(sweep: CartSweep) -> str:
    if not sweep.finished:
        return "nothing is finished: no cart was due" if not sweep.failed else "nothing is finished"
    counts = Counter(one.state for one in sweep.finished)
    total = len(sweep.finished)
    parts = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return f"finished {total} cart{'s' if total != 1 else ''}: {parts}"


def _row(one: UnfinishedCart) -> tuple[str, ...]:
    cart = one.record.cart
    lasts = span(abs(one.due_in_ms) / 1000)
    lines = ", ".join(f"{quantity} {shown(sku)}" for sku, quantity in cart.lines)
    return shown(cart.cart_id), one.record.state, f"{lasts} ago" if one.is_due else f"in {lasts}", lines


def _as_json(one: UnfinishedCart) -> dict[str, Any]:
    cart = one.record.cart
    return {
        "cart_id": cart.cart_id,
        "state": one.record.state,
        "is_due": one.is_due,
        "due_in_ms": one.due_in_ms,
        "order_id": cart.order_id,
        "customer_id": cart.customer_id,
        "lines": [{"sku": sku, "quantity": quantity} for sku, quantity in cart.lines],
    }
