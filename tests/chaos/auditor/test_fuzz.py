"""Bytes that a disk or a bug has changed: found, or harmless; and the auditor never gives up."""

from __future__ import annotations

import random
import shutil

import apsw
import msgspec
import pytest

from chaos.auditor import audit, audit_data_dir
from chaos.auditor.log import link
from chaos.auditor.sqlite import DATABASE, LogRow, NoStore

# All that an audit looks at. What is not in it (shard, boot times, stall) is of no invariant.
LOOKED_AT = (
    "SELECT name, value FROM meta WHERE name LIKE 'base%' ORDER BY 1",
    "SELECT epoch, incarnation, now_ms FROM epochs ORDER BY 1",
    "SELECT n, epoch, at_ms, previous_hash, hash, body FROM commits ORDER BY 1",
    "SELECT workflow_id, workflow_type, task_queue, started_ms, request_id, digest, status,"
    " closed_ms, last_event_id, last_wake_id, consumed, commands, task_failures, task_due_ms,"
    " task_failure, task_reason FROM executions ORDER BY 1",
    "SELECT workflow_id, event_id, at_ms, kind, body, closes, v.request_id"
    " FROM events AS v LEFT JOIN executions USING (seq) ORDER BY 1, 2",
    "SELECT workflow_id, activity_id, state, activity_type, failure_type, attempt, body"
    " FROM activities LEFT JOIN executions USING (seq) ORDER BY 1, 2",
    "SELECT workflow_id, timer_id, due_ms FROM timers LEFT JOIN executions USING (seq)"
    " ORDER BY 1, 2",
)


def dump(data):
    """All that is looked at, or None where it can't be read."""
    connection = apsw.Connection(str(data / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [connection.execute(query).fetchall() for query in LOOKED_AT]
    except (apsw.Error, UnicodeDecodeError):
        return None
    finally:
        connection.close()


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_byte_of_the_database_is_found_or_harmless(patient, tmp_path, seed):
    data = tmp_path / "data"
    shutil.copytree(patient.data, data)
    path = data / DATABASE
    raw = bytearray(path.read_bytes())
    dice = random.Random(seed)
    at = dice.randrange(len(raw))
    raw[at] ^= 1 << dice.randrange(8)
    path.write_bytes(raw)
    try:
        report = audit_data_dir(data)
    except NoStore:
        return  # Not even a database any more: said so.
    assert report.violations or dump(data) == dump(patient.data), f"byte {at}"


def rows_of(data):
    connection = apsw.Connection(str(data / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    query = "SELECT n, epoch, at_ms, previous_hash, hash, body FROM commits ORDER BY n"
    rows = [LogRow(*row) for row in connection.execute(query)]
    connection.close()
    return rows


@pytest.mark.parametrize("seed", range(80))
def test_a_changed_record_in_a_right_chain_never_stops_the_audit(patient, seed):
    dice = random.Random(seed)
    rows = rows_of(patient.data)
    hit = dice.randrange(len(rows))
    body = msgspec.msgpack.decode(rows[hit].body)
    for _ in range(dice.randint(1, 3)):
        spoil(body, dice)
    audited = audit(chained(rows, hit, msgspec.msgpack.encode(body)))
    assert audited.commits == len(rows)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_of_a_body_in_a_right_chain_never_stops_the_audit(patient, seed):
    dice = random.Random(seed)
    rows = rows_of(patient.data)
    hit = dice.randrange(len(rows))
    raw = bytearray(rows[hit].body)
    raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    assert audit(chained(rows, hit, bytes(raw))).commits == len(rows)


def chained(rows, hit, body):
    """The rows with another body in one, linked as an engine would have."""
    previous = rows[0].previous_hash
    for at, row in enumerate(rows):
        raw = body if at == hit else row.body
        hashed = link(previous, raw)
        yield row._replace(previous_hash=previous, hash=hashed, body=raw)
        previous = hashed


def spoil(body, dice):
    """Put something else somewhere into a decoded body."""
    place = body
    while True:
        at = dice.randrange(len(place)) if place else None
        if at is None:
            return
        inner = place[at]
        if isinstance(inner, list) and inner and dice.random() < 0.9:
            place = inner
            continue
        place[at] = dice.choice(
            [None, -1, 0, 1, 2**62, "", "x", b"\xff", [], [1, 2], {}, {"type": 1}, 1.5, True]
        )
        return
