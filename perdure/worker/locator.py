"""Finding the node again: a node that was started anew listens for workers somewhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable

from perdure.errors import PerdureError
from perdure.worker.sockets import Inbox


class Locator:
    """Asks the node's public endpoint, beside the main loop, where workers connect."""

    def __init__(self, find: Callable[[], str], inbox: Inbox) -> None:
        self._find = find
        self._inbox = inbox
        self._seeks = False

    def seek(self, found: Callable[[str, int], None]) -> None:
        """Post the endpoint to `found`, once it is known; nothing where no node answers."""
        if not self._seeks:
            self._seeks = True
            threading.Thread(target=self._ask, args=(found,), name="locator", daemon=True).start()

    def _ask(self, found: Callable[[str, int], None]) -> None:
        try:
            endpoint = self._find()
        except PerdureError:  # No node yet; the session asks again.
            self._seeks = False
            return
        self._seeks = False
        self._inbox.post(found, endpoint)
