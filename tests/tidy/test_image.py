"""The images: from the wheel and locked packages, without what builds them, and with the version that they hold."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import segmented
from segmented.cli.main import DISTRIBUTION
from tests.support.paths import ROOT
from tests.support.servers.deploying import PINNED, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FINAL: Final = ("worker", "locust")
EXTRAS: Final = {
    "worker": ("cli", "workers", "postgres", "fast"),
    "locust": ("cli", "workers", "postgres", "fast", "bench"),
}
PYTHON: Final = {"python_full_version": "3.13.16", "python_version": "3.13", "sys_platform": "linux"}


def wanted(extra: str) -> Iterator[Requirement]:
    """Each requirement of an extra on others' packages, with those of our extras that it names."""
    for line in PROJECT["project"]["optional-dependencies"][extra]:
        found = Requirement(line)
        if found.name == DISTRIBUTION:
            for name in found.extras:
                yield from wanted(name)
        elif found.marker is None or found.marker.evaluate(PYTHON):
            yield found


def locked(name: str) -> dict[str, str]:
    """The versions in a lock file, by package. Each has a hash."""
    text = (ROOT / "docker" / f"{name}.txt").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", text):
        if not block.startswith("#"):
            package, _, rest = block.partition("==")
            assert "--hash=sha256:" in rest
            found[canonicalize_name(package)] = rest.split()[0]
    return found


@pytest.mark.parametrize("name", EXTRAS)
def test_the_locked_packages_are_those_that_the_project_asks_for(name: str) -> None:
    versions = locked(name)
    asked = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    asked += [requirement for extra in EXTRAS[name] for requirement in wanted(extra)]
    wrong = [
        str(one)
        for one in asked
        if not one.specifier.contains(versions.get(canonicalize_name(one.name), "0"), prereleases=True)
    ]
    assert wrong == []  # else: `make locked`


def test_what_builds_the_wheel_is_locked_too() -> None:
    (backend,) = (Requirement(line) for line in PROJECT["build-system"]["requires"])
    assert backend.specifier.contains(locked("build")[backend.name])


def test_packages_are_installed_with_their_hashes_and_before_any_source() -> None:
    text = "\n".join(STAGES.values())
    installs = re.findall(r"pip\S* (?:--python \S+ )?install .*", text)
    assert len(installs) == 5
    assert [
        line for line in installs if "--require-hashes --only-binary :all:" not in line and "--no-index" not in line
    ] == []
    for name in ("worker-packages", "locust-packages"):
        steps = STAGES[name].splitlines()
        assert re.findall(r"COPY (\S+)", STAGES[name]) == [f"docker/{name.split('-')[0]}.txt", "--from=wheel"]
        assert next(i for i, step in enumerate(steps) if "--require-hashes" in step) < next(
            i for i, step in enumerate(steps) if "--from=wheel" in step
        )


def test_the_worker_has_no_bench_and_no_image_has_the_sources_or_pip() -> None:
    assert re.findall(r"COPY (.+)", STAGES["worker"]) == [
        "--from=worker-packages /opt/segmented /opt/segmented",
        "workers workers",
    ]
    assert re.findall(r"COPY (.+)", STAGES["locust"]) == [
        "--from=locust-packages /opt/segmented /opt/segmented",
        "bench bench",
    ]
    assert [STAGES[name].split()[1] for name in (*FINAL, "image")] == ["image", "image", "base"]
    assert "RUN" not in STAGES["worker"] + STAGES["locust"]


@pytest.mark.parametrize("name", FINAL)
def test_an_image_does_not_run_as_root(name: str) -> None:
    assert STAGES[name].count("\nUSER 10001\n") == 1


def test_the_base_is_pinned_and_named_in_a_label() -> None:
    base = STAGES["base"].split()[1]
    assert PINNED.fullmatch(base)
    assert f'base.name="docker.io/library/{base}"' in STAGES["image"]


def test_the_label_and_the_tags_of_the_examples_name_the_version() -> None:
    assert f'image.version="{segmented.__version__}"' in STAGES["image"]
    folder = ROOT / "docs" / "how-to"
    manifests = [
        manifest
        for path in sorted((folder / "examples" / "kubernetes").glob("*.yaml"))
        for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    pods = [each["spec"]["template"]["spec"] for each in manifests if each["kind"] == "Deployment"]
    tags = {container["image"].rpartition(":")[2] for pod in pods for container in pod["containers"]}
    tags |= set(re.findall(r"segmented-worker:(\S+)", (folder / "run-on-kubernetes.md").read_text(encoding="utf-8")))
    assert tags == {segmented.__version__}
