"""A store whose file is not what was written is told as such, in one line."""

from __future__ import annotations

from contextlib import closing

import pytest

from perdure.store.protocol import Damaged
from perdure.store.sqlite import SqliteReader
from tests.store.test_sqlite import commit, database, execution, opened


def test_a_file_that_was_cut_off_is_named_as_damaged_where_its_open_state_is_read(tmp_path):
    writer = opened(tmp_path)
    for number in range(400):
        commit(writer, tmp_path, started=[execution(f"w-{number}")])
    writer.maybe_checkpoint(idle=True)
    writer.close()
    path = tmp_path / "perdure.db"
    with path.open("r+b") as file:
        file.truncate(40_960)
    with pytest.raises(Damaged, match=r"perdure.db is damaged .*; restore it from a backup"):
        SqliteReader(tmp_path).open_state()


@pytest.mark.parametrize("value", ["x'c1'", "x'93010203'"])
def test_a_row_that_is_not_what_was_written_is_named_as_damage_and_ends_in_no_stack(
    tmp_path, value
):
    writer = opened(tmp_path)
    commit(writer, tmp_path, started=[execution("w")])
    writer.close()
    with closing(database(tmp_path)) as connection:
        connection.execute(f"UPDATE executions SET more = {value}")
    with pytest.raises(Damaged, match=r"perdure.db is damaged .*; restore it from a backup"):
        SqliteReader(tmp_path).open_state()
