"""What deepum_torch calls of PyTorch, without PyTorch: an allocator goes to the functions that a library exports."""
import ctypes

calls = []


class _Native:
    record = None

    def set_record_stream_fn(self, address):
        self.record = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)


class _Pluggable:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self.malloc = getattr(library, malloc)
        self.malloc.restype = ctypes.c_void_p
        self.malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.free = getattr(library, free)
        self.free.restype = None
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self._native = _Native()

    def allocator(self):
        return self._native


class _Memory:
    CUDAPluggableAllocator = _Pluggable
    current = None

    @classmethod
    def change_current_allocator(cls, allocator):
        cls.current = allocator


class cuda:
    memory = _Memory
    initialized = False

    @classmethod
    def is_initialized(cls):
        return cls.initialized

    @classmethod
    def synchronize(cls):
        calls.append("synchronize")
