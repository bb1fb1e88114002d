from __future__ import annotations

import actors.history
from supervisors.storage import EXIT_COMMIT_FAILED, StorageFailures, drop_cached_pages


def test_the_root_knows_how_history_ends_when_a_commit_failed():
    assert EXIT_COMMIT_FAILED == actors.history.EXIT_COMMIT_FAILED


def test_a_second_failed_commit_before_a_successful_one_is_final():
    failures = StorageFailures()
    assert failures.is_final(exit_code=EXIT_COMMIT_FAILED, was_ready=True) is False
    assert failures.is_final(exit_code=EXIT_COMMIT_FAILED, was_ready=False) is True


def test_a_successful_commit_between_two_failed_ones_forgives_the_first():
    failures = StorageFailures()
    assert failures.is_final(exit_code=EXIT_COMMIT_FAILED, was_ready=False) is False
    assert failures.is_final(exit_code=EXIT_COMMIT_FAILED, was_ready=True) is False


def test_other_ends_of_history_are_no_failed_commits():
    failures = StorageFailures()
    for code in (1, -9, None, 70):
        assert failures.is_final(exit_code=code, was_ready=False) is False


def test_dropping_cached_pages_changes_no_byte(tmp_path):
    (tmp_path / "perdure.db").write_bytes(b"x" * 10_000)
    drop_cached_pages(tmp_path)
    assert (tmp_path / "perdure.db").read_bytes() == b"x" * 10_000
