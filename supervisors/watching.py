"""Who answers and who does not: children that hang are killed, at their beginning and later."""

from __future__ import annotations

from typing import Any

from perdure.core import links
from perdure.log_names import LogName
from supervisors.child_spec import Kind
from supervisors.children import Child, State
from supervisors.news import News


class Watch:
    """Looks after `children` (in the order of their start) whenever `look` is called."""

    def __init__(self, children: dict[str, Child], news: News, log: Any) -> None:
        self._children = children
        self._news = news
        self._log = log

    def answered(self, child: Child, pong: links.Pong) -> None:
        """It sent its Pong."""
        self._news.answered(child, pong)
        if child.liveness is not None:
            child.awaits_pong = False
            child.liveness.heard()

    def look(self, now_ms: int) -> None:
        """Kill who has been silent, or has begun, for too long; ask the others for a word."""
        self._look_at_beginnings(now_ms)
        for child in self._children.values():
            if child.handle is None:
                continue
            if child.liveness is not None and child.state is State.RUNNING:
                in_disk_sleep = child.awaits_pong and child.handle.is_in_disk_sleep()
                if child.liveness.look(now_ms=now_ms, in_disk_sleep=in_disk_sleep):
                    silent_ms = child.liveness.silent_ms
                    self._kill(child, LogName.CHILD_SILENT, silent_ms=silent_ms)
                    continue
                child.awaits_pong = True
            self._news.ping(child)

    def _look_at_beginnings(self, now_ms: int) -> None:
        """Its time counts only while nobody is missing whom it may have to wait for."""
        for child in self._children.values():
            handle, beginning = child.handle, child.beginning
            if child.ready_at_ms is not None or (child.spec.on_demand and handle is None):
                continue
            if handle is None or beginning is None or child.state is not State.STARTING:
                return
            if beginning.look(now_ms=now_ms, in_disk_sleep=handle.is_in_disk_sleep()):
                child.is_late = True
                self._kill(child, LogName.CHILD_LATE, late_ms=beginning.silent_ms)
            if child.spec.kind is not Kind.WORKER:
                return  # Those behind it need it. A worker needs no other worker.

    def _kill(self, child: Child, name: LogName, **times: int) -> None:
        assert child.handle is not None
        self._log.error(name, child=child.spec.id, pid=child.handle.pid, **times)
        child.handle.kill()
