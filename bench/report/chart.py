#!/usr/bin/env python3
"""The chart of the README, from the results of runs on a GPU (bench/results).

usage: chart.py [--out FILE]     (docs/report/training.svg without it)
"""
import argparse
import pathlib
import sys

SOURCES = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCES / "bench" / "results"))

import tables  # noqa: E402
from svg import AXIS, Drawing  # noqa: E402

SYSTEMS = (("um", "demand paging", "#8a8a8a"), ("double_managed", "double buffering by hand", "#d08a2e"), ("auto", "deepum", "#2b5fa8"),
           (None, "no schedule takes less", "#3c8f5a"))


def chart():
    """Step time by budget, for each system beside what no schedule can beat."""
    p = tables.Program(tables.read("train")["programs"][0])
    d = Drawing(760, 330, 56, right=8, top=44, bottom=44)
    times = {budget: [p.run(s, budget)["median_ns"] / 1e6 if s else bound for s, _, _ in SYSTEMS] for budget, bound in zip(p.budgets, tables.TRAIN_BOUND)}
    resident = p.run("resident")["median_ns"] / 1e6
    up = d.y_axis(max(max(t) for t in times.values()) * 1.06, "time of a step [ms]")
    group = (d.x1 - d.x0) / len(times)
    bar = group / (len(SYSTEMS) + 1)
    for g, (budget, values) in enumerate(times.items()):
        for i, (value, (_, _, fill)) in enumerate(zip(values, SYSTEMS)):
            x = d.x0 + g * group + (i + 0.5) * bar
            d.rect(x, d.y1 - value * up, bar * 0.9, value * up, fill)
            d.text(x + bar * 0.45, d.y1 - value * up - 4, f"{value:.0f}", "middle")
        d.text(d.x0 + (g + 0.5) * group, d.y1 + 17, f"memory for {p.share(budget)} of the step", "middle")
    d.line(d.x0, d.y1 - resident * up, d.x1, d.y1 - resident * up, AXIS, 1, "4 3")
    d.line(d.x0, d.y1, d.x1, d.y1, AXIS)
    d.text((d.x0 + d.x1) / 2, d.y1 + 36, f"dashed: all of it fits, {resident:.1f} ms", "middle")
    x = d.x0
    for _, name, fill in SYSTEMS:
        d.rect(x, 14, 12, 12, fill)
        d.text(x + 17, 24, name)
        x += 40 + 6.9 * len(name)
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 330" width="760" height="330" role="img">'
            "<style>text{font:13px system-ui,sans-serif;fill:#1d232b}</style>"
            '<rect width="760" height="330" fill="#fff"/>' + "".join(d.parts) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=SOURCES / "docs" / "report" / "training.svg")
    parser.parse_args().out.write_text(chart(), encoding="utf-8")


if __name__ == "__main__":
    main()
