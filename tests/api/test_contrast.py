"""The colours of the page's pictures and words, in each theme: contrast as WCAG 2.2 asks (1.4.3 and 1.4.11)."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import airflow_mv_provider.api

STYLES = (Path(airflow_mv_provider.api.__file__).parent / "static/page.css").read_text(encoding="utf-8")
# A block for each way to come to a theme: the light one is the first, the dark ones contain all colours again.
THEMES = re.findall(r":root(?:\[data-theme=\"dark\"\]|:not\(\[data-theme=\"light\"\]\))? {([^}]*--bg[^}]*)}", STYLES)
PICTURES = ("refreshing", "merging", "cleanup", "ins", "upd", "del", "main", "staging", "quiet", "text", "bad")
WORDS = {
    "text": ("bg", "card", "sunken"),
    "quiet": ("bg", "card", "sunken"),
    "link": ("bg", "card", "sunken"),
    **{tone: (f"{tone}-bg", "card") for tone in ("good", "bad", "warn", "busy", "plain")},
    **{f"{phase}-text": (f"{phase}-bg",) for phase in ("merging", "cleanup")},
    "on-accent": ("accent",),
}


def colours(block: str) -> dict[str, float]:
    """Return the luminance of each colour that a block names."""
    return {name: luminance(value) for name, value in re.findall(r"--([\w-]+): ([^;]+);", block)}


def luminance(value: str) -> float:
    if value.startswith("#"):
        return linear(*(channel(int(value[i : i + 2], 16) / 255) for i in (1, 3, 5)))
    lightness, chroma, hue = map(float, re.fullmatch(r"oklch\(([\d.]+) ([\d.]+) ([\d.]+)\)", value).groups())
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return linear(
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def channel(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def linear(red: float, green: float, blue: float) -> float:
    red, green, blue = (min(max(each, 0.0), 1.0) for each in (red, green, blue))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_all_ways_to_the_dark_theme_have_the_same_colours():
    assert len(THEMES) == 3
    assert colours(THEMES[1]) == colours(THEMES[2])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_bars_are_seen_on_what_they_are_drawn_on(theme):
    known = colours(THEMES[theme])

    found = {
        (name, ground): round(contrast(known[name], known[ground]), 2)
        for name in PICTURES
        for ground in ("card", "sunken")
    }

    assert {each: value for each, value in found.items() if value < 3} == {}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_are_read_on_what_they_are_written_on(theme):
    known = colours(THEMES[theme])

    found = {(n, g): round(contrast(known[n], known[g]), 2) for n, grounds in WORDS.items() for g in grounds}

    assert {each: value for each, value in found.items() if value < 4.5} == {}
