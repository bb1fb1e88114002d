"""An application that starts a thread as it is imported: whoever forks it loses that."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from perdure import activity

threading.Thread(target=threading.Event().wait, daemon=True).start()


@activity.define
def birth() -> str:
    """How the process above our guardian was started."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    above = status.rpartition(")")[2].split()[1]
    return Path(f"/proc/{above}/cmdline").read_text()
