"""Sell a file of orders: the parts of `segmented sell`, one concern per module.

What a sale needs is imported at its first use: the help and a check of a file need neither Celery nor a database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.celery.selling.report import SaleReport as SaleReport, write_results as write_results
    from segmented.celery.selling.sale import Sale as Sale
    from segmented.celery.selling.servers import Choices as Choices, sale_servers as sale_servers

LATE = {
    "Choices": "segmented.celery.selling.servers",
    "Sale": "segmented.celery.selling.sale",
    "SaleReport": "segmented.celery.selling.report",
    "sale_servers": "segmented.celery.selling.servers",
    "write_results": "segmented.celery.selling.report",
}
__getattr__, __dir__, __all__ = late(__name__, LATE)
