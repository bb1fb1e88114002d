"""The log of a database beneath its connection: synced without a commit."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import apsw

SYNC_FULL = 3
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class _Methods(ctypes.Structure):
    """The head of sqlite3_io_methods."""

    _fields_: ClassVar = [
        ("version", ctypes.c_int),
        ("close", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p),
        ("sync", _Sync),
    ]


class _File(ctypes.Structure):
    """sqlite3_file."""

    _fields_: ClassVar = [("methods", ctypes.POINTER(_Methods))]


def sync(connection: apsw.Connection) -> None:
    """Make durable all that lies in the write-ahead log, whoever wrote it, and write nothing.

    Through the VFS that the database is opened with. Raises apsw.IOError or apsw.FullError.
    """
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # Opens the log.
    found = ctypes.c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_JOURNAL_POINTER, ctypes.addressof(found))
    if not found.value:
        return
    file = ctypes.cast(found, ctypes.POINTER(_File))
    if not file.contents.methods:
        return  # There is no log.
    try:
        code = file.contents.methods.contents.sync(found.value, SYNC_FULL)
    except SystemError as cause:
        # What a VFS that is written in Python has raised arrives so.
        raise (cause.__cause__ or cause) from None
    if code:
        raise apsw.exception_for(code)
