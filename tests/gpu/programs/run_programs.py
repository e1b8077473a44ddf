#!/usr/bin/env python3
"""Programs that nobody edits, as they are and under deepum-run, on a real GPU: a CUDA program of kernels, graphs, copies and
cuBLAS, and the training of a transformers model with PyTorch. Prints one JSON object; ends with 0 where every run under
deepum-run has computed bit by bit what the plain run has.

usage: run_programs.py [--bin build/bin] [--only chain|train] [--kinds bf16,fp32,compiled] [--seconds 280] [--commit HASH]

One process at a time. Managed memory: at most 4 GiB (DEEPUM_MANAGED_LIMIT), and only where that is an eighth of what the card
has free. Needs nvcc; the part with PyTorch needs torch and transformers, and is left out where they are missing. Abseil's
libraries may lie in BIN/libs, for machines that have none.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_MIB = 4096


def ask_gpu(what):
    return subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                          check=True).stdout.splitlines()[0].strip()


def free_mib():
    return int(ask_gpu("memory.free"))


def last_line(command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()[-1]


class Runner:
    def __init__(self, options):
        self.bin = pathlib.Path(options.bin).resolve()
        self.until = time.monotonic() + options.seconds
        self.results = {}

    def run(self, name, command, budget=None, policy=None, extra=(), variables=None):
        """Runs a program, under deepum-run where there is a budget. Its last line of output is JSON."""
        left = self.until - time.monotonic()
        if left < 15:
            self.results[name] = {"left_out": "no time"}
            return None
        environment = dict(os.environ, DEEPUM_MANAGED_LIMIT=f"{LIMIT_MIB}MiB", DEEPUM_LOG="2", **(variables or {}))
        environment["PYTHONPATH"] = f"{HERE.parent.parent.parent / 'examples' / 'pytorch'}:{environment.get('PYTHONPATH', '')}"
        environment.pop("LD_PRELOAD", None)
        if budget:
            libs = self.bin / "libs"
            if libs.is_dir():
                environment["LD_LIBRARY_PATH"] = f"{libs}:{environment.get('LD_LIBRARY_PATH', '')}"
            command = [str(self.bin / "deepum-run"), "--budget", budget, *(["--policy", policy] if policy else []), *extra, "--", *command]
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=min(left, 120))
        except subprocess.TimeoutExpired as e:
            tail = (e.stderr or b"")[-2000:]
            self.results[name] = {"failed": "timeout", "stderr": tail.decode(errors="replace") if isinstance(tail, bytes) else tail}
            return None
        result = {"status": done.returncode, "seconds": round(time.monotonic() - began, 1)}
        result["log"] = [line for line in done.stderr.splitlines() if line.startswith(("deepum", "Warning: deepum"))][-12:]
        try:
            result["output"] = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            result["failed"] = (done.stdout + done.stderr)[-3000:]
        self.results[name] = result
        return result.get("output") if done.returncode == 0 else None


def train(runner, verdict, options):
    """GPT-2 as it is, then with less memory: with PyTorch's own allocator, with that of CUDA's pools, with that of deepum_torch, and by
    demand paging; then with all of its memory, for what everything costs."""
    script = str(HERE / "train.py")
    plugged = [sys.executable, "-m", "deepum_torch", script]
    own = [sys.executable, script]
    pools = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    for kind in options.kinds.split(","):
        more = {"bf16": [], "fp32": ["--precision", "fp32"], "compiled": ["--compile"]}[kind]
        plain = runner.run(f"train_{kind}", own + more)
        runs = [("plugged", plugged, options.budget, None, {}), ("um", own, options.budget, "um", {}), ("own", own, options.budget, None, {}),
                ("plugged_fits", plugged, "3GiB", None, {}), ("pools", own, options.budget, None, pools), ("plugged_um", plugged, options.budget, "um", {}),
                ("own_fits", own, "3GiB", None, {})]
        for label, command, budget, policy, variables in runs if kind == "bf16" else runs[:3]:
            name = f"train_{kind}_{label}_{budget}"
            found = runner.run(name, command + more, budget, policy, variables=variables)
            if "left_out" in runner.results[name]:
                continue
            verdict[name] = bool(plain and found and plain["losses"] == found["losses"])
            if found:
                runner.results[name]["step_ms"] = steady(found["ms"])


def steady(times):
    return statistics.median(times[len(times) // 2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--only", default="", choices=["", "chain", "train"])
    parser.add_argument("--kinds", default="bf16", help="of trainings: bf16 (autocast), fp32, compiled (torch.compile)")
    parser.add_argument("--budget", default="1200MiB", help="of trainings, which take 2.4 GiB")
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--commit", default="", help="what was measured, for the JSON: git describe --always --dirty")
    options = parser.parse_args()
    runner = Runner(options)
    verdict = {}
    before = free_mib()
    if before < 8 * LIMIT_MIB:
        print(json.dumps({"refused": f"{before} MiB are free on the card; {LIMIT_MIB} MiB of managed memory are for cards with 8 times as much"}))
        return 1
    with tempfile.TemporaryDirectory() as folder:
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        for runtime in ("static", "shared") if options.only in ("", "chain") else ():
            program = f"{folder}/chain_{runtime}"
            built = subprocess.run([nvcc, "-O2", "-std=c++17", "-arch=native", f"-cudart={runtime}", str(HERE / "chain.cu"), "-lcublas", "-o", program],
                                   capture_output=True, text=True)
            if built.returncode != 0:
                runner.results[f"chain_{runtime}"] = {"failed": built.stderr[-2000:]}
                continue
            plain = runner.run(f"chain_{runtime}", [program])
            runs = [("auto_50", "768MiB", None)] if runtime == "shared" else \
                   [("auto_fits", "3GiB", None), ("auto_75", "1152MiB", None), ("auto_50", "768MiB", None), ("auto_35", "538MiB", None), ("um_50", "768MiB", "um")]
            for label, budget, policy in runs:
                name = f"chain_{runtime}_{label}"
                record = ["--record", f"{folder}/step.jsonl"] if label == "auto_50" and runtime == "static" else []
                found = runner.run(name, [program], budget, policy, record)
                verdict[name] = bool(plain and found and plain["sum"] == found["sum"] and found["untouched"] == 0)
                if found and plain:
                    runner.results[name]["step_ms"] = steady(found["ms"])
                    runner.results[name]["launch_us_more"] = round(found["launch_us"] - plain["launch_us"], 3)
                if record and os.path.exists(record[1]):
                    with open(record[1]) as step:
                        runner.results[name]["recorded_lines"] = len(step.readlines())
        if options.only not in ("", "train"):
            pass
        elif subprocess.run([sys.executable, "-c", "import torch, transformers"], capture_output=True).returncode == 0:
            train(runner, verdict, options)
        else:
            runner.results["train"] = {"left_out": "no torch or transformers"}
    print(json.dumps({"gpu": ask_gpu("name"), "driver": ask_gpu("driver_version"), "nvcc": last_line([nvcc, "--version"]),
                      "commit": options.commit, "flags": sys.argv[1:], "managed_limit_mib": LIMIT_MIB, "free_mib_before": before, "free_mib_after": free_mib(), "same": verdict, "runs": runner.results}, indent=1))
    return 0 if verdict and all(verdict.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
