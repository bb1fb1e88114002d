"""Every log line there is: a name and fields, never a sentence with values in it.

Drills and dashboards match on names: renaming one breaks its readers, so it needs a line in the
changelog.
"""

from __future__ import annotations

from enum import StrEnum


class LogName(StrEnum):
    """The closed list of event names."""

    # --- the node and its tree ----------------------------------------------
    NODE_STARTING = "node.starting"
    NODE_READY = "node.ready"
    NODE_STOPPING = "node.stopping"
    NODE_STOPPED = "node.stopped"
    NODE_LEFT_OVERS = "node.left_overs"  # Processes of an earlier, killed node are still there.
    SUPERVISOR_GAVE_UP = "supervisor.gave_up"
    SUPERVISOR_CRASHED = "supervisor.crashed"
    CHILD_STARTED = "child.started"
    CHILD_READY = "child.ready"
    CHILD_EXITED = "child.exited"
    CHILD_FAILED = "child.failed"  # It can't begin, and a restart would not change that.
    CHILD_SILENT = "child.silent"  # It does not answer, and is killed for it.
    CHILD_LATE = "child.late"  # It does not become ready, and is killed for it.
    CHILD_KILLED = "child.killed"  # It did not stop in its time.
    RELOAD_BEGUN = "reload.begun"  # One after the other is replaced.
    RELOAD_DONE = "reload.done"
    RELOAD_FAILED = "reload.failed"
    CONTROL_UNREADABLE = "control.unreadable"
    CONTROL_UNROUTABLE = "control.unroutable"

    # --- actors -------------------------------------------------------------
    ACTOR_CRASHED = "actor.crashed"
    ACTOR_STALLED = "actor.stalled"  # It stood still: a slow disk, a stopped process, a sleep.
    MESSAGE_UNDECODABLE = "message.undecodable"
    PEER_REFUSED = "peer.refused"  # Of another node start or protocol version.
    COMMIT_SPLIT = "commit.split"  # One of its commands can't be committed: one by one, then.
    COMMAND_SET_ASIDE = "command.set_aside"  # It made the core raise, and changed nothing.
    NO_ROOM = "history.no_room"  # On its disk: it frees the ballast, or reads only until there is.
    LITTLE_ROOM = "history.little_room"  # Less than the reserve is free, or no longer.
    CLOCK_OFF = "history.clock_off"  # The wall clock has left history's, or agrees again.
    COMMIT_FAILED = "commit.failed"  # Unknown, not refused: history ends and is started again.
    CRASH_POINT_REACHED = "crash_point.reached"  # A test had asked for it; see crash_points.

    # --- the work itself ----------------------------------------------------
    WORKFLOW_FAILED = "workflow.failed"
    HISTORY_LONG = "workflow.history_long"  # It has limits.history_events_warn events.
    ACTIVITY_DEAD_LETTERED = "activity.dead_lettered"
    ACTIVITY_REDRIVEN = "activity.redriven"

    # --- outboxes in users' databases ----------------------------------------
    OUTBOX_WAITING = (
        "outbox.waiting"  # Its database can't be used now, or the node does not answer.
    )
    OUTBOX_RUNNING = "outbox.running"
    OUTBOX_REFUSED = "outbox.refused"  # A row that can't be carried out: it stays there, failed.

    # --- workers ------------------------------------------------------------
    WORKER_READY = "worker.ready"
    WORKER_EMPTY = "worker.empty"  # Its applications have no workflow and no activity.
    WORKER_STOPPING = "worker.stopping"
    WORKER_STOPPED = "worker.stopped"
    WORKER_UNREADABLE = "worker.unreadable"  # A frame, or a message of it, could not be decoded.
    WORKER_UNSENT = "worker.unsent"  # What matters of it is said again later.
    WORKER_TOO_LARGE = "worker.too_large"
    WORKER_REFUSED = "worker.refused"  # A report was not accepted.
    WORKER_FENCED = "worker.fenced"  # By its own clock an attempt has lost its lease.
    WORKER_WORN_OUT = "worker.worn_out"  # Too many threads are stuck: it ends.
    WORKER_TASK_EXIT = (
        "worker.task_exit"  # A task on the activities' loop raised SystemExit or such.
    )
    PROCESS_LEFT = "process.left"  # Processes that an activity had started could not be ended.
    WORKER_WORKFLOW_FAILED = "worker.workflow_failed"  # A workflow task did not work out.
    WORKER_WORKFLOW_BLOCKED = "worker.workflow_blocked"
    WORKFLOW_SAID = "workflow.said"
