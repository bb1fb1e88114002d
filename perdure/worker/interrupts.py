"""Exceptions that are raised into another thread, and what they leave behind in CPython.

One that is not delivered yet, for its thread is stuck somewhere in C, marks the whole interpreter.
In CPython 3.11 a thread that runs under a profile function and comes upon that mark at the
beginning of a function looks at it for ever. Delivering any other takes the mark away; its own
still reaches the stuck thread, when it runs.
"""

from __future__ import annotations

import ctypes
import threading

_raised = False


class _Settled(BaseException):
    """Raised here, for here."""


def raise_in(ident: int, kind: type[BaseException]) -> None:
    """Raise `kind` in a thread at its next bytecode."""
    global _raised
    _raised = True
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind))


def settle() -> None:
    """Nothing marks the interpreter afterwards, and nothing is on its way to this thread.

    To be called before a profile function is set.
    """
    global _raised
    if not _raised:
        return
    try:
        raise_in(threading.get_ident(), _Settled)
        while True:  # It arrives at the first or second turn.
            pass
    except _Settled:
        _raised = False
