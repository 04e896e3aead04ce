"""Arguments of a task with `pydantic=True`, as a message has them: its key and payload are made of these.

Celery sends the dump of a model, and a publisher may give a dict itself, with or without the fields that have defaults.
All of these are one argument to the body, so they are one to a key: the dump with all fields.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Arguments = tuple[Sequence[Any], Mapping[str, Any]]


class Fields(dict[str, Any]):
    """A model's dump. An expression reads its fields as items or, as of the model, as attributes."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any JSON
        """Return a field. Raises AttributeError if the model has none of that name."""
        if name not in self:
            raise AttributeError(name)
        return Fields(self[name]) if isinstance(self[name], dict) else self[name]


class ModelArguments:
    """The arguments of one task; unchanged unless it has `pydantic=True`."""

    def __init__(self, body: Callable[..., object]) -> None:
        """Find the models among the arguments of a task's body, as Celery wraps it."""
        self._dump: Callable[..., Arguments] | None = getattr(body, "dump_arguments", None)
        self._is_bound = isinstance(body, MethodType)
        self._signature = inspect.signature(body)
        self._models = _models(body) if self._dump is not None else {}

    def as_sent(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> Arguments:
        """Return the arguments with each model, and each dict for one, as the model's dump with all fields."""
        if self._dump is None:
            return arguments, options
        arguments, options = self._dump(arguments, options, bound=self._is_bound)
        try:
            bound = self._signature.bind(*arguments, **options)
        except TypeError:  # whoever computes the key raises it
            return arguments, options
        bound.apply_defaults()
        for name, model in self._models.items():
            value = bound.arguments.get(name)
            if isinstance(value, dict | model):
                with suppress(Exception):  # a validator may raise anything; then the dict counts as it is
                    bound.arguments[name] = Fields(model.model_validate(value).model_dump(mode="json"))
        return bound.args, bound.kwargs


def _models(body: Callable[..., object]) -> dict[str, Any]:
    plain = inspect.unwrap(body)
    try:
        hints = get_type_hints(plain)
    except (NameError, AttributeError, TypeError):  # as Celery does
        hints = {name: one.annotation for name, one in inspect.signature(plain).parameters.items()}
    named = {name: [one for one in (hint, *get_args(hint)) if _is_model(one)] for name, hint in hints.items()}
    return {name: models[0] for name, models in named.items() if models and name != "return"}


def _is_model(found: object) -> bool:
    return isinstance(found, type) and hasattr(found, "model_validate") and hasattr(found, "model_dump")
