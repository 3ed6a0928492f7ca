"""Find in an error of Spark Connect's client why the server could not be used."""

from __future__ import annotations

import re

_MAX_LENGTH = 300


def of_refusal(text: str) -> tuple[str, str | None]:
    """Return what is wrong, in one line, and what to do about it if that is known.

    text : of the error; what gRPC reports is a line of its own in the middle of it
    """
    found = re.search(r'details = "(.*)"', text)
    message = (found.group(1) if found else text.splitlines()[0])[:_MAX_LENGTH]
    if "WRONG_VERSION_NUMBER" in text:
        hint = "A client that has a token uses TLS, unless the address is sc://localhost: use that name, or no token."
        return f"it does not speak TLS ({message})", hint
    return message, None
