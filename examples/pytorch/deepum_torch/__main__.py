"""Runs a script as it is, with PyTorch's memory from deepum: python3 -m deepum_torch --budget 8GiB train.py arguments"""
import argparse
import os
import runpy
import sys

from . import _OPTIONS, enable

parser = argparse.ArgumentParser(prog="python3 -m deepum_torch", description=__doc__)
parser.add_argument("--budget", help="device memory for tensors: 8GiB, 50%%, or bytes")
parser.add_argument("--own-allocator", action="store_true", help="leave PyTorch's own allocator")
for name in _OPTIONS:
    parser.add_argument(f"--{name}", help="as of deepum-run")
parser.add_argument("script")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
given = parser.parse_args()

enable(given.budget, allocator=not given.own_allocator, **{name: getattr(given, name) for name in _OPTIONS})
sys.argv = [given.script, *given.arguments]
sys.path[0] = os.path.dirname(os.path.abspath(given.script))
runpy.run_path(given.script, run_name="__main__")
