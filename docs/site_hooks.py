"""What `make site` adds to the pages: the navigation, the API pages and `llms.txt`, from where each is written once."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PACKAGES: Final = (
    "segmented",
    *(f"segmented.{area}" for area in ("locks", "stock", "orders", "dedup", "errors", "models", "testing")),
)
LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")


def on_config(config: MkDocsConfig) -> None:
    """Make the navigation from the headings and links of docs/index.md. A page stands where it is named first."""
    nav: list[dict[str, object]] = [{"Documentation": "index.md"}]
    listed: set[str] = set()
    section: list[dict[str, str]] | None = None
    for line in (Path(config.docs_dir) / "index.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = []
            nav.append({line.removeprefix("## "): section})
        for name, page in LINK.findall(line):
            if section is not None and page not in listed:
                listed.add(page)
                section.append({name[0].upper() + name[1:]: page})
    config.nav = [*nav, {"API": [{package: f"{package}.md"} for package in PACKAGES]}, {"Glossary": "glossary.md"}]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add a page for each package that programs import from, with a directive for each of its public names."""
    for package in PACKAGES:
        lead = f"# {package}\n\n::: {package}\n    options: {{members: false, show_root_heading: false}}"
        names = [f"::: {package}.{name}" for name in sorted(import_module(package).__all__)]
        files.append(File.generated(config, f"{package}.md", content="\n\n".join([lead, *names])))


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`, the contents with a summary, and beside each page the Markdown that it was made from."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    lines = (docs / "index.md").read_text(encoding="utf-8").splitlines()[1:]
    contents = "\n".join(line for line in lines if not line.lstrip().startswith("<"))
    (site / "llms.txt").write_text(
        f"# {config.site_name}\n\n> {config.site_description}\n{contents}\n", encoding="utf-8"
    )
    for page in docs.rglob("*.md"):
        (site / page.relative_to(docs)).write_bytes(page.read_bytes())
