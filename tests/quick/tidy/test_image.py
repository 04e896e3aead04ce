"""The images: from the wheel and locked packages, without what builds them, and with the version that they hold."""

from __future__ import annotations

import re
from typing import Final

import pytest
import yaml

import segmented
from tests.support.paths import ROOT
from tests.support.servers.deploying import PINNED, STAGES

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
