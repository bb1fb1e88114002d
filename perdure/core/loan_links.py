"""What scheduler and history say to each other of first tasks that history may send itself."""

from __future__ import annotations

from perdure.core.ids import Session
from perdure.core.tree_links import Message


class Lend(Message, frozen=True, tag=9):
    """Scheduler to history: of new workflows of these types and queues, so many may be given to
    this session at once, without asking: `up_to` in all since the later of its beginning and
    history's, of which the scheduler knows `used`. Answered by Lent where none are left by it.

    `worker` is the routing id of its worker, which history is connected to.
    """

    session: Session
    worker: str
    queues: tuple[str, ...]
    workflow_types: tuple[str, ...]
    up_to: int
    used: int = 0


class Lent(Message, frozen=True, tag=10):
    """History to scheduler: the first tasks of these workflows were sent to this session.

    `used`: so many in all, of `up_to`; -1: nothing more is kept, for it can't be reached.
    """

    session: Session
    used: int
    up_to: int
    workflow_ids: tuple[str, ...] = ()
