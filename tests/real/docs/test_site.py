"""The site of `make site`: built without a warning, four doors, a reference of the API, and contents for programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as `make site` does: links and anchors that lead nowhere are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_four_doors_lead_to_a_running_example_in_one_click(site: Path) -> None:
    doors = text(site / "index.html").partition('<div class="grid cards">')[2].partition("</div>")[0]
    first_links = [re.findall(r'href="([^"#]+)"', door)[0] for door in doors.split("</li>")[:-1]]
    assert first_links == [
        "tutorial/first-sale.html",
        "how-to/use-a-lock.html",
        "how-to/run-a-task-once.html",
        "how-to/run-the-demo.html",
    ]
    assert [page for page in first_links if 'class="highlight"' not in text(site / page)] == []


def test_the_reference_of_the_api_comes_from_signatures_and_docstrings(site: Path) -> None:
    reference = text(site / "segmented.html")
    assert 'id="segmented.Pool.reserve"' in reference
    assert "The stock of one sku, split over segments with one lock each." in reference


def test_every_page_can_be_searched_and_asks_no_other_server(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "results" not in page.parts]
    assert [page for page in pages if 'data-md-component="search"' not in text(page)] == []
    fetched = re.compile(
        r'<(?:script|img|source)[^>]+(?:src|srcset)="https?:|<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="https?:'
    )
    assert [page for page in pages if fetched.search(text(page))] == []


def test_contents_for_programs_lead_to_the_text_of_each_page(site: Path) -> None:
    contents = text(site / "llms.txt")
    assert contents.startswith("# segmented\n\n> Sells a limited stock fast")
    linked = set(re.findall(r"\]\(([^)#]+)", contents))
    assert linked == set(re.findall(r"\]\(([^)#]+)", text(ROOT / "docs/index.md")))
    assert [page for page in linked if not (site / page).read_bytes()] == []
