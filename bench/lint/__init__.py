"""Checks a results file against the 26 rules of an honest benchmark."""

from __future__ import annotations

from bench.lint.rules import RULES, check, may_publish
from bench.lint.subject import RuleFinding

__all__ = ["RULES", "RuleFinding", "check", "may_publish"]
