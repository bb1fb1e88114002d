"""perdure.workflow outside of a run, and what an application is made of."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types

import pytest

from perdure import activity, registry, workflow
from perdure.errors import FailedPrecondition, InvalidArgument
from perdure.failures import Failure

# --- definitions ---------------------------------------------------------------------


def test_define_works_bare_and_named_and_leaves_the_function_as_it_is():
    async def flow():
        return 1

    assert workflow.define(flow) is flow
    assert workflow.definition_of(flow).name == "flow"
    assert workflow.define(name="Other")(flow) is flow
    assert workflow.definition_of(flow).name == "Other"


def test_a_workflow_is_an_async_function():
    def a(): ...

    async def yields():
        yield 1

    with pytest.raises(InvalidArgument, match=r"must be async: `async def a`$"):
        workflow.define(a)
    with pytest.raises(InvalidArgument, match="yields yields"):
        workflow.define(yields)
    with pytest.raises(InvalidArgument, match="async"):
        workflow.define(lambda: None)
    with pytest.raises(InvalidArgument, match=r"@workflow\.define"):
        workflow.definition_of(print)


@pytest.mark.parametrize(
    "call",
    [
        lambda: workflow.execute_activity("work"),
        workflow.now_ms,
        workflow.random,
        workflow.uuid4,
        workflow.info,
    ],
)
def test_outside_a_workflow_there_is_no_answer(call):
    with pytest.raises(FailedPrecondition, match="inside a running workflow"):
        call()


def test_errors_survive_pickling():
    problem = workflow.ActivityFailed("no", Failure("Boom", "no"), activity_id="a")
    again = pickle.loads(pickle.dumps(problem))
    assert (again.failure, again.activity_id) == (Failure("Boom", "no"), "a")
    odd = pickle.loads(pickle.dumps(workflow.NonDeterminism("m", expected="e", got="g")))
    assert (str(odd), odd.expected, odd.got) == ("m", "e", "g")


def test_importing_perdure_loads_nothing_of_the_application_or_the_command_line():
    code = (
        "import sys, perdure; names = ('zmq', 'pykka', 'typer', 'rich', 'structlog', 'actors', "
        "'supervisors', 'chaos'); print([n for n in names if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- applications ----------------------------------------------------------------------


@pytest.fixture
def make_module(monkeypatch):
    def make(name, source, **names):
        module = types.ModuleType(name)
        module.__dict__.update(names)
        module.__file__ = f"/app/{name}.py"
        monkeypatch.setitem(sys.modules, name, module)
        exec(source, module.__dict__)
        return module

    yield make
    for noted in (workflow.defined, activity.defined):
        noted[:] = [d for d in noted if not d.function.__module__.startswith("fake_")]


IMPORTS = "from perdure import activity, workflow\n"


def test_an_application_has_what_its_modules_define_and_refer_to(make_module):
    make_module("fake_steps", IMPORTS + "@activity.define\ndef one(): pass\n")
    make_module("fake_far", IMPORTS + "@activity.define\ndef far(): pass\ndef helper(): pass\n")
    make_module("fake_other", IMPORTS + "@activity.define\ndef other(): pass\n")
    app = make_module(
        "fake_app",
        IMPORTS
        + "import fake_steps\nfrom fake_far import helper\n"
        + "@workflow.define(name='Flow')\nasync def flow(): pass\n",
    )
    make_module("fake_app.sub", IMPORTS + "@activity.define\ndef below(): pass\n")

    found = registry.collect([app])

    assert sorted(found.activities) == ["below", "far", "one"]
    assert list(found.workflows) == ["Flow"]
    assert found.workflow("Flow").function is app.flow
    assert found.activity("other") is None


def test_two_functions_under_one_name_are_refused_where_the_application_is_loaded(make_module):
    make_module("fake_b", IMPORTS + "@activity.define(name='same')\ndef b(): pass\n")
    app = make_module(
        "fake_a", IMPORTS + "import fake_b\n@activity.define(name='same')\ndef a(): pass\n"
    )

    with pytest.raises(InvalidArgument, match=r"'same': fake_a\.a and fake_b\.b|fake_b\.b and"):
        registry.collect([app])


def test_a_workflow_and_an_activity_may_share_a_name_and_a_module_be_loaded_again(make_module):
    source = (
        IMPORTS
        + "@activity.define\ndef a(): pass\n@workflow.define(name='a')\nasync def b(): pass\n"
    )
    app = make_module("fake_twice", source)
    exec(source, app.__dict__)

    assert registry.collect([app]).activity("a").function is app.a


def test_functions_that_a_factory_made_under_one_name_clash():
    def make():
        @activity.define(name="made")
        def inner():
            pass

        return inner

    with pytest.raises(InvalidArgument, match="two functions"):
        registry.Registry(activities=[make(), make()])
    one = make()
    assert registry.Registry(activities=[one, one]).activity("made").function is one


def test_what_is_not_defined_is_refused():
    with pytest.raises(InvalidArgument, match=r"@activity\.define"):
        registry.Registry(activities=[print])


def test_the_nearest_name_is_suggested_whatever_its_case():
    known = ["FlakyDemo", "checkout", "checkin"]
    assert registry.nearest("flakydemo", known) == "FlakyDemo"
    assert registry.nearest("chekcout", known) == "checkout"
    assert registry.nearest("zebra", known) is None


def test_loading_says_which_module_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "fake_good.py").write_text(IMPORTS + "@workflow.define\nasync def good(): pass\n")
    (tmp_path / "fake_needs.py").write_text("import fake_absent\n")
    (tmp_path / "fake_broken.py").write_text("raise RuntimeError('boom')\n")

    assert list(registry.load(["fake_good"], str(tmp_path)).workflows) == ["good"]
    with pytest.raises(InvalidArgument, match="there is no module 'fake_nowhere'"):
        registry.load(["fake_nowhere"])
    with pytest.raises(InvalidArgument, match=r"there is no module 'fake_good\.sub'"):
        registry.load(["fake_good.sub"])
    with pytest.raises(InvalidArgument, match="imports 'fake_absent'"):
        registry.load(["fake_needs"])
    with pytest.raises(InvalidArgument, match="RuntimeError: boom"):
        registry.load(["fake_broken"])
