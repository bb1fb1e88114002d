"""Every bound of the engine, by name, in one place; bounds that depend on each other are checked
here.
"""

from __future__ import annotations

PROTOCOL_VERSION = 3
FORMAT_VERSION = 3

# --- sizes ------------------------------------------------------------------
REQUEST_BYTES_MAX = 4 * 1024 * 1024
WORKER_FRAME_BYTES_MAX = 64 * 1024 * 1024
WORKFLOW_RESULT_BYTES_MAX = 32 * 1024 * 1024
FRAME_BYTES = 1024 * 1024
PAYLOAD_BYTES_MAX = 2 * 1024 * 1024
INLINE_BYTES = 1024
ASIDE_BODY_BYTES_MAX = 64 * 1024
ASIDE_ERROR_CHARS_MAX = 16 * 1024
ID_BYTES_MAX = 200
NAME_CHARS_MAX = 128
INTEGER_MAX = 2**53
PAGE_MAX = 1_000
SHARDS = 1_024
ATTRIBUTES_BYTES_MAX = 8 * 1024

# So much stays free for the reports of work that was taken on.
RESERVE_BYTES = 64 * 1024 * 1024

# --- counts -----------------------------------------------------------------
READY_MAX = 100_000
ASIDES_MAX = 1_000
CLIENT_REQUESTS_MAX = 10_000
STUCK_THREADS_MAX = 100
DRAIN_MAX = 2_000
FAILURES_KEPT_NEWEST = 20
UNCHARGED_IN_A_ROW_MAX = 3
UNDELIVERED_MAX = 3
WORKFLOW_TASK_FAILURES_FREE = 2
# An activity whose worker died this often in a row runs alone from then on.
DEATHS_SHARED_MAX = 2
SIGNALS_DROPPED_KEPT = 20
SIGNAL_NAMES_NOTED = 50
# A request that comes again is looked for in so many runs of its workflow.
RUNS_LOOKED_AT = 100

# --- times ------------------------------------------------------------------
START_TO_CLOSE_MS = 600_000
GRACE_MS = 10_000
HOLD_MS = 1_000
SYNC_MS = 1_000
FEED_BEAT_MS = 100
PATIENT_MS = 10
RESEND_FIRST_MS = 1_000
RESEND_MAX_MS = 30_000
WORKFLOW_TASK_MS = 10_000
WORKFLOW_TASK_BACKOFF_MS = 1_000
WORKFLOW_TASK_BACKOFF_MAX_MS = 600_000
HEARTBEAT_EVERY_MAX_MS = 60_000
HEARTBEAT_EVERY_UNSET_MS = 30_000
DEATH_ECHO_MS = 50
CALL_MS = 5_000
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
AUDIT_MS = 14 * DAY_MS
# A follower reads the gaps of its feed from the log: what is pruned it must have seen.
AUDIT_MS_MIN = 60_000

# A worker that lost one Sync on the way is heard twice more before its workflow task moves.
assert SYNC_MS * 3 <= WORKFLOW_TASK_MS
# A frame of the inside never grows past what the gateway passes on.
assert FRAME_BYTES < WORKER_FRAME_BYTES_MAX
assert PAYLOAD_BYTES_MAX < REQUEST_BYTES_MAX
