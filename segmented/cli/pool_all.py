"""`--all` of `segmented pool audit`, `doctor`, `verify`, `rebuild` and `reopen`: one pool after the other."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segmented import protocol as op
from segmented.cli.output import shown, write_json
from segmented.errors import InvalidInput, PoolMissing, SegmentedError, ShardVanished
from segmented.files import STDOUT
from segmented.models.ids import plain_text
from segmented.process import tell
from segmented.stock import ShardedPool, find_pool
from segmented.stores.redis import RedisStore

EXIT_SOME: Final = 1

AllOption = Annotated[bool, typer.Option("--all", help="Every pool, one after the other, instead of one.")]
OneSkuArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SKU]", help="Stock keeping unit: name of the pool.", callback=lambda sku: sku and plain_text(sku)
    ),
]


def one_of(sku: str | None, *, all_pools: bool) -> str:
    """Return the sku, "" for all pools. Raises InvalidInput unless exactly one of both was given."""
    if (sku is None) != all_pools:
        raise InvalidInput("name one pool, or give --all for every pool")
    return sku or ""


def pools_of(url: str) -> list[str]:
    """List the pools that were opened on a server."""
    with RedisStore.from_url(url) as store:
        return list(store.execute(op.ListPools()))


def gated_pools_of(url: str) -> Iterator[tuple[str, int | None]]:
    """List the gated pools of a server, each shard with its number."""
    for sku in pools_of(url):
        with RedisStore.from_url(url) as store:
            found = find_pool(store, sku)
            shards = found.shards if isinstance(found, ShardedPool) else (found,)
            is_gated = False
            with suppress(PoolMissing, ShardVanished):
                is_gated = shards[0].state().gated
        if is_gated:
            yield from ((sku, number if isinstance(found, ShardedPool) else None) for number in range(len(shards)))


def each_shard(url: str, run: Callable[[str, int | None], None], json_file: Path | None) -> None:
    """Run a command for each gated pool of a server, and each shard of one."""
    found = {sku if shard is None else f"{sku} shard {shard}": (sku, shard) for sku, shard in gated_pools_of(url)}
    each_pool(found, lambda name: run(*found[name]), json_file)


def each_pool(skus: Iterable[str], run: Callable[[str], None], json_file: Path | None) -> None:
    """Run a command for each pool, and go on after a failure. Exit code 1 if one failed."""
    done: list[dict[str, Any]] = []
    for sku in skus:
        exit_code, error = 0, None
        if json_file != STDOUT:
            typer.echo(f"== {shown(sku)}")
        try:
            with redirect_stdout(io.StringIO()) if json_file == STDOUT else nullcontext():
                run(sku)
        except typer.Exit as ended:
            exit_code = ended.exit_code
        except SegmentedError as failed:
            exit_code, error = EXIT_SOME, str(failed)
            tell(error)
        done.append({"sku": sku, "exit_code": exit_code, "error": error})
    write_json(json_file, {"pools": done})
    if not done:
        tell("there is no pool for this command")
    if any(one["exit_code"] for one in done):
        raise typer.Exit(EXIT_SOME)
