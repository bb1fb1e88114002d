"""Live leases: until when each lasts, what its holder last said, and which are over.

Heartbeats move deadlines here, in memory and at once; history commits the newest details. A lease
whose deadline has passed is proposed to history for expiry, no sooner than a full drain after that
was noticed, and not while whoever holds it may not have been heard for reasons of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.core.attempt_ends import WAIT
from perdure.core.commands import (
    AnyAnswer,
    AnyCommand,
    Deadline,
    EndLease,
    ExpireLease,
    RecordHeartbeat,
    Refusal,
)
from perdure.core.ids import Address, unseal
from perdure.core.limits import FEED_BEAT_MS, GRACE_MS
from perdure.core.live_lease import Beat, LiveLease
from perdure.core.ranked import Ranked
from perdure.core.records import (
    CLOSING_TYPES,
    ActivityCancelRequested,
    ActivityDeadLettered,
    ActivityTaskCancelled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    HeartbeatRecorded,
    LeaseDetached,
    LeaseGranted,
    LeaseReleased,
    Payload,
    Record,
    RetryScheduled,
    WorkflowReset,
)
from perdure.core.stalls import FREE_MS
from perdure.core.state import Execution

# History says every FEED_BEAT_MS that it lives, and a turn of it may take FREE_MS.
HISTORY_SILENT_MS = FREE_MS + FEED_BEAT_MS
# After a refusal: long enough for the feed to tell why.
AGAIN_MS = 1_000
# A probe that has not come back by then may have got lost.
PROBE_AGAIN_MS = 1_000

_ENDS: frozenset[type[Record]] = frozenset(
    {
        ActivityTaskCompleted,
        ActivityTaskFailed,
        ActivityTaskCancelled,
        ActivityDeadLettered,
        LeaseReleased,
        RetryScheduled,
    }
)

Name = tuple[str, str]  # (workflow id, activity id)


class LeaseTable:
    """`propose` brings a command with its tag to history; its answer goes to `answered`.

    `reply` answers an asker of `heartbeat`: (asker, commit, answer). `changed` hears of every lease
    that begins or ends: (lease, record or None at a load, True when it begins).
    `linger_ms` is the least time between a deadline and the proposal; 0: at once. `probe` sends a
    number to where heartbeats come through, from where it comes back to `echoed` behind all that
    had come there before: what holds heartbeats up on their way is not their senders' fault.
    """

    def __init__(
        self,
        key: bytes,
        propose: Callable[[AnyCommand, Any], None],
        reply: Callable[[Any, int, AnyAnswer], None],
        changed: Callable[[LiveLease, Record | None, bool], None] = lambda *_: None,
        linger_ms: int = 0,
        probe: Callable[[int], None] | None = None,
        grace_ms: int = GRACE_MS,
    ) -> None:
        self._key = key
        self._propose = propose
        self._reply = reply
        self._changed = changed
        self._linger_ms = linger_ms
        self._probe = probe
        self._grace_ms = grace_ms
        self._probed = self._echoed = 0
        self._probed_ms = 0
        self._unechoed: dict[LiveLease, None] = {}
        self._live: dict[Name, LiveLease] = {}
        self._by_workflow: dict[str, dict[str, LiveLease]] = {}
        self._deadlines: Ranked[LiveLease] = Ranked()
        self._suspects: Ranked[LiveLease] = Ranked()
        self._disturbed_ms: int | None = None
        self._is_paused = False
        self.stall_ms = 0  # Sum of history's stalls, as far as it is known here.
        self._heard_ms: int | None = None  # When history was heard last.

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveLease]:
        return iter(self._live.values())

    # --- the log ----------------------------------------------------------------
    def load(self, executions: Iterable[Execution], now_ms: int) -> None:
        """Begin with these open executions; nobody was heard while we were away."""
        self.disturbed(now_ms)
        for execution in executions:
            for activity in execution.activities.values():
                lease = activity.lease
                if lease is None:
                    continue
                address = Address(
                    execution.workflow_id,
                    activity.activity_id,
                    activity.generation,
                    activity.grant,
                )
                live = LiveLease(address, lease.session, lease.granted_ms)
                live.heartbeat_ms = activity.options.heartbeat_ms
                live.beat = activity.beat
                live.stall_ms = lease.stall_ms
                live.is_given_up = activity.cancel_requested == WAIT
                self._begin(live, lease.deadline_ms, lease.attempt_deadline_ms, None)

    def apply(self, workflow_id: str, at_ms: int, record: Record) -> None:
        """Take in one record, in the order of the log."""
        kind = type(record)
        if isinstance(record, LeaseGranted):
            address = Address(workflow_id, record.activity_id, record.generation, record.grant)
            live = LiveLease(address, record.session, record.at_ms)
            live.stall_ms = record.stall_ms
            if record.deadline_ms < record.attempt_deadline_ms:
                live.heartbeat_ms = record.deadline_ms - record.at_ms
            self._begin(live, record.deadline_ms, record.attempt_deadline_ms, record)
        elif isinstance(record, HeartbeatRecorded):
            held = self._live.get((workflow_id, record.activity_id))
            if held is not None and held.address.grant == record.grant:
                if record.beat >= held.beat:
                    held.beat = record.beat
                    held.news = False
                self._rebase(held, record.stall_ms)
                self._move(held, record.deadline_ms)
        elif kind in _ENDS:
            held = self._live.get((workflow_id, record.activity_id))  # type: ignore[attr-defined]
            if held is not None:
                self._end(held, record)
        elif isinstance(record, ActivityCancelRequested | LeaseDetached):
            held = self._live.get((workflow_id, record.activity_id))
            if held is not None:
                self._noted(held, record)
        elif kind in CLOSING_TYPES or kind is WorkflowReset:
            for held in list(self._by_workflow.get(workflow_id, {}).values()):
                self._end(held, record)

    def _noted(self, lease: LiveLease, record: ActivityCancelRequested | LeaseDetached) -> None:
        """The lease lives on; what has changed is whom it concerns."""
        if isinstance(record, ActivityCancelRequested):
            if record.mode == WAIT:
                lease.is_given_up = True
                self._changed(lease, record, True)
            return
        if lease.address.grant != record.grant:
            return
        self._changed(lease, record, False)
        lease.session = lease.holder = None
        if lease.ending not in ("", "expired"):  # No session's end is its end any more.
            lease.ending = ""
            self._deadlines.put(lease, lease.deadline_ms)

    def _begin(
        self, lease: LiveLease, deadline_ms: int, attempt_ms: int, record: LeaseGranted | None
    ) -> None:
        address = lease.address
        known = self._live.get((address.workflow_id, address.activity_id))
        if known is not None:
            self._end(known, record)
        lease.deadline_ms = deadline_ms
        lease.attempt_deadline_ms = attempt_ms
        whole_ms = attempt_ms - lease.granted_ms
        lease.length_ms = min(lease.heartbeat_ms or whole_ms, whole_ms)
        self._live[address.workflow_id, address.activity_id] = lease
        of_workflow = self._by_workflow.setdefault(address.workflow_id, {})
        of_workflow[address.activity_id] = lease
        self._deadlines.put(lease, deadline_ms)
        self._changed(lease, record, True)

    def _end(self, lease: LiveLease, record: Record | None) -> None:
        address = lease.address
        del self._live[address.workflow_id, address.activity_id]
        of_workflow = self._by_workflow[address.workflow_id]
        del of_workflow[address.activity_id]
        if not of_workflow:
            del self._by_workflow[address.workflow_id]
        self._deadlines.remove(lease)
        self._acquit(lease)
        self._changed(lease, record, False)

    def find(self, address: Address | None) -> LiveLease | None:
        """The live lease at this very address, or None."""
        if address is None:
            return None
        lease = self._live.get((address.workflow_id, address.activity_id))
        return lease if lease is not None and lease.address == address else None

    def by_token(self, token: str) -> LiveLease | None:
        """The live lease that this token is for, or None."""
        return self.find(unseal(token, self._key))

    # --- heartbeats -------------------------------------------------------------
    def heartbeat(
        self,
        asker: Any,
        token: str,
        beat: int,
        details: Payload | None,
        has_details: bool,
        now_ms: int,
    ) -> None:
        """The holder of `token` lives. `asker` is answered when history has committed it.

        A token that is not known here is passed on all the same: its grant may be news to come.
        """
        lease = self.by_token(token)
        wish = Beat(lease, token, beat, details, has_details)
        wish.askers.append(asker)
        if lease is None:
            self._propose(wish.command(), wish)
            return
        newer = beat == 0 or beat > lease.beat
        if newer:
            lease.beat = beat or lease.beat + 1
            if has_details:
                lease.details = details
                lease.news = True
            if lease.heartbeat_ms:
                self._rebase(lease, self.stall_ms)
                self._move(lease, min(now_ms + lease.heartbeat_ms, lease.attempt_deadline_ms))
        if lease.in_flight is None:
            lease.in_flight = wish
            self._propose(wish.command(), wish)
            return
        # One at a time: what comes meanwhile becomes one, the newest, for all who asked.
        waiting = lease.waiting
        if waiting is None:
            lease.waiting = wish
            return
        waiting.askers.append(asker)
        if newer:
            waiting.beat = beat
            if has_details:
                waiting.details, waiting.has_details = details, True

    def _rebase(self, lease: LiveLease, stall_ms: int) -> None:
        """Have its deadlines as of this sum of stalls."""
        grown_ms = stall_ms - lease.stall_ms
        if grown_ms > 0:
            lease.stall_ms = stall_ms
            lease.is_moved = True
            lease.attempt_deadline_ms += grown_ms
            self._move(lease, min(lease.deadline_ms + grown_ms, lease.attempt_deadline_ms))

    def _move(self, lease: LiveLease, deadline_ms: int) -> None:
        if deadline_ms > lease.deadline_ms:
            lease.deadline_ms = deadline_ms
            self._acquit(lease)
            self._deadlines.put(lease, deadline_ms)

    def answered(
        self, command: AnyCommand, tag: Any, answer: AnyAnswer, commit: int, now_ms: int
    ) -> None:
        """History has judged a proposal of ours."""
        if isinstance(command, RecordHeartbeat):
            self._heartbeat_answered(tag, answer, commit)
        elif isinstance(command, ExpireLease | EndLease) and isinstance(answer, Refusal):
            self.withdrawn(command, max(answer.at_ms, now_ms + AGAIN_MS))

    def _heartbeat_answered(self, wish: Beat, answer: AnyAnswer, commit: int) -> None:
        for asker in wish.askers:
            self._reply(asker, commit, answer)
        lease = wish.lease
        if lease is None or lease.in_flight is not wish:
            return
        if isinstance(answer, Deadline):
            held = self.find(lease.address)
            if held is lease:
                self._move(lease, answer.deadline_ms)
        following = lease.in_flight = lease.waiting
        lease.waiting = None
        if following is not None:
            self._propose(following.command(), following)

    # --- history's stalls ---------------------------------------------------------
    def history_beats(self, stall_ms: int, now_ms: int) -> None:
        """History lives, and this is the sum of its stalls until now."""
        self.stall_ms = max(self.stall_ms, stall_ms)
        self._heard_ms = now_ms

    def moved(self, lease: LiveLease, at_ms: int) -> tuple[int, int] | None:
        """(deadline_ms, attempt_deadline_ms) of a lease that history's stalls have moved, or None.

        While history is silent nobody can be acknowledged: the lease lasts on, so far that nothing
        is expired here before, nor by a successor of ours.
        """
        self._rebase(lease, self.stall_ms)
        if self._heard_ms is not None:
            silent_ms = at_ms - self._heard_ms - HISTORY_SILENT_MS
            reach_ms = at_ms + min(lease.length_ms, self._grace_ms)
            held_ms = min(lease.deadline_ms + silent_ms, reach_ms)
            if silent_ms > 0 and held_ms > lease.deadline_ms:
                lease.attempt_deadline_ms = max(lease.attempt_deadline_ms, held_ms)
                lease.is_moved = True
                self._move(lease, held_ms)
        return (lease.deadline_ms, lease.attempt_deadline_ms) if lease.is_moved else None

    # --- ends -------------------------------------------------------------------
    def disturbed(self, now_ms: int) -> None:
        """A new gateway, lease keeper or history: silence until now says nothing.

        No lease expires within its length, or the grace where it is longer, from now.
        """
        self._disturbed_ms = now_ms
        suspects = [lease for _, lease in self._suspects.in_order()]
        for lease in [*suspects, *self._unechoed]:
            self._acquit(lease)
            self._deadlines.put(lease, now_ms)

    def pause(self) -> None:
        """History is gone: nobody can be heard, so nothing expires before `resume`."""
        self._is_paused = True

    def resume(self, now_ms: int) -> None:
        """History is there again, perhaps a new one."""
        self._is_paused = False
        self.disturbed(now_ms)

    def next_due_ms(self) -> int | None:
        """When `check` has something to do, or None."""
        if self._is_paused:
            return None
        first_ms: int | None = self._deadlines.lowest()
        suspect_ms: int | None = self._suspects.lowest()
        if first_ms is None or (suspect_ms is not None and suspect_ms < first_ms):
            first_ms = suspect_ms
        if self._unechoed:
            again_ms = self._probed_ms + PROBE_AGAIN_MS
            return again_ms if first_ms is None else min(first_ms, again_ms)
        return first_ms

    def check(self, now_ms: int) -> None:
        """Propose the expiry of leases that are over. Call it when everything was drained.

        What is seen to be over for the first time is proposed by a later call, unless there is no
        lingering.
        """
        if self._is_paused:
            return
        while (lease := self._suspects.pop_up_to(now_ms)) is not None:
            if lease.probe > self._echoed:
                self._unechoed[lease] = None
            else:
                self._expire(lease)
        suspects = len(self._suspects)
        while (lease := self._deadlines.pop_up_to(now_ms)) is not None:
            self._rebase(lease, self.stall_ms)
            floor_ms = max(now_ms, lease.deadline_ms)
            if self._disturbed_ms is not None:
                grace_ms = min(lease.length_ms, self._grace_ms)
                floor_ms = max(floor_ms, self._disturbed_ms + grace_ms)
            if lease.ending not in ("", "expired"):
                self.end(lease, lease.ending)
            elif floor_ms > now_ms:
                self._deadlines.put(lease, floor_ms)
            elif self._linger_ms:
                lease.probe = 0 if self._probe is None else self._probed + 1
                self._suspects.put(lease, now_ms + self._linger_ms)
            else:
                self._expire(lease)
        if self._probe is not None:
            is_late = self._unechoed and now_ms >= self._probed_ms + PROBE_AGAIN_MS
            if len(self._suspects) > suspects or is_late:
                self._probed += 1
                self._probed_ms = now_ms
                self._probe(self._probed)

    def echoed(self, number: int, now_ms: int) -> None:
        """A probe came back: what was sent before it has been heard."""
        self._echoed = max(self._echoed, number)
        for lease in [one for one in self._unechoed if one.probe <= number]:
            del self._unechoed[lease]
            self._suspects.put(lease, now_ms)

    def _acquit(self, lease: LiveLease) -> None:
        self._suspects.remove(lease)
        self._unechoed.pop(lease, None)

    def _expire(self, lease: LiveLease) -> None:
        lease.ending = "expired"
        details, beat = self._news(lease)
        self._propose(ExpireLease(lease.address, details, beat), None)

    def end(self, lease: LiveLease, reason: str) -> None:
        """Propose the end of a lease whose session is gone, or never had it; until it is ended."""
        self._deadlines.remove(lease)
        self._acquit(lease)
        lease.ending = reason
        details, beat = self._news(lease)
        self._propose(EndLease(lease.address, reason, details, beat), None)

    def withdrawn(self, command: ExpireLease | EndLease, again_ms: int) -> None:
        """The proposal came to nothing: look at the lease again at `again_ms`."""
        lease = self.find(command.address)
        if lease is None:
            return
        if lease.ending == "expired":
            lease.ending = ""
            again_ms = max(again_ms, lease.deadline_ms)
        self._deadlines.put(lease, again_ms)

    @staticmethod
    def _news(lease: LiveLease) -> tuple[Payload | None, int]:
        return (lease.details, lease.beat) if lease.news else (None, 0)
