#!/usr/bin/env python3
"""Tables of the documents, made from the raw results beside this file.

usage: tables.py DOCUMENT...

Renews the tables between `<!-- results:NAME -->` and `<!-- /results -->` in place. TABLES says which file each is of.
"""

import argparse
import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from document_tables import markdown, renew  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20

# ms that no schedule of the step in h200_train_step.json beats, at the rates of h200_train.json, budget by budget:
# bench/replay/lp_bound.py h200_train_step.json BUDGET_GIB 50.8 23.4 --both 40.8 18.2
TRAIN_BOUND = (21.1, 53.7, 75.4)


# --- what a file says -------------------------------------------------------------------------------------------------


def read(name, gpu="h200"):
    return json.loads((HERE / f"{gpu}_{name}.json").read_text(encoding="utf-8"))


def median(run, key):
    return statistics.median(s[key] for s in run["steps"])


def mean(run, key):
    return statistics.mean(s[key] for s in run["steps"])


def middle_half(run):
    """Quartiles of the step time, in ms, as the benchmark prints them."""
    low, _, high = statistics.quantiles([s["ns"] for s in run["steps"]], n=4, method="inclusive")
    return f"{low / 1e6:.1f} to {high / 1e6:.1f}"


def ms(run, digits=1):
    return f"{run['median_ns'] / 1e6:.{digits}f}"


def mib(count):
    return f"{count / MIB:.0f}"


def gbps(rate):
    return f"{rate / 1e9:.1f}"


class Program:
    """The runs of one program."""

    def __init__(self, program):
        self.program = program
        self.budgets = sorted({r["budget_bytes"] for r in program["runs"]} - {0}, reverse=True)
        self.least = {b["budget_bytes"]: b for b in program["least_traffic"]}

    def run(self, system, budget=0):
        return next(r for r in self.program["runs"] if (r["system"], r["budget_bytes"]) == (system, budget))

    def share(self, budget):
        return f"{100 * budget / self.program['footprint_bytes']:.0f} %"


# --- managed memory ---------------------------------------------------------------------------------------------------


def training():
    p = Program(read("train")["programs"][0])
    systems = ("um", "deepum", "auto", "double_managed", "double_pinned")
    rows = []
    for budget, bound in zip(p.budgets, TRAIN_BOUND):
        um, auto = p.run("um", budget), p.run("auto", budget)
        rows.append([p.share(budget), ms(p.run("resident")), *(ms(p.run(s, budget)) for s in systems), bound,
                     f"{auto['median_ns'] / 1e6 / bound:.2f}", f"{um['median_ns'] / auto['median_ns']:.1f}",
                     *(f"{median(p.run(s, budget), 'faults'):.0f}" for s in ("um", "deepum", "auto"))])
    return markdown(["budget", "resident", *systems, "no schedule beats", "auto / that", "um / auto", "faults of um",
                     "of deepum", "of auto"], rows)


def training_in_short():
    p = Program(read("train")["programs"][0])
    rows = [[name, *(f"{mark}{p.run(system, b)['median_ns'] / 1e6:.0f} ms{mark}" for b in p.budgets)]
            for name, system, mark in (("demand paging", "um", ""), ("**deepum**", "auto", "**"))]
    return markdown(["GPU memory for", *(f"{p.share(b)} of the step" for b in p.budgets)],
                    [*rows, ["no schedule takes less than", *(f"{bound:.0f} ms" for bound in TRAIN_BOUND)]])


def forward_pass():
    p = Program(read("evaluate")["programs"][0])
    rows = []
    for budget in p.budgets:
        um, auto = p.run("um", budget), p.run("auto", budget)
        rows.append([p.share(budget), ms(p.run("resident")), ms(um), ms(auto), ms(p.run("double_managed", budget)),
                     f"{um['median_ns'] / auto['median_ns']:.1f}",
                     *(f"{mib(median(r, 'bytes_in'))}, {mib(median(r, 'bytes_out'))}" for r in (um, auto))])
    return markdown(["budget", "resident", "um", "auto", "double_managed", "um / auto", "in, out of um [MiB]",
                     "in, out of auto [MiB]"], rows)


def gather():
    p = Program(read("gather")["programs"][0])

    def cell(system, budget):
        run = p.run(system, budget)
        return f"{ms(run)}, {mean(run, 'ns') / 1e6:.1f}, {median(run, 'faults'):.0f}"

    rows = [[p.share(b), ms(p.run("resident")), *(cell(s, b) for s in ("um", "lru", "auto")), mib(b),
             mib(p.run("auto", b)["peak_bytes"])] for b in p.budgets]
    return markdown(["budget", "resident", "um: median, mean, faults", "lru", "auto", "budget [MiB]",
                     "most on the device under auto [MiB]"], rows)


