"""Places at which a process can be made to die, so that a drill can visit every one of them.

A point is named after what is already true when it is reached. Nothing happens there unless the
environment that the process was started with says so:

    PERDURE_CRASH_POINT="[ROLE/]NAME[:NTH[:ACTION]]"

ROLE is the beginning of a process's role ("worker" is every worker); without it any process that
reaches the point is meant. NTH counts, from 1, within one life of a process. ACTION is one of

    kill        SIGKILL, as by the kernel (the default)
    stop        SIGSTOP
    exit        leave at once with status 76
    raise       raise CrashPointReached
    sleep_ms=N  stand still for N ms

With PERDURE_CRASH_ONCE=PATH it happens once: who is first to make the file PATH.1 does it, and what
is started afterwards passes. Several, separated by ">", happen one after the other: the second
counts only from when the first has happened (PATH.1 is there), and so on. That needs the file.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from difflib import get_close_matches
from enum import Enum
from itertools import count

from perdure.errors import InvalidArgument

POINT_VARIABLE = "PERDURE_CRASH_POINT"
ONCE_VARIABLE = "PERDURE_CRASH_ONCE"
EXIT_CRASH_POINT = 76
ACTIONS = ("kill", "stop", "exit", "raise", "sleep_ms=N")


class CrashPointReached(Exception):
    """What the action `raise` raises."""


class CrashPoint(Enum):
    """The closed list. A value says which roles reach the point, and what is true there."""

    # --- the store, in history's process -------------------------------------
    STORE_EPOCH_WRITTEN_NOT_COMMITTED = "history: a new epoch is written and not committed"
    STORE_EPOCH_COMMITTED = "history: a new epoch is on the disk, nobody knows of it"
    STORE_LOG_STRETCHED = "history: the log has its full length and has not begun anew"
    STORE_TRANSACTION_BEGUN = "history: a transaction is open, nothing is written in it"
    STORE_COMMIT_ROW_WRITTEN = "history: a commit's row in the log is written, nothing else"
    STORE_EXECUTIONS_WRITTEN = "history: new executions are written, their events are not"
    STORE_EVENTS_WRITTEN = "history: events are written, activities and timers are not"
    STORE_ACTIVITIES_WRITTEN = "history: activities are written, timers are not"
    STORE_ALL_WRITTEN_NOT_COMMITTED = "history: all of a commit is written and not committed"
    STORE_LOG_WRITTEN_NOT_SYNCED = "history: a commit is in the log file and not synced"
    STORE_LOG_SYNCED_NOT_RETURNED = "history: a commit is synced, COMMIT has not returned"
    STORE_COMMITTED_NOT_WITNESSED = "history: COMMIT has returned, the witness knows nothing"
    STORE_WITNESSED_NOT_RETURNED = "history: the witness knows of a commit, its actor does not"
    STORE_DATABASE_PAGE_WRITTEN = "history: a page of the database file is written, not all"
    STORE_DATABASE_WRITTEN_NOT_SYNCED = "history: the database file is written and not synced"
    STORE_DATABASE_SYNCED = "history: the database file is synced, the log does not know"
    STORE_CHECKPOINTED = "history: a checkpoint is done"

    # --- history -------------------------------------------------------------
    HISTORY_EPOCH_OPENED_NOT_READY = "history: its epoch is open, it has not said so"
    HISTORY_DRAINED_NOT_JUDGED = "history: commands have come in and are not judged"
    HISTORY_JUDGED_NOT_WRITTEN = "history: a batch is judged and not written"
    HISTORY_COMMITTED_NOT_PUBLISHED = "history: a batch is on the disk, nobody has heard of it"
    HISTORY_PUBLISHED_NOT_ANSWERED = "history: the feed of a batch is made, no answer is"

    # --- history, where a commit has something certain in it ----------------------
    HISTORY_UPDATE_TAKEN_NOT_WRITTEN = "history: an update is taken in, not on the disk"
    HISTORY_UPDATE_ANSWERED_NOT_WRITTEN = "history: an update is answered, not on the disk"
    HISTORY_SCHEDULE_FIRED_NOT_WRITTEN = "history: a schedule's run is started, not on the disk"
    HISTORY_CHILD_STARTED_NOT_WRITTEN = "history: a child is started, not on the disk"
    HISTORY_SIGNAL_FORWARDED_NOT_WRITTEN = (
        "history: a signal to another workflow is not on the disk"
    )
    HISTORY_RUN_CONTINUED_NOT_WRITTEN = (
        "history: a run has ended and the next one begun, not on the disk"
    )
    HISTORY_ATTEMPT_LEFT_NOT_WRITTEN = (
        "history: an attempt is left to whoever has its token, not on the disk"
    )
    HISTORY_WORKFLOW_RESET_NOT_WRITTEN = "history: a workflow is taken back, not on the disk"
    HISTORY_GATE_MOVED_NOT_WRITTEN = "history: a pause has begun or ended, not on the disk"
    HISTORY_UPDATE_TAKEN_NOT_TOLD = "history: an update is taken in, on the disk, unheard"
    HISTORY_UPDATE_ANSWERED_NOT_TOLD = "history: an update is answered, on the disk, unheard"
    HISTORY_SCHEDULE_FIRED_NOT_TOLD = "history: a schedule's run is started, on the disk, unheard"
    HISTORY_CHILD_STARTED_NOT_TOLD = "history: a child is started, on the disk, unheard"
    HISTORY_SIGNAL_FORWARDED_NOT_TOLD = (
        "history: a signal to another workflow is on the disk, unheard"
    )
    HISTORY_RUN_CONTINUED_NOT_TOLD = (
        "history: a run has ended and the next one begun, on the disk, unheard"
    )
    HISTORY_ATTEMPT_LEFT_NOT_TOLD = (
        "history: an attempt is left to whoever has its token, on the disk, unheard"
    )
    HISTORY_WORKFLOW_RESET_NOT_TOLD = "history: a workflow is taken back, on the disk, unheard"
    HISTORY_GATE_MOVED_NOT_TOLD = "history: a pause has begun or ended, on the disk, unheard"

    # --- every actor of the core ---------------------------------------------
    ACTOR_BOUND_NOT_GREETED = (
        "history scheduler lease_keeper dlq gateway: its inbox is there, the root does not know"
    )
    ACTOR_WORKED_NOT_SENT = (
        "history scheduler lease_keeper dlq gateway: a turn's work is done, nothing has left"
    )
    ACTOR_SENT_IN_PART = (
        "history scheduler lease_keeper dlq gateway: the first frame of a turn has left"
    )

    # --- projections -----------------------------------------------------------
    PROJECTION_STATE_READ_NOT_LOADED = (
        "scheduler lease_keeper dlq: the open state is read, nothing is made of it"
    )
    PROJECTION_STATE_LOADED_NOT_FOLLOWED = (
        "scheduler lease_keeper dlq: the open state is loaded, the feed is not followed"
    )
    PROJECTION_GAP_READ = "scheduler lease_keeper dlq: a gap in the feed was read from the log"
    PROJECTION_COMMIT_HEARD_NOT_APPLIED = (
        "scheduler lease_keeper dlq: a commit has come and is not applied"
    )
    PROJECTION_COMMIT_APPLIED = "scheduler lease_keeper dlq: a commit is applied"
    PROPOSAL_MADE_NOT_SENT = "scheduler lease_keeper: a proposal is noted and has not left"
    PROPOSAL_ANSWERED = "scheduler lease_keeper: history has answered a proposal"
    SCHEDULER_RUN_DUE_NOT_ASKED_FOR = "scheduler: a schedule's run is due, history is not asked"
    SCHEDULER_TASK_CHOSEN_NOT_SENT = "scheduler: a task has its worker and has not left"
    LEASE_KEEPER_HEARTBEAT_HEARD = "lease_keeper: a heartbeat has come, nothing is done about it"
    LEASE_KEEPER_HEARTBEAT_COMMITTED_NOT_ANSWERED = (
        "lease_keeper: a heartbeat is on the disk, its sender does not know"
    )
    DLQ_INDEX_CHANGED = "dlq: the index knows of a change to a dead letter"
    DLQ_LIST_ASKED_NOT_ANSWERED = "dlq: somebody has asked for a list and has no answer"

    # --- gateway ---------------------------------------------------------------
    GATEWAY_DOORS_OPEN = "gateway: its sockets are bound, it does not serve yet"
    GATEWAY_REQUEST_TAKEN_NOT_PASSED_ON = "gateway: a client's request has come, nobody else knows"
    GATEWAY_COMMAND_ASKED_NOT_ANSWERED = "gateway: history was asked and has not answered"
    GATEWAY_ANSWER_HEARD_NOT_PASSED_ON = "gateway: an answer has come, its client has not heard it"
    GATEWAY_ANSWERED_IN_PART = "gateway: the first of a turn's answers has left"
    GATEWAY_WORKER_WELCOMED = "gateway: a worker's session is known"
    GATEWAY_REPORT_TAKEN_NOT_PASSED_ON = "gateway: a worker's frame has come, nobody else has it"
    GATEWAY_TASK_PASSED_ON = "gateway: a frame for a worker has left"

    # --- supervisors -------------------------------------------------------------
    SUPERVISOR_DIRECTORY_HELD = "root: the data directory is held, nothing is started"
    SUPERVISOR_CHILD_STARTED_NOT_RECORDED = "root: a child is started and not written down"
    SUPERVISOR_CHILD_HEARD_NOT_TOLD = "root: a child has said hello, its peers do not know"
    SUPERVISOR_ALL_READY_NOT_ANNOUNCED = "root: every child is ready, nobody was told"
    SUPERVISOR_ANNOUNCED_NOT_SAID = "root: the node's file is there, the line `ready` is not"
    SUPERVISOR_DEATH_SEEN = "root: a child has ended, no supervisor has heard of it"
    SUPERVISOR_RESTART_DECIDED = "root: a restart is decided and not begun"
    SUPERVISOR_SESSION_ENDING = "root: a worker has died, its session still counts"
    SUPERVISOR_STOP_BEGUN = "root: the node is to stop, no child knows"
    SUPERVISOR_TREE_STOPPED = "root: every child has stopped, the directory is still held"
    CHILD_LOCKED_NOT_BEGUN = (
        "history scheduler lease_keeper dlq gateway worker outbox: "
        "the process is there, its role is not"
    )

    # --- workers -----------------------------------------------------------------
    WORKER_APPLICATION_LOADED = "worker: the application is loaded, the gateway knows nothing"
    WORKER_WELCOMED_NOT_READY = "worker: the gateway has answered, the root does not know"
    WORKER_WORKFLOW_TASK_TAKEN = "worker: a workflow task has come and has not run"
    WORKER_WORKFLOW_RUN_NOT_REPORTED = "worker: a workflow task has run, no report is made"
    WORKER_WORKFLOW_REPORT_MADE = "worker: a workflow task's report is made and has not left"
    WORKER_ACTIVITY_TASK_TAKEN = "worker: an activity's task has come and has not begun"
    WORKER_ACTIVITY_BEGUN = "worker: an attempt has begun, the function was not called"
    WORKER_EFFECT_WRITTEN_NOT_COMMITTED = "worker: an effect is written and not committed"
    WORKER_EFFECT_APPLIED_NOT_RETURNED = "worker: an effect is applied, the function goes on"
    WORKER_ACTIVITY_ENDED_NOT_REPORTED = "worker: an attempt is over, no report is made"
    WORKER_PROGRAM_ORDERED_NOT_HEARD = "worker: a program is to begin, nothing is heard of it"
    WORKER_ATTEMPT_LEFT_NOT_REPORTED = "worker: an attempt is left to others, history is not told"
    WORKER_REPORT_MADE = "worker: an attempt's report is made and has not left"
    WORKER_HEARTBEAT_MADE = "worker: a heartbeat is made and has not left"
    WORKER_SENT_IN_PART = "worker: the first frame of a turn has left"
    WORKER_ANSWERED = "worker: an answer has come, nothing is done about it"

    # --- outbox --------------------------------------------------------------------
    OUTBOX_ROWS_READ_NOT_ASKED = "outbox: rows are read, the node knows nothing of them"
    OUTBOX_ANSWERED_NOT_WRITTEN = "outbox: the node has answered, the rows do not say so"
    OUTBOX_ROWS_ENDED = "outbox: the rows say what became of them"

    # --- clients -------------------------------------------------------------------
    CLIENT_REQUEST_MADE_NOT_SENT = "client: a request is made and has not left"
    CLIENT_SENT_NOT_ANSWERED = "client: a request has left, no answer has come"
    CLIENT_ANSWERED_NOT_TOLD = "client: an answer has come, its caller does not know"

    @property
    def roles(self) -> tuple[str, ...]:
        """Who reaches it: roles of a node's processes, "root", "worker", "client"."""
        return tuple(self.value.partition(":")[0].split())

    @property
    def truth(self) -> str:
        """What is true there, as a sentence."""
        return self.value.partition(": ")[2]


