"""Links between documents lead somewhere, and their examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from airflow_mv_provider.definition_file import parse_file
from tests.documents import ROOT, blocks, documents

_CODE = re.compile(r"```.*?```|`[^`\n]*`", flags=re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    found = list[str]()
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        times = sum(each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None for each in found)
        found.append(f"{slug}-{times}" if times else slug)
    return set(found)


def dead_links(document: Path) -> list[str]:
    text = _CODE.sub("", document.read_text(encoding="utf-8"))
    dead = []
    for link in _LINK.findall(text):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert dead_links(document) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `code` heading\n[a](#one-code-heading) [b](#two) [c](other.md) [d](page.md#one-code-heading)\n"
    )

    assert dead_links(page) == ["#two", "other.md"]


@pytest.mark.parametrize(("where", "text"), [pytest.param(*each, id=each[0]) for each in blocks("yaml")])
def test_every_definition_of_an_example_is_valid(where: str, text: str) -> None:
    shown = yaml.safe_load(text)
    if "source" in shown or "guards" in shown or "errors" in shown:  # a part of a table
        table = {"name": "orders", "source": {"type": "delta", "path": "raw/orders"}, "key": ["id"]}
        shown = {"tables": [table | shown]}
    elif shown.keys() == {"dags"}:  # what is added to the example above it
        page, number = where.split()
        shown |= yaml.safe_load(dict(blocks("yaml"))[f"{page} {int(number) - 1}"])

    parse_file(yaml.safe_dump(shown, sort_keys=False), where=where)
