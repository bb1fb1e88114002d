from __future__ import annotations

import threading

from perdure.worker.pool import LoopThread, Threads

PATIENCE_S = 30


def test_threads_are_started_as_they_are_needed_and_used_again():
    threads, done = Threads(lambda: None), threading.Semaphore(0)
    for _ in range(20):
        threads.submit(done.release)
        assert done.acquire(timeout=PATIENCE_S)
        threads.ended()
    assert threads.alive == 1


def test_a_thread_that_is_stuck_is_replaced_and_ends_when_its_job_does():
    threads, begun, release, after = (
        Threads(lambda: None),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    ran_in: list[threading.Thread] = []

    def stuck() -> None:
        ran_in.append(threading.current_thread())
        begun.set()
        release.wait(PATIENCE_S)

    job = threads.submit(stuck)
    assert begun.wait(PATIENCE_S)
    threads.give_up(job)
    assert (threads.alive, threads.stuck) == (0, 1)
    threads.submit(after.set)
    assert after.wait(PATIENCE_S), "the next job got no thread"
    release.set()
    ran_in[0].join(PATIENCE_S)
    assert (ran_in[0].is_alive(), threads.stuck) == (False, 0)


def test_a_job_that_is_given_up_before_it_begins_never_runs():
    threads, begun, release, last = (
        Threads(lambda: None),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    ran: list[str] = []

    def first() -> None:
        begun.set()
        release.wait(PATIENCE_S)

    threads.submit(first)
    assert begun.wait(PATIENCE_S)
    threads._alive += 1  # So that the second has to wait for the thread of the first.
    second = threads.submit(lambda: ran.append("second"))
    threads.give_up(second)
    threads.submit(last.set)
    release.set()
    assert last.wait(PATIENCE_S)
    assert ran == []


def test_jobs_behind_one_that_blocks_begin_at_once():
    threads, go, release, done = (
        Threads(lambda: None),
        threading.Barrier(4),
        threading.Event(),
        threading.Semaphore(0),
    )
    for _ in range(4):  # So that there are four threads, all idle from then on.
        threads.submit(lambda: [go.wait(PATIENCE_S), threads.ended(), done.release()])
    for _ in range(4):
        assert done.acquire(timeout=PATIENCE_S)
    threads.submit(lambda: release.wait(PATIENCE_S))
    for _ in range(3):
        threads.submit(done.release)
    for _ in range(3):
        assert done.acquire(timeout=PATIENCE_S), "it waits for the one that blocks"
    assert threads.alive == 4
    release.set()


def test_what_has_ended_is_told_before_the_next_job_is_over():
    nudged, begun, release = threading.Event(), threading.Event(), threading.Event()
    ended: list[int] = []
    threads = Threads(lambda: nudged.set() if ended else None)

    def first() -> None:
        begun.wait(PATIENCE_S)
        ended.append(1)

    threads.submit(first)
    threads._alive += 1  # So that the second has to wait for the thread of the first.
    threads.submit(lambda: release.wait(PATIENCE_S))
    begun.set()
    assert nudged.wait(PATIENCE_S), "the main loop hears of the first with the second"
    release.set()


def test_a_coroutine_that_is_cancelled_before_its_first_step_still_runs_to_its_end():
    loop, ended = LoopThread(), threading.Event()

    async def run() -> None:
        ended.set()

    loop.start(run).cancel()
    assert ended.wait(PATIENCE_S)
