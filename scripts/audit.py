"""Ask whether a version of constraints.txt has a known vulnerability: part of `make check`.

pip-audit asks a vulnerability service on the network: PyPI's own, or OSV. A mirror of a package registry is none: it
answers "not found" for each package, of which pip-audit makes "no known vulnerabilities". So a service is believed only
after it has answered for one package, and one line states what was audited, or that nothing was.
"""

from __future__ import annotations

import json
import subprocess  # nosec B404  # to start pip-audit, without a shell
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PINS = Path(__file__).resolve().parent.parent / "constraints.txt"
SERVICES = ("pypi", "osv")
PATIENCE_S = "10"
# Known and accepted, each with its reason: {"GHSA-...": "we never parse XML from others"}
ACCEPTED: dict[str, str] = {}


@dataclass(frozen=True)
class Answer:
    """A service's answer: the number of packages that it knows, those that it does not, and vulnerable ones."""

    audited: int
    unknown: tuple[str, ...]
    problems: tuple[str, ...]


def understood(document: Mapping[str, Any], accepted: Mapping[str, str]) -> Answer:
    """Return the answer in pip-audit's JSON."""
    packages = document.get("dependencies", [])
    problems = [
        f"{package['name']} {package['version']}: {found['id']}, "
        f"fixed in {', '.join(found['fix_versions']) or 'no version yet'}"
        for package in packages
        for found in package.get("vulns", [])
        if not {found["id"], *found.get("aliases", [])} & accepted.keys()
    ]
    unknown = tuple(package["name"] for package in packages if "vulns" not in package)
    return Answer(len(packages) - len(unknown), unknown, tuple(problems))


def ask(service: str, pins: Path) -> Answer:
    """Return a service's answer about pinned packages; that it knows none if it does not answer."""
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", PATIENCE_S, "--format", "json"]
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, *options, "-r", str(pins)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # nosec B603  # our own words alone
    try:
        return understood(json.loads(done.stdout), ACCEPTED)
    except ValueError:
        return Answer(0, (), ())


def main() -> int:
    """Audit what is pinned; 1 if something is vulnerable, 0 also when no service can be reached."""
    with tempfile.TemporaryDirectory() as place:
        one = Path(place) / "one.txt"
        one.write_text(PINS.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
        service = next((each for each in SERVICES if ask(each, one).audited), None)
    if service is None:
        print(f"Dependency audit: NOT DONE, no vulnerability service answers ({', '.join(SERVICES)}).")
        return 0
    found = ask(service, PINS)
    print(f"Dependency audit by {service}: {found.audited} packages audited, {len(found.problems)} problems.")
    print("".join(f"  {problem}\n" for problem in found.problems), end="")
    if found.unknown:
        print(f"  Not audited, unknown to {service}: {', '.join(found.unknown)}")
    return 1 if found.problems or not found.audited else 0


if __name__ == "__main__":
    sys.exit(main())
