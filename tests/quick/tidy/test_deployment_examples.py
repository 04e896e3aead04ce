"""The examples for systemd and Kubernetes fit the workers; `tests/real/programs/test_systemd.py` asks systemd.

Kubernetes' own schemas are not here: fields are checked that a deployment of these kinds must have, or that we promise.
"""

import re
from typing import Any, Final

import pytest
import yaml

from tests.support.paths import ROOT
from tests.support.servers.composing import SERVICES
from tests.support.servers.deploying import is_there, unknown_settings

EXAMPLES: Final = ROOT / "docs" / "how-to" / "examples"
SYSTEMD: Final = EXAMPLES / "systemd"
UNITS: Final = ("segmented-worker@.service", "segmented-beat.service")
MANIFESTS: Final[list[dict[str, Any]]] = [
    manifest
    for path in sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
DEPLOYMENTS: Final = {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == "Deployment"}
QUANTITY: Final = re.compile(r"\d+(m|Mi|Gi)?")


def unit_lines(name: str) -> dict[str, str]:
    """Return the settings of a unit; of one that is there twice the last."""
    lines = (SYSTEMD / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_ends_a_worker_in_order_and_starts_what_is_there(name: str) -> None:
    lines = unit_lines(name)
    assert lines["KillMode"] == "mixed"
    assert lines["EnvironmentFile"] == "/etc/segmented/worker.env"
    assert lines["User"] == "segmented"
    assert lines["Restart"] == "always"
    assert is_there(lines["ExecStart"].split())


def test_a_unit_gives_a_worker_as_long_to_end_as_compose_does() -> None:
    spans = [f"{unit_lines(name)['TimeoutStopSec']}s" for name in UNITS]
    assert spans == [SERVICES["worker"]["stop_grace_period"], SERVICES["beat"]["stop_grace_period"]]


def test_the_environment_file_holds_settings_that_are_read_and_no_password() -> None:
    lines = [line for line in (SYSTEMD / "worker.env").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    values = dict(line.split("=", 1) for line in lines)
    assert unknown_settings(values) == []
    assert {"SEGMENTED_URL", "SEGMENTED_BROKER", "SEGMENTED_DATABASE"} <= set(values)
    assert {password for value in values.values() for password in re.findall(r":(\w+)@", value)} == {"PASSWORD"}


def test_a_deployment_selects_its_own_pods_and_nobody_elses() -> None:
    for name in DEPLOYMENTS:
        spec = DEPLOYMENTS[name]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"]["app.kubernetes.io/component"] == name.removeprefix("segmented-")


def test_a_pod_is_no_root_has_limits_and_reads_its_addresses_from_the_secret() -> None:
    for name in DEPLOYMENTS:
        pod = DEPLOYMENTS[name]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        user = re.search(r"useradd .*--uid (\d+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
        assert user is not None
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == int(user[1])
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert [QUANTITY.fullmatch(each) is not None for each in container["resources"]["requests"].values()] == [
            True
        ] * 2
        assert QUANTITY.fullmatch(container["resources"]["limits"]["memory"])
        assert "envFrom" not in container
        assert {"name": "addresses", "secret": {"secretName": "segmented"}} in pod["volumes"]
        assert not container["image"].endswith(":latest")
        assert ":" in container["image"]


def test_no_service_of_the_cluster_writes_among_the_settings() -> None:
    for name in DEPLOYMENTS:
        assert DEPLOYMENTS[name]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_a_pod_starts_what_is_there_with_settings_that_are_read() -> None:
    for name in DEPLOYMENTS:
        [container] = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"]
        assert is_there(container["args"])
        assert unknown_settings(each["name"] for each in container.get("env", [])) == []
        [secret] = (each for each in MANIFESTS if each["kind"] == "Secret")
        [folder] = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "addresses")
        files = {each["name"]: each["value"] for each in container["env"] if each["name"].endswith("_FILE")}
        assert files == {f"SEGMENTED_{key.upper()}_FILE": f"{folder}/{key}" for key in secret["stringData"]}
        assert set(secret["stringData"]) == {"url", "broker", "database"}


def test_a_pod_is_asked_what_compose_asks_and_has_as_long_to_end() -> None:
    for name in DEPLOYMENTS:
        pod = DEPLOYMENTS[name]["spec"]["template"]["spec"]
        twin = SERVICES[name.removeprefix("segmented-")]
        for probe in ("startupProbe", "readinessProbe"):
            about = pod["containers"][0][probe]
            assert ["CMD", *about["exec"]["command"]] == twin["healthcheck"]["test"]
            assert about["timeoutSeconds"] <= about["periodSeconds"] or probe == "startupProbe"
        assert f"{pod['terminationGracePeriodSeconds']}s" == twin["stop_grace_period"]


def test_there_is_never_a_second_beat_during_a_rollout() -> None:
    spec = DEPLOYMENTS["segmented-beat"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_budget_is_for_the_workers() -> None:
    [budget] = (each for each in MANIFESTS if each["kind"] == "PodDisruptionBudget")
    assert budget["spec"]["selector"] == DEPLOYMENTS["segmented-worker"]["spec"]["selector"]
    assert budget["spec"]["maxUnavailable"] == 1


def test_nobody_connects_to_a_pod_and_it_connects_to_its_servers_alone() -> None:
    [policy] = (each["spec"] for each in MANIFESTS if each["kind"] == "NetworkPolicy")
    own = policy["podSelector"]["matchLabels"].items()
    assert all(own <= each["spec"]["template"]["metadata"]["labels"].items() for each in DEPLOYMENTS.values())
    assert (policy["policyTypes"], policy["ingress"]) == (["Ingress", "Egress"], [])
    assert [sorted(port["port"] for port in rule["ports"]) for rule in policy["egress"]] == [[53, 53], [6379], [5432]]
    [secret] = (each for each in MANIFESTS if each["kind"] == "Secret")
    ports = {int(port) for address in secret["stringData"].values() for port in re.findall(r":(\d+)(?:/|$|,)", address)}
    assert ports <= {6379, 5432}
