#!/usr/bin/env python3
"""Draws what runs measured as one HTML page that needs nothing else: no network, no script.

usage: report.py --out FILE [--title TEXT] FILE...

Takes, in any order, what these programs write: train_gpt --json, deepum-replay --json, deepum-gpu-bench --json,
bench/replay/study.py (results.json), and the --trace of train_gpt and deepum-replay. A file that is none of them is named
on the page. Needs matplotlib.
"""
import argparse
import collections
import html
import io
import json
import math
import pathlib
import re
import statistics
import sys

try:
    import matplotlib
except ImportError as missing:
    raise SystemExit(f"report.py: needs matplotlib ({missing}); Debian and Ubuntu: apt-get install python3-matplotlib")

matplotlib.use("agg")  # measures text; pages get SVG
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.colors import ListedColormap  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.transforms import Bbox  # noqa: E402
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, ScalarFormatter  # noqa: E402

MIB = 1 << 20
WARM_UP = 2  # steps that tables are not yet filled in

ORDER = ("ideal", "resident", "um", "once", "double_managed", "double_pinned", "lru", "deepum", "auto", "oracle")
COLOURS = {"ideal": "#3c8f5a", "resident": "#3c8f5a", "um": "#8a8a8a", "once": "#b9a48f", "double_managed": "#b05a7a",
           "double_pinned": "#8c2f4f", "lru": "#4f9aa0", "deepum": "#d08a2e", "auto": "#2b5fa8", "oracle": "#7a4f9a"}
BUDGET_COLOURS = ("#1f4e8c", "#5b8fc7", "#a9c6e6", "#d9a441", "#8c5a1f")
KERNEL_COLOURS = ("#2b5fa8", "#d08a2e", "#3c8f5a", "#7a4f9a", "#b05a7a", "#4f9aa0")
OTHER_KERNELS = "#b5b5b5"

NARROW = 3.9  # inches: read on a phone without zooming
WIDE = 9.4  # scrolls there

STYLE = """
:root { color-scheme: light; --ink: #1d232b; --soft: #5b6570; --line: #d8dde3; --back: #f4f6f8; --card: #fff; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 1240px; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { max-width: 46rem; margin: .3rem 0 .8rem; color: var(--soft); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .6rem 0; }
nav a { color: #1f4e8c; padding: .35rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: .9rem; align-items: start; }
.plots.wide { grid-template-columns: minmax(0, 1fr); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .6rem; min-width: 0; }
figcaption { font-size: .9rem; margin-bottom: .3rem; }
figcaption b { display: block; }
figcaption span { color: var(--soft); }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
svg { display: block; width: 100%; height: auto; }
.wide svg { min-width: 54rem; }
table { border-collapse: collapse; font-size: .85rem; background: var(--card); font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
th { background: var(--back); }
footer { margin: 2rem 0 1rem; color: var(--soft); font-size: .85rem; }
"""


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


KINDS = (("the trace of a run", lambda d: "traceEvents" in d, None),
         ("runs of train_gpt", lambda d: "policies" in d and "footprint_bytes" in d, from_train_gpt),
         ("runs of deepum-replay", lambda d: "workload" in d and "runs" in d, from_replay),
         ("runs on a GPU", lambda d: "gpu" in d and "programs" in d, from_gpu_bench),
         ("results of the replay study", lambda d: "policies" in d and "settings" in d, from_study))


class Inputs:
    """All files together."""

    def __init__(self):
        self.groups, self.sweeps, self.budget_sweeps, self.traces, self.files = [], {}, {}, [], []

    def add(self, path):
        path = pathlib.Path(path)
        try:
            data = json.loads(path.read_text())
        except (OSError, ValueError) as why:
            raise SystemExit(f"report.py: {path}: {why}")
        kind = next((k for k in KINDS if isinstance(data, dict) and k[1](data)), None)
        self.files.append((path.name, kind[0] if kind else "not drawn: no file of runs"))
        if kind is None:
            return
        if kind[2] is None:
            self.traces += traced_runs(path.stem, data["traceEvents"])
            return
        try:
            self.groups += kind[2](path.stem, data)
        except (KeyError, TypeError, AttributeError) as why:
            raise SystemExit(f"report.py: {path}: not as {kind[0]} should be: {why!r}")
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


