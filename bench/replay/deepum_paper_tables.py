"""What DeepUM's paper says of its evaluation, and the tables of docs/deepum_paper.md that put deepum_paper.py's results.json
beside it: `<!-- paper:NAME -->`.

Published figures: Jung, Kim, Lee, "DeepUM: Tensor Migration and Prefetching in Unified Memory", ASPLOS'23; tables 3 to 7,
figures 9(b) and 10, section 6.2.
"""

import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from document_tables import markdown, renew  # noqa: E402

GIB = 1 << 30
MIB = 1 << 20
CARD_GIB = 31.5  # of the V100 of 32 GB, less what the driver keeps

# Figure 9(b): seconds of 100 iterations under UM, LMS, LMS-mod and DeepUM. Table 4: MB of tables. Table 5: faults of an
# iteration under UM and DeepUM.
PUBLISHED = {
    "GPT-2 XL": {3: (4597, 1747, 1990, 1429, 308, 7437122, 687), 5: (7706, None, 3020, 2332, 344, 12395173, 7612),
                 7: (10981, None, 3997, 3163, 348, 17210705, 2549)},
    "GPT-2 L": {3: (1865, 885, 927, 605, 169, 2948920, 235), 5: (3839, None, 1672, 1163, 213, 6055304, 476),
                7: (5727, None, None, 1695, 232, 8974631, 884)},
    "BERT large": {14: (978, 611, 665, 290, 78, 1171717, 2913), 16: (1307, None, 786, 403, 75, 1777710, 84),
                   18: (1430, None, None, 438, 74, 1834746, 1355)},
    "BERT base": {29: (135, 450, 456, 129, 19, 88459, 1595), 30: (273, None, None, 158, 27, 349106, 4536),
                  31: (578, None, None, 222, 33, 1077223, 5531)},
    "DLRM": {96: (1203, 1291, 1153, 1005, 13, 1263865, 3706), 128: (1657, 1789, 1602, 1363, 19, 1712886, 6912),
             160: (2123, None, None, 1682, 30, 2583610, 22624), 192: (2894, None, None, 2201, 31, 3471958, 32139),
             224: (3318, None, None, 2507, 35, 4278593, 38437)},
    "ResNet-152": {1280: (31002, 3926, 3992, 3922, 115, 121380940, 34323), 1536: (38173, 4754, 4972, 4767, 128, 144893625, 72598),
                   1792: (49283, None, 6340, 5965, 130, 182230994, 144455)},
    "ResNet-200": {1024: (32420, 4560, 6124, 4585, 144, 126734315, 107093), 1280: (44900, 5470, 5571, 5835, 151, 173517031, 68039),
                   1536: (57302, 7187, 8407, 7235, 169, 207933814, 118472)},
}
UM, LMS, LMS_MOD, DEEPUM, TABLE_MB, UM_FAULTS, DEEPUM_FAULTS = range(7)
PUBLISHED_SPEEDUP = 3.06
PUBLISHED_ABLATION = {"prefetch": 45.6, "with pre-eviction": 63.7, "with invalidation": 66.7}  # % less time than UM
PUBLISHED_LARGEST = {"GPT-2 XL": (3, 16), "ResNet-152": (1536, 1792)}  # table 3: LMS, DeepUM
PUBLISHED_LEAST_SHARE = 97  # % of BERT base's memory that the card holds at batch 29 ("approximately 3 %" does not fit)

