"""What the headers cost whoever includes them: seconds of a compiler, the best of some runs, beside an empty file.

Prints a table and writes JSON. "separate" is with DEEPUM_SEPARATE_COMPILATION (the CMake target deepum::compiled). "all
headers" are those that need nothing beside the C++ library and the CUDA toolkit's runtime; what the C++ library's and
CUDA's own headers cost that they include is measured by itself.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEPARATE = "-DDEEPUM_SEPARATE_COMPILATION"


def seconds(command, runs):
    """Processor time of the fastest of some runs of a command."""
    best = None
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = spent if best is None else min(best, spent)
    return best


def foreign_headers(command, source):
    """The headers of others that headers of this library include, in order."""
    ours = os.path.join(ROOT, "include", "deepum")
    listed = subprocess.run(command + ["-E", "-H", "-o", os.devnull, source], check=True, capture_output=True, text=True)
    found = []
    path = [source]  # from the source file to the header of the line before
    for line in listed.stderr.splitlines():
        dots, _, header = line.partition(" ")
        if set(dots) != {"."}:
            break  # behind the headers comes a list of those without guards
        del path[len(dots):]
        if path[-1].startswith(ours) and not header.startswith(ours):
            found.append(header)
        path.append(header)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--cuda", default="/usr/local/cuda", help="toolkit; without one its headers are left out")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", required=True)
    args = parser.parse_args()

    flags = [args.compiler, "-std=c++20", "-DNDEBUG", "-I", os.path.join(ROOT, "include")]
    files = {
        "an empty file": [],
        "units.hpp": ["units"],
        "arena.hpp": ["arena"],
        "arena.hpp and stream.hpp": ["arena", "stream"],
        "deepum.hpp (with the simulated GPU)": ["deepum"],
    }
    cuda = os.path.join(args.cuda, "include")
    if os.path.exists(os.path.join(cuda, "cuda_runtime_api.h")):
        flags += ["-isystem", cuda]
        files["arena.hpp, stream.hpp and cuda.hpp"] = ["arena", "stream", "cuda"]
        files["the same, metrics.hpp and trace.hpp"] = ["arena", "stream", "cuda", "metrics", "trace"]
        files["all headers"] = ["deepum", "cuda", "metrics", "trace", "interop/pmr"]

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, headers in files.items():
            source = os.path.join(folder, "includes.cpp")
            with open(source, "w") as out:
                out.writelines(f"#include <deepum/{header}.hpp>\n" for header in headers)
            for mode in ([], [SEPARATE]):
                rows.append((f"{name}, parsed", bool(mode), seconds(flags + mode + ["-fsyntax-only", source], args.runs)))
                if headers:
                    others = os.path.join(folder, "others.cpp")
                    with open(others, "w") as out:
                        out.writelines(f'#include "{header}"\n' for header in foreign_headers(flags + mode, source))
                    rows.append((f"  of which headers of others: {name}", bool(mode),
                                 seconds(flags + ["-fsyntax-only", others], args.runs)))
        saxpy = os.path.join(ROOT, "examples", "saxpy.cpp")
        compiled = ["-O2", "-c", "-o", os.path.join(folder, "saxpy.o"), saxpy]
        for mode in ([], [SEPARATE]):
            rows.append(("examples/saxpy.cpp, compiled by -O2", bool(mode), seconds(flags + mode + compiled, args.runs)))
        once = os.path.join(folder, "once.cpp")
        with open(once, "w") as out:
            out.write("#include <deepum/src.hpp>\n")
        once = flags + [SEPARATE, "-O2", "-c", "-o", os.path.join(folder, "once.o"), once]
        rows.append(("src.hpp, once for a program, compiled by -O2", True, seconds(once, args.runs)))

    by_name = {}
    for name, separate, spent in rows:
        by_name.setdefault(name, {})["separate" if separate else "header-only"] = round(spent, 2)
    print(f"{'seconds':76} header-only  separate")
    for name, spent in by_name.items():
        print(f"{name:76} {spent.get('header-only', '-'):>11} {spent.get('separate', '-'):>9}")
    version = subprocess.run([args.compiler, "--version"], check=True, capture_output=True, text=True).stdout
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    with open(args.json, "w") as out:
        json.dump(
            {"compiler": version.splitlines()[0], "machine": platform.machine(), "runs": args.runs, "commit": commit,
             "seconds": by_name},
            out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    sys.exit(main())
