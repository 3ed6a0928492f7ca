"""Draw the record of a benchmark: every case a group of bars, one for each way.

.venv/bin/python -m benchmarks.plot benchmarks/lineitem-scale-1.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

COLOURS = {"read": "#9aa5b1", "overwrite": "#d08770", "merge": "#b48ead", "merge_if": "#d9a5c4", "refresh": "#2e7d6b"}


def plot(record: Path) -> Path:
    """Write a plot beside `record`; return its path."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = json.loads(record.read_text())
    cases = found["cases"]
    figure, axes = plt.subplots(figsize=(9, 0.62 * len(cases) + 1.6), layout="constrained")
    measured = [way for way in COLOURS if any(way in case["seconds"] for case in cases)]
    height = 0.8 / len(measured)
    for index, way in enumerate(measured):
        offset = (index - (len(measured) - 1) / 2) * height
        places = [row + offset for row, case in enumerate(cases) if way in case["seconds"]]
        widths = [case["seconds"][way] for case in cases if way in case["seconds"]]
        bars = axes.barh(places, widths, height, color=COLOURS[way], label=way.replace("_", " "))
        if way == "refresh":
            axes.bar_label(bars, fmt="%.1f s", padding=3, fontsize=7)
    axes.set_yticks(range(len(cases)), [f"{case['setting']}: {case['case']}" for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds, medians of {found['runs']}, scale {found['scale']:g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(measured))
    path = record.with_suffix(".svg")
    figure.savefig(path)
    return path


if __name__ == "__main__":
    print(plot(Path(sys.argv[1])))
