"""The tables of documents that study.py's results.json is shown in: `<!-- study:NAME -->`."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from document_tables import markdown, renew  # noqa: E402

GIB = 1 << 30

# Budget in GiB, GB/s each way, steps, and the percentage of ideal that no schedule exceeds (docs/bounds.md; for DLRM
# at this budget by the same program). DLRM's eight steps differ, so eight of eleven are averaged.
WORKLOADS = {
    "bert_base_b256_a100": {"title": "BERT base", "budget": 40, "gbps": 15.754, "steps": 8, "bound": 100.0},
    "opt_13b_infer_b8": {"title": "OPT-13B", "budget": 28, "gbps": 50.8, "steps": 8, "bound": 77.9},
    "gpt2_xl_b4": {"title": "GPT-2 XL", "budget": 48, "gbps": 50.8, "steps": 8, "bound": 32.4},
    "resnet152_b256": {"title": "ResNet-152", "budget": 21, "gbps": 50.8, "steps": 8, "bound": 31.9},
    "dlrm_b2k": {"title": "DLRM", "budget": 10, "gbps": 50.8, "steps": 11, "bound": 3.79},
}

POLICIES = ("um", "lru", "deepum", "auto", "oracle")
ABLATION = {
    "prefetch": ["--nopre_evict", "--noinvalidate"],
    "with pre-eviction": ["--noinvalidate"],
    "with invalidation": [],
}
PUBLISHED_ABLATION = {"prefetch": 45.6, "with pre-eviction": 63.7, "with invalidation": 66.7}  # DeepUM, ASPLOS'23
PUBLISHED_BERT = {"um": 37.1, "deepum": 79.5}  # percent of ideal, G10, MICRO'23, its published results


def title(workload):
    return WORKLOADS[workload]["title"]


def gib(count):
    return f"{count / GIB:.2f}"


def seconds(ns):
    return f"{ns / 1e9:.3f}"


def doc_policies(found):
    return markdown(
        ["workload", "budget", *POLICIES, "no schedule exceeds"],
        [[f"`{w}`", f"{WORKLOADS[w]['budget']} GiB", *(f"{runs[p]['percent_of_ideal']:.1f}" for p in POLICIES),
          f"{WORKLOADS[w]['bound']:.1f}"] for w, runs in found.items()])


def doc_traffic(found):
    return markdown(
        ["workload", "policy", "step, s", "first step, s", "in, GiB", "out, GiB", "faults", "tables, MiB"],
        [[f"`{w}`", p, seconds(r["step_ns"]), seconds(r["first_step_ns"]), gib(r["in_bytes"]), gib(r["out_bytes"]), r["faults"],
          f"{r['table_bytes'] / 2**20:.1f}"] for w, runs in found.items() for p, r in runs.items()])


def doc_ablation(found):
    rows = [["published", *(f"{PUBLISHED_ABLATION[n]:.1f}" for n in ABLATION)]]
    rows += [[f"`{w}`", *(f"{runs[n]['percent_less_time_than_um']:.1f}" for n in ABLATION)] for w, runs in found.items()]
    return markdown(["percent less time than `um`", *ABLATION], rows)


def doc_lookahead(found):
    return markdown(["step, s; N =", *next(iter(found.values()))],
                    [[f"`{w}`", *(seconds(r["step_ns"]) for r in runs.values())] for w, runs in found.items()])


def doc_tables(found):
    names = next(iter(found.values()))
    head = ["rows x ways x successors"]
    for w in found:
        head += [f"{title(w)}, s", "MiB"]
    rows = []
    for name in names:
        row = [name]
        for runs in found.values():
            row += [seconds(runs[name]["step_ns"]), f"{runs[name]['table_bytes'] / 2**20:.2f}"]
        rows.append(row)
    return markdown(head, rows)


def doc_budgets(found):
    return markdown(["percent of ideal at a budget of", *(f"{s} %" for s in next(iter(found.values())))],
                    [[f"{title(w)}, {p}", *(f"{runs[p]['percent_of_ideal']:.1f}" for runs in by.values())]
                     for w, by in found.items() for p in ("auto", "deepum")])


def doc_scenarios(found):
    def said(value):
        return "-" if value is None else value

    return markdown(
        ["workload", "scenario", "changes", "turns to recover, at most", "never recovered", "longest step / um's", "all time / um's"],
        [[f"`{w}`", s, r["changes"], said(r["most_turns_to_recover"]), r["not_recovered"], said(r["worst_against_um"]),
          said(r["time_against_um"])] for w, by in found.items() for s, r in by.items()])


def doc_published_bert(found):
    rows = [["published simulation", "", "", PUBLISHED_BERT["um"], "185.9 / 185.9", PUBLISHED_BERT["deepum"], "53.6 / 53.6"]]
    for s in found:
        rows.append([f"{s['gbps']} GB/s", s["fault_latency"].replace("us", " us"), "at once" if s["fault_overlap"] else "in turn"])
        for p in ("um", "deepum"):
            rows[-1] += [f"{s[p]['percent_of_ideal']:.1f}", f"{s[p]['in_bytes'] / 1e9:.1f} / {s[p]['out_bytes'] / 1e9:.1f}"]
    return markdown(["link each way", "a fault costs", "eviction and fetch", "`um`, % of ideal", "in / out, GB",
                     "`deepum`, % of ideal", "in / out, GB"], rows)


DOCS = {"policies": ("policies", doc_policies), "traffic": ("policies", doc_traffic), "ablation": ("ablation", doc_ablation),
        "lookahead": ("lookahead", doc_lookahead), "tables": ("tables", doc_tables), "budgets": ("budgets", doc_budgets),
        "scenarios": ("scenarios", doc_scenarios), "published_bert": ("published_bert", doc_published_bert)}


def table(results, name):
    """The table of that name; None where results have nothing for it."""
    study, write = DOCS[name]
    return write(results[study]) if results[study] else None


def renew_document(path, results):
    """Replaces the tables between the marks of a document."""
    renew(path, "study", lambda name: table(results, name))
