"""PyTorch with more memory than the GPU has, by deepum (docs/pytorch.md).

    import deepum_torch
    deepum_torch.enable(budget="8GiB")
    import torch

The rest of the script stays as it is. `enable` starts the script again under `deepum-run`, where it does not run under it yet;
then it gives PyTorch an allocator whose memory deepum moves before kernels need it, and which is told when tensors die.
"""
import ctypes
import json
import os
import pathlib
import shutil
import sys

__all__ = ["Run", "enable", "statistics"]

_OPTIONS = ("capacity", "policy", "statistics", "trace", "tables", "record", "report")


class Run:
    """What has happened since `enable`, or within a `with` of what it returns."""

    def __init__(self, library):
        self._library = library
        self._began = {}
        self._ended = None

    def statistics(self, device=0):
        """What was done on a device, as a dictionary: docs/metrics.md says what the numbers mean. Counts are those since the
        beginning of the `with`, up to its end; without one, of the whole process. Empty where no memory was used."""
        now = self._ended if self._ended is not None else _statistics(self._library)
        return _difference(now.get(device, {}), self._began.get(device, {}))

    def __enter__(self):
        self._began = _statistics(self._library)
        self._ended = None
        return self

    def __exit__(self, *_):
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self._ended = _statistics(self._library)
        return False


def enable(budget=None, *, allocator=True, **options):
    """Gives PyTorch memory of deepum's from now on. Called before PyTorch uses a GPU, best before it is imported.

    budget     device memory for tensors: "8GiB", "50%", or bytes; None: what is free, less 512 MiB
    allocator  False leaves PyTorch's own allocator, whose memory deepum moves without knowing what of it is in use
    options    those of deepum-run: capacity, policy, statistics, trace, tables, record, report

    Returns a `Run`, for statistics. Where the script already runs under deepum-run, what that was told counts, and budget and
    options here are for what it was not told.
    """
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise TypeError(f"enable() has no option '{unknown[0]}'; there are budget, allocator, {', '.join(_OPTIONS)}")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("PyTorch uses the GPU already: call deepum_torch.enable() before that, best before `import torch`")
    library = _loaded()
    if library is None:
        _start_again(budget, options)
    if budget is not None and not os.environ.get("DEEPUM_BUDGET"):
        os.environ["DEEPUM_BUDGET"] = str(budget)
    if options.get("policy") and not os.environ.get("DEEPUM_POLICY"):
        os.environ["DEEPUM_POLICY"] = options["policy"]
    if allocator:
        _use_allocator(library)
    return Run(library)


def statistics(device=0):
    """What was done on a device since the process began; empty where no memory of it was used."""
    library = _loaded()
    return {} if library is None else _statistics(library).get(device, {})


def _loaded():
    """The library of deepum-run, if this process has it in the place of the driver's functions."""
    process = ctypes.CDLL(None)
    try:
        process.deepum_run_statistics.restype = ctypes.c_size_t
        process.deepum_run_statistics.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    except AttributeError:
        return None
    return process


def _program():
    """deepum-run: of this package, else where it is said or found."""
    beside = pathlib.Path(__file__).resolve().parent / "bin" / "deepum-run"
    found = os.environ.get("DEEPUM_RUN") or (str(beside) if beside.exists() else shutil.which("deepum-run"))
    if not found or not os.path.exists(found):
        raise RuntimeError("deepum-run is not there: install the wheel that has it, or let the environment variable DEEPUM_RUN name it")
    return found


def _start_again(budget, options):
    words = getattr(sys, "orig_argv", None)
    if not words or hasattr(sys, "ps1") or sys.flags.interactive or "ipykernel" in sys.modules:
        raise RuntimeError("an interactive Python cannot be started again: start it by `deepum-run --budget 8GiB -- python3`")
    if os.environ.get("DEEPUM_TORCH_STARTED"):
        raise RuntimeError("deepum-run has not loaded its library into this Python; is it linked statically?")
    command = [_program()]
    for name, value in {"budget": budget, **options}.items():
        if value is not None:
            command += [f"--{name}", str(value)]
    command += ["--", sys.executable, *words[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, dict(os.environ, DEEPUM_TORCH_STARTED="1"))


def _use_allocator(library):
    import torch  # pylint: disable=import-outside-toplevel

    path = next((line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps", encoding="utf-8")
                 if line.rstrip().endswith("libdeepum_run.so")), None)
    if path is None:
        raise RuntimeError("libdeepum_run.so is not among this process's libraries, though its functions are")
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(path, "deepum_run_malloc", "deepum_run_free")
    # Tensors that other streams use are given back behind those.
    native = pluggable.allocator()
    record = ctypes.cast(library.deepum_run_record_stream, ctypes.c_void_p).value
    if not hasattr(native, "set_record_stream_fn"):
        raise RuntimeError("this PyTorch does not tell its allocator of record_stream: version 2.1 or later does")
    native.set_record_stream_fn(record)
    torch.cuda.memory.change_current_allocator(pluggable)


def _statistics(library):
    """Of each device that the process has used."""
    found = {}
    for device in range(64):
        size = library.deepum_run_statistics(device, None, 0)
        while size:
            text = ctypes.create_string_buffer(size + 64)
            size = library.deepum_run_statistics(device, text, len(text))
            if size < len(text):
                found[device] = json.loads(text.value)
                break
    return found


def _difference(now, before):
    if isinstance(now, dict):
        return {key: _difference(value, before.get(key) if isinstance(before, dict) else None) for key, value in now.items()}
    if isinstance(now, (int, float)) and not isinstance(now, bool) and isinstance(before, (int, float)):
        return now - before
    return now
