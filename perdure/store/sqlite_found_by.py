"""By what executions are found besides their own columns: their parent, their search attributes.

A table made of what `more` says, kept beside it in the same transactions, so that a list of the few
that have an attribute does not read all there are. It is made, or made anew, where a store was last
written by a version that does not know it: `meta` names the epoch that has kept it up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import apsw

from perdure.core.ids import of_execution
from perdure.core.more import More
from perdure.core.start import Attribute
from perdure.store import sqlite_rows
from perdure.store.protocol import WorkflowFilter

SOURCE = "found_by CROSS JOIN executions USING (seq)"  # CROSS: SQLite takes them in this order.

_TABLE = """CREATE TABLE found_by (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (name, value, seq)
) STRICT, WITHOUT ROWID"""
_IS_THERE = "SELECT count(*) FROM sqlite_schema WHERE name = 'found_by'"
_IS_KEPT = (
    "SELECT (SELECT value FROM meta WHERE name = 'found_by_epoch')"
    " = (SELECT max(epoch) FROM epochs)"
)
_KEEP = (
    "INSERT INTO meta VALUES ('found_by_epoch', ?) ON CONFLICT DO UPDATE SET value = excluded.value"
)
_INSERT = "INSERT INTO found_by VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_DELETE = "DELETE FROM found_by WHERE name = ? AND value = ? AND seq = ?"
_MORE = "SELECT more FROM executions WHERE seq = ?"
# Of longer texts the beginning: whoever looks a text up compares the whole.
TEXT_CHARS = 100
SORTED_AT_ONCE = 200_000

Key = tuple[str, str]


# --- within a writer's transaction ----------------------------------------------
def take_over(connection: apsw.Connection, epoch: int) -> None:
    """The epoch that begins keeps the table; where the one before did not, it is made of what there
    is. To be called before the row of the new epoch is there.
    """
    is_there = bool(connection.execute(_IS_THERE).get)
    if not (is_there and connection.execute(_IS_KEPT).get):
        if not is_there:
            connection.execute(_TABLE)
        connection.execute("DELETE FROM found_by")
        connection.executemany(_INSERT, _all(connection))
    connection.execute(_KEEP, (epoch,))


def started(connection: apsw.Connection, seq: int, more: More) -> None:
    """A new execution."""
    connection.executemany(_INSERT, [(*key, seq) for key in _keys(more)])


def changed(connection: apsw.Connection, seq: int, more: More) -> None:
    """To be called before the row says `more`."""
    before = _before(connection, seq)
    if before is None or before.attributes != more.attributes:
        _replace(connection, seq, before, more)


def removed(connection: apsw.Connection, seq: int) -> None:
    """To be called before the row says nothing any more."""
    _replace(connection, seq, _before(connection, seq), None)


def _replace(
    connection: apsw.Connection, seq: int, before: More | None, after: More | None
) -> None:
    had, has = set(_keys(before)), set(_keys(after))
    connection.executemany(_DELETE, [(*key, seq) for key in had - has])
    connection.executemany(_INSERT, [(*key, seq) for key in has - had])


def _before(connection: apsw.Connection, seq: int) -> More | None:
    raw = connection.execute(_MORE, (seq,)).get
    return None if raw is None else sqlite_rows.decode_more(raw)


def _all(connection: apsw.Connection) -> Iterator[tuple[str, str, int]]:
    """So many at a time in the order in which they stand in the table, which is far quicker to
    write; all at once might be more than there is memory for.
    """
    found = (
        (*key, seq)
        for seq, raw in connection.execute("SELECT seq, more FROM executions WHERE more NOT NULL")
        for key in _keys(sqlite_rows.decode_more(raw))
    )
    while some := list(itertools.islice(found, SORTED_AT_ONCE)):
        yield from sorted(some)


# --- looking up -------------------------------------------------------------------
def is_kept(connection: apsw.Connection) -> bool:
    """Whether the table may be trusted: the store's owner keeps it."""
    return bool(connection.execute(_IS_THERE).get and connection.execute(_IS_KEPT).get)


def conditions(where: WorkflowFilter, bindings: dict[str, str | int]) -> list[str]:
    """What leads to the executions that `where` may mean, in SOURCE: the first key, then others."""
    wanted = [] if where.parent is None else [_of_parent(where.parent)]
    wanted += [_of_attribute(name, value) for name, value in where.attributes]
    made = []
    for at, (name, value) in enumerate(wanted):
        bindings[f"name{at}"], bindings[f"value{at}"] = name, value
        if at == 0:
            made.append("name = :name0 AND value = :value0")
        else:
            made.append(
                "EXISTS (SELECT 1 FROM found_by AS other WHERE other.name = :name"
                f"{at} AND other.value = :value{at} AND other.seq = executions.seq)"
            )
    return made


def _keys(more: More | None) -> Iterator[Key]:
    if more is None:
        return
    if more.parent is not None:
        yield _of_parent(of_execution(more.parent.workflow_id)[0])
    for name, value in more.attributes.items():
        yield _of_attribute(name, value)


def _of_parent(workflow_id: str) -> Key:
    return ("parent", workflow_id)


def _of_attribute(name: str, value: Attribute) -> Key:
    """Numbers that are equal have one key: 1 is 1.0, but True is neither."""
    if isinstance(value, bool):
        text = f"b{value}"
    elif isinstance(value, str):
        text = f"s{value[:TEXT_CHARS]}"
    else:
        text = f"n{float(value) + 0.0!r}"
    return (f"attribute {name}", text)
