"""Renders a page from a template of this folder: one self-contained file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES: Final = Path(__file__).parent


def rendered(template: str, told: Mapping[str, Any]) -> str:
    """Return the HTML. Values are escaped; a name that the template needs and that is missing is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(told)
