"""Compares a class for threads with its twin for asyncio: names, signatures, what is awaited, first sentences.

Differences that every pair has are dropped first: `Async` in names, `Awaitable[...]` in annotations, "for asyncio" in
sentences, and a reference to the twin ("otherwise as `Pool`"), before which a shorter sentence suffices.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from tests.support import sync_of

OURS: Final = "segmented"
"""The package whose classes are compared, with what they inherit from each other."""

OTHER_NAMES: Final = {
    "AsyncHandle": "SyncHandle",
    "AsyncKeeper": "ThreadKeeper",
    "AsyncLane": "ThreadLane",
    "AsyncQuorumWakeups": "ThreadQuorumWakeups",
    "AsyncioWakeups": "ThreadWakeups",
}
"""Twins that are not called `AsyncX` and `X`."""

SPECIAL: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
"""Special methods that asyncio spells otherwise; these, `__init__` and `__call__` are compared, no others."""
COMPARED: Final = {"__init__", "__call__", *SPECIAL.values()}

CALLED: Final = "called"
AWAITED: Final = ("awaited", "awaited iterator")
AWAITABLE: Final = ("Coroutine[", "Awaitable[", "Acquiring[", "Granting[")
"""Awaitables that a plain function may return."""

REGULAR_ANNOTATIONS: Final = (
    (r"\bredis_asyncio\.", "redis."),
    (r"\bAcquiring\[(\w+)\]", r"\1"),  # what `await` and `async with` both take
    (r"\bGranting\[(\w+)\]", r"\1 | Refusal"),
    (r"\bLeaseT\b", "Lease"),  # a base class says it with a type variable
)
REGULAR_WORDS: Final = (
    (r"\ban `Async(?=[A-Z])", "a `"),
    (r"`Async(?=[A-Z])", "`"),
    (r"`async with`", "`with`"),
    (r",? for (?:threads(?: of one process)?|asyncio|one event loop|the running event loop)\b", ""),
    (r"\bcoroutine function", "function"),
    (r"\bevent loop\b", "process"),
    (r"\b(task|tasks|task_owner)\b", lambda found: found.group().replace("task", "thread")),
)
REFERENCE: Final = re.compile(r"[;:,] (?:see|as|otherwise as) `[\w.]+`(?: does| for asyncio)?(?=\.?$)")


class Twins(NamedTuple):
    """A class for threads and its twin for asyncio."""

    sync: type
    asynchronous: type


class Member(NamedTuple):
    """One name of a class: its function, or None for an attribute, and how it is used."""

    function: Callable[..., object] | None
    use: str


def modules(package: ModuleType, *, without: tuple[str, ...] = ()) -> list[ModuleType]:
    """Return a package and its modules, but for what runs a program and for the packages `without`."""
    found = [package]
    for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not one.name.endswith("__main__") and one.name not in without:
            module = importlib.import_module(one.name)
            found += modules(module, without=without) if one.ispkg else [module]
    return found


def sync_name(name: str) -> str:
    """Return what the twin of a class for asyncio is called."""
    return OTHER_NAMES.get(name, name.removeprefix("Async"))


def pairs(found: list[ModuleType]) -> tuple[list[Twins], list[str]]:
    """Return every public class `AsyncX` beside its twin in the same module or folder, and those without a twin."""
    classes = {
        (module.__name__, name): value
        for module in found
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    twins, alone = [], []
    for (module, name), value in classes.items():
        if name.startswith("Async"):
            folder = module.rpartition(".")[0]
            near = [at for at in classes if at[1] == sync_name(name) and (at[0] + ".").startswith(f"{folder}.")]
            near.sort(key=lambda at: (at[0] != module, at[0].rpartition(".")[0] != folder))
            if near:
                twins.append(Twins(classes[near[0]], value))
            else:
                alone.append(f"{module}.{name}")
    return twins, alone


def are_by_hand(twins: Twins) -> bool:
    """Return whether both are written by hand; otherwise `make sync` writes the one for threads."""
    text = Path(inspect.getfile(twins.sync)).read_text()
    line = text.partition(f"\n{sync_of.MARK}")[0].count("\n")
    return not text.startswith("# Written by `make sync`") and inspect.getsourcelines(twins.sync)[1] <= line + 1


def members(kind: type) -> dict[str, Member]:
    """Return the public names of a class and of those that it inherits from, as threads spell them."""
    found: dict[str, Member] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == OURS:
            found |= {name: Member(None, "value") for name in attributes(base)}
            for name, value in vars(base).items():
                spelled = SPECIAL.get(name, name)
                if spelled in COMPARED or not name.startswith("_"):
                    found[spelled] = member(value)
    return found


def attributes(kind: type) -> set[str]:
    """Return the public attributes that a class declares, or sets on itself."""
    found = {name for name in vars(kind).get("__annotations__", {}) if not name.startswith("_")}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()) if not name.startswith("_"):
                found.add(name)
    return found


def definer(kind: type, name: str) -> str:
    """Return which class of those that one inherits from has a name, or the class itself."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == OURS]
    return next((base.__name__ for base in ours if name in {*vars(base), *attributes(base)}), kind.__name__)


