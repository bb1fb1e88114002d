"""What history writes for any commands, the auditor finds to be right: in memory and on a disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.auditor import Auditor, audit_data_dir
from chaos.auditor.memory import ReaderTables
from perdure.store.sqlite import SqliteReader, SqliteWriter
from tests.core.fold_script import FREQUENT, OPS, Script, begun

CALLS = 300


class OnDisk:
    """Stands where a script makes its store in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def writer(self) -> SqliteWriter:
        return SqliteWriter(self._directory)

    def reader(self) -> SqliteReader:
        return SqliteReader(self._directory)


def play(script: Script, seed: int) -> None:
    draws = random.Random(seed)
    script.is_strict = True
    for _ in range(CALLS):
        op = draws.choice([*OPS, *FREQUENT, *FREQUENT])
        y = draws.randrange(32 if draws.random() < 0.1 else 31)
        script.run(op, draws.randrange(64), y)


@pytest.mark.parametrize("seed", range(8))
def test_the_auditor_agrees_with_all_that_a_random_script_writes(seed: int) -> None:
    script = begun()
    play(script, seed)
    reader = script.rig.store.reader()
    auditor = Auditor()
    for row in reader.commits(0, 100_000):
        auditor.feed(row)
    report = auditor.finish(ReaderTables(reader))
    assert report.violations == ()


def test_so_it_does_on_a_disk(tmp_path: Path) -> None:
    script = begun(OnDisk(tmp_path))
    play(script, 99)
    script.rig.writer.close()
    report = audit_data_dir(tmp_path)
    assert report.violations == ()
