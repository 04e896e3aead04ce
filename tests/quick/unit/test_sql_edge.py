"""How the errors of drivers are read that the suite does not install."""

from __future__ import annotations

import sqlalchemy as sa

from segmented.locks.sql_edge import code_of, said


def test_the_fields_of_pg8000_are_read() -> None:
    fields = {"S": "ERROR", "V": "ERROR", "C": "40001", "M": "could not serialize access", "F": "x.c", "R": "y"}
    error = sa.exc.ProgrammingError("SELECT 1", {}, Exception(fields))
    assert (code_of(error), said(error)) == ("40001", "could not serialize access")


def test_an_error_of_pg8000_without_fields_has_no_code() -> None:
    error = sa.exc.InterfaceError("SELECT 1", {}, Exception("network error"))
    assert (code_of(error), said(error)) == (None, "network error")
