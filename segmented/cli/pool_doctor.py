"""`segmented pool doctor`: what is wrong with a pool, and which command is next."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import typer

from segmented.cli.output import DEFAULT_URL, JsonOption, UrlOption, print_table, shown, write_json
from segmented.cli.pool_all import AllOption, OneSkuArgument, each_pool, one_of, pools_of
from segmented.models.ids import SKU_BYTES_MAX, checked_id
from segmented.plans import run_sync
from segmented.stores.redis import RedisStore
from segmented.watch.doctor import diagnose
from segmented.watch.reading import reading_plan

EXIT_FOUND: Final = 1


def doctor(
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Say what keeps a pool from selling, most urgent first, and the command to run next. Changes nothing.

    Exit code 1 if something is wrong; being closed or sold out is not. One short reading: `audit` compares every order.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        each_pool(pools_of(url), lambda one: doctor(one, url=url), json_file)
        return
    sku = checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
    with RedisStore.from_url(url) as store:
        reading = run_sync(reading_plan(sku), store)
    findings = diagnose(reading)
    if not write_json(json_file, {"sku": sku, "findings": [asdict(one) for one in findings]}):
        if findings:
            print_table(("found", "next"), [(shown(one.problem), one.command) for one in findings])
        elif reading.state is not None:
            free = f"{reading.state.available:,} of {reading.state.stocked:,} units free"
            typer.echo(f"nothing is wrong: {free}, {sum(reading.held)} of {len(reading.held)} segments held")
    if any(one.is_fault for one in findings):
        raise typer.Exit(EXIT_FOUND)
