# django_shop/models.py
"""The shop's own table, in the database of the orders."""

from django.db import models


class Invoice(models.Model):
    """An order that was sold, and the payment that bought it."""

    pk = models.CompositePrimaryKey("sku", "order_id")
    sku = models.TextField()
    order_id = models.TextField()
    payment_id = models.TextField()
    units = models.IntegerField()

    class Meta:
        """Names the table."""

        db_table = "invoices"

    def __str__(self) -> str:
        """Show the order."""
        return f"{self.order_id} of {self.sku}"
