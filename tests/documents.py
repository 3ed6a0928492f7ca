"""The documents, and the examples in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def documents() -> list[Path]:
    return sorted(file for folder in (".", "docs", "benchmarks") for file in (ROOT / folder).glob("*.md"))


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the examples in a language, each with where it is."""
    found = []
    for page in documents():
        texts = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        found += [(f"{page.name} {number}", text) for number, text in enumerate(texts)]
    return found