# --- traces -----------------------------------------------------------------------------------------------------------


class Trace:
    """One process of a trace. Times are microseconds."""

    def __init__(self, file, events):
        self.rows, self.block, self.name, self.forgotten = {}, 2 * MIB, "run", 0
        self.steps, self.launches, self.stalls, self.faults, self.moves, self.memory = [], [], [], [], [], []
        self.copies = {"copy_in": [], "copy_out": []}
        self.evicted = []
        for e in events:
            self._take(e)
        self.file = file
        self.steps.sort()
        self.launches.sort(key=lambda e: e["ts"])
        self.moves.sort(key=lambda m: m[0])

    def _take(self, e):
        phase, category, args = e["ph"], e.get("cat"), e.get("args", {})
        if phase == "M":
            if e["name"] == "process_name":
                self.name = args["name"]
            elif e["name"] == "thread_name":
                self.rows[e["tid"]] = args["name"]
            elif e["name"] == "deepum":
                self.block, self.forgotten = args["block_bytes"], args["forgotten"]
        elif phase == "C":
            self.memory.append((e["ts"], args["bytes"]))
        elif category == "step":
            self.steps.append((e["ts"], e["ts"] + e["dur"], e["name"]))
        elif category == "launch":
            self.launches.append(e)
        elif category == "stall":
            self.stalls.append(e)
        elif category == "fault":
            self.faults.append(e["ts"])
        elif category in self.copies:
            self.copies[category].append(e)
            if category == "copy_in":
                self.moves.append((e["ts"] + e["dur"], args["first"], args["blocks"], FAULTED if e["name"] == "fault" else FETCHED))
        elif category == "arrived":
            state = BEFORE if e["name"] == "before" else FAULTED if e["name"] == "fault" else PLACED
            self.moves.append((e["ts"], args["first"], args["blocks"], state))
        elif category == "evicted":
            self.evicted.append(e["ts"])
            self.moves.append((e["ts"], args["first"], args["blocks"], ABSENT))

    def title(self):
        return f"{self.name} ({self.file})"

    def whole_steps(self):
        """Those of which no launch was forgotten."""
        first = self.launches[0]["ts"] if self.forgotten else 0
        return [s for s in self.steps if s[0] >= first] or self.steps


ABSENT, FETCHED, FAULTED, PLACED, BEFORE = range(5)
STATES = (("not on the device", "#f1f3f5"), ("fetched ahead", "#2b5fa8"), ("fetched by a page fault", "#d08a2e"),
          ("room without a copy", "#8fb8a0"), ("there before the trace begins", "#b5b5b5"))


def traced_runs(file, events):
    by = collections.defaultdict(list)
    for e in events:
        by[e["pid"]].append(e)
    return [t for t in (Trace(file, run) for _, run in sorted(by.items())) if t.launches]


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


class Page:
    """Collects sections and figures."""

    def __init__(self):
        self.parts, self.links, self.count = [], [], 0

    def section(self, name, title, text):
        self.links.append((name, title))
        self.parts.append(f'<h2 id="{name}">{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n')

    def figures(self, drawn, missing, wide=False):
        """@param drawn  Pairs of a caption, in two parts, and a figure. @param missing  What to say where there are none."""
        section = self.links[-1][0]
        if not drawn:
            self.parts.append(f'<p class="missing">{html.escape(missing)}</p>\n')
            return
        self.parts.append(f'<div class="plots{" wide" if wide else ""}">\n')
        for (title, detail), figure in drawn:
            self.count += 1
            svg = finished_svg(figure, f"f{self.count}")
            self.parts.append(f'<figure data-plot="{section}"><figcaption><b>{html.escape(title)}</b><span>{html.escape(detail)}</span></figcaption>'
                              f'<div class="scroll" tabindex="0">{svg}</div></figure>\n')
        self.parts.append("</div>\n")

    def table(self, head, rows):
        def line(tag, cells):
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

        self.parts.append('<div class="scroll" tabindex="0"><table>' + line("th", head) + "".join(line("td", r) for r in rows) + "</table></div>\n")

    def text(self, title, files):
        links = "".join(f'<a href="#{name}">{html.escape(t)}</a>' for name, t in self.links)
        named = "".join(f"<li>{html.escape(name)}: {html.escape(kind)}</li>" for name, kind in files)
        return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                f'<link rel="icon" href="data:,">\n<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n'
                f"<h1>{html.escape(title)}</h1>\n<nav>{links}</nav>\n" + "".join(self.parts) +
                f"<footer>Drawn from:<ul>{named}</ul></footer>\n</main>\n</body>\n</html>\n")


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
        axes.plot(xs, [points[x] for x in xs], marker="o", label=label, color=(colours or {}).get(label, KERNEL_COLOURS[i % len(KERNEL_COLOURS)]))
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


