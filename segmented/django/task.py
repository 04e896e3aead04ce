"""`Once` for a Django project."""

from __future__ import annotations

from celery.contrib.django.task import DjangoTask

from segmented.dedup.celery import Once as PlainOnce


class Once(PlainOnce, DjangoTask):  # type: ignore[type-arg]  # its stubs make it generic, which the class itself is not
    """The `Once` of `segmented.dedup.celery` with the methods of Celery's task class for Django.

    ```python
    @shared_task(base=Once, once=unique("{order_id}", keep="1d"))
    def invoice(order_id: str) -> str: ...


    with transaction.atomic():
        order = Order.objects.create()
        invoice.delay_on_commit(order.pk)  # takes the key and publishes when the transaction has committed
    ```
    """

    abstract = True
