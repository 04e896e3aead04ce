# invoices.py
"""The shop's own table, in the database of the orders."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The shop's tables."""


class Invoice(Base):
    """An order that was sold, and the payment that bought it."""

    __tablename__ = "invoices"
    sku: Mapped[str] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(primary_key=True)
    payment_id: Mapped[str]
    units: Mapped[int]