def kernel_colours(traces):
    """The kernels that take most of the time have a colour, the same one in every run."""
    share = collections.Counter()
    for t in traces:
        times = collections.Counter()
        begin, end, _ = (t.whole_steps() or [(0, math.inf, "")])[-1]
        for e in (e for e in t.launches if begin <= e["ts"] < end):
            times[e["name"]] += max(0, e["dur"] - e["args"]["stalled_ns"] / 1000)
        for name, time in times.items():
            share[name] += time / (sum(times.values()) or 1)
    return {name: KERNEL_COLOURS[i] for i, (name, _) in enumerate(share.most_common(len(KERNEL_COLOURS)))}


def plot_timeline(trace, step, fills):
    """Launches, copies, faults and stalls of one step, and the bytes on the device below."""
    begin, end, _ = step
    unit, length = time_unit(1000 * (end - begin))
    scale = 1000 / length  # from microseconds

    def within(events):
        return [e for e in events if e["ts"] < end and e["ts"] + e["dur"] > begin]

    def spans(events):
        return [((e["ts"] - begin) * scale, max(e["dur"] * scale, 0)) for e in events]

    launches, stalls = within(trace.launches), within(trace.stalls)
    streams = sorted({e["tid"] for e in launches})
    launched = {e["name"] for e in launches}
    figure, (axes, below) = plt.subplots(2, 1, figsize=(WIDE, 2.5 + 0.25 * len(streams)), sharex=True,
                                         gridspec_kw={"height_ratios": [len(streams) + 5, 2.6], "hspace": 0.12})
    rows = []

    def row(name, events, fill):
        y = len(rows)
        rows.append(name)
        if events:
            axes.broken_barh(spans(events), (y - 0.36, 0.72), facecolors=fill, linewidth=0, rasterized=len(events) > 1500)

    for tid in streams:
        mine = [e for e in launches if e["tid"] == tid]
        row(trace.rows.get(tid, "stream"), mine, [fills.get(e["name"], OTHER_KERNELS) for e in mine])
    row("stalls", stalls, "#a33a3a")
    row("to the device", within(trace.copies["copy_in"]),
        [STATES[FAULTED if e["name"] == "fault" else FETCHED][1] for e in within(trace.copies["copy_in"])])
    row("to the host", within(trace.copies["copy_out"]), "#5b8fc7")
    for name, times, fill in (("page faults", trace.faults, "#d08a2e"), ("evictions", trace.evicted, "#5b6570")):
        at = [(t - begin) * scale for t in times if begin <= t <= end]
        axes.vlines(at, len(rows) - 0.36, len(rows) + 0.36, color=fill, linewidth=0.7, rasterized=len(at) > 1500)
        rows.append(name)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="both", length=0)
    axes.set_ylabel("what happens")
    axes.grid(axis="x", color="#e6e9ed")
    axes.set_axisbelow(True)
    handles = [Patch(color=c, label=n) for n, c in fills.items() if n in launched]
    if launched - set(fills):
        handles.append(Patch(color=OTHER_KERNELS, label="other launches"))

    held = [(t, b) for t, b in trace.memory if t < begin][-1:] + [(t, b) for t, b in trace.memory if begin <= t <= end]
    unit_held, scale_of_one = bytes_unit(max((b for _, b in held), default=0))
    if held:
        xs = [max(0, (t - begin) * scale) for t, _ in held] + [(end - begin) * scale]
        ys = [b / scale_of_one for _, b in held] + [held[-1][1] / scale_of_one]
        below.fill_between(xs, ys, step="post", color="#c9d8ea", linewidth=0, rasterized=len(xs) > 3000)
        below.set_ylim(0, 1.1 * max(max(ys), 1))
    below.set_xlim(0, (end - begin) * scale)
    below.set_ylabel(f"on device\n[{unit_held}]")
    below.set_xlabel(f"time in the step [{unit}]")
    below.yaxis.set_major_locator(MaxNLocator(3))
    figure.align_ylabels([axes, below])
    lay_out(figure, handles, above=True)
    return figure


