"""A writer that is killed in the middle of its commits loses none that returned."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from perdure.core.chain import GENESIS, next_hash
from perdure.store.sqlite import SqliteReader, SqliteWriter

COMMITS_BEFORE_KILL = 150

WRITER = """
import sys
from pathlib import Path
from perdure.core.chain import next_hash
from perdure.core.change import Change, StoredEvent
from perdure.core.state import Execution
from perdure.store.sqlite import SqliteWriter

writer = SqliteWriter(Path(sys.argv[1]))
opened = writer.open_epoch(sys.argv[2], 1_000, "boot", 0)
n, link, at_ms = opened.n, opened.last_hash, opened.base_ms
while True:
    n, before, body = n + 1, link, b"body %d" % n * 100
    link = next_hash(before, body)
    name = f"w{n}"
    writer.commit(
        Change(
            n, opened.epoch, at_ms, before, link, body,
            started=[Execution(name, "T", "q", at_ms, None, b"")],
            events=[StoredEvent(name, 1, at_ms, "WorkflowStarted", b"event")],
        )
    )
    writer.maybe_checkpoint(idle=True)
    print(n, flush=True)
"""


@pytest.mark.process
def test_a_writer_killed_in_a_loop_of_commits_has_lost_none_that_returned(tmp_path):
    returned: list[int] = []
    for life in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), f"history.{life}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child, child.stdout:
            returned += [int(child.stdout.readline()) for _ in range(COMMITS_BEFORE_KILL)]
            child.kill()
            # What it printed between our last look and its death has returned as well.
            rest = child.stdout.read().split("\n")
            returned += [int(line) for line in rest[:-1]]
        assert child.returncode == -signal.SIGKILL

    writer = SqliteWriter(tmp_path)
    opened = writer.open_epoch("history.last", 1_000, "boot", 0)
    reader = SqliteReader(tmp_path)
    rows = reader.commits(0, opened.n)
    assert [row.n for row in rows] == list(range(1, opened.n + 1))
    link = GENESIS
    for row in rows:
        assert row.previous_hash == link
        link = next_hash(link, row.body)
        assert row.hash == link
    assert len(returned) >= 3 * COMMITS_BEFORE_KILL
    assert set(returned) <= {row.n for row in rows}
    for n in returned:
        assert writer.load(f"w{n}") is not None
        assert reader.events(f"w{n}", 0, 2, 100) == [b"event"]
    # And a commit is whole or absent: as many executions as commits that are no epoch's.
    assert len(reader.open_state()[1]) == opened.n - 4
    writer.close()
    reader.close()
