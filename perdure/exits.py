"""What the end of a process is called in a failure."""

from __future__ import annotations

import signal


def failure_type(returncode: int) -> str:
    """`ExitCode<n>`, or for -n `Signal<NAME>` with the name of signal n (`SignalSIGKILL`)."""
    if returncode >= 0:
        return f"ExitCode{returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:  # One of the real-time signals, most of which have no name.
        name = f"SIG{-returncode}"
    return f"Signal{name}"


def describe(returncode: int) -> str:
    """The same, for people: "exited with 3", "was ended by SIGKILL"."""
    if returncode >= 0:
        return f"exited with {returncode}"
    return f"was ended by {failure_type(returncode).removeprefix('Signal')}"
