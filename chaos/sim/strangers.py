"""Programs that know the protocol badly: what they ask for must change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from chaos.sim.client import ClientProcess
from chaos.sim.process import Frames
from perdure.wire import read_answer

if TYPE_CHECKING:
    from chaos.sim.world import World

EVERY_MS = 700
_START = {"type": "flow", "input": [{}], "request_id": "r"}
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("StartWorkflow", {**_START, "workflow_id": ""}),
    ("StartWorkflow", {**_START, "workflow_id": "x" * 201}),
    ("StartWorkflow", {**_START, "workflow_id": "a\nb"}),
    ("StartWorkflow", {**_START, "workflow_id": "s1", "type": "../flow"}),
    ("RedriveDeadLetter", {"workflow_id": "", "activity_id": ""}),
    ("CompleteActivityTask", {"token": "forged", "result": 1}),
    ("Sudo", {}),
)


class Stranger(ClientProcess):
    """Asks for what is not allowed, one after the other."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "stranger")
        for number in range(len(REQUESTS)):
            self.later(EVERY_MS * (number + 1), self._ask, number)

    def _ask(self, number: int) -> None:
        op, args = REQUESTS[number]
        body = msgspec.msgpack.encode({"id": number + 1, "op": op, "args": args})
        self.dealer.send([body])

    def _receive(self, frames: Frames) -> None:
        answer = read_answer(frames[-1])
        if answer.error is None:
            self.world.violated(48, f"carried out: {REQUESTS[(answer.id or 1) - 1]}")
        self.world.goal("a bad request was refused")
