from __future__ import annotations
import ctypes, os, weakref
from collections.abc import Sequence
_sys = ctypes.CDLL(None)
class Bell:
    def __init__(self, fd: int) -> None:
        q = _sys.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if q < 0: raise OSError
        _sys.inotify_add_watch(q, f"/proc/self/fd/{fd}".encode(), 0x4)
        self._q = q
        self.close = weakref.finalize(self, os.close, q)
    def fileno(self) -> int: return self._q
    def hush(self) -> bool:
        try:
            os.read(self._q, 65536); return True
        except OSError: return False
def hung(fd):
    try: return Bell(fd)
    except OSError: return None
def ring_first(names, dir_fd) -> None:
    for n in names[:1]:
        try: os.utime(n, dir_fd=dir_fd)
        except OSError: pass
