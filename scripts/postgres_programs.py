"""Where PostgreSQL's own programs are, and as whom they run: for `make up` and for the tests' server."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path
from typing import Any


class PostgresMissingError(Exception):
    """What stands in the way, and what to do about it."""


def program(name: str) -> str:
    """Return the path of the newest `initdb`, `postgres`, ...; Debian keeps them off PATH.

    raises : PostgresMissingError
    """
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    path = os.pathsep.join([*map(str, newest_first), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        raise PostgresMissingError(f"PostgreSQL is not installed ({name} not found): run `make setup`, or install it.")
    return found


def account() -> pwd.struct_passwd | None:
    """Return as whom its programs run, None for whoever runs us: PostgreSQL refuses to be root.

    raises : PostgresMissingError
    """
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        problem = "PostgreSQL refuses to run as root, and there is no user `postgres`: create it."
        raise PostgresMissingError(problem) from None


def as_account() -> dict[str, Any]:
    """Return the arguments of `subprocess` that run a program so, with an environment of its own."""
    plain: dict[str, Any] = {"env": {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}, "cwd": "/"}
    owner = account()
    return plain if owner is None else plain | {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def own(directory: Path) -> None:
    """Give a directory to whoever PostgreSQL's programs run as."""
    owner = account()
    if owner is not None:
        os.chown(directory, owner.pw_uid, owner.pw_gid)