def member(value: Any) -> Member:  # noqa: ANN401  # whatever a class can have
    """Say how a class's name is used; a property is a value like an attribute."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        return Member(value.fget, "value")
    returned = getattr(value, "__annotations__", {}).get("return")
    if inspect.iscoroutinefunction(value) or (isinstance(returned, str) and returned.startswith(AWAITABLE)):
        return Member(value, AWAITED[0])
    if inspect.isasyncgenfunction(value):
        return Member(value, AWAITED[1])
    return Member(value, CALLED) if callable(value) else Member(None, "value")


def differences(twins: Twins) -> Iterator[tuple[str, str]]:
    """Yield where two twins differ, by the name of the class for asyncio that has it, and in what."""
    ours, theirs = members(twins.sync), members(twins.asynchronous)
    title = twins.asynchronous.__name__
    for name in sorted(set(ours) ^ set(theirs)):
        yield f"{definer(twins.asynchronous, name)}.{name}", "only sync" if name in ours else "only async"
    if not same_sentence(twins.sync, twins.asynchronous):
        yield title, "sentence"
    for name in sorted(set(ours) & set(theirs)):
        one, other = ours[name], theirs[name]
        if one.function is not other.function:
            place = getattr(other.function, "__qualname__", f"{title}.{name}")
            yield from ((place, what) for what in member_differences(name, one, other))


def member_differences(name: str, one: Member, other: Member) -> Iterator[str]:
    """Yield what is not the same in two methods of one name."""
    if one.use == CALLED and other.use == CALLED and name != "__init__":
        yield "not awaited"
    elif one.use != other.use and not (one.use == CALLED and other.use in AWAITED):
        yield f"{one.use} and {other.use}"
    if one.function is None or other.function is None:
        return
    if one.use == CALLED and parameters(one.function) != parameters(other.function):
        yield "signature"
    if not same_sentence(one.function, other.function):
        yield "sentence"


def parameters(function: Callable[..., object]) -> list[tuple[str, ...]]:
    """Return name, kind, default and annotation of each parameter, and at last what is returned."""
    signature = inspect.signature(function)
    found = [
        (name, one.kind.name, repr(one.default), sync_annotation(one.annotation))
        for name, one in signature.parameters.items()
        if name not in {"self", "cls"}
    ]
    return [*found, ("return", sync_annotation(signature.return_annotation))]


def sync_annotation(value: object) -> str:
    """Return an annotation as the twin for threads has it."""
    text = value if isinstance(value, str) else getattr(value, "__name__", repr(value))
    text = re.sub(r"\bAsync\w+", lambda found: sync_name(found.group()), text)
    for pattern, becomes in REGULAR_ANNOTATIONS:
        text = re.sub(pattern, becomes, text)
    while wrapped := re.search(r"\b(?:Awaitable\[|Coroutine\[Any, Any, )", text):
        end, depth = wrapped.end(), 1
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        text = text[: wrapped.start()] + text[wrapped.end() : end - 1] + text[end:]
    return text


def same_sentence(one: object, other: object) -> bool:
    """Return whether two docstrings begin with the same sentence, but for what differs regularly."""
    ours, theirs = regular(first_sentence(one)), regular(first_sentence(other))
    if ours == theirs:
        return True
    is_reference = REFERENCE.search(first_sentence(other)) is not None
    return is_reference and ours.startswith(theirs) and ours[len(theirs) :][:1] in (",", ";", ":")


def first_sentence(value: object) -> str:
    """Return a docstring's first sentence, on one line."""
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", paragraph)[0]


def regular(sentence: str) -> str:
    """Return a sentence without what differs in every pair."""
    sentence = REFERENCE.sub("", sentence.removesuffix("."))
    for pattern, becomes in REGULAR_WORDS:
        sentence = re.sub(pattern, becomes, sentence)
    return sentence


def exported(found: list[ModuleType]) -> dict[str, object]:
    """Return the functions and classes that the packages offer in `__all__`."""
    offered: dict[str, object] = {}
    for module in found:
        for name in vars(module).get("__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                offered[name] = value
    return offered


def sync_only(found: list[ModuleType]) -> set[str]:
    """Return the public functions and classes that take a class for threads, where nothing takes its twin."""
    names = {one.sync.__name__: one.asynchronous.__name__ for one in pairs(found)[0]}
    offered = exported(found)
    served = {colourless(name) for name in offered if "async" in name.lower()}
    asked = {name: words_asked(value) for name, value in offered.items()}
    return {
        name
        for name, words in asked.items()
        if name not in names and colourless(name) not in served
        if any(one in words and other not in words for one, other in names.items())
    }


def colourless(name: str) -> str:
    """Return what a function is called without the word that says for whom it is."""
    return re.sub("a?sync|_", "", name.lower())


def words_asked(value: object) -> set[str]:
    """Return the words in the annotations of a function's parameters, or of what makes an object of a class."""
    made = value.__init__ if inspect.isclass(value) else value
    said = dict(getattr(made, "__annotations__", {}))
    said.pop("return", None)
    return {word for one in said.values() for word in re.findall(r"\w+", str(one))}
