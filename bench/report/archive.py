#!/usr/bin/env python3
"""Draws the results of many runs as one HTML page that needs nothing else: no network, no script.

usage: archive.py --out FILE [--title TEXT] FILE...

Takes, in any order, what these programs write: train_gpt --json, deepum-replay --json, deepum-bench-* --json, and
bench/replay/study.py (results.json). A file that is none of them is named on the page. Needs matplotlib. One run with
its trace is another page: report.py.
"""
import argparse
import collections
import io
import json
import pathlib
import re
import statistics
import sys

try:
    import matplotlib
except ImportError as missing:
    raise SystemExit(f"archive.py: needs matplotlib ({missing}); Debian and Ubuntu: apt-get install python3-matplotlib")

matplotlib.use("agg")  # measures text; pages get SVG
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.transforms import Bbox  # noqa: E402
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, ScalarFormatter  # noqa: E402

from page import Page  # noqa: E402

MIB = 1 << 20
WARM_UP = 2  # steps that tables are not yet filled in

ORDER = ("ideal", "resident", "um", "once", "double_managed", "double_pinned", "lru", "deepum", "auto", "oracle")
COLOURS = {"ideal": "#3c8f5a", "resident": "#3c8f5a", "um": "#8a8a8a", "once": "#b9a48f", "double_managed": "#b05a7a",
           "double_pinned": "#8c2f4f", "lru": "#4f9aa0", "deepum": "#d08a2e", "auto": "#2b5fa8", "oracle": "#7a4f9a"}
BUDGET_COLOURS = ("#1f4e8c", "#5b8fc7", "#a9c6e6", "#d9a441", "#8c5a1f")
CURVE_COLOURS = ("#2b5fa8", "#d08a2e", "#3c8f5a", "#7a4f9a", "#b05a7a", "#4f9aa0")
NARROW = 3.9  # inches: read on a phone without zooming


# --- what the files hold ----------------------------------------------------------------------------------------------


class Run:
    """One policy with one budget. `steps` is a list of numbers by name, or empty where only a median is known."""

    def __init__(self, policy, budget, step_ns, steps=(), lookahead=None, first_measured=WARM_UP):
        self.policy, self.budget, self.step_ns, self.steps, self.lookahead = policy, budget, step_ns, list(steps), lookahead
        self.first_measured = first_measured

    def mean(self, key):
        """Of the steps that count; None where the runs do not say."""
        values = [s[key] for s in (self.steps[self.first_measured:] or self.steps) if s.get(key) is not None]
        return sum(values) / len(values) if values else None


class Group:
    """Runs that may be compared: of one program on one device."""

    def __init__(self, title, detail, footprint=None):
        self.title, self.detail, self.footprint, self.runs = title, detail, footprint, []

    def budgets(self):
        return sorted({r.budget for r in self.runs if r.budget}, reverse=True)

    def policies(self):
        return sorted({r.policy for r in self.runs}, key=rank)


def rank(policy):
    return (ORDER.index(policy) if policy in ORDER else len(ORDER), policy)


def from_train_gpt(name, data):
    if "memories" in data:
        return [group for part in data["memories"] for group in from_train_gpt(f"{name}, {part['memory']} memory", part)]
    budget, footprint = data["budget_bytes"], data["footprint_bytes"]
    group = Group(f"train_gpt ({name})", f"{data['device']}, {data.get('precision', 'fp32')}, footprint {size(footprint)}", footprint)
    for p in data["policies"]:
        keys = {"ns": "step_ns", "faults": "faults", "in": "bytes_in", "out": "bytes_out", "stalled": "stall_ns",
                "used": "prefetches_used", "late": "prefetches_late", "wasted": "prefetches_wasted"}
        steps = [{k: p[key][i] for k, key in keys.items() if key in p} for i in range(len(p["step_ns"]))]
        steady = p["step_ns"][WARM_UP:] or p["step_ns"]
        group.runs.append(Run(p["name"], None if p["name"] == "ideal" else budget, statistics.median(steady), steps, data.get("lookahead")))
    return [group]


