"""Bugs of the writer: syncs, epochs, the clock, and what it says when."""

from __future__ import annotations

import contextlib
from typing import Any

from actors.follower import Follower
from actors.gateway import Gateway
from actors.history import History
from chaos.sim.bugs.patches import Patches
from chaos.sim.disk import SimWriter
from chaos.sim.host import SimHost
from chaos.sim.process import SIGKILLED, Killed
from chaos.sim.world import WALL_MS
from perdure import errors
from perdure.store import rules
from perdure.store.protocol import DiskFailed, NoRoom, StoreError

LATE_US = 100_000  # After it was killed, a write still reaches the disk.


def ack_before_sync(patches: Patches) -> None:
    """It answers, and syncs some time later."""

    def commit(self: SimWriter, change: Any) -> None:
        fault = self._world.count("commit", self._process.role)
        if fault is not None and fault.action in ("unsynced_lost", "eio_lost", "full"):
            # It has answered, and dies with the commit in memory only.
            self._process.loop.after(200, self._process.end, SIGKILLED)
            return
        self._inner.commit(change)
        self._world.committed(self._disk.took(change))
        self._process.loop.after(5_000, setattr, self._disk, "synced", change.n)

    patches.set(SimWriter, "commit", commit)


def failed_sync_retried(patches: Patches) -> None:
    """A sync that failed is asked for again: the disk says yes, its pages are gone."""

    def wrap(commit: Any) -> Any:
        def again(self: SimWriter, change: Any) -> None:
            try:
                commit(self, change)
            except (DiskFailed, NoRoom):
                return

        return again

    patches.around(SimWriter, "commit", wrap)


def epoch_not_checked(patches: Patches) -> None:
    """A history that was given up for dead wakes and writes: its kill had waited for its disk."""

    def wrap(commit: Any) -> Any:
        def late(self: SimWriter, change: Any) -> None:
            def write() -> None:
                with contextlib.suppress(StoreError):
                    self._inner.commit(change)
                    self._world.committed(self._disk.took(change))

            try:
                commit(self, change)
            except Killed:
                if self._disk.newest < change.n:
                    self._process.loop.after(LATE_US, write)
                raise

        return late

    patches.around(SimWriter, "commit", wrap)
    patches.nothing(rules, "check_link")
    patches.nothing(rules, "check_owner")


def feed_before_commit(patches: Patches) -> None:
    """Followers hear of a commit before it is on the disk."""

    def wrap(write: Any) -> Any:
        def published(self: History, asked: Any, now_ms: int) -> Any:
            commit = self._writer.commit

            def told(change: Any) -> None:
                self._followers.publish(change.n, change.body, now_ms, dead_letters=True)
                self._followers.send_late()
                self.flush()
                commit(change)

            self._writer.commit = told  # type: ignore[method-assign]
            try:
                return write(self, asked, now_ms)
            finally:
                self._writer.commit = commit  # type: ignore[method-assign]

        return published

    patches.around(History, "_write", wrap)


def unknown_told_as_refused(patches: Patches) -> None:
    """A request that was on its way to a history that died is answered "no", not "unknown"."""

    def wrap(gone: Any) -> Any:
        def refused(self: Gateway, role: str, incarnation: str) -> None:
            was, errors.Unavailable = errors.Unavailable, errors.FailedPrecondition  # type: ignore[misc, assignment]
            try:
                gone(self, role, incarnation)
            finally:
                errors.Unavailable = was  # type: ignore[misc]

        return refused

    patches.around(Gateway, "on_peer_gone", wrap)


def wall_clock(patches: Patches) -> None:
    """Deadlines are counted on the wall clock."""

    def boottime_ms(self: SimHost) -> int:
        return self.wall_ms() - WALL_MS - self._world.booted_ms

    patches.set(SimHost, "boottime_ms", boottime_ms)


def orphans_deleted(patches: Patches) -> None:
    """At a start, what looks as if it belonged to nobody is deleted."""

    def wrap(open_epoch: Any) -> Any:
        def tidied(self: SimWriter, *args: Any) -> Any:
            opened = open_epoch(self, *args)
            store = self._disk._memory
            executions = {} if store is None else store.executions
            for workflow_id, stored in list(executions.items()):
                if stored.is_open and not stored.activities and not stored.timers:
                    del executions[workflow_id]
            return opened

        return tidied

    patches.around(SimWriter, "open_epoch", wrap)


def half_a_commit(patches: Patches) -> None:
    """The log and the tables are written one after the other: a crash comes between."""

    def wrap(commit: Any) -> Any:
        def torn(self: SimWriter, change: Any) -> None:
            try:
                commit(self, change)
            except BaseException:
                store = self._disk._memory
                if store is not None and store.newest().n == change.n:
                    for workflow_id, activity in change.activities:
                        store.executions[workflow_id].activities.pop(activity.activity_id, None)
                raise

        return torn

    patches.around(SimWriter, "commit", wrap)


def feed_gap_ignored(patches: Patches) -> None:
    """A follower that missed a part of the feed goes on as if it had not."""

    def on_feed(self: Follower, message: Any) -> None:
        if not self._loaded:
            self._early.append(message)
        elif message.n > self.reached:
            self._apply(message.body)

    patches.set(Follower, "_on_feed", on_feed)