# What a step was recorded with, and how much of the recorded batch is one of the paper's. DLRM's batches are thousands of
# 1024, as the paper's "96k" is read here.
MODELS = {
    "GPT-2 XL": {"file": "gpt2_xl_b4", "from": "h200_pcie5", "recorded": 4, "unit": 1},
    "ResNet-152": {"file": "resnet152_b256", "from": "h200_pcie5", "recorded": 256, "unit": 1},
    "BERT base": {"file": "bert_base_b256_a100", "from": "a100_pcie4", "recorded": 256, "unit": 1, "flags": ["--reuse_addresses"]},
    "DLRM": {"file": "dlrm_b2k", "from": "h200_pcie5", "recorded": 2048, "unit": 1024, "budget": "15872MiB"},
}
ALIKE = ("GPT-2 XL", "ResNet-152")  # the paper's models at the paper's batches
# Records of faults that the driver reads for a block under demand paging: the published number over the blocks that fault
# here, at the smallest batch. The profile's costs of faults were fitted to the times of these two rows.
ENTRIES = {"GPT-2 XL": 129.7, "ResNet-152": 643.8, "DLRM": 63.1}
FITTED = (("GPT-2 XL", 3), ("ResNet-152", 1280))

VARIANTS = {
    "deepum": ["--one_at_a_time", "--hold_deepum"],  # the system as the paper describes it
    "both ways": ["--hold_deepum"],
    "not held": ["--one_at_a_time"],
    "prefetch": ["--nopre_evict", "--noinvalidate", "--driver_makes_room", "--hold_deepum"],
    "with pre-eviction": ["--noinvalidate", "--hold_deepum"],
    "with pre-eviction, one at a time": ["--noinvalidate", "--hold_deepum", "--one_at_a_time"],
}
DEGREES = (8, 16, 32, 64, 128)
# Table 6: associativity, successors, rows.
CONFIGURATIONS = [(a, s, r) for r in (128, 512, 1024, 2048) for a, s in ((2, 4), (2, 8), (4, 4))] + [(2, 4, 4096)]
LEARNED = ((3, 6), (7, 12), (13, 20), (21, 40), (41, 100))
SHARES = (99.8, 99.5, 99, 98, 97, 94, 91)


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def seconds(ns):
    return f"{ns / 1e9:.2f}"


def ratio(here, published):
    return f"{here / published:.2f}"


def batch_name(model, batch):
    return f"{batch}k" if model == "DLRM" else str(batch)


def step(results, model, batch, name):
    return results["times"][model][str(batch)][name]


def rows_of(results, models=None):
    return [(m, int(b)) for m in results["times"] if models is None or m in models for b in results["times"][m]]


def doc_card(results):
    rows = []
    for model, found in results["card"].items():
        for k in found["kernels"]:
            rows.append([model, f"`{k['kernel']}`", k["launches"], f"{k['recorded_ns'] / 1e6:.1f}", f"{k['ns'] / 1e6:.1f}",
                         f"{k['ns'] / max(1, k['recorded_ns']):.1f}", "products" if 2 * k["by_products"] > k["launches"] else "bytes"])
        rows.append([model, "**all**", found["launches"], f"{found['recorded_ns'] / 1e6:.1f}", f"{found['ns'] / 1e6:.1f}",
                     f"{found['ns'] / found['recorded_ns']:.1f}", ""])
    return markdown(["step", "kernel", "launches", "recorded, ms", "V100, ms", "factor", "limited by"], rows)


def doc_times(results):
    rows = []
    for model, batch in rows_of(results, ALIKE):
        p = PUBLISHED[model][batch]
        um, deepum = (step(results, model, batch, v)["step_ns"] for v in ("um", "deepum"))
        rows.append([model, batch, f"{p[UM] / 100:.2f}", seconds(um), ratio(um / 1e7, p[UM]) + (", fitted" if (model, batch) in FITTED else ""),
                     f"{p[DEEPUM] / 100:.2f}", seconds(deepum), ratio(deepum / 1e7, p[DEEPUM]),
                     seconds(step(results, model, batch, "both ways")["step_ns"]), seconds(step(results, model, batch, "auto")["step_ns"]),
                     f"{p[LMS] / 100:.2f}" if p[LMS] else "out of memory", f"{p[LMS_MOD] / 100:.2f}" if p[LMS_MOD] else "out of memory"])
    return markdown(["model", "batch", "UM, published", "`um`", "ratio", "DeepUM, published", "`deepum`", "ratio",
                     "`deepum`, both directions", "`auto`", "LMS, published", "LMS-mod, published"], rows)


