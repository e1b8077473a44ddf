"""What the library costs whoever compiles with it: processor time of a compiler, the best of some runs, beside the same
file without the library.

Prints a table and writes JSON. A row is a file; its columns are the file without the library, with the headers alone, and
with DEEPUM_SEPARATE_COMPILATION (the CMake targets deepum::compiled and deepum::compiled_cuda). The time is user and
system time of all that the compiler's driver starts.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SEPARATE = ["-DDEEPUM_SEPARATE_COMPILATION"]
WITH = ["-DWITH_DEEPUM"]
COLUMNS = ["without", "headers alone", "compiled once"]


def seconds(command):
    """Processor time of a command and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_includes(path, headers):
    with open(path, "w") as out:
        out.writelines(f"#include <{header}>\n" for header in headers)
    return path


def commands(args, folder):
    """By row, by column: what to run."""
    out = ["-o", os.path.join(folder, "out.o")]
    common = ["-std=c++20", "-DNDEBUG", "-I", os.path.join(ROOT, "include")]
    cxx = [args.cxx, *common]
    compiled = [*cxx, "-O1", "-c", *out]
    program = os.path.join(HERE, "program.cpp")
    headers = write_includes(os.path.join(folder, "headers.cpp"), ["deepum/arena.hpp", "deepum/stream.hpp"])
    nothing = write_includes(os.path.join(folder, "nothing.cpp"), [])
    once = write_includes(os.path.join(folder, "once.cpp"), ["deepum/src.hpp"])
    rows = {
        "arena.hpp and stream.hpp, parsed": {
            "without": [*cxx, "-fsyntax-only", nothing],
            "headers alone": [*cxx, "-fsyntax-only", headers],
            "compiled once": [*cxx, "-fsyntax-only", *SEPARATE, headers],
        },
        "program.cpp, arena and stream on the simulated GPU": {
            "without": [*compiled, program],
            "headers alone": [*compiled, *WITH, program],
            "compiled once": [*compiled, *WITH, *SEPARATE, program],
        },
        "deepum/src.hpp, once for a program": {"compiled once": [*compiled, *SEPARATE, once]},
    }
    nvcc = shutil.which(args.nvcc)
    if nvcc is None:
        print(f"no {args.nvcc}: .cu files are left out", file=sys.stderr)
        return rows
    helper = ["-I", os.path.join(ROOT, "kernel-helper")]
    cuda = [nvcc, *common, *helper, "-O1", "-gencode", f"arch=compute_{args.sm},code=sm_{args.sm}", "-c", *out]
    kernels = os.path.join(HERE, "program.cu")
    toolkit = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include")
    cuda_once = write_includes(os.path.join(folder, "cuda_once.cpp"), ["deepum/cuda/src.hpp"])
    rows[f"program.cu, ten kernels launched, nvcc for sm_{args.sm}"] = {
        "without": [*cuda, kernels],
        "headers alone": [*cuda, *WITH, kernels],
        "compiled once": [*cuda, *WITH, *SEPARATE, kernels],
    }
    rows["deepum/cuda/src.hpp, once for a program"] = {
        "compiled once": [*compiled, "-isystem", toolkit, *helper, *SEPARATE, cuda_once]
    }
    return rows


def version(compiler):
    said = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()
    return next((line for line in said if "release" in line), said[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--sm", default="90", help="the architecture that .cu files are compiled for")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", required=True)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        rows = commands(args, folder)
        best = {row: {} for row in rows}
        for _ in range(args.runs):  # the runs of one row lie apart, so that one disturbance does not meet all of them
            for row, columns in rows.items():
                for column, command in columns.items():
                    best[row][column] = min(best[row].get(column, float("inf")), seconds(command))

    print(f"{'seconds of processor time':60}" + "".join(f"{column:>15}" for column in COLUMNS))
    for row, columns in best.items():
        print(f"{row:60}" + "".join(f"{columns[c]:>15.2f}" if c in columns else f"{'-':>15}" for c in COLUMNS))
    compilers = {"cxx": version(args.cxx)}
    if shutil.which(args.nvcc):
        compilers["nvcc"] = version(args.nvcc)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    with open(args.json, "w") as out:
        json.dump(
            {"compilers": compilers, "machine": platform.machine(), "runs": args.runs, "commit": commit,
             "seconds": {row: {c: round(s, 2) for c, s in columns.items()} for row, columns in best.items()}},
            out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    sys.exit(main())
