"""How JVMs are in UTC, whose zone decides times of some formats (`spark.zone`), and speak English (`spark.errors`)."""

from __future__ import annotations

from collections.abc import Mapping

_ROLES = ("driver", "executor")

# Confs for administrators: a user's own extraJavaOptions come after them.
IN_UTC = {f"spark.{role}.defaultJavaOptions": "-Duser.timezone=UTC" for role in _ROLES}
# Of JVMs that this package starts. JDBC drivers translate their messages, and some errors are known by words alone.
IN_UTC_AND_ENGLISH = {name: f"{options} -Duser.language=en" for name, options in IN_UTC.items()}


def in_english(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which the C library's messages are English, such as that of a full disk.

    How it encodes texts, names of files among them, stays the same.
    """
    found = dict(environment)
    if everything := found.pop("LC_ALL", ""):  # it would override what follows
        found |= {"LANG": everything, "LC_CTYPE": everything}
    return found | {"LC_MESSAGES": "C"}