def speedups(results):
    """(model, batch): times as fast as demand paging, published and here under deepum and auto."""
    found = {}
    for model, batch in rows_of(results, ALIKE):
        p = PUBLISHED[model][batch]
        um = step(results, model, batch, "um")["step_ns"]
        found[model, batch] = (p[UM] / p[DEEPUM], um / step(results, model, batch, "deepum")["step_ns"],
                               um / step(results, model, batch, "auto")["step_ns"])
    return found


def doc_speedups(results):
    found = speedups(results)
    rows = [[m, b, f"{p:.2f}", f"{d:.2f}", ratio(d, p), f"{a:.2f}"] for (m, b), (p, d, a) in found.items()]
    means = [geometric_mean(v[i] for v in found.values()) for i in range(3)]
    rows.append(["**geometric mean**", "these", f"{means[0]:.2f}", f"{means[1]:.2f}", ratio(means[1], means[0]), f"{means[2]:.2f}"])
    every = geometric_mean(p[UM] / p[DEEPUM] for b in PUBLISHED.values() for p in b.values())
    rows.append(["**geometric mean**", "all 23 of figure 9(b)", f"{every:.2f}", "", "", ""])
    return markdown(["model", "batch", "DeepUM over UM, published", "`deepum` over `um`", "ratio", "`auto` over `um`"], rows)


def doc_nearest(results):
    rows = []
    for model, batch in rows_of(results, ("BERT base", "DLRM")):
        p = PUBLISHED[model][batch]
        um, deepum, auto = (step(results, model, batch, v)["step_ns"] for v in ("um", "deepum", "auto"))
        rows.append([model, batch_name(model, batch), f"{step(results, model, batch, 'um')['footprint_bytes'] / GIB:.1f}",
                     f"{p[UM] / 100:.2f}", seconds(um), ratio(um / 1e7, p[UM]), f"{p[DEEPUM] / 100:.2f}", seconds(deepum),
                     ratio(deepum / 1e7, p[DEEPUM]), seconds(auto)])
    return markdown(["model", "batch", "step here, GiB", "UM, published", "`um`", "ratio", "DeepUM, published", "`deepum`", "ratio", "`auto`"], rows)


def doc_shares(results):
    rows = []
    for share, run in results["shares"].items():
        ideal = run["um"]["compute_ns"]
        rows.append([f"{share} %", *(f"{run[v]['step_ns'] / ideal:.2f}" for v in ("um", "deepum", "auto")),
                     f"{run['um']['step_ns'] / run['deepum']['step_ns']:.2f}", f"{run['um']['in_bytes'] / GIB:.2f}"])
    return markdown(["card holds of the step", "`um`, of ideal", "`deepum`, of ideal", "`auto`, of ideal", "`deepum` over `um`", "`um` in, GiB"], rows)


def doc_dlrm(results):
    """A line through the published times of DeepUM by batch."""
    points = [(b * 1024, p[DEEPUM] / 100) for b, p in PUBLISHED["DLRM"].items()]
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    through_zero = sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    rows = [[f"{b}k", f"{p[DEEPUM] / 100:.2f}", f"{mean_y + slope * (b * 1024 - mean_x):.2f}", f"{through_zero * b * 1024:.2f}",
             f"{p[LMS] / 100:.2f}" if p[LMS] else "out of memory"] for b, p in PUBLISHED["DLRM"].items()]
    rows.append(["a sample, us", "", f"{slope * 1e6:.1f}", f"{through_zero * 1e6:.1f}", ""])
    return markdown(["batch", "DeepUM, published, s", "line", "line through zero", "LMS, published, s"], rows)