def everything_fits():
    rows = []
    for what, name in (("12 layers", "fits"), ("4 layers", "fits_four_layers")):
        file = read(name)
        p = Program(file["programs"][0])
        launch = {s["system"]: s for s in file["small_launches"]}
        # "+0.56 % beside resident (0.26 to 0.67, 8 turns of 10 steps)"
        more = {s: p.run(s, p.budgets[0])["notes"].partition(" beside")[0].lstrip("+") for s in ("um", "auto")}
        rows.append([what, mib(p.program["footprint_bytes"]), ms(p.run("resident"), 2),
                     *(cell for s in ("um", "auto") for cell in (ms(p.run(s, p.budgets[0]), 2), more[s])),
                     f"{launch['runtime']['host_ns'] / 1e3:.2f}",
                     *(f"{launch[s]['host_ns_more_than_runtime'] / 1e3:.2f}" for s in ("um", "auto"))])
    return markdown(["step", "MiB", "resident [ms]", "um [ms]", "more", "auto [ms]", "more", "a launch, host [us]",
                     "more under um [us]", "more under auto [us]"], rows)


def feeds():
    costs = [c for c in read("feeds")["feeds"] if not c["skipped"]]
    base = costs[0]["ms"]
    names = {"none": "none", "driver": "the driver's", "driver, unread": "the driver's, records not read"}
    return markdown(
        ["feed of page faults", "median [ms]", "more", "best [ms]", "more"],
        [[names[c["feed"]]] + [cell for f in (statistics.median, min)
                               for cell in (f"{f(c['ms']):.1f}", f"{100 * (f(c['ms']) / f(base) - 1):.0f} %")] for c in costs])


# --- memory that never faults -----------------------------------------------------------------------------------------


