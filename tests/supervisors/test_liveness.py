from __future__ import annotations

from supervisors.liveness import Liveness


def looks(liveness, *instants_ms, in_disk_sleep=False):
    return [liveness.look(now_ms=at_ms, in_disk_sleep=in_disk_sleep) for at_ms in instants_ms]


def test_a_child_that_is_silent_for_the_whole_limit_is_dead():
    liveness = Liveness(limit_ms=5_000, now_ms=0)
    assert looks(liveness, 1_000, 2_000, 3_000, 4_000, 5_000) == [False] * 4 + [True]


def test_an_answer_starts_the_time_again():
    liveness = Liveness(limit_ms=5_000, now_ms=0)
    looks(liveness, 1_000, 2_000, 3_000, 4_000)
    liveness.heard()
    assert looks(liveness, 5_000, 8_000) == [False, False]


def test_time_in_which_the_supervisor_did_not_run_accuses_nobody():
    liveness = Liveness(limit_ms=5_000, now_ms=0)
    assert looks(liveness, 1_000, 3_600_000) == [False, False]
    assert liveness.silent_ms == 3_000


def test_time_in_disk_sleep_does_not_count():
    liveness = Liveness(limit_ms=5_000, now_ms=0)
    assert True not in looks(liveness, *range(1_000, 60_000, 1_000), in_disk_sleep=True)
    assert looks(liveness, *range(60_000, 65_000, 1_000))[-1] is True
