"""Ctrl-C at any moment of a call: the client can be used again, and closed."""

from __future__ import annotations

import dis
import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FrameType
from typing import Any

import pytest

from perdure import link
from perdure.client import Client

CLOSED_S = 30
LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")
# In these a call has its connection made, its request sent and its answer heard.
FILES = (link.__file__, sys.modules["zmq.sugar.socket"].__file__)


class Interrupt:
    """Raises KeyboardInterrupt at number `at` of the moments at which the interpreter looks for
    signals: behind a call, at the begin of a function, in a loop. Of those in FILES.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    @property
    def came(self) -> bool:
        return self.left < 0

    def __enter__(self) -> Interrupt:
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        sys.settrace(self._called)  # Python 3.12 looks at the line before only here.
        return partial(self._opcode, [""])

    def _opcode(self, before: list[str], frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            if before[0].startswith(LOOKS):
                self.left -= 1
                if self.left == -1:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            before[0] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return partial(self._opcode, before)


def is_closed_in_time(client: Client) -> bool:
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(CLOSED_S)
    return not closing.is_alive()


def interrupted_everywhere(node: Any, call: str) -> int:
    """Interrupt the call at one moment after the other; how many there were."""
    at, kept = 0, []
    while True:
        client = Client(node.endpoint)
        kept.append(client)  # Lest one is collected in the midst of the next one's call.
        if call == "close":
            client.ping()
        interrupt = Interrupt(at)
        try:
            with interrupt:
                getattr(client, call)()
        except KeyboardInterrupt:
            if call == "ping":
                assert client.ping().op == "Ping", at
        assert is_closed_in_time(client), at
        if not interrupt.came:
            return at
        at += 1


@pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")
@pytest.mark.parametrize("call", ["ping", "close"])
def test_wherever_a_call_is_interrupted_the_client_works_on_and_can_be_closed(node, call, request):
    # Garbage of earlier tests, collected meanwhile, would have its finalizers interrupted instead.
    gc.collect()
    gc.disable()
    request.addfinalizer(gc.enable)
    # In a thread: what is interrupted in the midst of compiled code leaves the exception that it
    # was handling as the context of all later ones of its thread.
    with ThreadPoolExecutor(1) as thread:
        # Hundreds, and three in Python 3.13.0, which traces few of them.
        assert thread.submit(interrupted_everywhere, node, call).result() > 2
