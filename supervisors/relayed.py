"""Where a test puts a relay between the processes of a node.

Set ``PERDURE_TEST_RELAY`` in the environment of the root to a directory in which a relay listens
(chaos/faults/relay.py). Children then call the root at ``root`` in that directory, and local
workers the gateway at ``workers``; the relay, which all that the root says goes through, puts
itself in place of each actor's inbox. So that it finds them, ``run`` in its directory becomes a
link to where the sockets of this node start really are. Without the variable this is one look at
the environment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "PERDURE_TEST_RELAY"


class Doors(NamedTuple):
    """Where children find the root, and local workers the gateway."""

    root: str
    workers: str


def doors(run_dir: str) -> Doors:
    """The endpoints to give to children: those in `run_dir`, or those of a test's relay."""
    relay = os.environ.get(VARIABLE)
    if relay:
        link, fresh = Path(relay, "run"), Path(relay, "run.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(run_dir)
        fresh.replace(link)
    where = relay or run_dir
    return Doors(f"ipc://{where}/root", f"ipc://{where}/workers")