def from_replay(name, data):
    group = Group(f"{data['program']} (replay, {name})",
                  f"footprint {size(data['footprint_bytes'])}, {data['h2d_gbps']:g} GB/s in, {data['d2h_gbps']:g} GB/s out", data["footprint_bytes"])
    for r in data["runs"]:
        steps = [{"ns": s["ns"], "faults": s["faults"], "in": s["in_bytes"], "out": s["out_bytes"], "stalled": s["stalled_ns"],
                  "used": s["prefetches_used"], "late": s["prefetches_late"], "wasted": s["prefetches_wasted"]} for s in r["steps"]]
        group.runs.append(Run(r["policy"], None if r["policy"] == "ideal" else data["budget_bytes"], r["steady_step_ns"], steps, data.get("lookahead")))
    return [group]


def from_gpu_bench(name, data):
    groups = []
    for p in data.get("programs", []):
        group = Group(f"{p['program']} ({name})", f"{data['gpu']}, {p['description']}, footprint {size(p['footprint_bytes'])}", p["footprint_bytes"])
        for r in p["runs"]:
            steps = [{"ns": s["ns"], "faults": s["faults"], "in": s["bytes_in"], "out": s["bytes_out"], "stalled": s["stalled_ns"],
                      "used": s.get("prefetches_used"), "late": s.get("prefetches_late"), "wasted": s.get("prefetches_wasted")}
                     for s in r["warm_up"] + r["steps"]]
            group.runs.append(Run(r["system"], r["budget_bytes"] or None, r["median_ns"], steps, first_measured=len(r["warm_up"])))
        if group.runs:
            groups.append(group)
    return groups


def from_study(name, data):
    groups = []
    for w, runs in data["policies"].items():
        s = data["settings"][w]
        group = Group(f"{w} (replay study)", f"{s['gbps']:g} GB/s each way, commit {(data.get('commit') or 'unknown')[:7]}")
        group.runs = [Run(p, s["budget"] << 30, r["step_ns"], [{"faults": r["faults"], "in": r["in_bytes"], "out": r["out_bytes"]}]) for p, r in runs.items()]
        groups.append(group)
    return groups


KINDS = (("runs of train_gpt", lambda d: "memories" in d or ("policies" in d and "footprint_bytes" in d), from_train_gpt),
         ("runs of deepum-replay", lambda d: "workload" in d and "runs" in d, from_replay),
         ("runs on a GPU", lambda d: "gpu" in d and "programs" in d, from_gpu_bench),
         ("results of the replay study", lambda d: "policies" in d and "settings" in d, from_study))


class Inputs:
    """All files together."""

    def __init__(self):
        self.groups, self.sweeps, self.budget_sweeps, self.files = [], {}, {}, []

    def add(self, path):
        path = pathlib.Path(path)
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as why:
            raise SystemExit(f"archive.py: {path}: {why}")
        kind = next((k for k in KINDS if isinstance(data, dict) and k[1](data)), None)
        self.files.append((path.name, kind[0] if kind else "not drawn: no file of runs"))
        if kind is None:
            return
        try:
            self.groups += kind[2](path.stem, data)
        except (KeyError, TypeError, AttributeError) as why:
            raise SystemExit(f"archive.py: {path}: not as {kind[0]} should be: {why!r}")
        for w, by in data.get("lookahead", {}).items() if kind[2] is from_study else ():
            self.sweeps[f"{w}, deepum"] = {int(n): r["step_ns"] for n, r in by.items()}
        for w, by in data.get("budgets", {}).items() if kind[2] is from_study else ():
            self.budget_sweeps[w] = {p: {int(share): runs[p]["step_ns"] for share, runs in by.items()} for p in next(iter(by.values()))}

    def finish(self):
        """Runs of one program with several degrees N make a sweep."""
        found = collections.defaultdict(dict)
        for g in self.groups:
            for r in g.runs:
                if r.lookahead and r.policy not in ("ideal", "um", "lru", "oracle"):
                    found[f"{g.title.partition(' (')[0]}, {r.policy}, {size(r.budget)}"][r.lookahead] = r.step_ns
        self.sweeps |= {name: values for name, values in found.items() if len(values) > 1}


# --- drawing ----------------------------------------------------------------------------------------------------------


def size(count):
    if count is None:
        return "all"
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / MIB:.4g} MiB"


