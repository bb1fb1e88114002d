"""A worker on its own that is told to begin anew with new code."""

from __future__ import annotations

from perdure import activity
from perdure.clock import boottime_ms
from perdure.core import links
from perdure.worker.restarting import trouble_with


@activity.define
def plain() -> None:
    pass


def test_code_that_does_not_load_is_named_with_what_it_says_whatever_that_is_made_of(tmp_path):
    assert trouble_with(["no_such_module_anywhere"], str(tmp_path)).count("no_such_module_anywhere")
    says = "import sys; sys.stderr.buffer.write(b'\\xff oh'); sys.exit(3)"
    (tmp_path / "broken_app.py").write_text(says)
    assert "oh" in trouble_with(["broken_app"], str(tmp_path))
    (tmp_path / "whole_app.py").write_text("")
    assert trouble_with(["whole_app"], str(tmp_path)) == ""


def test_a_worker_that_is_told_again_says_nothing_of_the_last_trouble(node):
    worker = node.worker(activities=[plain])
    worker.on_restart = lambda: worker.stays("no module 'shop'", boottime_ms())
    node.say(links.RestartWorker())
    node.next(links.WorkerHello, lambda hello: hello.trouble == "no module 'shop'")
    worker.on_restart = lambda: worker._say_hello(boottime_ms())
    node.say(links.RestartWorker())
    node.next(links.WorkerHello, lambda hello: hello.trouble == "")
