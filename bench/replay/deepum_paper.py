#!/usr/bin/env python3
"""Repeats DeepUM's own evaluation (ASPLOS'23, section 6) in replays, and writes it beside what is published.

usage: deepum_paper.py --replay BIN --workloads DIR --out DIR [--doc FILE]... [--only STUDY]... [--quick] [--jobs N]

BIN is deepum-replay. DIR holds the recorded steps as NAME.jsonl.gz; models that are missing are left out. Writes
results.json and plots as SVG into --out. In each --doc the tables between `<!-- paper:NAME -->` and `<!-- /paper -->` are
renewed, unless something was left out. --only runs some studies and keeps what results.json has of the others. --quick
takes the smallest batches and few values. Needs matplotlib. In virtual time and deterministic.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import matplotlib
except ImportError as missing:
    raise SystemExit(f"deepum_paper.py: needs matplotlib ({missing}); Debian and Ubuntu: apt-get install python3-matplotlib")

matplotlib.use("svg")
import deepum_paper_tables as paper  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
from deepum_paper_tables import (  # noqa: E402
    ALIKE, CARD_GIB, CONFIGURATIONS, DEGREES, ENTRIES, MODELS, PUBLISHED, PUBLISHED_ABLATION, PUBLISHED_LEAST_SHARE, SHARES, UM, VARIANTS, DEEPUM)

STEPS = 7
STEPS_OF_DEGREES = 14
LEARNING = {"GPT-2 XL": 100, "ResNet-152": 40}
FEW_STEPS = 5  # where step times alone are compared


class Replays:
    """Runs deepum-replay, several at a time, and keeps what each run measured."""

    def __init__(self, binary, folder, jobs):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.present = [m for m in MODELS if self.path(m).exists()]

    def path(self, model):
        return self.folder / f"{MODELS[model]['file']}.jsonl.gz"

    def start(self, model, batch, policy, *flags, steps=STEPS):
        """A future of what one policy did."""
        m = MODELS[model]
        command = [self.binary, f"--policy={policy}", "--card=v100_pcie3", f"--recorded_on={m['from']}",
                   f"--batch={batch * m['unit'] / m['recorded']}", f"--budget={self.budget(model, batch)}", f"--steps={max(steps, self.least(model))}",
                   "--copy_latency=10us", "--run_ahead=32", f"--fault_entries={ENTRIES.get(model, 0)}", *m.get("flags", ()), *flags,
                   str(self.path(model))]
        return self.pool.submit(self._run, command)

    @staticmethod
    def least(model):
        return 12 if model == "DLRM" else 0  # its eight recorded steps look up other rows each

    @staticmethod
    def budget(model, batch):
        if model == "BERT base":  # the share of the step that the card held of the paper's
            return f"{PUBLISHED_LEAST_SHARE * 29 / batch}%"
        return MODELS[model].get("budget", f"{int(CARD_GIB * 1024)}MiB")

    @staticmethod
    def _run(command):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run([*command, f"--json={out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise SystemExit(f"deepum_paper.py: {' '.join(command)}\n{done.stderr}")
            with open(out) as file:
                return summary(json.load(file))


def summary(report):
    """What is kept of a run. Traffic and faults: means of the steps that the step time is the mean of."""
    run = report["runs"][0]
    steps = run["steps"][2:-1] if len(run["steps"]) > 3 else run["steps"][-1:]

    def mean(key):
        return round(sum(s[key] for s in steps) / len(steps))

    return {"step_ns": round(run["steady_step_ns"]), "in_bytes": mean("in_bytes"), "out_bytes": mean("out_bytes"), "faults": mean("faults"),
            "table_bytes": run["table_bytes"], "block_tables": run["block_tables"], "compute_ns": report["compute_ns"],
            "footprint_bytes": report["footprint_bytes"], "card": report["card"], "faults_by_step": [s["faults"] for s in run["steps"]]}


def without_card(run):
    return {k: v for k, v in run.items() if k not in ("card", "faults_by_step")}


def smallest(model):
    return min(PUBLISHED[model])


# --- the studies: each starts its runs at once and returns a function that waits for them ----------------------------


def study_ablation(replays, quick):
    """Begins first: its runs are the longest."""
    runs = {}
    for m in [m for m in ALIKE if m in replays.present]:
        b = smallest(m)
        runs[m] = {"um": replays.start(m, b, "um", steps=FEW_STEPS), "auto": replays.start(m, b, "auto", steps=FEW_STEPS),
                   "prefetch": replays.start(m, b, "deepum", *VARIANTS["prefetch"], steps=4),
                   "with invalidation": replays.start(m, b, "deepum", *VARIANTS["both ways"], steps=FEW_STEPS)}
        for name in ("with pre-eviction", "with pre-eviction, one at a time"):
            runs[m][name] = replays.start(m, b, "deepum", *VARIANTS[name], steps=FEW_STEPS)
    return lambda: {m: {"batch": smallest(m)} | {n: without_card(r.result()) for n, r in by.items()} for m, by in runs.items()}


def study_times(replays, quick):
    runs = {}
    for m in replays.present:
        for b in list(PUBLISHED[m])[: 1 if quick else None]:
            runs[m, b] = {"um": replays.start(m, b, "um", steps=FEW_STEPS), "auto": replays.start(m, b, "auto")}
            runs[m, b] |= {v: replays.start(m, b, "deepum", *VARIANTS[v]) for v in ("deepum", "both ways", "not held")}

    def collect():
        found = {}
        for (m, b), by in runs.items():
            found.setdefault(m, {})[str(b)] = {v: without_card(r.result()) for v, r in by.items()}
        return found

    return collect


def study_card(replays, quick):
    """Recorded times and those on the card, at the recorded batch."""
    runs = {m: replays.start(m, MODELS[m]["recorded"] / MODELS[m]["unit"], "ideal", steps=1) for m in replays.present}

    def collect():
        found = {}
        for m, run in runs.items():
            kernels = run.result()["card"]["kernels"]
            found[m] = {"kernels": kernels[:5], "launches": sum(k["launches"] for k in kernels),
                        "recorded_ns": sum(k["recorded_ns"] for k in kernels), "ns": sum(k["ns"] for k in kernels)}
        return found

    return collect


def study_learning(replays, quick):
    """Faults step by step, as the tables are learned."""
    most = {m: 10 if quick else LEARNING[m] for m in ALIKE if m in replays.present}
    runs = {m: {"um": replays.start(m, smallest(m), "um", steps=FEW_STEPS),
                "deepum": replays.start(m, smallest(m), "deepum", *VARIANTS["deepum"], steps=n),
                "ahead": replays.start(m, smallest(m), "deepum", *VARIANTS["deepum"], "--run_ahead=1024", steps=n)} for m, n in most.items()}
    return lambda: {m: {"um": by["um"].result()["faults"]} | {n: by[n].result()["faults_by_step"] for n in ("deepum", "ahead")}
                    for m, by in runs.items()}


def study_shares(replays, quick):
    if "BERT base" not in replays.present:
        return dict
    runs = {share: {p: replays.start("BERT base", 29, p, f"--budget={share}%", *(VARIANTS["deepum"] if p == "deepum" else ()))
                    for p in ("um", "deepum", "auto")} for share in (SHARES[:1] if quick else SHARES)}
    return lambda: {str(share): {p: without_card(r.result()) for p, r in by.items()} for share, by in runs.items()}


def study_degrees(replays, quick):
    runs = {m: {n: replays.start(m, smallest(m), "deepum", *VARIANTS["deepum"], f"--lookahead={n}", steps=STEPS_OF_DEGREES)
                for n in (DEGREES[:2] if quick else DEGREES)} for m in ALIKE if m in replays.present}
    return lambda: {m: {str(n): without_card(r.result()) for n, r in by.items()} for m, by in runs.items()}


def study_configurations(replays, quick):
    runs = {}
    for m in [m for m in ALIKE if m in replays.present]:
        runs[m] = {i: replays.start(m, smallest(m), "deepum", *VARIANTS["deepum"], f"--ways={a}", f"--successors={s}", f"--rows={r}", steps=FEW_STEPS)
                   for i, (a, s, r) in enumerate(CONFIGURATIONS[:2] if quick else CONFIGURATIONS)}
    return lambda: {m: {str(i): without_card(r.result()) for i, r in by.items()} for m, by in runs.items()}


STUDIES = {"ablation": study_ablation, "times": study_times, "card": study_card, "learning": study_learning, "shares": study_shares, "degrees": study_degrees,
           "configurations": study_configurations}

# --- plots ------------------------------------------------------------------------------------------------------------

COLOURS = {"published": "#9a9a9a", "deepum": "#d08a2e", "auto": "#2b5fa8"}
SERIES = {"GPT-2 XL": "#d08a2e", "ResNet-152": "#3c8f5a"}


def save(figure, out, name):
    figure.savefig(out / f"{name}.svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    plt.close(figure)


def plot_speedups(results, out):
    found = paper.speedups(results)
    figure, ax = plt.subplots(figsize=(6, 2.8), constrained_layout=True)
    for i, name in enumerate(COLOURS):
        values = [v[i] for v in found.values()]
        bars = ax.bar([x + 0.27 * (i - 1) for x in range(len(found))], values, 0.25, color=COLOURS[name], label=name)
        ax.bar_label(bars, [f"{v:.1f}" for v in values], fontsize=7)
    ax.set_xticks(range(len(found)), [f"{m}\n{b}" for m, b in found])
    ax.set_ylabel("times as fast as demand paging")
    ax.legend(frameon=False)
    save(figure, out, "speedups")


def plot_ablation(results, out):
    names = tuple(PUBLISHED_ABLATION)
    groups = {"published, mean": [PUBLISHED_ABLATION[n] for n in names]}
    for m, runs in results["ablation"].items():
        groups[m] = [100 * (1 - runs[n]["step_ns"] / runs["um"]["step_ns"]) for n in names]
    figure, ax = plt.subplots(figsize=(5, 2.8), constrained_layout=True)
    for i, (name, colour) in enumerate(zip(names, ("#b9cbe4", "#6f94c6", "#2b5fa8"))):
        values = [g[i] for g in groups.values()]
        bars = ax.bar([x + 0.27 * (i - 1) for x in range(len(groups))], values, 0.25, color=colour, label=name)
        ax.bar_label(bars, [f"{v:.1f}" for v in values], fontsize=7)
    ax.set_xticks(range(len(groups)), groups)
    ax.set_ylabel("percent less time than um")
    ax.set_ylim(0, 115)
    ax.legend(ncols=3, loc="upper left", frameon=False)
    save(figure, out, "ablation")


def plot_lines(found, xs, names, label, out, name):
    figure, ax = plt.subplots(figsize=(5, 2.6), constrained_layout=True)
    for m, runs in found.items():
        base = next(iter(runs.values()))["step_ns"]
        ax.plot(xs, [base / r["step_ns"] for r in runs.values()], "o-", color=SERIES[m], label=m)
    ax.set_xticks(xs, names)
    ax.set_xlabel(label)
    ax.set_ylabel("speed, the first is 1")
    ax.legend(frameon=False)
    save(figure, out, name)


def draw(results, out):
    plt.rcParams.update({"svg.hashsalt": "deepum", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False,
                         "axes.spines.right": False, "lines.markersize": 3, "savefig.facecolor": "white"})
    plot_speedups(results, out)
    plot_ablation(results, out)
    degrees = len(next(iter(results["degrees"].values())))
    plot_lines(results["degrees"], range(degrees), [str(n) for n in DEGREES[:degrees]], "launches ahead, N", out, "degrees")
    shapes = len(next(iter(results["configurations"].values())))
    plot_lines(results["configurations"], range(shapes), [str(i) for i in range(shapes)], "configuration of table 6", out, "configurations")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replay", required=True, help="the program deepum-replay")
    parser.add_argument("--workloads", required=True, help="folder of NAME.jsonl.gz")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for results.json and the plots")
    parser.add_argument("--doc", action="append", default=[], help="Markdown file whose tables are renewed")
    parser.add_argument("--only", action="append", choices=STUDIES, help="a study to run; the others stay as they are")
    parser.add_argument("--quick", action="store_true", help="the smallest batches and few values")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="replays at a time")
    options = parser.parse_args()

    replays = Replays(options.replay, options.workloads, options.jobs)
    missing = [m for m in MODELS if m not in replays.present]
    if not set(ALIKE) & set(replays.present):
        parser.error(f"there is neither of {' and '.join(MODELS[m]['file'] for m in ALIKE)} in {options.workloads}")
    for m in missing:
        print(f"deepum_paper.py: no {MODELS[m]['file']}.jsonl.gz, left out", file=sys.stderr)

    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "results.json"
    results = json.loads(kept.read_text()) if options.only and kept.exists() else {}
    collectors = {name: study(replays, options.quick) for name, study in STUDIES.items() if not options.only or name in options.only}
    for name, collect in collectors.items():
        results[name] = collect()
        print(f"deepum_paper.py: {name}", file=sys.stderr, flush=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")
    if results.keys() != STUDIES.keys():
        print("deepum_paper.py: not all studies, so there are no plots yet", file=sys.stderr)
        return
    draw(results, options.out)
    slower = [f"{m} {b}" for m, b in paper.rows_of(results)
              if results["times"][m][str(b)]["auto"]["step_ns"] > min(results["times"][m][str(b)][v]["step_ns"] for v in ("deepum", "both ways"))]
    if slower:
        print(f"deepum_paper.py: auto is slower than deepum for {', '.join(slower)}", file=sys.stderr)
    if options.quick or missing:
        print("deepum_paper.py: not all workloads and values, so the tables of documents stay as they are", file=sys.stderr)
        return
    for path in options.doc:
        paper.renew_document(path, results)


if __name__ == "__main__":
    main()