def doc_faults(results):
    rows = []
    for model, batch in rows_of(results):
        p = PUBLISHED[model][batch]
        um, deepum, loose = (step(results, model, batch, v) for v in ("um", "deepum", "not held"))
        records = f"{um['faults'] * ENTRIES[model] / 1e6:.2f}" if model in ALIKE else ""
        rows.append([model, batch_name(model, batch), f"{p[UM_FAULTS] / 1e6:.2f}", records,
                     ratio(um["faults"] * ENTRIES[model], p[UM_FAULTS]) if records else "", f"{100 * p[DEEPUM_FAULTS] / p[UM_FAULTS]:.3f}",
                     um["faults"], deepum["faults"], f"{100 * deepum['faults'] / um['faults']:.3f}",
                     f"{100 * loose['faults'] / um['faults']:.1f}", step(results, model, batch, "auto")["faults"]])
    return markdown(["model", "batch", "UM, published, 10^6 records", "`um`, 10^6 records", "ratio", "DeepUM of UM, published, %",
                     "`um`, blocks", "`deepum`, blocks", "of `um`, %", "launches not held, %", "`auto`, blocks"], rows)


def doc_learning(results):
    rows = []
    for model, found in results["learning"].items():
        for name, of in (("32 launches ahead", found["deepum"]), ("1024 launches ahead", found["ahead"])):
            row = [f"{model}, batch {min(PUBLISHED[model])}", name]
            for first, last in LEARNED:
                steps = of[first - 1 : last]
                row.append(f"{100 * sum(steps) / len(steps) / found['um']:.3f}" if steps and len(of) >= last else "")
            p = PUBLISHED[model][min(PUBLISHED[model])]
            rows.append(row + [f"{100 * p[DEEPUM_FAULTS] / p[UM_FAULTS]:.3f}"])
    return markdown(["faults of `deepum`, % of `um`", "host", *(f"step {a} to {b}" for a, b in LEARNED), "published"], rows)


def doc_ablation(results):
    names = ("prefetch", "with pre-eviction", "with invalidation")

    def less(run, um):
        return 100 * (1 - run["step_ns"] / um["step_ns"])

    rows = [["published, mean of 23", *(f"{PUBLISHED_ABLATION[n]:.1f}" for n in names), "", ""]]
    found = []
    for model, runs in results["ablation"].items():
        um = runs["um"]
        values = [less(runs[n], um) for n in names]
        batch = runs["batch"]
        p = PUBLISHED[model][batch]
        found.append(values)
        rows.append([f"{model}, batch {batch}", *(f"{v:.1f}" for v in values), f"{100 * (1 - p[DEEPUM] / p[UM]):.1f}", f"{less(runs['auto'], um):.1f}"])
    means = [sum(v) / len(found) for v in zip(*found)]
    rows.append(["mean here", *(f"{v:.1f}" for v in means), "", ""])
    every = [100 * (1 - p[DEEPUM] / p[UM]) for b in PUBLISHED.values() for p in b.values()]
    rows.append(["published, mean of figure 9(b)'s rows", "", "", f"{sum(every) / len(every):.1f}", "", ""])
    rows.append(["published, of the speed-up's mean", "", "", f"{100 * (1 - 1 / PUBLISHED_SPEEDUP):.1f}", "", ""])
    return markdown(["percent less time than `um`", *names, "with all, published of this row", "`auto`"], rows)


def doc_parts(results):
    """What each part makes of the time before it."""
    before = [100 - PUBLISHED_ABLATION[n] for n in ("prefetch", "with pre-eviction", "with invalidation")]
    rows = [["published, mean of 23", f"{100 / before[0]:.2f}", f"{before[0] / before[1]:.2f}", f"{before[1] / before[2]:.2f}", ""]]
    for model, runs in results["ablation"].items():
        t = [runs[n]["step_ns"] for n in ("um", "prefetch", "with pre-eviction", "with invalidation")]
        one = runs["prefetch"]["step_ns"] / runs["with pre-eviction, one at a time"]["step_ns"]
        rows.append([f"{model}, batch {runs['batch']}", *(f"{t[i] / t[i + 1]:.2f}" for i in range(3)), f"{one:.2f}"])
    return markdown(["times as fast as before", "prefetch", "and pre-eviction", "and invalidation", "pre-eviction, one copy at a time"], rows)


