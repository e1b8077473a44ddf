#!/usr/bin/env python3
"""Draws a run as one HTML page that needs nothing else: no network, no script.

usage: report.py --out FILE [--title TEXT] FILE...

Takes, in any order, what these write: DEEPUM_TRACE and `deepum::trace`, DEEPUM_STATISTICS and `deepum::to_json`,
train_gpt --json and --trace, deepum-replay --json and --trace. A file that is none of them is named on the page. Needs
Python 3 alone. The results of many runs are another page: archive.py.
"""
import argparse
import pathlib
import sys

import run_page
import runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the page")
    parser.add_argument("--title", default="deepum: a run")
    parser.add_argument("files", nargs="+", help="traces, metrics, JSON of runs")
    options = parser.parse_args()
    inputs = runs.Inputs(options.files)
    text = run_page.build(inputs, options.title).text(inputs.files)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.1f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
