"""The images, and the packages that are locked."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import segmented
from segmented.cli.main import DISTRIBUTION
from tests.support.paths import ROOT
from tests.support.servers.deploying import PINNED, STAGES

FOLDER: Final = ROOT / "requirements"
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: Final[dict[str, list[str]]] = PROJECT["project"]["optional-dependencies"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where packages are installed: a version of Python, and `sys.platform`."""

    python: str
    platform: str = "linux"

    def has(self, marker: Marker | None) -> bool:
        """Return whether a line with this marker is for this machine."""
        version = ".".join(self.python.split(".")[:2])
        here = {"python_full_version": self.python, "python_version": version, "sys_platform": self.platform}
        cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
        return marker is None or marker.evaluate({**here, **cpython})


def asked(machine: Machine, *extras: str) -> Iterator[Requirement]:
    """Yield each requirement of the project with these extras on others' packages."""
    for line in [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]:
        found = Requirement(line)
        if found.name == DISTRIBUTION:
            yield from asked(machine, *found.extras)
        elif machine.has(found.marker):
            yield found


def locked(name: str, machine: Machine) -> dict[str, str]:
    """Return the versions that a lock file has for a machine, by package. Each has a hash."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", (FOLDER / f"{name}.txt").read_text(encoding="utf-8")):
        if block.startswith("#"):
            continue
        lines = [line.strip().removesuffix("\\").strip() for line in block.splitlines()]
        one = Requirement(lines[0])
        (pin,) = one.specifier
        assert pin.operator == "=="
        assert len(lines) > 1
        assert [line for line in lines[1:] if not re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line)] == []
        if machine.has(one.marker):
            assert canonicalize_name(one.name) not in found
            found[canonicalize_name(one.name)] = pin.version
    return found


def outside(versions: dict[str, str], requirements: Iterator[Requirement]) -> list[str]:
    """Return the requirements that these versions do not meet."""
    return [
        str(one)
        for one in requirements
        if not one.specifier.contains(versions.get(canonicalize_name(one.name), "0"), prereleases=True)
    ]


FINAL: Final = ("worker", "locust")


def test_packages_are_installed_with_their_hashes_and_before_any_source() -> None:
    text = "\n".join(STAGES.values())
    installs = re.findall(r"pip\S* (?:--python \S+ )?install .*", text)
    assert len(installs) == 5
    assert [
        line for line in installs if "--require-hashes --only-binary :all:" not in line and "--no-index" not in line
    ] == []
    for name in ("worker-packages", "locust-packages"):
        steps = STAGES[name].splitlines()
        assert re.findall(r"COPY (\S+)", STAGES[name]) == [f"requirements/{name.split('-')[0]}.txt", "--from=wheel"]
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


MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
MACHINES: Final = [
    Machine(f"3.{minor}.{patch}", platform)
    for minor, patch in ((11, 2), (11, 9), (12, 1), (13, 16), (14, 0))
    for platform in ("linux", "darwin")
]
IMAGE: Final = Machine("3.13.16")
IMAGES: Final = {
    "worker": ("cli", "workers", "postgres", "fast"),
    "locust": ("cli", "workers", "postgres", "fast", "bench"),
}


def test_the_lock_has_each_required_package_in_its_range_and_with_hashes() -> None:
    for machine in MACHINES:
        assert outside(locked("dev", machine), asked(machine, *EXTRAS)) == []  # else: `make locked`


def test_the_images_and_the_build_have_the_versions_of_the_lock() -> None:
    everywhere = locked("dev", IMAGE)
    for name in ("worker", "locust", "build"):
        found = locked(name, IMAGE)
        assert {package: version for package, version in found.items() if everywhere[package] != version} == {}


def test_an_image_has_each_package_of_its_extras() -> None:
    assert {name: outside(locked(name, IMAGE), asked(IMAGE, *extras)) for name, extras in IMAGES.items()} == {
        "worker": [],
        "locust": [],
    }


def test_what_builds_the_package_is_locked_too() -> None:
    (backend,) = (Requirement(line) for line in PROJECT["build-system"]["requires"])
    (of_dev,) = (one for one in map(Requirement, EXTRAS["dev"]) if one.name == backend.name)
    assert of_dev.specifier == backend.specifier
    for machine in MACHINES:
        assert set(locked("dev", machine)) > {backend.name, "editables"}
    assert outside(locked("build", IMAGE), iter([backend])) == []


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    lines = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], *chain(*EXTRAS.values())]
    bounds = {
        line: sorted(bound.operator for bound in Requirement(line).specifier)
        for line in lines
        if not line.startswith("segmented-locks[")
    }
    assert len(bounds) > 50
    assert {line: found for line, found in bounds.items() if found != ["<", ">="]} == {}


def test_there_are_five_lock_files_and_none_names_a_host() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert set(texts) == {"build.txt", "dev.txt", "locust.txt", "uv.txt", "worker.txt"}
    assert [name for name, text in texts.items() if "://" in text or "--index" in text or "--find-links" in text] == []


def test_make_installs_what_is_locked_and_nothing_else() -> None:
    installs = re.findall(r"\t.*(?:pip install|\$\(INSTALL\)) (.+)", MAKEFILE)
    unlocked = [options for options in installs if "--require-hashes" not in options]
    assert unlocked == [
        "--quiet --python $$home/bin/python --editable '.[dev]' && \\",  # test-pythons: the ranges, on purpose
        "--no-deps --no-build-isolation --editable .",
    ]
    assert "pip install" not in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
