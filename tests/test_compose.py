"""What can be read off docker-compose.yaml: it cannot be started where no container engine runs."""

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docker-compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
SECRET = re.compile(r"PASSWORD|SECRET|FERNET|TOKEN|CONN$")


def test_compose_file_is_valid_by_the_specification() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"

    jsonschema.validate(COMPOSE, json.loads(schema.read_text(encoding="utf-8")))


def test_every_port_is_bound_to_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert ports
    assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_secret_is_written_into_the_file(service: str) -> None:
    environment = SERVICES[service].get("environment", {})

    secrets = {name: value for name, value in environment.items() if SECRET.search(name) and not name.endswith("_FILE")}

    assert [name for name, value in secrets.items() if not re.search(r"\$\{\w+:\?", value)] == []


def test_a_missing_secret_stops_compose_instead_of_defaulting() -> None:
    variables = set(re.findall(r"\$\{(\w+)", TEXT))

    required = set(re.findall(r"\$\{(\w+):\?", TEXT))

    assert {name for name in variables if SECRET.search(name) or name.endswith("_KEY")} == required


def test_the_script_that_writes_env_names_every_required_variable() -> None:
    script = (ROOT / "docker" / "make-env.sh").read_text(encoding="utf-8")

    written = set(re.findall(r"^(\w+)=\$\(", script, re.MULTILINE))

    assert written == set(re.findall(r"\$\{(\w+):\?", TEXT))


@pytest.mark.parametrize("service", SERVICES)
def test_every_server_has_a_health_check(service: str) -> None:
    runs_once = SERVICES[service].get("restart") == "no"

    assert runs_once or "test" in SERVICES[service]["healthcheck"]


def test_a_dependency_waits_for_health_or_completion() -> None:
    for name, service in SERVICES.items():
        for dependency, wait in service.get("depends_on", {}).items():
            expected = (
                "service_completed_successfully" if SERVICES[dependency].get("restart") == "no" else "service_healthy"
            )
            assert wait["condition"] == expected, (name, dependency)


def test_spark_and_airflow_run_from_one_image_and_share_the_warehouse() -> None:
    ours = {name: service for name, service in SERVICES.items() if name != "postgres"}

    assert {service["image"] for service in ours.values()} == {"airflow-mv-provider:dev"}
    assert [name for name, service in ours.items() if "warehouse:/opt/warehouse" not in service["volumes"]] == []


def test_one_service_builds_the_image() -> None:
    assert [name for name, service in SERVICES.items() if "build" in service] == ["airflow-init"]


@pytest.mark.parametrize("service", [name for name in SERVICES if name != "postgres"])
def test_a_command_that_is_not_airflows_goes_past_the_images_entrypoint(service: str) -> None:
    """The entrypoint passes on bash, python and airflow; it gives all else to `airflow` as its command."""
    command = SERVICES[service]["command"]

    program = "airflow" if isinstance(command, str) else command[0]
    assert program in ("bash", "python", "airflow") or SERVICES[service]["entrypoint"] == ["/usr/bin/dumb-init", "--"]


def test_image_is_given_every_file_that_the_wheel_is_built_from() -> None:
    copied = set(re.findall(r"^COPY \S+ (.+) \S+$", (ROOT / "docker" / "airflow.Dockerfile").read_text(), re.MULTILINE))
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]

    wanted = {*targets["wheel"]["packages"], *(path.split("/")[0] for path in targets["wheel"]["force-include"])}

    assert wanted <= {name for names in copied for name in names.split()}


def test_image_has_the_versions_of_the_constraints() -> None:
    dockerfile = (ROOT / "docker" / "airflow.Dockerfile").read_text(encoding="utf-8")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    for package in ("pyspark", "pyspark-client"):
        pin = next(line for line in constraints if line.startswith(f"{package}=="))
        assert f'"{pin}"' in dockerfile
    airflow = next(line for line in constraints if line.startswith("apache-airflow=="))
    assert f"ARG AIRFLOW_VERSION={airflow.partition('==')[2]}\n" in dockerfile
