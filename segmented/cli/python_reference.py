"""Writes the reference page of the Python names from their signatures and docstrings (`make docs`)."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import ModuleType

MODULES: Final = (
    "segmented",
    "segmented.locks",
    "segmented.stock",
    "segmented.orders",
    "segmented.dedup",
    "segmented.dedup.celery",
    "segmented.dedup.web",
    "segmented.celery",
    "segmented.errors",
    "segmented.models",
    "segmented.stores.memory",
    "segmented.stores.redis",
    "segmented.stores.quorum",
    "segmented.compat",
    "segmented.advise",
    "segmented.servers",
    "segmented.testing",
)
"""The modules, in the order of the page."""
HEAD: Final = """\
# Python names

Written by `make docs` from the signatures and docstrings. Every public name is listed with the module that programs
import it from; all other modules may change without notice. The code has the types of all arguments.
"""
LINE_MAX: Final = 120
SENTENCE: Final = re.compile(r".*?[.!?](?=\s|$)|.+", re.DOTALL)
PLAIN: Final = (type(None), bool, int, float, str, bytes, tuple)
"""Types of defaults that are written out; others are shown as `...`."""


def page() -> str:
    """Return the page in Markdown."""
    listed: dict[str, object] = {}
    return "\n".join([HEAD, *(section(import_module(name), listed) for name in MODULES)])


def section(module: ModuleType, listed: dict[str, object]) -> str:
    """Return a module's section. `listed` has the names of earlier sections, and gets this one's."""
    values = {name: getattr(module, name) for name in public_names(module)}
    again = [name for name, value in values.items() if name in listed and listed[name] is value]
    new = "\n".join(_entry(module, name, value) for name, value in values.items() if name not in again)
    repeated = f"Also here: {', '.join(f'`{name}`' for name in again)}." if again else ""
    listed.update(values)
    parts = (f"## {module.__name__}", _sentence(module.__doc__), new, repeated)
    return "\n\n".join(part for part in parts if part) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module exports; for one without `__all__`, the classes that it defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return list(getattr(module, "__all__", own))


def _entry(module: ModuleType, name: str, value: Any) -> str:  # noqa: ANN401  # whatever a module exports
    if inspect.isclass(value) or inspect.isroutine(value):
        return _item(_call(name, value), value.__doc__)
    if inspect.ismodule(value):
        return _item(name, value.__doc__)
    return _item(*_assigned(module, name))


def _item(code: str, doc: str | None) -> str:
    said = _sentence(doc)
    return f"- `{code}`{f': {said}' if said else ''}"


def _sentence(doc: str | None) -> str:
    """Return the first sentence of a docstring, in one line."""
    found = SENTENCE.match(" ".join((doc or "").split("\n\n")[0].split()))
    return found[0] if found else ""


def _call(name: str, value: Any) -> str:  # noqa: ANN401  # a class or a function
    """Return the call of a class or function, or its name alone if the call is too long to read."""
    if inspect.isclass(value) and not _is_made_by_us(value):
        return name
    code = f"{name}{_arguments(inspect.signature(value))}"
    return code if len(code) <= LINE_MAX else f"{name}(...)"


def _is_made_by_us(value: type) -> bool:
    """Return whether programs create instances of a class with arguments that this library defines."""
    if issubclass(value, Enum) or getattr(value, "_is_protocol", False):
        return False
    return getattr(value.__init__, "__module__", "segmented").partition(".")[0] == "segmented"


def _arguments(signature: inspect.Signature) -> str:
    """Return a signature without types, and without private fields of a dataclass."""
    empty = inspect.Parameter.empty
    shown = [each for each in signature.parameters.values() if each.default is empty or not each.name.startswith("_")]
    plain = [
        each.replace(annotation=empty, default=empty if each.default is empty else _Default(each.default))
        for each in shown
    ]
    return str(inspect.Signature(plain))


class _Default:
    """A default, as the page shows it."""

    def __init__(self, value: object) -> None:
        """Create the display of any value."""
        self._value = value

    def __repr__(self) -> str:
        """Return plain values as in code, members of an enum by name, and `...` for all others."""
        if isinstance(self._value, Enum):
            return f"{type(self._value).__name__}.{self._value.name}"
        return repr(self._value) if isinstance(self._value, PLAIN) else "..."


def _assigned(module: ModuleType, name: str) -> tuple[str, str | None]:
    """Return a constant or alias as written in its module, and the docstring below it."""
    home = module
    while name in getattr(home, "LATE", {}):
        home = import_module(home.LATE[name])
    source = inspect.getsource(home)
    body = ast.parse(source).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not node.value:
            continue
        if ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == name:
            said = below.value if isinstance(below, ast.Expr) else None
            written = " ".join((ast.get_source_segment(source, node.value) or "").split())
            return f"{name} = {written}", str(said.value) if isinstance(said, ast.Constant) else None
    message = f"{name} is not assigned in {home.__name__}"
    raise LookupError(message)


if __name__ == "__main__":
    sys.stdout.write(page())
