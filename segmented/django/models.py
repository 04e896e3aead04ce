"""What the admin shows. None of these has a table: their rows are read from the Redis server of the project."""

from __future__ import annotations

from django.db import models


class Shown(models.Model):
    """What the models share."""

    class Meta:
        """No table, and nothing but the permission to view."""

        abstract = True
        managed = False
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.pk)


class Pool(Shown):
    """A pool that was opened on the server."""

    sku = models.CharField(primary_key=True, max_length=256)


class Order(Shown):
    """An order of a pool."""

    order_id = models.CharField(primary_key=True, max_length=256)


class HeldKey(Shown):
    """A key of `Once` or of an idempotent request that a message or run holds."""

    key = models.CharField(primary_key=True, max_length=256)
