"""Rules about Python source, each a pure function of the text."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

from tests.quick.tidy.rules_text import BANNED, MESSAGE_TURNS
from tests.quick.tidy.sources import parsed

MODULE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 70
TEST_NAME_MAX: Final = 80

WALL_CLOCK: Final = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
WAITS: Final = {
    *(("time", name) for name in ("sleep", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")),
    ("threading", "Timer"),
}

PRIVATE: Final = re.compile(r"_[A-Za-z]")
SILENCED: Final = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:\s*no cover|fmt:\s*off)(?P<rest>.*)")
CODES: Final = re.compile(r"(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[\w, -]+\])?\s*(?P<reason>.*)")
REASON: Final = re.compile(r"#\s*\w+\W+\w+")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def size(text: str) -> Iterator[tuple[int, str]]:
    """A module fits into one reading, a function onto one screen."""
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield lines, f"a module of {lines} lines; {MODULE_LINES_MAX} at most"
    if max((block.count("\n") for block in re.split(r"\n(?=\S)", text)), default=0) < FUNCTION_LINES_MAX:
        return  # to parse all files takes seconds
    for function in _functions(parsed(text)):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield function.lineno, f"{function.name} has {length} lines; {FUNCTION_LINES_MAX} at most"


def options_by_name(text: str) -> Iterator[tuple[int, str]]:
    """A public function names its options; `**kwargs` is for a wrapped call whose types pass through (P.kwargs).

    `**_` takes what a signal sends along and nobody reads; it is no option. `**passed_on` goes to the method of another
    library that is overridden.
    """
    if not re.search(r"\*\*\w+:", text):
        return
    for function in _public_functions(parsed(text).body):
        rest = function.args.kwarg
        if rest is None or rest.arg in {"_", "passed_on"}:
            continue
        if not (isinstance(rest.annotation, ast.Attribute) and rest.annotation.attr == "kwargs"):
            yield function.lineno, f"{function.name} takes **{rest.arg}: name the options"


def booleans_by_name(text: str) -> Iterator[tuple[int, str]]:
    """A boolean is passed by name. (ruff's FBT overlooks `bool | None` and `Annotated[bool, ...]`.)"""
    if not re.search(r":\s*[^\n>]*\n?\s*\bbool\b", text):
        return
    for function in _functions(parsed(text)):
        for argument in [*function.args.posonlyargs, *function.args.args]:
            if argument.annotation is not None and _is_boolean(argument.annotation):
                yield (
                    function.lineno,
                    f"{function.name} takes the boolean {argument.arg} by position: put `*` before it",
                )


def plain_messages(text: str) -> Iterator[tuple[int, str]]:
    """A message that a program prints uses the usual words; docstrings have rules of their own."""
    turns = [*MESSAGE_TURNS, *((rf"\b{turn}\b", plain) for turn, plain in BANNED)]
    turns = [(turn, plain) for turn, plain in turns if re.search(turn, text, re.IGNORECASE)]
    if not turns:
        return
    tree = parsed(text)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            for turn, plain in turns:
                for found in re.finditer(turn, node.value, re.IGNORECASE):
                    yield node.lineno, f"{found.group()!r}: write {plain!r}"


def no_wall_clock(text: str) -> Iterator[tuple[int, str]]:
    """Time is an argument: a Clock is passed in."""
    if re.search(r"\b(time|datetime|date)\.(time|now|utcnow|today)|from (time|datetime) import", text):
        yield from _uses(parsed(text), WALL_CLOCK, "take a Clock")


def no_private_import(text: str) -> Iterator[tuple[int, str]]:
    """What a library keeps private changes with its version; ruff sees private attributes, not imports."""
    for found in re.finditer(r"^\s*from [\w.]*(\._\w| import .*\b_[A-Za-z]).*$", text, re.MULTILINE):
        yield text.count("\n", 0, found.start(1)) + 1, f"{found.group().strip()}: import what is public"


def no_waits(text: str) -> Iterator[tuple[int, str]]:
    """A test that sleeps or compares times is slow when it passes and wrong when the machine is."""
    if not re.search(r"\b(sleep|monotonic|perf_counter|Timer)", text):
        return
    tree = parsed(text)
    yield from _uses(tree, WAITS, "move a ManualClock, or wait for the event itself")
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[ast.Constant(value=0)]):
                pass  # lets others go on
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep")):
                yield node.lineno, "asyncio.sleep: wait for the event itself"


def no_private_patch(text: str) -> Iterator[tuple[int, str]]:
    """A test speaks to the public face: what it replaces in our packages or a library has a public name."""
    if not re.search(r"\.(set|del)attr\(", text):
        return
    for node in ast.walk(parsed(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=[_, ast.Constant(value=str(name)), *_]):
                if PRIVATE.match(name):
                    yield node.lineno, f"{name} is private: a refactoring that keeps behaviour breaks the test"
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=[ast.Constant(value=str(path)), *_]):
                if PRIVATE.match(path.rpartition(".")[2]):
                    yield node.lineno, f"{path} is private: a refactoring that keeps behaviour breaks the test"


def names_of_tests(text: str) -> Iterator[tuple[int, str]]:
    """The name of a test says its promise in a sentence that fits a line of a report."""
    for found in re.finditer(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE):
        if len(found[1]) > TEST_NAME_MAX:
            line = text.count("\n", 0, found.start()) + 1
            yield line, f"{found[1]} has more than {TEST_NAME_MAX} characters: the long story is its docstring"


def silence_has_a_reason(text: str) -> Iterator[tuple[int, str]]:
    """Whoever silences a tool names the rule and says why, in a second comment on the same line."""
    if all(_has_reason(found) for found in SILENCED.finditer(text)):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        found = SILENCED.search(token.string) if token.type == tokenize.COMMENT else None
        if found and not _has_reason(found):
            yield token.start[0], f"{found[1]} without a reason"


def _has_reason(found: re.Match[str]) -> bool:
    rest = CODES.match(found["rest"])
    return bool(rest and REASON.match(rest["reason"]))


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public_functions(node.body)
        elif isinstance(node, Function) and (not node.name.startswith("_") or node.name == "__init__"):
            yield node


def _is_boolean(annotation: ast.expr) -> bool:
    match annotation:
        case ast.Name(id="bool"):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_boolean(left) or _is_boolean(right)
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
            return _is_boolean(first)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=first):
            return _is_boolean(first)
    return False


def _uses(tree: ast.Module, banned: set[tuple[str, str]], instead: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name) if (
                owner,
                name,
            ) in banned:
                yield node.lineno, f"{owner}.{name}: {instead}"
            case ast.ImportFrom(module=owner, names=names):
                for alias in names:
                    if (owner, alias.name) in banned:
                        yield node.lineno, f"{owner}.{alias.name}: {instead}"
