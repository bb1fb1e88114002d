"""Planted bugs: what really happened to others, put into the engine from here, to see that it is
found.

Nothing of this is in the engine. `planted` changes classes for as long as it lasts, and puts them
back. What is planted, the text of each planter says; where it was taken from, `BANK` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from chaos.sim.bugs import attempts, history, limits, others, talk
from chaos.sim.bugs.patches import Patches
from perdure.errors import InvalidArgument


class Bug(StrEnum):
    """The closed list. A value is what a plan names it by."""

    ACK_BEFORE_SYNC = "ack_before_sync"
    FAILED_SYNC_RETRIED = "failed_sync_retried"
    EPOCH_NOT_CHECKED = "epoch_not_checked"
    HALF_A_COMMIT = "half_a_commit"
    FEED_BEFORE_COMMIT = "feed_before_commit"
    FEED_GAP_IGNORED = "feed_gap_ignored"
    ORPHANS_DELETED = "orphans_deleted"
    WALL_CLOCK = "wall_clock"
    FOLD_RAISES = "fold_raises"
    EXPIRY_NOT_COUNTED = "expiry_not_counted"
    ONE_ATTEMPT_MORE = "one_attempt_more"
    DEATHS_NOT_CHARGED = "deaths_not_charged"
    LATE_REPORT_COUNTS = "late_report_counts"
    RESCUE_WITHOUT_GUARD = "rescue_without_guard"
    GRANT_WITHOUT_GUARD = "grant_without_guard"
    HEARTBEAT_IGNORED = "heartbeat_ignored"
    OWN_STALL_EXPIRES = "own_stall_expires"
    NO_GRACE_AFTER_RESTART = "no_grace_after_restart"
    RETRIED_TOO_EARLY = "retried_too_early"
    DEADLINE_OVERSHOT = "deadline_overshot"
    JITTER_ABOVE_CAP = "jitter_above_cap"
    JITTER_DRAWN_AGAIN = "jitter_drawn_again"
    REDRIVE_KEEPS_COUNT = "redrive_keeps_count"
    REDRIVE_UNDER_NEW_KEY = "redrive_under_new_key"
    TIMERS_NOT_REBUILT = "timers_not_rebuilt"
    TASKS_NOT_REBUILT = "tasks_not_rebuilt"
    READY_BATCH_STARVED = "ready_batch_starved"
    LEASES_NOT_REBUILT = "leases_not_rebuilt"
    SWEEP_STARVED = "sweep_starved"
    DEATHS_UNHEARD = "deaths_unheard"
    DEAD_LETTERS_LOST = "dead_letters_lost"
    DEAD_LETTERS_STAY = "dead_letters_stay"
    EMPTY_ID_ACCEPTED = "empty_id_accepted"
    SESSIONS_FORGOTTEN = "sessions_forgotten"
    UNKNOWN_TOLD_AS_REFUSED = "unknown_told_as_refused"
    NEW_REQUEST_ID = "new_request_id"
    NEVER_GIVES_UP = "never_gives_up"
    ANSWERS_MIXED_UP = "answers_mixed_up"
    ROOT_SPEAKS_ONCE = "root_speaks_once"
    REPORT_SAID_ONCE = "report_said_once"
    TASK_RUN_TWICE = "task_run_twice"
    HIRED_FOR_ANOTHER = "hired_for_another"
    STEP_FROM_ANOTHER_PAST = "step_from_another_past"
    FOLLOWED_AT_ANOTHER_TIME = "followed_at_another_time"
    SIGNAL_HANDED_ON_TWICE = "signal_handed_on_twice"
    UNREAD_LEFT_BEHIND = "unread_left_behind"
    RUNS_SHARE_KEYS = "runs_share_keys"
    CHILD_END_UNHEARD = "child_end_unheard"
    CHILDREN_OUTLIVE = "children_outlive"
    UPDATE_DONE_AGAIN = "update_done_again"
    CANCEL_UNHEARD = "cancel_unheard"
    GIVEN_UP_RETRIED = "given_up_retried"
    PATCH_FORGOTTEN = "patch_forgotten"
    SIDE_EFFECT_AGAIN = "side_effect_again"
    PAUSES_FORGOTTEN = "pauses_forgotten"
    SCHEDULE_RUNS_AGAIN = "schedule_runs_again"
    LEFT_OPEN_ENDS_WITH_ITS_WORKER = "left_open_ends_with_its_worker"
    DEATH_TAKEN_FOR_LEFT_OPEN = "death_taken_for_left_open"
    RATE_SAVED_UP = "rate_saved_up"
    PROMISED_NOT_COUNTED = "promised_not_counted"
    LEASED_PAST_THE_LIMIT = "leased_past_the_limit"
    PROBES_UNLIMITED = "probes_unlimited"
    RETRIES_NOT_COUNTED = "retries_not_counted"
    SAID_TO_THE_BUSY_IS_LOST = "said_to_the_busy_is_lost"
    ENDED_BY_ANOTHER_GOES_ON = "ended_by_another_goes_on"
    RESET_DONE_AGAIN = "reset_done_again"
    FENCE_FORGETS_RESETS = "fence_forgets_resets"
    MADE_UP_FOR_AGAIN = "made_up_for_again"


class Entry(NamedTuple):
    """One planted bug: where it was taken from, and what plants it."""

    source: str
    plant: Callable[[Patches], None]


BANK: dict[Bug, Entry] = {
    Bug.ACK_BEFORE_SYNC: Entry("NATS JetStream 2.12.1 (Jepsen)", history.ack_before_sync),
    Bug.FAILED_SYNC_RETRIED: Entry("PostgreSQL, fsyncgate", history.failed_sync_retried),
    Bug.EPOCH_NOT_CHECKED: Entry("etcd 3.4.3 locks (Jepsen)", history.epoch_not_checked),
    Bug.HALF_A_COMMIT: Entry("dramatiq #545", history.half_a_commit),
    Bug.FEED_BEFORE_COMMIT: Entry("etcd #14370", history.feed_before_commit),
    Bug.FEED_GAP_IGNORED: Entry("etcd #17529", history.feed_gap_ignored),
    Bug.ORPHANS_DELETED: Entry("NATS JetStream 2.12.1 (Jepsen)", history.orphans_deleted),
    Bug.WALL_CLOCK: Entry("APScheduler #752, Celery #4920", history.wall_clock),
    Bug.FOLD_RAISES: Entry("Restate #4839", attempts.fold_raises),
    Bug.EXPIRY_NOT_COUNTED: Entry("Sidekiq #4633", attempts.expiry_not_counted),
    Bug.ONE_ATTEMPT_MORE: Entry("django-q #602", attempts.one_attempt_more),
    Bug.DEATHS_NOT_CHARGED: Entry("Sidekiq #3400, Faktory #99", attempts.deaths_not_charged),
    Bug.LATE_REPORT_COUNTS: Entry("Kafka, Bufstream 0.1.0 (Jepsen)", attempts.late_report_counts),
    Bug.RESCUE_WITHOUT_GUARD: Entry("River #1302", attempts.rescue_without_guard),
    Bug.GRANT_WITHOUT_GUARD: Entry("DBOS py #742, #544", attempts.grant_without_guard),
    Bug.HEARTBEAT_IGNORED: Entry("Oban, hexpm #1825", attempts.heartbeat_ignored),
    Bug.OWN_STALL_EXPIRES: Entry("Bull #308, BullMQ #3183", attempts.own_stall_expires),
    Bug.NO_GRACE_AFTER_RESTART: Entry("Celery #4671", attempts.no_grace_after_restart),
    Bug.RETRIED_TOO_EARLY: Entry("dramatiq #651", attempts.retried_too_early),
    Bug.DEADLINE_OVERSHOT: Entry("tenacity #423", attempts.deadline_overshot),
    Bug.JITTER_ABOVE_CAP: Entry("Agenda #1748", attempts.jitter_above_cap),
    Bug.JITTER_DRAWN_AGAIN: Entry("a rule of ours, no case known", attempts.jitter_drawn_again),
    Bug.REDRIVE_KEEPS_COUNT: Entry("BullMQ #3555", attempts.redrive_keeps_count),
    Bug.REDRIVE_UNDER_NEW_KEY: Entry("rihanna #84, rq #1227", attempts.redrive_under_new_key),
    Bug.TIMERS_NOT_REBUILT: Entry("dramatiq #527, kombu #533", others.timers_not_rebuilt),
    Bug.TASKS_NOT_REBUILT: Entry("Temporal #459", others.tasks_not_rebuilt),
    Bug.READY_BATCH_STARVED: Entry("River #1318", others.ready_batch_starved),
    Bug.LEASES_NOT_REBUILT: Entry("Temporal #771", others.leases_not_rebuilt),
    Bug.SWEEP_STARVED: Entry("River #1318", others.sweep_starved),
    Bug.DEATHS_UNHEARD: Entry("Oban #862", others.deaths_unheard),
    Bug.DEAD_LETTERS_LOST: Entry("rq #1461", others.dead_letters_lost),
    Bug.DEAD_LETTERS_STAY: Entry("DBOS py #742", others.dead_letters_stay),
    Bug.EMPTY_ID_ACCEPTED: Entry("DBOS py #759", others.empty_id_accepted),
    Bug.SESSIONS_FORGOTTEN: Entry("procrastinate #1596", others.sessions_forgotten),
    Bug.UNKNOWN_TOLD_AS_REFUSED: Entry(
        "FoundationDB, commit_unknown_result", history.unknown_told_as_refused
    ),
    Bug.NEW_REQUEST_ID: Entry("jetcd 0.8.2 (Jepsen), Restate #5128", others.new_request_id),
    Bug.NEVER_GIVES_UP: Entry("TigerBeetle (Jepsen)", others.never_gives_up),
    Bug.ANSWERS_MIXED_UP: Entry("pyzmq #2043", others.answers_mixed_up),
    Bug.ROOT_SPEAKS_ONCE: Entry("a rule of ours, no case known", others.root_speaks_once),
    Bug.REPORT_SAID_ONCE: Entry("Restate #5196, libzmq #2037", others.report_said_once),
    Bug.TASK_RUN_TWICE: Entry("kombu #337, Celery #5935", others.task_run_twice),
    Bug.HIRED_FOR_ANOTHER: Entry("DBOS java #491", others.hired_for_another),
    Bug.STEP_FROM_ANOTHER_PAST: Entry(
        "Kafka, Bufstream 0.1.0 (Jepsen)", attempts.step_from_another_past
    ),
    Bug.FOLLOWED_AT_ANOTHER_TIME: Entry("DBOS py #715", others.followed_at_another_time),
    Bug.SIGNAL_HANDED_ON_TWICE: Entry("a rule of ours, no case known", talk.signal_handed_on_twice),
    Bug.UNREAD_LEFT_BEHIND: Entry("a rule of ours, no case known", talk.unread_left_behind),
    Bug.RUNS_SHARE_KEYS: Entry("a rule of ours, no case known", talk.runs_share_keys),
    Bug.CHILD_END_UNHEARD: Entry("a rule of ours, no case known", talk.child_end_unheard),
    Bug.CHILDREN_OUTLIVE: Entry("a rule of ours, no case known", talk.children_outlive),
    Bug.UPDATE_DONE_AGAIN: Entry("a rule of ours, no case known", talk.update_done_again),
    Bug.CANCEL_UNHEARD: Entry("a rule of ours, no case known", talk.cancel_unheard),
    Bug.GIVEN_UP_RETRIED: Entry("a rule of ours, no case known", talk.given_up_retried),
    Bug.PATCH_FORGOTTEN: Entry("a rule of ours, no case known", talk.patch_forgotten),
    Bug.SIDE_EFFECT_AGAIN: Entry("a rule of ours, no case known", talk.side_effect_again),
    Bug.PAUSES_FORGOTTEN: Entry("a rule of ours, no case known", talk.pauses_forgotten),
    Bug.SCHEDULE_RUNS_AGAIN: Entry("a rule of ours, no case known", talk.schedule_runs_again),
    Bug.LEFT_OPEN_ENDS_WITH_ITS_WORKER: Entry(
        "a rule of ours, no case known", attempts.left_open_ends_with_its_worker
    ),
    Bug.DEATH_TAKEN_FOR_LEFT_OPEN: Entry(
        "a rule of ours, no case known", attempts.death_taken_for_left_open
    ),
    Bug.RATE_SAVED_UP: Entry("a rule of ours, no case known", limits.rate_saved_up),
    Bug.PROMISED_NOT_COUNTED: Entry("a rule of ours, no case known", limits.promised_not_counted),
    Bug.LEASED_PAST_THE_LIMIT: Entry("a rule of ours, no case known", limits.leased_past_the_limit),
    Bug.PROBES_UNLIMITED: Entry("a rule of ours, no case known", limits.probes_unlimited),
    Bug.RETRIES_NOT_COUNTED: Entry("a rule of ours, no case known", limits.retries_not_counted),
    Bug.SAID_TO_THE_BUSY_IS_LOST: Entry(
        "a rule of ours, no case known", talk.said_to_the_busy_is_lost
    ),
    Bug.ENDED_BY_ANOTHER_GOES_ON: Entry(
        "a rule of ours, no case known", talk.ended_by_another_goes_on
    ),
    Bug.RESET_DONE_AGAIN: Entry("a rule of ours, no case known", talk.reset_done_again),
    Bug.FENCE_FORGETS_RESETS: Entry("a rule of ours, no case known", talk.fence_forgets_resets),
    Bug.MADE_UP_FOR_AGAIN: Entry("a rule of ours, no case known", talk.made_up_for_again),
}


@contextlib.contextmanager
def planted(bug: str) -> Iterator[None]:
    """The engine has this bug for as long as it lasts; "" has none. InvalidArgument otherwise."""
    if not bug:
        yield
        return
    try:
        entry = BANK[Bug(bug)]
    except (KeyError, ValueError):
        raise InvalidArgument(f"there is no bug {bug!r}; there are: {', '.join(Bug)}") from None
    patches = Patches()
    try:
        entry.plant(patches)
        yield
    finally:
        patches.undo()