def two_ways():
    plain, evicted = read("churn")["churn"]["runs"], read("churn_host_mapped")["churn"]["runs"]

    def cells(runs, system):
        return {r["chunk_bytes"] // MIB: r for r in runs if r["system"] == system}

    auto, pinned, host_mapped = cells(plain, "auto"), cells(plain, "pinned"), cells(evicted, "auto")

    def rates(run):
        return f"{gbps(run['in_each_second'])}, {gbps(run['out_each_second'])}" if run else ""

    rows = [["in, out [GB/s]", *(rates(r) for r in auto.values()), *(rates(r) for r in pinned.values())],
            ["time of a kernel beside it, 1: alone", *(f"{r['compute_slowdown']:.3f}" for r in (*auto.values(), *pinned.values()))],
            ["in, out with `host_mapped` [GB/s]", *(rates(host_mapped.get(c)) for c in auto), *("" for _ in pinned)]]
    return markdown(["chunk [MiB]", *auto, "pinned copies"], rows)


def gpt_step():
    p = Program(read("gpt_step")["programs"][0])
    rows = []
    for budget in reversed(p.budgets):
        auto, least = p.run("auto", budget), p.least[budget]
        rows.append([f"{budget / GIB:.0f} GiB", ms(p.run("resident")),
                     *(ms(p.run(s, budget)) for s in ("um", "by_hand", "deepum", "auto", "oracle")), f"{least['least_ns'] / 1e6:.1f}",
                     f"{auto['median_ns'] / least['least_ns']:.2f}",
                     f"{median(auto, 'bytes_in') / least['least_bytes_in']:.2f}, {median(auto, 'bytes_out') / least['least_bytes_out']:.2f}"])
    return markdown(["budget", "resident", "um", "by_hand", "deepum", "auto", "oracle", "least", "auto / least",
                     "in, out of auto / the least"], rows)


def inference():
    programs = [Program(p) for p in read("infer")["programs"]]
    rows = []
    for budget in reversed(programs[0].budgets):
        for p in programs:
            auto, least = p.run("auto", budget), p.least[budget]
            tokens = next(w for w in p.program["description"].split(", ") if "token" in w).split()[0]
            rows.append([f"{budget / GIB:.0f} GiB", tokens, ms(p.run("resident")), ms(p.run("by_hand", budget)), ms(auto),
                         f"{least['least_ns'] / 1e6:.1f}", f"{median(auto, 'bytes_in') / least['least_bytes_in']:.2f}",
                         f"{max(s['ns'] for s in auto['steps']) / 1e6:.1f}"])
    return markdown(["budget", "tokens", "resident", "by_hand", "auto", "least", "in of auto / the least",
                     "longest call of auto"], rows)


def two_models():
    p = Program(read("infer_two")["programs"][0])
    budget = p.budgets[0]
    auto = p.run("auto", budget)
    return markdown(["budget", "resident", "auto, the middle half", "least, in the mean", "copied out [MiB]"],
                    [[f"{budget / GIB:.0f} GiB", ms(p.run("resident")), middle_half(auto), f"{p.least[budget]['least_ns'] / 1e6:.1f}",
                      mib(median(auto, "bytes_out"))]])


def paged_fits():
    file = read("paged_fits")
    p = Program(file["programs"][0])
    launch = {s["system"]: s for s in file["small_launches"]}
    return markdown(["step [MiB]", "resident [ms]", "auto [ms]", "a launch, host [us]", "more under auto [us]"],
                    [[mib(p.program["footprint_bytes"]), ms(p.run("resident"), 2), ms(p.run("auto", p.budgets[0]), 2),
                      f"{launch['runtime']['host_ns'] / 1e3:.2f}", f"{launch['auto']['host_ns_more_than_runtime'] / 1e3:.2f}"]])


def largest_batch():
    found = {r["system"]: r["largest_batch"] for r in read("largest_batch")["largest_batch"]}
    return markdown(["resident", "by_hand", "um", "auto"], [[found[s] for s in ("resident", "by_hand", "um", "auto")]])


def large():
    p = Program(read("100gib")["programs"][0])
    budget = p.budgets[0]
    auto, least = p.run("auto", budget), p.least[budget]
    return markdown(["footprint", "budget", "host memory in use", "resident [ms]", "auto [ms]", "least [ms]", "steps"],
                    [[f"{p.program['footprint_bytes'] / GIB:.0f} GiB", f"{budget / GIB:.0f} GiB", f"{auto['memory_taken']['host'] / GIB:.0f} GiB",
                      ms(p.run("resident"), 0), ms(auto, 0), f"{least['least_ns'] / 1e6:.0f}", len(auto["steps"])]])


# --- convolutional nets --------------------------------------------------------------------------------------------------


class Convnet:
    """A net with one kind of products: its runs, and what the file says of it beside them."""

    def __init__(self, program, facts):
        self.facts, self.rates = facts, program["rates_pinned"]
        self.runs = [r for r in program["runs"] if "skipped" not in r]

    def find(self, system, budget=None):
        return next((r for r in self.runs if r["system"] == system and budget in (None, r["budget_bytes"])), None)

    def at_equal_peak(self, inputs, algorithms=""):
        """vdnn, vdnn_ext and auto in percent of the resident run, and the peak."""
        vdnn = self.find(f"vdnn {inputs}{algorithms}")
        if vdnn is None:
            return "-"
        base, budget = self.find("resident" + algorithms), vdnn["budget_bytes"]
        runs = (vdnn, self.find(f"vdnn_ext {inputs}{algorithms}", budget), self.find("auto" + algorithms, budget))
        shares = (f"{100 * base['median_ns'] / r['median_ns']:.1f}" if r else "-" for r in runs)
        return f"{', '.join(shares)} at {mib(budget)}"

    def choice(self):
        chosen = ", chosen algorithms"
        algorithms = chosen if self.find("resident" + chosen) else ""
        return f"{self.facts['choice']['outcome']}: {self.at_equal_peak('choice', algorithms)}"


def convnet_list():
    file = read("convnets", "h100")
    return [Convnet(p, f) for p, f in zip(file["programs"], file["nets"])]


def convnets():
    rows = []
    for net in convnet_list():
        base, all_inputs = net.find("resident"), net.find("vdnn all")
        most = net.facts["base_peak_bytes"]
        small = min((r for r in net.runs if r["system"] == "auto"), key=lambda r: abs(r["budget_bytes"] - 0.8 * most))
        loses = all_inputs["median_ns"] / small["median_ns"]
        rows.append([f"{net.facts['net']} {net.facts['batch']}", net.facts["products"], ms(base), mib(most), net.at_equal_peak("conv"),
                     net.at_equal_peak("all"), net.choice(), f"{loses:.2f}"])
    return markdown(["net, batch", "floats", "resident [ms]", "base [MiB]", "conv: vdnn, vdnn_ext, auto [% of resident], peak [MiB]",
                     "all: the same", "the dynamic choice: the same", "vdnn all / auto at 80 % of base"], rows)


def convnet_links():
    rows = []
    for net in convnet_list():
        layers = [layer for layer in net.facts["layers"] if layer["input_leaves"]]
        inputs, rate = sum(layer["input_bytes"] for layer in layers), net.rates["out"]
        longer = sum(1e9 * layer["input_bytes"] / rate > layer["forward_ns"] for layer in layers)
        vdnn, ext = net.find("vdnn all"), net.find("vdnn_ext all")
        auto = net.find("auto", vdnn["budget_bytes"])
        moved = [f"{median(r, 'bytes_in') / 1e9:.2f}, {median(r, 'bytes_out') / 1e9:.2f}" for r in (vdnn, ext, auto)]
        rows.append([f"{net.facts['net']} {net.facts['batch']}", net.facts["products"], f"{inputs / 1e9:.2f}", f"{1e3 * inputs / rate:.1f}",
                     ms(net.find("resident")), f"{longer} of {len(layers)}", *moved])
    return markdown(["net, batch", "floats", "inputs that leave [GB]", "the same on the link [ms]", "resident [ms]",
                     "layers whose input travels longer than they compute", "in, out of vdnn all [GB]", "of vdnn_ext all", "of auto there"],
                    rows)


def slices():
    """AdamW over three times the budget, in pieces."""
    rows = []
    for memory in ("paged", "managed"):
        file = read(f"slices_{memory}", "h100")["slices"]
        for run in file["runs"]:
            rows.append([f"{memory}, {file['size_bytes'] / GIB:.0f} GiB in {file['budget_bytes'] / GIB:.0f}", run["system"], f"{run['step_ns'][0] / 1e6:.1f}", f"{run['step_ns'][0] / file['link_ns']:.2f}",
                         f"{run['steady_ns'] / 1e6:.1f}", f"{run['steady_ns'] / file['least_ns']:.2f}", f"{mib(run['bytes_in'])}, {mib(run['bytes_out'])}"])
    return markdown(["memory", "policy", "first pass [ms]", "of its link time", "later passes [ms]", "of the least", "in, out [MiB]"], rows)


# --- programs that nobody edits ---------------------------------------------------------------------------------------


def unedited():
    """Steps of `tests/gpu/programs/train.py` and `chain.cu`, as they are and under deepum-run."""
    runs = read("run")["runs"]

    def step(name):
        times = runs[name]["output"]["ms"]
        return statistics.median(times[len(times) // 2:])

    rows = []
    for what, plain, pairs in (
            ("GPT-2 of transformers in PyTorch", "train", (("1.5 GiB", "train_auto_1536MiB", None), ("1 GiB", "train_auto_1GiB", "train_um_1GiB"))),
            ("kernels, a graph, cuBLAS, copies", "chain_static",
             (("75 %", "chain_static_auto_75", None), ("50 %", "chain_static_auto_50", "chain_static_um_50")))):
        for budget, auto, um in pairs:
            rows.append([what, budget, f"{step(plain):.1f}", f"{step(auto):.1f}", f"{step(um):.1f}" if um else "-",
                         f"{step(um) / step(auto):.1f}" if um else "-"])
    return markdown(["program", "budget", "as it is [ms]", "auto [ms]", "um [ms]", "um / auto"], rows)


def pytorch():
    """Steps of `tests/gpu/programs/train.py`: with PyTorch's own allocator, that of CUDA's pools and that of deepum_torch."""
    runs = read("pytorch", "h100")["runs"]

    def step(name):
        times = runs.get(name, {}).get("output", {}).get("ms")
        return statistics.median(times[len(times) // 2:]) if times else None

    def cell(value, digits=0):
        return "-" if value is None else f"{value:.{digits}f}"

    rows = []
    for what, kind in (("eager", "bf16"), ("torch.compile", "compiled")):
        um = step(f"train_{kind}_um_1200MiB")
        for memory, name in (("its own", f"train_{kind}_own_1200MiB"), ("pools of CUDA", f"train_{kind}_pools_1200MiB"),
                             ("deepum_torch", f"train_{kind}_plugged_1200MiB")):
            auto = step(name)
            if auto:
                fits = step(name.replace("1200MiB", "fits_3GiB"))
                rows.append([what, memory, cell(step(f"train_{kind}")), cell(auto), cell(um), f"{um / auto:.1f}", cell(fits)])
    return markdown(["mode", "allocator", "as it is [ms]", "auto [ms]", "um, own allocator [ms]", "um / auto", "everything fits [ms]"], rows)


TABLES = {f.__name__: f for f in (training, training_in_short, forward_pass, gather, everything_fits, feeds, two_ways, gpt_step, inference,
                                  two_models, paged_fits, largest_batch, large, convnets, convnet_links, slices, unedited, pytorch)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("documents", nargs="+", metavar="DOCUMENT", help="Markdown file whose tables are renewed")
    for path in parser.parse_args().documents:
        renew(path, "results", lambda name: TABLES[name]())


if __name__ == "__main__":
    main()