def budget_name(group, budget):
    share = f" ({100 * budget / group.footprint:.0f} %)" if budget and group.footprint else ""
    return size(budget) + share


def time_unit(longest_ns):
    for unit, length in (("s", 1e9), ("ms", 1e6)):
        if longest_ns >= 2 * length:
            return unit, length
    return ("ms", 1e6) if longest_ns >= 2e5 else ("us", 1e3)


def bytes_unit(most):
    return ("GiB", 1 << 30) if most >= 8 << 30 else ("MiB", MIB)


def number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}".replace(",", " ")


def colour(policy):
    return COLOURS.get(policy, "#555555")


def lay_out(figure, handles=(), title=None, above=False):
    """Lets the axes use all of the width, and puts the legend under them, or above, in as few lines as will do."""
    pad = 0.03
    width, height = figure.get_size_inches()
    renderer = figure.canvas.get_renderer()

    def extent():
        boxes = [a.get_tightbbox(renderer) for a in figure.axes]
        return Bbox.union(boxes).transformed(figure.dpi_scale_trans.inverted())

    for _ in range(2):  # other ticks may be chosen for the new width
        figure.canvas.draw()
        used, margins = extent(), figure.subplotpars
        figure.subplots_adjust(left=margins.left + (pad - used.x0) / width, right=margins.right + (width - pad - used.x1) / width)
    if not handles:
        return
    figure.canvas.draw()
    used = extent()
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(handles=list(handles), title=title, frameon=False, ncol=columns, columnspacing=1.1, handlelength=1.3, borderaxespad=0.2,
                               fontsize=9, title_fontsize=9, loc="lower center" if above else "upper center",
                               bbox_to_anchor=(0.5, (used.y1 + 0.02 if above else used.y0 - 0.02) / height))
        figure.canvas.draw()
        if columns == 1 or legend.get_window_extent(renderer).width <= width * figure.dpi:
            return
        legend.remove()


def finished_svg(figure, name):
    """The figure as SVG that can stand in HTML: as wide as its place, with identifiers of its own."""
    text = io.StringIO()
    used = figure.get_tightbbox(figure.canvas.get_renderer())
    box = Bbox([[0, used.y0 - 0.03], [figure.get_figwidth(), used.y1 + 0.03]])
    figure.savefig(text, format="svg", dpi=150, bbox_inches=box, metadata={"Date": None})
    plt.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)[0]
    used = set(re.findall(r'xlink:href="#([^"]*)"', rest)) | set(re.findall(r"url\(#([^)]*)\)", rest))
    rest = re.sub(r'\sid="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", rest)
    rest = re.sub(r'xlink:href="#', f'href="#{name}-', rest)
    rest = rest.replace("xlink:href=", "href=")
    rest = re.sub(r"url\(#", f"url(#{name}-", rest)
    rest = re.sub(r"<!--.*?-->\s*", "", rest, flags=re.DOTALL)
    return f'<svg {box} role="img" preserveAspectRatio="xMidYMid meet">' + rest


def mark(axes, value, y):
    """Writes the value at the end of its bar."""
    axes.annotate(number(value), (value, y), xytext=(2.5, 0), textcoords="offset points", va="center", ha="left", fontsize=8.5)


def plot_step_times(group):
    """Bars: policies down, one bar for each budget."""
    policies, budgets = group.policies(), group.budgets()
    unit, length = time_unit(max(r.step_ns for r in group.runs))
    rows = []  # (policy, budget, value)
    for p in policies:
        mine = {r.budget: r.step_ns / length for r in group.runs if r.policy == p}
        rows.append((p, [(b, mine[b]) for b in [None, *budgets] if b in mine]))
    bars = sum(len(m) for _, m in rows)
    figure, axes = plt.subplots(figsize=(NARROW, 0.9 + 0.18 * bars + 0.13 * len(rows)))
    y, ticks = 0.0, []
    for p, mine in rows:
        top = y
        for b, value in mine:
            fill = colour(p) if len(budgets) < 2 or b is None else BUDGET_COLOURS[budgets.index(b) % len(BUDGET_COLOURS)]
            axes.barh(y, value, 0.85, color=fill)
            mark(axes, value, y)
            y += 1
        ticks.append((top + y - 1) / 2)
        y += 0.6
    axes.set_yticks(ticks, [p for p, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(v for _, m in rows for _, v in m))
    axes.set_xlabel(f"time of a step [{unit}]")
    axes.set_ylabel("policy")
    named = enumerate(budgets if len(budgets) > 1 else ())
    lay_out(figure, [Patch(color=BUDGET_COLOURS[i % len(BUDGET_COLOURS)], label=budget_name(group, b)) for i, b in named], "budget")
    return figure


def plot_curves(curves, xlabel, ylabel, log2=False, colours=None):
    """@param curves  {label: {x: y}}."""
    figure, axes = plt.subplots(figsize=(NARROW, 2.9))
    for i, (label, points) in enumerate(curves.items()):
        xs = sorted(points)
        axes.plot(xs, [points[x] for x in xs], marker="o", label=label, color=(colours or {}).get(label, CURVE_COLOURS[i % len(CURVE_COLOURS)]))
    xs = sorted({x for points in curves.values() for x in points})
    if log2:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(xs))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0, 1.08 * max(y for points in curves.values() for y in points.values()))
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color="#e6e9ed")
    lay_out(figure, axes.get_legend_handles_labels()[0])
    return figure


