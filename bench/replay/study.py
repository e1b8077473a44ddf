#!/usr/bin/env python3
"""Replays recorded workloads under all policies and settings that docs/replay.md reports, and draws the results.

usage: study.py --replay BIN --workloads DIR --out DIR [--doc FILE]... [--quick] [--jobs N]

BIN is deepum-replay. DIR holds the workloads as NAME.jsonl.gz; those that are missing are left out. Writes results.json
and plots as SVG into --out. In each --doc the tables between `<!-- study:NAME -->` and `<!-- /study -->` are renewed,
unless something was left out.
--quick takes two or three values of each parameter. Needs matplotlib. The replay is in virtual time and deterministic, so
the same commit gives the same files.
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
    raise SystemExit(f"study.py: needs matplotlib ({missing}); Debian and Ubuntu: apt-get install python3-matplotlib")

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from study_tables import ABLATION, POLICIES, PUBLISHED_ABLATION, WORKLOADS, renew_document, title  # noqa: E402

BERT, OPT, GPT2, RESNET = "bert_base_b256_a100", "opt_13b_infer_b8", "gpt2_xl_b4", "resnet152_b256"
TRAINING = (BERT, GPT2, RESNET)

LOOKAHEADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEFAULT_TABLE = {"rows": 2048, "ways": 2, "successors": 4}
TABLES = {"rows": (512, 1024, 4096, 8192), "ways": (1, 4, 8), "successors": (1, 2, 3, 6, 8)}
SHARES = (30, 40, 50, 60, 70, 80, 90)  # of the footprint, %
SCENARIOS = ("batch", "validation", "two_models", "growth", "reuse", "random", "lookups")
# Settings around the published simulation of BERT: rates in GB/s, fault latency, whether the directions overlap while faults are served.
BERT_SETTINGS = [(gbps, fault, overlap) for gbps in (13.128, 15.754) for fault in ("0us", "45us") for overlap in (False, True)]

COLOURS = {"um": "#9a9a9a", "lru": "#5f9ea0", "deepum": "#d08a2e", "auto": "#2b5fa8", "oracle": "#7a4f9a"}
SERIES = {BERT: "#2b5fa8", OPT: "#7a4f9a", GPT2: "#d08a2e", RESNET: "#3c8f5a"}


class Replays:
    """Runs deepum-replay, several at a time, and keeps what each run measured."""

    def __init__(self, binary, folder, jobs):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.present = [w for w in WORKLOADS if self.path(w).exists()]

    def path(self, workload):
        return self.folder / f"{workload}.jsonl.gz"

    def start(self, workload, policy, *flags):
        """A future of {policy: what was measured}; later flags win over the workload's own."""
        w = WORKLOADS[workload]
        command = [self.binary, f"--policy={policy}", f"--budget={w['budget']}GiB", f"--h2d={w['gbps']}", f"--d2h={w['gbps']}",
                   f"--steps={w['steps']}", *flags, str(self.path(workload))]
        return self.pool.submit(self._run, command)

    @staticmethod
    def _run(command):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run([*command, f"--json={out}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise SystemExit(f"study.py: {' '.join(command)}\n{done.stderr}")
            with open(out) as file:
                report = json.load(file)
        return {run["policy"]: summary(report, run) for run in report["runs"]}


def summary(report, run):
    """What is kept of a run. Traffic and faults: means of the steps that the step time is the mean of."""
    steps = run["steps"][2:-1] if len(run["steps"]) > 3 else run["steps"][-1:]

    def mean(key):
        return round(sum(s[key] for s in steps) / len(steps))

    kept = {
        "memory": run["memory"],
        "step_ns": round(run["steady_step_ns"]),
        "percent_of_ideal": round(run["percent_of_ideal"], 2),
        "in_bytes": mean("in_bytes"),
        "out_bytes": mean("out_bytes"),
        "faults": mean("faults"),
        "first_step_ns": run["steps"][0]["ns"],
        "table_bytes": run["table_bytes"],
    }
    if "regimes" in run:
        kept["regimes"] = run["regimes"]
        kept["total_ns"] = sum(s["ns"] for s in run["steps"])
    return kept


def less_time(run, than):
    return round(100 * (1 - run["step_ns"] / than["step_ns"]), 1)


# --- the studies: each starts its runs at once and returns a function that waits for them ----------------------------


def study_policies(replays, quick):
    runs = {w: replays.start(w, ",".join(POLICIES)) for w in replays.present}
    return lambda: {w: run.result() for w, run in runs.items()}


def study_ablation(replays, quick):
    runs = {}
    for w in [w for w in TRAINING if w in replays.present]:
        runs[w] = {"um": replays.start(w, "um")}
        runs[w] |= {name: replays.start(w, "deepum", *flags) for name, flags in ABLATION.items()}

    def collect():
        found = {}
        for w, parts in runs.items():
            um = parts["um"].result()["um"]
            found[w] = {"um": um}
            for name in ABLATION:
                run = parts[name].result()["deepum"]
                found[w][name] = run | {"percent_less_time_than_um": less_time(run, um)}
        return found

    return collect


def study_lookahead(replays, quick):
    values = (1, 32, 256) if quick else LOOKAHEADS
    runs = {w: {n: replays.start(w, "deepum", f"--lookahead={n}") for n in values}
            for w in (*TRAINING, OPT) if w in replays.present}
    return lambda: {w: {str(n): r.result()["deepum"] for n, r in by.items()} for w, by in runs.items()}


def table_shapes(quick):
    shapes = [dict(DEFAULT_TABLE)]
    for parameter, values in TABLES.items():
        shapes += [DEFAULT_TABLE | {parameter: v} for v in (values[:1] if quick else values)]
    return shapes


def shape_name(shape):
    return f"{shape['rows']} x {shape['ways']} x {shape['successors']}"


def study_table_shapes(replays, quick):
    runs = {w: {shape_name(s): replays.start(w, "deepum", *(f"--{k}={v}" for k, v in s.items())) for s in table_shapes(quick)}
            for w in (*TRAINING, OPT) if w in replays.present}
    return lambda: {w: {name: r.result()["deepum"] for name, r in by.items()} for w, by in runs.items()}


def study_budgets(replays, quick):
    values = (40, 80) if quick else SHARES
    runs = {w: {share: replays.start(w, "deepum,auto", f"--budget={share}%") for share in values}
            for w in (GPT2, RESNET) if w in replays.present}
    return lambda: {w: {str(share): r.result() for share, r in by.items()} for w, by in runs.items()}


def study_scenarios(replays, quick):
    values = ("batch", "two_models") if quick else SCENARIOS
    runs = {w: {s: replays.start(w, "um,auto", f"--scenario={s}") for s in values} for w in (OPT, RESNET) if w in replays.present}

    def collect():
        found = {}
        for w, by in runs.items():
            found[w] = {}
            for s, run in by.items():
                um, auto = run.result()["um"], run.result()["auto"]
                pairs = list(zip(um.get("regimes", []), auto.get("regimes", [])))
                changes = [a["recovered_in"] for _, a in pairs if a["first_turn"] != 0]
                turns = [t for t in changes if t is not None]
                found[w][s] = {
                    "changes": len(changes),
                    "not_recovered": len(changes) - len(turns),
                    "most_turns_to_recover": max(turns, default=None),
                    "worst_against_um": round(max((a["worst_ns"] / u["worst_ns"] for u, a in pairs), default=0), 3) or None,
                    "time_against_um": round(auto["total_ns"] / um["total_ns"], 3) if "total_ns" in auto else None,
                    "regimes": {"um": um.get("regimes"), "auto": auto.get("regimes")},
                }
        return found

    return collect


def study_published_bert(replays, quick):
    if BERT not in replays.present:
        return dict
    runs = []
    for gbps, fault, overlap in BERT_SETTINGS[:1] if quick else BERT_SETTINGS:
        flags = [f"--h2d={gbps}", f"--d2h={gbps}", f"--fault_latency={fault}", *(["--fault_overlap"] if overlap else [])]
        runs.append(({"gbps": gbps, "fault_latency": fault, "fault_overlap": overlap}, replays.start(BERT, "um,deepum", *flags)))
    return lambda: [setting | run.result() for setting, run in runs]


STUDIES = {
    "published_bert": study_published_bert,  # begins first: its runs are the longest
    "policies": study_policies,
    "ablation": study_ablation,
    "lookahead": study_lookahead,
    "tables": study_table_shapes,
    "budgets": study_budgets,
    "scenarios": study_scenarios,
}

# --- plots ------------------------------------------------------------------------------------------------------------


def save(figure, out, name):
    figure.savefig(out / f"{name}.svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    plt.close(figure)


def panels(count, width, height, **how):
    figure, axes = plt.subplots(1, count, figsize=(width, height), squeeze=False, constrained_layout=True, **how)
    return figure, axes[0]


def plot_policies(found, out):
    figure, axes = panels(len(found), 1.9 * len(found), 2.6)
    for ax, (w, runs) in zip(axes, found.items()):
        values = [runs[p]["percent_of_ideal"] for p in POLICIES]
        bars = ax.bar(POLICIES, values, color=[COLOURS[p] for p in POLICIES])
        ax.bar_label(bars, [f"{v:.1f}" for v in values], fontsize=7,
                     bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        bound = WORKLOADS[w]["bound"]
        ax.axhline(bound, color="black", linewidth=1, linestyle="--", zorder=0.5)
        ax.set_ylim(0, 1.15 * max(bound, *values))
        ax.set_title(f"{title(w)}, {WORKLOADS[w]['budget']} GiB")
        ax.tick_params(axis="x", rotation=60)
    axes[0].set_ylabel("percent of ideal speed")
    figure.supxlabel("policy; dashed: what no schedule exceeds", fontsize=8)
    save(figure, out, "policies")


def plot_ablation(found, out):
    figure, (ax,) = panels(1, 5, 2.8)
    groups = {"published": PUBLISHED_ABLATION}
    groups |= {title(w): {n: runs[n]["percent_less_time_than_um"] for n in ABLATION} for w, runs in found.items()}
    for i, (name, colour) in enumerate(zip(ABLATION, ("#b9cbe4", "#6f94c6", "#2b5fa8"))):
        values = [g[name] for g in groups.values()]
        bars = ax.bar([x + 0.27 * (i - 1) for x in range(len(groups))], values, 0.25, color=colour, label=name)
        ax.bar_label(bars, [f"{v:.1f}" for v in values], fontsize=7)
    ax.set_xticks(range(len(groups)), groups)
    ax.set_ylabel("percent less time than um")
    ax.set_ylim(0, 100)
    ax.legend(ncols=3, loc="upper left", frameon=False)
    save(figure, out, "ablation")


def relative(run, base):
    return 100 * run["step_ns"] / base["step_ns"]


def plot_lookahead(found, out):
    figure, (ax,) = panels(1, 5, 2.8)
    for w, runs in found.items():
        ax.plot([int(n) for n in runs], [relative(r, runs["32"]) for r in runs.values()], "o-", color=SERIES[w], label=title(w))
    ax.set_xscale("log", base=2)
    ax.set_xticks([int(n) for n in next(iter(found.values()))], list(next(iter(found.values()))))
    ax.set_xlabel("launches to look ahead, N")
    ax.set_ylabel("step time, percent of N = 32")
    ax.legend(frameon=False)
    save(figure, out, "lookahead")


def plot_tables(found, out):
    figure, axes = panels(3, 8, 2.6, sharey=True)
    for ax, (parameter, values) in zip(axes, TABLES.items()):
        for w, runs in found.items():
            shapes = {v: shape_name(DEFAULT_TABLE | {parameter: v}) for v in sorted((*values, DEFAULT_TABLE[parameter]))}
            shapes = {v: name for v, name in shapes.items() if name in runs}
            ax.plot(list(shapes), [relative(runs[n], runs[shape_name(DEFAULT_TABLE)]) for n in shapes.values()], "o-",
                    color=SERIES[w], label=title(w))
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(shapes), list(shapes))
        ax.minorticks_off()
        ax.set_xlabel({"rows": "rows", "ways": "blocks in a row", "successors": "successors of a block"}[parameter])
    axes[0].set_ylabel("step time, percent of\n2048 x 2 x 4")
    axes[2].legend(frameon=False)
    save(figure, out, "tables")


def plot_budgets(found, out):
    figure, axes = panels(len(found), 3.2 * len(found), 2.6, sharey=True)
    for ax, (w, by) in zip(axes, found.items()):
        for policy in ("auto", "deepum"):
            ax.plot([int(s) for s in by], [runs[policy]["percent_of_ideal"] for runs in by.values()], "o-",
                    color=COLOURS[policy], label=policy)
        ax.set_title(title(w))
        ax.set_xlabel("budget, percent of the footprint")
        ax.set_ylim(0, 105)
    axes[0].set_ylabel("percent of ideal speed")
    axes[0].legend(frameon=False)
    save(figure, out, "budgets")


def plot_scenarios(found, out):
    figure, (ax,) = panels(1, 5.5, 2.8)
    for i, (w, by) in enumerate(found.items()):
        known = {s: r for s, r in by.items() if r["worst_against_um"] is not None}
        ax.bar([list(by).index(s) + 0.38 * (i - 0.5) for s in known], [r["worst_against_um"] for r in known.values()], 0.36,
               color=SERIES[w], label=title(w))
    ax.axhline(1, color="black", linewidth=1, linestyle="--")
    ax.set_xticks(range(len(by)), by, rotation=30)
    ax.set_ylabel("auto's longest step, um's = 1")
    ax.legend(frameon=False)
    save(figure, out, "scenarios")


PLOTS = {"policies": plot_policies, "ablation": plot_ablation, "lookahead": plot_lookahead, "tables": plot_tables,
         "budgets": plot_budgets, "scenarios": plot_scenarios}


def draw(results, out):
    plt.rcParams.update({"svg.hashsalt": "deepum", "svg.fonttype": "none", "font.size": 8, "axes.titlesize": 8,
                         "axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 3,
                         "savefig.facecolor": "white"})
    for name, plot in PLOTS.items():
        if results[name]:
            plot(results[name], out)


def commit():
    """Of the sources, marked where they differ from it."""
    here = pathlib.Path(__file__).resolve().parent.parent.parent

    def git(*command):
        return subprocess.run(["git", "-C", here, *command], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + (" with changes" if git("status", "--porcelain", "include", "bench") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replay", required=True, help="the program deepum-replay")
    parser.add_argument("--workloads", required=True, help="folder of NAME.jsonl.gz")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder for results.json and the plots")
    parser.add_argument("--doc", action="append", default=[], help="Markdown file whose tables are renewed")
    parser.add_argument("--quick", action="store_true", help="few values of each parameter")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="replays at a time")
    options = parser.parse_args()

    replays = Replays(options.replay, options.workloads, options.jobs)
    if not replays.present:
        parser.error(f"there is none of {', '.join(f'{w}.jsonl.gz' for w in WORKLOADS)} in {options.workloads}")
    for missing in WORKLOADS.keys() - set(replays.present):
        print(f"study.py: no {missing}.jsonl.gz, left out", file=sys.stderr)

    results = {"commit": commit(), "quick": options.quick, "bounds": {w: WORKLOADS[w]["bound"] for w in replays.present},
               "settings": {w: {k: WORKLOADS[w][k] for k in ("budget", "gbps", "steps")} for w in replays.present}}
    collectors = {name: study(replays, options.quick) for name, study in STUDIES.items()}
    for name, collect in collectors.items():
        results[name] = collect()
        print(f"study.py: {name}", file=sys.stderr, flush=True)

    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results, options.out)
    if options.quick or len(replays.present) != len(WORKLOADS):
        options.doc = []
        print("study.py: not all workloads and values, so the tables of documents stay as they are", file=sys.stderr)
    for path in options.doc:
        renew_document(path, results)


if __name__ == "__main__":
    main()
