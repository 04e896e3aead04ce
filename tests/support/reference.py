"""Writes the reference pages from the code itself (`make docs`): commands, Python names, settings, metrics.

`python -m tests.support.reference PAGE` writes one of them, `command-line` without a name.
"""

import ast
import contextlib
import inspect
import io
import re
import sys
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from pydantic.fields import FieldInfo

from segmented.celery.settings import LOCAL_DATABASE, LOCAL_URL, PREFIX, WorkerSettings
from segmented.cli.main import NAME, build, run
from segmented.events.hub import METRICS, OTHER, VALUES_MAX, prometheus_name

MODULES: Final = (
    "segmented",
    "segmented.locks",
    "segmented.stock",
    "segmented.orders",
    "segmented.dedup",
    "segmented.dedup.celery",
    "segmented.dedup.web",
    "segmented.celery",
    "segmented.django",
    "segmented.events",
    "segmented.events.traces",
    "segmented.errors",
    "segmented.models",
    "segmented.stores.memory",
    "segmented.stores.redis",
    "segmented.stores.quorum",
    "segmented.compat",
    "segmented.advise",
    "segmented.watch.reports",
    "segmented.servers",
    "segmented.testing",
)
"""The modules, in the order of the page."""
PYTHON_HEAD: Final = """\
# Python names

Written by `make docs` from the signatures and docstrings. Every public name is listed with the module that programs
import it from; all other modules may change without notice. The code has the types of all arguments.
"""
LINE_MAX: Final = 120
SENTENCE: Final = re.compile(r".*?[.!?](?=\s|$)|.+", re.DOTALL)
PLAIN: Final = (type(None), bool, int, float, str, bytes, tuple)
"""Types of defaults that are written out; others are shown as `...`."""
SETTINGS_HEAD: Final = """\
# Worker settings

Written by `make docs` from the settings themselves. Environment variables; an empty one counts as not set. They are
read and checked once, when a worker or beat starts: an unknown name, a value that cannot be, and values that do not fit
together end it with exit code 2 and one sentence, in which no password stands. How to use them:
[Celery workers](../how-to/celery-workers.md).

| variable | default | meaning |
| --- | --- | --- |
"""
SETTINGS_TAIL: Final = """
`SEGMENTED_URL_FILE`, `SEGMENTED_BROKER_FILE` and `SEGMENTED_DATABASE_FILE` name files that hold the value, in one line:
for deployments that mount secrets as files. A file and the variable itself are not both set.

A broker on the stock's own server is refused, however the two are spelled, unless `SEGMENTED_BROKER_ON_STOCK_SERVER`
says so, or neither `SEGMENTED_URL` nor `SEGMENTED_BROKER` is set. The same database is refused always.

Where `segmented server` runs for the same account (and with the same `TMPDIR`), its two servers take the place of the
defaults of `SEGMENTED_URL` and `SEGMENTED_DATABASE`.
"""
METRICS_HEAD: Final = f"""\
# Metrics

Written by `make docs` from the code. How to use them: [metrics and
traces](../how-to/watch-a-sale.md#metrics-of-your-own-processes).

## Of the processes that sell

Each process counts what happens in it. Attributes of OpenTelemetry are the labels with `segmented.` before them,
without those that are empty. Labels have few values: of skus and tasks, the first {VALUES_MAX} in a process are
themselves, and further ones are `{OTHER}`. No order, customer, key, lock or holder is named.

| OpenTelemetry | Prometheus | kind | unit | labels | meaning |
| --- | --- | --- | --- | --- | --- |
"""
METRICS_MIDDLE: Final = """
Values of `outcome`: `reserved`, `granted` (with a segment's lock), `queued`, `begun` (by a worker), `confirmed`,
`cancelled`, `expired`, `returned`, `refused`, `repeated`, `dead` and `failed`; of a wait: `acquired`, `gave_up` and
`refused`. Values of `reason`: `sold_out`, `busy`, `limit`, `closed` and `decided`, or the name of the error.

## Of `segmented exporter`

Read from the stock server at each scrape, of all pools or those that it is given. All are gauges.

| Prometheus | labels | meaning |
| --- | --- | --- |
"""
DEFAULTS: Final = {
    "url": f"`{LOCAL_URL}`",
    "database": f"`{LOCAL_DATABASE}`",
    "broker": "next database of the stock's server",
}


def command_line_page() -> str:
    """Return the page in Markdown: the help of the command, then of each of its subcommands."""
    names = [info.name for info in build().registered_commands] + [info.name for info in build().registered_groups]
    words = [[name, *part] for name in sorted(name for name in names if name) for part in [[], *_parts(name)]]
    sections = [_help_of([]), *(_help_of(each) for each in words)]
    return "# The command line\n\nWritten by `make docs` from the help texts.\n\n" + "\n".join(sections)


def _parts(name: str) -> list[list[str]]:
    """Return the names of the commands of a group."""
    groups = [info.typer_instance for info in build(name).registered_groups if info.name == name]
    commands = [command for group in groups if group is not None for command in group.registered_commands]
    return [[command.name or command.callback.__name__] for command in commands if command.callback]


def _help_of(words: list[str]) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        run([*words, "--help"])
    lines = "\n".join(line.rstrip() for line in written.getvalue().strip().splitlines())
    return f"## {' '.join([NAME, *words])}\n\n```text\n{lines}\n```\n"


def python_page() -> str:
    """Return the page in Markdown."""
    listed: dict[str, object] = {}
    return "\n".join([PYTHON_HEAD, *(section(import_module(name), listed) for name in MODULES)])


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
    raise LookupError(f"{name} is not assigned in {home.__name__}")


def settings_page() -> str:
    """Return the page in Markdown."""
    rows = (
        f"| `{PREFIX}{name.upper()}` | {_default(name, field)} | {' '.join((field.description or '').split())} |\n"
        for name, field in WorkerSettings.model_fields.items()
    )
    return f"{SETTINGS_HEAD}{''.join(rows)}{SETTINGS_TAIL}"


def _default(name: str, field: FieldInfo) -> str:
    if name in DEFAULTS:
        return DEFAULTS[name]
    value = field.default
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}"
    return f"`{value}`" if value else "none"


def metrics_page() -> str:
    """Return the page in Markdown: the metrics of the processes that sell, and those of the exporter."""
    from segmented.watch.server import METRICS as READ  # noqa: PLC0415  # its package may be missing for other pages

    events = (
        f"| `{name}` | `{prometheus_name(name)}` | {metric.kind} | `{metric.unit}` "
        f"| {_listed(metric.labels)} | {metric.text} |\n"
        for name, metric in METRICS.items()
    )
    read = (f"| `{name}` | {_listed(labels)} | {text} |\n" for name, (text, labels) in READ.items())
    return f"{METRICS_HEAD}{''.join(events)}{METRICS_MIDDLE}{''.join(read)}"


def _listed(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


PAGES: Final = {
    "command-line": command_line_page,
    "metrics": metrics_page,
    "python": python_page,
    "worker-settings": settings_page,
}

if __name__ == "__main__":
    sys.stdout.write(PAGES["".join(sys.argv[1:]) or "command-line"]())