def plot_steps(runs):
    """Faults and bytes each way, step by step."""
    figure, all_axes = plt.subplots(3, 1, figsize=(NARROW, 4.9), sharex=True)
    unit, size_of_one = bytes_unit(max(s[k] for r in runs for s in r.steps for k in ("in", "out")))
    kinds = (("faults", "page faults", 1), ("in", f"to device\n[{unit}]", size_of_one), ("out", f"to host\n[{unit}]", size_of_one))
    for axes, (key, label, scale) in zip(all_axes, kinds):
        for r in sorted(runs, key=lambda r: rank(r.policy)):
            values = [s[key] / scale for s in r.steps]
            axes.plot(range(1, len(values) + 1), values, color=colour(r.policy), label=r.policy, marker="o" if len(values) < 25 else None)
        axes.set_ylabel(label)
        axes.set_ylim(0, max(1, axes.get_ylim()[1]))
        axes.grid(axis="y", color="#e6e9ed")
        axes.yaxis.set_major_locator(MaxNLocator(4))
    all_axes[-1].set_xlabel("step")
    all_axes[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    figure.align_ylabels(all_axes)
    lay_out(figure, all_axes[-1].get_legend_handles_labels()[0])
    return figure


PREFETCHES = (("used", "used", "#2b5fa8"), ("late", "late: faulted on their way", "#d08a2e"), ("wasted", "wasted: left unused", "#a33a3a"))


def plot_prefetches(runs):
    labels = [r.policy if len({x.budget for x in runs if x.budget}) < 2 else f"{r.policy}, {size(r.budget)}" for r in runs]
    figure, axes = plt.subplots(figsize=(NARROW, 1.15 + 0.26 * len(runs)))
    for y, r in enumerate(runs):
        left = 0
        for key, _, fill in PREFETCHES:
            value = r.mean(key)
            axes.barh(y, value, 0.7, left=left, color=fill)
            left += value
        mark(axes, left, y)
    axes.set_yticks(range(len(runs)), labels)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(1, max(sum(r.mean(k) for k, _, _ in PREFETCHES) for r in runs)))
    axes.set_xlabel("blocks in a step, mean")
    axes.set_ylabel("policy")
    lay_out(figure, [Patch(color=c, label=n) for _, n, c in PREFETCHES])
    return figure


# --- the page ---------------------------------------------------------------------------------------------------------


def summary_rows(group):
    best = {}
    for r in group.runs:
        if r.policy in ("ideal", "resident"):
            best["ns"] = r.step_ns
    unit, length = time_unit(max(r.step_ns for r in group.runs))

    def cell(value, scale=1.0, digits=1):
        return "-" if value is None else f"{value / scale:,.{digits}f}".replace(",", " ")

    for r in sorted(group.runs, key=lambda r: (rank(r.policy), -(r.budget or 0))):
        yield [r.policy, budget_name(group, r.budget), f"{cell(r.step_ns, length, 3)} {unit}",
               cell(100 * best["ns"] / r.step_ns) if best else "-", cell(r.mean("faults"), 1, 0), cell(r.mean("in"), MIB),
               cell(r.mean("out"), MIB), "-" if r.mean("stalled") is None else f"{cell(r.mean('stalled'), length, 3)} {unit}"]