for _member in CrashPoint:
    # From Python 3.12 on a member is a plain attribute; before, to name one cost a call.
    type.__setattr__(CrashPoint, _member.name, _member)


class Step:
    """One point to die at, for the processes that `role` means."""

    def __init__(self, role: str, point: CrashPoint, nth: int, action: str) -> None:
        self.role = role
        self.point = point
        self.nth = nth
        self.action = action


class Arming:
    """What the environment asks of this process."""

    def __init__(self, steps: tuple[Step, ...], once: str | None) -> None:
        self._steps = steps
        self._once = once
        self._counts = [count(1) for _ in steps]

    def reached(self, point: CrashPoint) -> None:
        """Do what is asked at this point, if this is the one and its turn has come."""
        for at, step in enumerate(self._steps):
            if step.point is not point or not _role.startswith(step.role):
                continue
            if at and not os.path.exists(self._token(at - 1)):
                continue
            if next(self._counts[at]) == step.nth and self._is_first(at):
                _act(step)

    def _token(self, at: int) -> str:
        return f"{self._once}.{at + 1}"

    def _is_first(self, at: int) -> bool:
        """Whether nobody did this step before; from now on somebody has."""
        if self._once is None:
            return True
        try:
            token = os.open(self._token(at), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        os.write(token, f"{self._steps[at].point.name} {_role or '-'} {os.getpid()}\n".encode())
        os.close(token)
        return True


def parse(text: str, once: str | None) -> Arming:
    """What `text` (see above) asks for. Raises InvalidArgument, naming what is wrong with it."""
    steps = tuple(_step(part.strip()) for part in text.split(">"))
    if len(steps) > 1 and once is None:
        raise InvalidArgument(
            f"several crash points need {ONCE_VARIABLE}, a path for their files",
            field=ONCE_VARIABLE,
        )
    return Arming(steps, once)


def _step(text: str) -> Step:
    role, slash, rest = text.rpartition("/")
    name, *options = rest.split(":")
    if slash and not role:
        raise _refused(text, "no role stands before the slash")
    if name not in CrashPoint.__members__:
        near = get_close_matches(name, CrashPoint.__members__, n=1)
        raise _refused(text, f"did you mean {near[0]}?" if near else "no point has this name")
    nth = options[0] if options else "1"
    action = options[1] if len(options) > 1 else "kill"
    if len(options) > 2 or not nth.isdecimal() or int(nth) < 1:
        raise _refused(text, "it is [ROLE/]NAME[:NTH[:ACTION]], NTH from 1")
    is_sleep = action.startswith("sleep_ms=") and action.partition("=")[2].isdecimal()
    if action not in ACTIONS[:-1] and not is_sleep:
        raise _refused(text, f"the action is one of {', '.join(ACTIONS)}")
    return Step(role, CrashPoint[name], int(nth), action)


def _refused(text: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"{POINT_VARIABLE}: {text!r}: {why}", field=POINT_VARIABLE)


def _act(step: Step) -> None:
    action, _, length_ms = step.action.partition("=")
    _say(step)
    match action:
        case "kill" | "stop":
            os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        case "exit":
            os._exit(EXIT_CRASH_POINT)
        case "raise":
            raise CrashPointReached(step.point.name)
        case _:
            threading.Event().wait(int(length_ms) / 1_000)


def _say(step: Step) -> None:
    # Loaded here only: a client's process need not load what logs.
    from perdure.log_names import LogName
    from perdure.logs import logger

    logger().warning(
        LogName.CRASH_POINT_REACHED,
        point=step.point.name,
        nth=step.nth,
        action=step.action,
        role=_role,
        pid=os.getpid(),
    )


def _from_environment() -> Callable[[CrashPoint], None] | None:
    text = os.environ.get(POINT_VARIABLE)
    if not text:
        return None
    return parse(text, os.environ.get(ONCE_VARIABLE) or None).reached


_role = ""
_armed = _from_environment()
# Where a point is reached once a message and not once a batch, this is looked at first: it costs a
# tenth of the call.
ARMED = _armed is not None


def act_as(role: str) -> None:
    """This process is `role` from now on; before, and in a client, it has none."""
    global _role
    _role = role


def reached(point: CrashPoint) -> None:
    """What `point` says is true now. Does nothing unless the environment asked for it."""
    if _armed is not None:
        _armed(point)
