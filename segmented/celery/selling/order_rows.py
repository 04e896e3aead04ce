"""The rows of an orders file with their lines: of a CSV in any encoding, with any delimiter, or of an Excel file."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
import zipfile
import zlib
from contextlib import closing
from datetime import date, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from xml.etree.ElementTree import ParseError

from segmented.celery.selling.order_formats import Reading, is_unquoted
from segmented.errors import InvalidInput
from segmented.files import MIB, bounded_lines
from segmented.imports import needs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from io import BufferedReader
    from pathlib import Path


LARGER: Final = ": allow more with --size-max MIB"
GZIP_MAGIC: Final = b"\x1f\x8b"
ZIP_MAGIC: Final = b"PK\x03\x04"
OLE_MAGIC: Final = b"\xd0\xcf\x11\xe0"
"""Begins a file of Excel before 2007."""
MARKS: Final = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark begins it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
BYTE_ORDER_MARK: Final = "\ufeff"
DELIMITERS: Final = (",", ";", "\t", "|")
NAMED: Final = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}
EXACT_MAX: Final = 10**15
"""Excel keeps 15 digits of a number."""
_SEPARATOR_LINE: Final = re.compile(r'\s*"?sep=(.)"?[,;\s]*', re.IGNORECASE | re.DOTALL)
_BROKEN: Final = (
    zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError, ParseError, zlib.error,
)  # fmt: skip

Row = tuple[int, list[str]]


def read_rows(path: Path, reading: Reading) -> Generator[Row]:
    """Yield each non-blank row with its line, its fields without blanks around them. Raises InvalidInput."""
    delimiter, encoding, size_max = _one_character(reading.delimiter), _known(reading.encoding), reading.size_max
    try:
        with path.open("rb") as raw:
            start = raw.peek(4)[:4]
            if start.startswith(ZIP_MAGIC):
                yield from _excel(path, raw, reading)
                return
            _check_text(path, start, reading.sheet)
            with gzip.GzipFile(fileobj=raw) if start.startswith(GZIP_MAGIC) else raw as unpacked:
                yield from _csv(path, _lines(path, unpacked, size_max, encoding), delimiter)
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{path} is not a whole gzip file: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error


def _one_character(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    found = NAMED.get(delimiter.casefold(), delimiter)
    if len(found) != 1 or found in '"\r\n':
        raise InvalidInput(f"--delimiter {delimiter!r} is not one character, nor one of {', '.join(NAMED)}")
    return found


def _known(encoding: str | None) -> str | None:
    if encoding is None:
        return None
    try:
        "".encode(encoding)  # refuses a codec that is not for text
    except (LookupError, ValueError) as error:
        message = f"--encoding {encoding!r} is not a text encoding that Python knows: utf-8, cp1252 and utf-16 are"
        raise InvalidInput(message) from error
    return codecs.lookup(encoding).name


def _check_text(path: Path, start: bytes, sheet: str | None) -> None:
    if start.startswith(OLE_MAGIC):
        raise InvalidInput(f"{path} is an Excel file of the old kind, .xls: save it as .xlsx or CSV")
    if sheet is not None:
        raise InvalidInput(f"{path} is not an Excel file, so it has no --sheet {sheet!r}")


def _csv(path: Path, lines: Iterator[str], delimiter: str | None) -> Iterator[Row]:
    before, first = 0, ""
    for first in lines:  # the first line with content, which is the header
        if (said := _SEPARATOR_LINE.fullmatch(first)) is not None:
            delimiter = delimiter or said[1]
        elif first.strip():
            break
        before += 1
    else:
        return
    delimiter = delimiter or max(
        DELIMITERS, key=lambda one: len(next(csv.reader(first.splitlines()[:1], delimiter=one), []))
    )
    is_plain = delimiter == "\t" and is_unquoted(first.split("\t"))
    reader = csv.reader(
        chain([first], lines),
        delimiter=delimiter,
        strict=True,
        quoting=csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL,
    )
    kind = "comma-separated values" if delimiter == "," else f"values separated by {delimiter!r}"
    while True:
        line = before + reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InvalidInput(f"{path}, line {line}: not a row of {kind}: {error}") from error
        if row is None:
            return
        if any(field.strip() for field in row):
            yield line, [field.strip() for field in row]


def _lines(path: Path, raw: BufferedReader | gzip.GzipFile, size_max: int, encoding: str | None) -> Iterator[str]:
    start = raw.peek(4)[:4]
    name = encoding or next((name for mark, name in MARKS.items() if start.startswith(mark)), "utf-8")
    is_wide = len("\n".encode(name)) > 1 or b"\n" not in "\n".encode(name)
    text = io.TextIOWrapper(raw, name, newline="") if is_wide else None
    number = 1
    try:
        lines = raw if text is None else _InUtf8(text)
        for number, line in bounded_lines(lines, path, size_max=size_max, of="orders", cure=LARGER):
            decoded = line.decode(name if text is None else "utf-8")
            if "\0" in decoded and encoding is None and number == 1:
                raise InvalidInput(f"{path}, line 1: it has NUL characters: if it is UTF-16, add --encoding utf-16-le")
            yield decoded.removeprefix(BYTE_ORDER_MARK) if number == 1 else decoded
    except UnicodeDecodeError as error:
        said = "UTF-8: name its encoding, as --encoding cp1252" if name == "utf-8" and encoding is None else name
        raise InvalidInput(f"{path}, line {number}: byte 0x{error.object[error.start]:02x} is not {said}") from error
    except UnicodeError as error:  # of codecs that name no byte
        raise InvalidInput(f"{path}, line {number}: it is not {name}: {error}") from error
    finally:
        if text is not None:
            text.detach()  # the file is its opener's to close


class _InUtf8(NamedTuple):
    """The lines in UTF-8 of a text file whose line ends are not those of ASCII."""

    text: io.TextIOWrapper

    def readline(self, size: int, /) -> bytes:
        return self.text.readline(size).encode("utf-8", "surrogatepass")


def _excel(path: Path, raw: BufferedReader, reading: Reading) -> Iterator[Row]:
    try:
        import openpyxl  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{needs(f'{path} is an Excel file, which', 'openpyxl')}; or save it as CSV") from error
    try:
        _check_size(path, raw, reading.size_max)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts that it does not read, such as rules for filling in
            book = openpyxl.load_workbook(raw, read_only=True, data_only=True)
            with closing(book):
                chosen = _sheet(path, {one.title: one for one in book.worksheets}, reading.sheet)
                width = 0
                for line, row in enumerate(chosen.iter_rows(values_only=True), start=1):
                    fields = [_text(value) for value in row]
                    if any(fields):
                        width = width or len(fields)
                        yield line, fields + [""] * (width - len(fields))  # a row may lack its last cells
    except InvalidInput:
        raise
    except _BROKEN as error:
        message = f"{path} is a zip file, but not an Excel file that can be read: {type(error).__name__}"
        raise InvalidInput(message) from error


def _check_size(path: Path, raw: BufferedReader, size_max: int) -> None:
    with zipfile.ZipFile(raw) as packed:
        size = sum(info.file_size for info in packed.infolist())
    if size > size_max * MIB:
        raise InvalidInput(f"{path} is larger than {size_max:,} MiB, unpacked: allow more with --size-max MIB")


def _sheet(path: Path, sheets: dict[str, Any], wanted: str | None) -> Any:  # noqa: ANN401  # openpyxl has no types
    if not sheets:
        raise InvalidInput(f"{path} has no sheet with cells, only charts: save the sheet of the orders as .xlsx or CSV")
    for one in sheets.values():
        one.reset_dimensions()  # some programs write wrong ones
    named = ", ".join(map(repr, sheets))
    if wanted is not None:
        if wanted not in sheets:
            raise InvalidInput(f"{path} has no sheet {wanted!r}: its sheets are {named}")
        return sheets[wanted]
    filled = [one for one in sheets.values() if any(any(row) for row in one.iter_rows(max_row=5, values_only=True))]
    if len(filled) > 1:
        raise InvalidInput(f"{path} has {len(filled)} sheets, {named}: name one with --sheet")
    return filled[0] if filled else next(iter(sheets.values()))


def _text(value: object) -> str:
    """Return a cell as CSV would have it; a number beyond 15 digits has lost some, and is shown so."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case int() | float() if abs(value) >= EXACT_MAX:
            return f"{value:.14E}"
        case float() if value.is_integer():
            return str(int(value))
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
    return str(value).strip()