def build(inputs, title):
    page = Page(title)

    def draw(drawn, missing):
        if drawn:
            page.figures([(t, d, finished_svg(f, f"f{page.count + i + 1}"), ()) for i, ((t, d), f) in enumerate(drawn)])
        else:
            page.missing(missing)

    page.section("step-time", "Step time by policy and budget",
                 "What a step takes once the tables are filled: the median of the measured steps. A budget is the device memory that the arena may hold.")
    drawn = [((g.title, g.detail + ("" if len(g.budgets()) != 1 else f", budget {budget_name(g, g.budgets()[0])}")), plot_step_times(g)) for g in inputs.groups]
    for w, curves in inputs.budget_sweeps.items():
        unit, length = time_unit(max(y for c in curves.values() for y in c.values()))
        scaled = {p: {x: y / length for x, y in c.items()} for p, c in sorted(curves.items(), key=lambda c: rank(c[0]))}
        drawn.append(((f"{w} (replay study)", "step time against the budget"),
                      plot_curves(scaled, "budget [% of the footprint]", f"time of a step [{unit}]", colours=COLOURS)))
    draw(drawn, "No runs were given.")

    page.section("steps", "Faults and bytes by step", "The first steps are those in which memory is touched for the first time and the tables are empty.")
    drawn = []
    for g in inputs.groups:
        for b in g.budgets() or [None]:
            runs = [r for r in g.runs if r.budget in (b, None) and len(r.steps) > 1]
            if runs:
                drawn.append(((g.title, f"budget {budget_name(g, b)}"), plot_steps(runs)))
    draw(drawn, "No runs with numbers for each step were given.")

    page.section("prefetches", "Prefetches used, late and wasted",
                 "Blocks that were prefetched in a step: used by a launch before they left; late, because a launch touched them on their way; or moved in vain.")
    drawn = []
    for g in inputs.groups:
        runs = sorted((r for r in g.runs if all(r.mean(k) is not None for k, _, _ in PREFETCHES)), key=lambda r: (rank(r.policy), -(r.budget or 0)))
        if any(r.mean(k) for r in runs for k, _, _ in PREFETCHES):
            drawn.append(((g.title, g.detail), plot_prefetches(runs)))
    draw(drawn, "No runs that count prefetches were given.")

    page.section("lookahead", "How far to look ahead", "Step time against the degree N of lookahead, in launches.")
    drawn = []
    for unit, length in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        curves = {name: {n: v / length for n, v in points.items()} for name, points in inputs.sweeps.items() if time_unit(max(points.values()))[0] == unit}
        if curves:
            drawn.append((("Step time by N", f"{len(curves)} sweeps"), plot_curves(curves, "degree N [launches]", f"time of a step [{unit}]", log2=True)))
    draw(drawn, "No runs with several N were given: bench/replay/study.py sweeps them.")

    page.section("numbers", "Numbers", "Step times are medians; faults, bytes and stalls are means of the steps that count.")
    for g in inputs.groups:
        page.heading(g.title, g.detail)
        page.table(["policy", "budget", "step", "% of resident", "faults", "in [MiB]", "out [MiB]", "stalled"], summary_rows(g))
    if not inputs.groups:
        page.missing("No runs were given.")
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the page")
    parser.add_argument("--title", default="deepum: results of many runs")
    parser.add_argument("files", nargs="+", help="JSON of runs")
    options = parser.parse_args()
    plt.rcParams.update({"svg.hashsalt": "deepum", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9.5, "axes.titlesize": 9,
                         "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#9aa3ad", "lines.markersize": 3,
                         "lines.linewidth": 1.3, "savefig.facecolor": "none", "figure.facecolor": "none", "axes.facecolor": "none",
                         "figure.max_open_warning": 0})
    inputs = Inputs()
    for path in options.files:
        inputs.add(path)
    inputs.finish()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(build(inputs, options.title).text(inputs.files))
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.1f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
