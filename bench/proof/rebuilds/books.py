"""The judge of a rebuilt sale: the order rows, read with plain SQL. It shares no code with the pool or the rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from bench.proof.rebuilds.options import Sale

_ROWS = text("SELECT count(*), sum(quantity) FROM segmented_orders WHERE sku = :sku AND state = 'confirmed'")
_SEGMENTS = text("SELECT sum(quota), sum(sold), min(epoch), max(epoch) FROM segmented_segments WHERE sku = :sku")


def read_books(engine: Engine, sku: str) -> dict[str, int]:
    """Read what the database has sold of a sku."""
    with engine.connect() as connection:
        orders, units = connection.execute(_ROWS, {"sku": sku}).one()
        quota, sold, lowest, highest = connection.execute(_SEGMENTS, {"sku": sku}).one()
    found: dict[str, Any] = {
        "confirmed_orders": orders,
        "confirmed_units": units,
        "quota": quota,
        "sold": sold,
        "lowest_epoch": lowest,
        "highest_epoch": highest,
    }
    return {name: int(value or 0) for name, value in found.items()}


def postgresql_version(engine: Engine) -> str:
    """Return the version of the database server."""
    with engine.connect() as connection:
        return str(connection.execute(text("SHOW server_version")).scalar_one())


def wrong_after_rebuild(sale: Sale, number: int, pool: dict[str, int], books: dict[str, int]) -> list[str]:
    """Compare both sides with what was sold, after rebuild `number`, counted from 1."""
    epoch = number + 1
    wanted = {
        "units confirmed in the pool": (pool["confirmed"], sale.sold),
        "units reserved in the pool": (pool["reserved"], len(sale.still_open)),
        "units free in the pool": (pool["available"], sale.free),
        "sold units that the pool has no order of": (pool["lost"], sale.lost),
        "the pool's epoch": (pool["epoch"], epoch),
        "confirmed order rows": (books["confirmed_orders"], sale.sold),
        "units of confirmed order rows": (books["confirmed_units"], sale.sold),
        "units sold by segment rows": (books["sold"], sale.sold),
        "the quota": (books["quota"], sale.stock),
        "the lowest epoch of a row": (books["lowest_epoch"], epoch),
        "the highest epoch of a row": (books["highest_epoch"], epoch),
    }
    return _differing(f"rebuild {number}", wanted)


def wrong_at_end(sale: Sale, pool: dict[str, int], books: dict[str, int]) -> list[str]:
    """Compare both sides with the stock, once everything was sold."""
    wanted = {
        "units confirmed in the pool": (pool["confirmed"], sale.stock),
        "units reserved in the pool": (pool["reserved"], 0),
        "units free in the pool": (pool["available"], 0),
        "confirmed order rows": (books["confirmed_orders"], sale.stock),
        "units of confirmed order rows": (books["confirmed_units"], sale.stock),
        "units sold by segment rows": (books["sold"], sale.stock),
    }
    return _differing("the end", wanted)


def _differing(when: str, wanted: dict[str, tuple[int, int]]) -> list[str]:
    return [f"{when}: {what}: {found:,}, not {right:,}" for what, (found, right) in wanted.items() if found != right]