def residency(trace, steps):
    """Block by launch: what state each block is in when each launch begins. Wide and high ones are thinned out.

    @returns  The image, where each step begins in it, and how many blocks it is of: those that ever held something.
    """
    begin, end = steps[0][0], steps[-1][1]
    launches = [e["ts"] for e in trace.launches if begin <= e["ts"] < end]
    launches = launches[::math.ceil(len(launches) / 1200) or 1] or [begin]
    used = np.zeros(1 + max((first + count - 1 for _, first, count, _ in trace.moves), default=0), dtype=bool)
    for _, first, count, _ in trace.moves:
        used[first:first + count] = True
    places = np.flatnonzero(used)  # an arena may have gaps that nothing ever lies in
    blocks = len(places)
    state = np.zeros(len(used), dtype=np.uint8)
    thin = math.ceil(blocks / 1200)
    image = np.zeros((math.ceil(blocks / thin), len(launches)), dtype=np.uint8)
    moves = iter(trace.moves)
    move = next(moves, None)
    for column, at in enumerate(launches):
        while move is not None and move[0] <= at:
            _, first, count, new = move
            part = state[first:first + count]
            if new in (ABSENT, BEFORE):
                part[:] = new
            else:  # what is there already stays what it was: its arrival is told again when it is kept
                part[part == ABSENT] = new
            move = next(moves, None)
        image[:, column] = state[places[::thin]]
    edges = [int(np.searchsorted(launches, s[0])) for s in steps]
    return image, edges, blocks


def plot_residency(trace):
    steps = trace.whole_steps()
    parts = [steps] if len(steps) <= 6 else [steps[:3], steps[-3:]]
    figure, all_axes = plt.subplots(1, len(parts), figsize=(WIDE, 3.3), sharey=True, squeeze=False, gridspec_kw={"wspace": 0.06})
    seen = set()
    for axes, part in zip(all_axes[0], parts):
        image, edges, blocks = residency(trace, part)
        seen |= set(np.unique(image))
        axes.imshow(image, aspect="auto", interpolation="nearest", origin="lower", cmap=ListedColormap([c for _, c in STATES]), vmin=0,
                    vmax=len(STATES) - 1, extent=(0, image.shape[1], 0, blocks * trace.block / bytes_unit(blocks * trace.block)[1]))
        for x in edges[1:]:
            axes.axvline(x, color="#1d232b", linewidth=0.6)
        centres = [(a + b) / 2 for a, b in zip(edges, [*edges[1:], image.shape[1]])]
        axes.set_xticks(centres, [s[2].removeprefix("step ") for s in part])
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("launch, by step")
    all_axes[0][0].set_ylabel(f"memory in use, by address [{bytes_unit(blocks * trace.block)[0]}]")
    lay_out(figure, [Patch(facecolor=STATES[i][1], edgecolor="#9aa3ad", linewidth=0.4, label=STATES[i][0]) for i in sorted(seen)])
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