def doc_degrees(results):
    rows = []
    for model, runs in results["degrees"].items():
        base = runs["8"]["step_ns"]
        rows.append([model, *(f"{base / runs[str(n)]['step_ns']:.3f}" for n in DEGREES)])
    return markdown(["speed, N = 8 is 1; N =", *map(str, DEGREES)], rows)


def doc_configurations(results):
    rows = []
    for i, (ways, successors, rows_of_table) in enumerate(CONFIGURATIONS):
        row = [i, ways, successors, rows_of_table]
        for runs in results["configurations"].values():
            row += [f"{runs['0']['step_ns'] / runs[str(i)]['step_ns']:.3f}", f"{runs[str(i)]['table_bytes'] / MIB:.1f}"]
        rows.append(row)
    head = ["configuration", "blocks in a row", "successors", "rows"]
    for model in results["configurations"]:
        head += [f"{model}, speed", "MiB"]
    return markdown(head, rows)


def doc_memory(results):
    rows = []
    for model, batch in rows_of(results):
        run = step(results, model, batch, "deepum")
        p = PUBLISHED[model][batch]
        whole = run["block_tables"] * 2048 * 2 * (1 + 4) * 8 / 1e6
        rows.append([model, batch_name(model, batch), p[TABLE_MB], f"{p[TABLE_MB] * 1e6 / (2048 * 2 * 5 * 8):.0f}", run["block_tables"],
                     f"{whole:.0f}", ratio(whole, p[TABLE_MB]), f"{run['table_bytes'] / 1e6:.1f}",
                     f"{step(results, model, batch, 'auto')['table_bytes'] / 1e6:.1f}"])
    return markdown(["model", "batch", "tables, published, MB", "launches that makes", "launches with a table", "whole tables here, MB", "ratio",
                     "`deepum`, MB", "`auto`, MB"], rows)


def largest(results, model, host):
    """The batch at which the step takes as much as the host has: by the line through the smallest and the largest batch."""
    batches = results["times"][model]
    low, high = min(batches, key=int), max(batches, key=int)
    at = {b: batches[b]["um"]["footprint_bytes"] for b in (low, high)}
    slope = (at[high] - at[low]) / (int(high) - int(low))
    return int((host - at[low]) / slope + int(low)), slope


def doc_largest(results):
    rows = []
    for model, (lms, published) in PUBLISHED_LARGEST.items():
        if model not in results["times"]:
            continue
        batch, slope = largest(results, model, 512 * GIB)
        rows.append([model, lms, published, batch, ratio(batch, published), f"{slope / MIB:.0f}", f"{512 * 1024 / published:.0f}"])
    return markdown(["model", "LMS, published", "DeepUM, published", "here, `deepum` and `auto`", "ratio",
                     "a sample here, MiB", "host memory over the published batch, MiB"], rows)


DOCS = {"card": doc_card, "times": doc_times, "speedups": doc_speedups, "nearest": doc_nearest, "shares": doc_shares, "dlrm": doc_dlrm,
        "faults": doc_faults, "learning": doc_learning, "ablation": doc_ablation, "parts": doc_parts, "degrees": doc_degrees, "configurations": doc_configurations,
        "memory": doc_memory, "largest": doc_largest}


def table(results, name):
    """The table of that name."""
    return DOCS[name](results)


def renew_document(path, results):
    """Replaces the tables between the marks of a document."""
    renew(path, "paper", lambda name: table(results, name))
