#!/usr/bin/env python3
"""memHarvester beside its ablation: graph-like scans and pipeline-parallel jobs on four V100s, in percent of demand paging.

The machine is that of table 1 of the paper (12.3 GB/s to the host, 40.1 GB/s between GPUs), the jobs have the overcommitment of its
table 2, scaled down. One GPU runs the job, one to three others lend memory and their links. Prints a table in Markdown:

    python3 bench/replay/harvest_study.py --replay build/bin/deepum-replay
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

MIB = 1 << 20
BLOCK = 2 * MIB
PCIE, NVLINK = 12.3, 40.1  # GB/s, as measured on that machine
FAULT_LATENCY = "45us"  # as the replay has it for managed memory


class Job:
    def __init__(self, name, published, local, spare, lenders, tensors, launches, harvesters=1):
        self.harvesters = harvesters
        self.name, self.published = name, published
        self.local, self.spare, self.lenders = local, spare, lenders  # blocks; blocks in all; devices
        self.tensors, self.launches = tensors, launches

    def write(self, path):
        with open(path, "w", encoding="utf-8") as out:
            print(json.dumps({"deepum_workload": 1, "name": self.name, "kernels": len(self.launches), "tensors": len(self.tensors)}), file=out)
            for t in self.tensors:
                print(json.dumps(t), file=out)
            for k in self.launches:
                print(json.dumps(k), file=out)


def persistent(tensors, blocks):
    tensors.append({"tensor": len(tensors), "bytes": blocks * BLOCK, "persistent": True})
    return len(tensors) - 1


def scan(name, published, blocks, over, spare, lenders, ns, seed=None, harvesters=1):
    """Edges that are read piece by piece in each round, and a vector that all pieces update.

    With a seed each round reads half of the pieces, others for each launch that looks at a frontier.
    """
    tensors, launches = [], []
    state = persistent(tensors, max(4, blocks // 32))
    pieces = [persistent(tensors, 16) for _ in range(blocks // 16)]
    dice = random.Random(seed)
    rounds = [pieces] if seed is None else [sorted(dice.sample(pieces, len(pieces) * 2 // 3)) for _ in range(2)]
    for chosen in rounds:
        for p in chosen:
            launches.append({"kernel": name, "ns": ns, "in": [p, state], "out": [state]})
    used = len(pieces) * 16 + max(4, blocks // 32)
    return Job(name, published, int(used / over), int(used * spare), lenders, tensors, launches, harvesters)


def stage(name, published, layers, weights, stash, micro, over, spare, lenders, ns, harvesters=1):
    """A stage of a pipeline: micro-batches forward, each with a stash of its own, then backward, then an update."""
    tensors, launches = [], []
    w = [persistent(tensors, weights) for _ in range(layers)]
    g = [persistent(tensors, weights) for _ in range(layers)]
    s = {}
    for m in range(micro):
        for layer in range(layers):
            s[m, layer] = persistent(tensors, stash)
    for m in range(micro):
        for layer in range(layers):
            launches.append({"kernel": "forward", "ns": ns, "in": [w[layer]], "out": [s[m, layer]]})
    for m in range(micro):
        for layer in reversed(range(layers)):
            launches.append({"kernel": "backward", "ns": 2 * ns, "in": [w[layer], s[m, layer], g[layer]], "out": [g[layer]]})
    for layer in range(layers):
        launches.append({"kernel": "update", "ns": ns, "in": [w[layer], g[layer]], "out": [w[layer]]})
    used = layers * 2 * weights + micro * layers * stash
    return Job(name, published, int(used / over), int(used * spare), lenders, tensors, launches, harvesters)


def jobs():
    ms = 1_000_000
    return [
        # name, published over pre-ef-host, blocks, overcommitment and spare memory as in table 2
        scan("PageRank, case 1", 1.31, 1920, 1.87, 4.64 / 29.9, 3, ms),
        scan("BFS, case 2", 2.1, 1536, 1.51, 0.34, 2, ms, seed=2),
        scan("WCC, case 3", 2.71, 1792, 1.77, 0.29, 2, ms),
        scan("WCC, case 4", 1.3, 1792, 1.77, 0.073, 1, ms, harvesters=2),
        stage("GNMT16 stage", 1.5, 8, 16, 16, 8, 1.5, 0.35, 3, 2 * ms),  # all of what does not fit, from three others
        stage("VGG16 stage", 1.24, 4, 32, 24, 8, 1.3, 0.15, 1, 4 * ms, harvesters=3),  # less than that, from one
    ]


def machine(job, with_neighbours, detours):
    links = {"pcie0_in": PCIE, "pcie0_out": PCIE}
    routes = [["host", 0, ["pcie0_in"]], [0, "host", ["pcie0_out"]]]
    budgets = {"0": job.local * BLOCK / 2**30}
    for n in range(1, job.lenders + 1) if with_neighbours else []:
        links.update({f"pcie{n}_in": PCIE, f"pcie{n}_out": PCIE, f"nv0_{n}": NVLINK, f"nv{n}_0": NVLINK})
        routes += [["host", n, [f"pcie{n}_in"]], [n, "host", [f"pcie{n}_out"]], [0, n, [f"nv0_{n}"]], [n, 0, [f"nv{n}_0"]]]
        if detours:  # the engine's own; the published system stages in the memory of the neighbour
            routes += [["host", 0, [f"pcie{n}_in", f"nv{n}_0"]], [0, "host", [f"nv0_{n}", f"pcie{n}_out"]]]
        budgets[str(n)] = max(1, job.spare // job.lenders) * BLOCK / 2**30
    return {"budgets_gib": budgets, "copy_latency_ns": 4400, "links": links, "routes": routes}  # 16.7 us = 2 MiB at the rate, and this


STEPS = [
    # title, policy, parts of `harvest`, on the machine with neighbours
    ("Base", "um", "", False),
    ("H", "harvest", "h", True),
    ("PE", "harvest", "h,pe", True),
    ("PLF", "harvest", "h,pe,plf", True),
    ("LPF", "harvest", "h,pe,plf,lpf", True),
    ("MPF", "harvest", "h,pe,plf,mpf", True),
    ("Pre-ef-host", "harvest", "pe,lpf", False),
    ("auto", "auto", "", True),
]


def step_ms(replay, job, policy, parts, with_neighbours, folder):
    on, work, result = folder / "machine.json", folder / "job.jsonl", folder / "result.json"
    on.write_text(json.dumps(machine(job, with_neighbours, policy == "auto")), encoding="utf-8")
    job.write(work)
    command = [replay, f"--policy={policy}", f"--harvest={parts}", f"--harvesters={job.harvesters}", f"--machine={on}", f"--fault_latency={FAULT_LATENCY}", "--steps=10",
               f"--json={result}", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(result.read_text(encoding="utf-8"))["runs"][0]["steady_step_ns"] / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replay", default="build/bin/deepum-replay", help="the program deepum-replay")
    args = parser.parse_args()
    titles = [title for title, *_ in STEPS]
    print("| step, ms | " + " | ".join(titles) + " | `harvest` over Pre-ef-host | published | `auto` over `harvest` |")
    print("|---" * (len(titles) + 4) + "|")
    with tempfile.TemporaryDirectory() as name:
        for job in jobs():
            ms = {title: step_ms(args.replay, job, *how, pathlib.Path(name)) for title, *how in STEPS}
            times = " | ".join(f"{ms[title]:.0f}" for title in titles)
            print(f"| {job.name} | {times} | {ms['Pre-ef-host'] / ms['MPF']:.2f} | {job.published} | {ms['MPF'] / ms['auto']:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
