#!/usr/bin/env python3
"""Convolutional nets on simulated cards: `auto` beside vdnn and vdnn_ext at each of their peaks, and beside the bound.

usage: convnet_cells.py [--bin FOLDER] [--nets NET:BATCH,...] [--cards NAME,...]

A line for each net, batch, card, kind of algorithms and peak: the fastest of base, vdnn and vdnn_ext that needs no more
than that peak, `auto` with it as its budget, and what no schedule beats (lp_bound.py, which needs numpy and scipy); then
`auto` at 80 % of the peak of base. The programs are deepum-convnet and deepum-step.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LINK_GBPS = "12.8"  # of both cards
RUN = re.compile(r"^(base|vdnn\S* \w+) +([\d.]+) .* +(\d+) +([\d.]+)$", re.MULTILINE)


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, text=True, capture_output=True).stdout


def bound_ms(step, mib):
    text = output(sys.executable, HERE / "lp_bound.py", step, mib / 1024, LINK_GBPS, LINK_GBPS, "--windows", "48")
    return json.loads(text)["bound_ns"] / 1e6


def cells(programs, net, batch, card, fastest, folder):
    choice = [f"--net={net}", f"--batch={batch}", f"--card={card}", f"--fastest={fastest}"]
    text = output(programs / "deepum-convnet", *choice)
    output(programs / "deepum-convnet", *choice, f"--write={folder / 'w.jsonl'}")
    output(programs / "deepum-step", folder / "w.jsonl", folder / "step.json")
    runs = {m[1]: (float(m[2]), int(m[3]), float(m[4])) for m in RUN.finditer(text) if "choice" not in m[1]}
    what = f"{net} {batch}, {card}, {'fastest' if fastest == 'true' else 'memory-optimal'}"
    for peak in sorted({r[1] for r in runs.values()}):
        auto = next(r[2] for r in runs.values() if r[1] == peak)
        best = min(ms for name, (ms, needed, _) in runs.items() if needed <= peak)
        bound = bound_ms(folder / "step.json", peak)
        print(f"{what}, {peak} MiB: the best {best:.2f} ms, auto {auto:.2f} ({100 * (auto / best - 1):+.2f} %), "
              f"bound {bound:.2f} ({100 * (auto / bound - 1):+.2f} %)", flush=True)
    base, everything = runs["base"], runs["vdnn all"]
    budget, auto = int(0.8 * base[1]), float(re.search(r"at 80 % of the peak of base: ([\d.]+)", text)[1])
    bound = bound_ms(folder / "step.json", budget)
    print(f"{what}, 80 % of base: auto {auto:.2f} ms, bound {bound:.2f} ({100 * (auto / bound - 1):+.2f} %); vdnn all loses "
          f"{100 * (1 - base[0] / everything[0]):.0f} % and takes {everything[0] / auto:.2f} times as long", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bin", default="build/bin", help="folder of the programs")
    parser.add_argument("--nets", default="alexnet:128,alexnet:512,vgg16:16,vgg16:42,forks:32", help="net:batch, with commas")
    parser.add_argument("--cards", default="gtx970_pcie3,titanx_pcie3", help="profiles, with commas")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for net in chosen.nets.split(","):
            for card in chosen.cards.split(","):
                for fastest in ("true", "false"):
                    cells(pathlib.Path(chosen.bin), *net.split(":"), card, fastest, pathlib.Path(folder))


if __name__ == "__main__":
    main()