def build(inputs):
    page = Page()
    page.section("step-time", "Step time by policy and budget",
                 "What a step takes once the tables are filled: the median of the measured steps. A budget is the device memory that the arena may hold.")
    drawn = [((g.title, g.detail + ("" if len(g.budgets()) != 1 else f", budget {budget_name(g, g.budgets()[0])}")), plot_step_times(g)) for g in inputs.groups]
    for w, curves in inputs.budget_sweeps.items():
        unit, length = time_unit(max(y for c in curves.values() for y in c.values()))
        scaled = {p: {x: y / length for x, y in c.items()} for p, c in sorted(curves.items(), key=lambda c: rank(c[0]))}
        drawn.append(((f"{w} (replay study)", "step time against the budget"),
                      plot_curves(scaled, "budget [% of the footprint]", f"time of a step [{unit}]", colours=COLOURS)))
    page.figures(drawn, "No runs were given: train_gpt --json FILE writes some.")

    page.section("timeline", "One step in time",
                 "The last whole step of each traced run: launches by stream, coloured by kernel; copies each way, orange where a page fault asked for them; "
                 "stalls are times that launches wait for blocks. What a launch waits while it runs is drawn in one, from its beginning.")
    fills = kernel_colours(inputs.traces)
    page.figures([((t.title(), t.whole_steps()[-1][2]), plot_timeline(t, t.whole_steps()[-1], fills)) for t in inputs.traces if t.steps],
                 "No trace was given: train_gpt --trace FILE and deepum-replay --trace FILE write one.", wide=True)

    page.section("residency", "What is on the device",
                 "Block by launch: which memory is on the device while launches follow one another, and how it came there. "
                 "Of long runs the first three steps and the last three.")
    page.figures([((t.title(), f"blocks of {size(t.block)}"), plot_residency(t)) for t in inputs.traces if t.steps],
                 "No trace was given: train_gpt --trace FILE and deepum-replay --trace FILE write one.", wide=True)

    page.section("steps", "Faults and bytes by step", "The first steps are those in which memory is touched for the first time and the tables are empty.")
    drawn = []
    for g in inputs.groups:
        for b in g.budgets() or [None]:
            runs = [r for r in g.runs if r.budget in (b, None) and len(r.steps) > 1]
            if runs:
                drawn.append(((g.title, f"budget {budget_name(g, b)}"), plot_steps(runs)))
    page.figures(drawn, "No runs with numbers for each step were given: train_gpt --json FILE writes some.")

    page.section("prefetches", "Prefetches used, late and wasted",
                 "Blocks that were prefetched in a step: used by a launch before they left; late, because a launch touched them on their way; or moved in vain.")
    drawn = []
    for g in inputs.groups:
        runs = sorted((r for r in g.runs if all(r.mean(k) is not None for k, _, _ in PREFETCHES)), key=lambda r: (rank(r.policy), -(r.budget or 0)))
        if any(r.mean(k) for r in runs for k, _, _ in PREFETCHES):
            drawn.append(((g.title, g.detail), plot_prefetches(runs)))
    page.figures(drawn, "No runs that count prefetches were given: train_gpt --json FILE writes some.")

    page.section("lookahead", "How far to look ahead", "Step time against the degree N of lookahead, in launches.")
    drawn = []
    for unit, length in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        curves = {name: {n: v / length for n, v in points.items()} for name, points in inputs.sweeps.items() if time_unit(max(points.values()))[0] == unit}
        if curves:
            drawn.append((("Step time by N", f"{len(curves)} sweeps"), plot_curves(curves, "degree N [launches]", f"time of a step [{unit}]", log2=True)))
    page.figures(drawn, "No runs with several N were given: bench/replay/study.py sweeps them, as do train_gpt --lookahead N --json FILE.")

    page.section("numbers", "Numbers", "Step times are medians; faults, bytes and stalls are means of the steps that count.")
    for g in inputs.groups:
        page.parts.append(f"<h3>{html.escape(g.title)}</h3>\n<p>{html.escape(g.detail)}</p>\n")
        page.table(["policy", "budget", "step", "% of resident", "faults", "in [MiB]", "out [MiB]", "stalled"], summary_rows(g))
    if not inputs.groups:
        page.parts.append('<p class="missing">No runs were given.</p>\n')
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the page")
    parser.add_argument("--title", default="deepum: what runs measured")
    parser.add_argument("files", nargs="+", help="JSON of runs, traces")
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
    options.out.write_text(build(inputs).text(options.title, inputs.files))
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.1f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
