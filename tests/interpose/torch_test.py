#!/usr/bin/env python3
"""deepum_torch without PyTorch and without a GPU: a script that knows the stub of torch, on the fake driver. Each case is a
script of its own, which `enable` starts again under deepum-run.

usage: torch_test.py FAKE_RUN   (the folder with the driver that is none, and deepum-run)
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "examples" / "pytorch"
FAKE_RUN = None

BEGIN = """
import ctypes, sys
import deepum_torch
run = deepum_torch.enable(budget="12MiB", capacity="32MiB")
import torch
memory = torch.cuda.memory.current
block = 2 << 20
"""


def script(text, environment=None, arguments=()):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "script.py"
        path.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{HERE / 'stub_torch'}", "LD_LIBRARY_PATH": str(FAKE_RUN),
                                   "DEEPUM_RUN": str(FAKE_RUN / "deepum-run"), "DEEPUM_FAULT_FEED": "none", "PYTHONDONTWRITEBYTECODE": "1",
                                   **(environment or {})})


class Torch(unittest.TestCase):
    def succeeds(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_a_script_is_started_again_under_deepum_run_with_its_arguments(self):
        done = self.succeeds(script(BEGIN + "print(sys.argv[1:], flush=True)\nsys.exit(7 if memory is None else 0)", arguments=["a", "b c"]))
        self.assertEqual(done.stdout, "['a', 'b c']\n")
        self.assertIn("no memory of a GPU was asked for", done.stderr)

    def test_the_status_of_the_script_is_passed_on(self):
        self.assertEqual(script(BEGIN + "sys.exit(7)").returncode, 7)

    def test_memory_comes_from_the_arena_and_a_stream_gets_again_what_it_gave_back(self):
        done = self.succeeds(script(BEGIN + """
p = [memory.malloc(3 * block, 0, None) for _ in range(2)]
assert all(p) and p[0] != p[1]
memory.free(p[0], 3 * block, 0, None)
assert memory.malloc(3 * block, 0, None) == p[0]
memory.free(p[1], 3 * block, 0, None)
memory.free(0, 0, 0, None)
"""))
        self.assertIn("deepum-run: 12.0 MiB at most, of which 0.0 MiB did not fit the budget of 12.0 MiB", done.stderr)

    def test_what_another_stream_uses_is_not_given_out_before_that_has_ended(self):
        self.succeeds(script(BEGIN + """
driver = ctypes.CDLL("libcuda.so.1")
p = memory.malloc(block, 0, None)
stream = ctypes.c_void_p()
assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
function = ctypes.c_void_p()
assert driver.cuModuleGetFunction(ctypes.byref(function), None, b"_Z3addPffi") == 0
arguments = [ctypes.c_void_p(p), ctypes.c_float(1), ctypes.c_int(1)]
places = (ctypes.c_void_p * 3)(*[ctypes.addressof(a) for a in arguments])
launch = ctypes.CDLL(None).cuLaunchKernel  # as a program finds it
driver.fake_driver_hold(stream)
assert launch(function, 1, 1, 1, 1, 1, 1, 0, stream, places, None) == 0
memory.allocator().record(p, stream)
memory.free(p, block, 0, None)
assert memory.malloc(block, 0, None) != p
driver.fake_driver_resume(stream)
assert driver.cuStreamSynchronize(stream) == 0
"""))

    def test_memory_that_runs_out_is_said(self):
        done = self.succeeds(script(BEGIN + "assert memory.malloc(33 << 20, 0, None) is None"))
        self.assertIn("no memory for 34603008 bytes", done.stderr)

    def test_statistics_are_those_within_a_with(self):
        self.succeeds(script(BEGIN + """
assert run.statistics() == {} and deepum_torch.statistics() == {}
p = memory.malloc(block, 0, None)
fill = ctypes.CDLL(None).cuMemsetD8_v2
fill.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t]
assert fill(p, 1, block) == 0
with run as measured:
    for _ in range(3):
        assert fill(p, 1, block) == 0
assert fill(p, 1, block) == 0
assert measured.statistics()["launches"] == 3, measured.statistics()
assert deepum_torch.statistics()["launches"] == 5
"""))

    def test_an_allocator_of_pytorchs_own_may_stay(self):
        self.succeeds(script("import deepum_torch\ndeepum_torch.enable(allocator=False)\nimport torch\nassert torch.cuda.memory.current is None"))

    def test_a_script_runs_as_it_is_by_the_module(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "train.py"
            path.write_text("import sys, torch\nassert __name__ == '__main__'\nprint(sys.argv[1:], torch.cuda.memory.current is not None)", encoding="utf-8")
            environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{HERE / 'stub_torch'}", "LD_LIBRARY_PATH": str(FAKE_RUN),
                           "DEEPUM_RUN": str(FAKE_RUN / "deepum-run"), "PYTHONDONTWRITEBYTECODE": "1"}
            done = self.succeeds(subprocess.run([sys.executable, "-m", "deepum_torch", "--budget", "12MiB", str(path), "--steps", "3"],
                                                capture_output=True, text=True, timeout=60, env=environment))
            self.assertEqual(done.stdout, "['--steps', '3'] True\n")

    def test_bad_use_gives_an_error_that_helps(self):
        for text, expected in (("deepum_torch.enable(budgte='1GiB')", "no option 'budgte'"),
                               ("import torch\ntorch.cuda.initialized = True\ndeepum_torch.enable()", "uses the GPU already"),
                               ("import sys\nsys.ps1 = '>>> '\ndeepum_torch.enable()", "deepum-run --budget 8GiB -- python3")):
            done = script("import deepum_torch\n" + text)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(expected, done.stderr)
        done = script("import deepum_torch\ndeepum_torch.enable()", {"DEEPUM_RUN": "/there/is/none"})
        self.assertIn("deepum-run is not there", done.stderr)
        done = script("import deepum_torch\ndeepum_torch.enable(budget='much')")
        self.assertEqual(done.returncode, 125)
        self.assertIn("--budget is 'much'", done.stderr)

    def test_the_wheel_has_what_the_package_needs(self):
        sys.path.insert(0, str(PACKAGE))
        sys.dont_write_bytecode = True
        import wheel_backend  # pylint: disable=import-error,import-outside-toplevel
        import zipfile
        os.environ["DEEPUM_BIN"] = str(FAKE_RUN)
        with tempfile.TemporaryDirectory() as folder:
            file = wheel_backend.build_wheel(folder)
            with zipfile.ZipFile(pathlib.Path(folder) / file) as wheel:
                self.assertIsNone(wheel.testzip())
                names = wheel.namelist()
                self.assertIn("deepum_torch/bin/libdeepum_run.so", names)
                record = wheel.read(next(n for n in names if n.endswith("RECORD"))).decode().splitlines()
                self.assertEqual(sorted(line.split(",")[0] for line in record), sorted(names))
                self.assertTrue(wheel.getinfo("deepum_torch/bin/deepum-run").external_attr >> 16 & 0o100)


if __name__ == "__main__":
    FAKE_RUN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
