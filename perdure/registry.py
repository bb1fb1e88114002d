"""Which definitions make up an application: by name, from functions or from modules.

`define` only notes a definition; names have to be unique within one application, and are checked
where it is put together.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from perdure import activity, workflow
from perdure.activity import Definition as ActivityDefinition
from perdure.errors import InvalidArgument
from perdure.importing import imported
from perdure.workflow import Definition as WorkflowDefinition

__all__ = [
    "ActivityDefinition",
    "Registry",
    "WorkflowDefinition",
    "collect",
    "load",
    "nearest",
]

SIMILARITY_MIN = 0.5
_INSTALLED = ("site-packages", "dist-packages")

AnyDefinition = TypeVar("AnyDefinition", ActivityDefinition, WorkflowDefinition)


class Registry:
    """The workflows and activities of one application, by name.

    Made from defined functions (or definitions). InvalidArgument where two different functions
    share a name, or something is not defined.
    """

    def __init__(
        self,
        workflows: Iterable[Callable[..., Any] | WorkflowDefinition] = (),
        activities: Iterable[Callable[..., Any] | ActivityDefinition] = (),
    ) -> None:
        self.workflows: Mapping[str, WorkflowDefinition] = _by_name(
            "workflow",
            (
                w if isinstance(w, WorkflowDefinition) else workflow.definition_of(w)
                for w in workflows
            ),
        )
        self.activities: Mapping[str, ActivityDefinition] = _by_name(
            "activity",
            (
                a if isinstance(a, ActivityDefinition) else activity.definition_of(a)
                for a in activities
            ),
        )

    def workflow(self, name: str) -> WorkflowDefinition | None:
        """The workflow of that type, or None."""
        return self.workflows.get(name)

    def activity(self, name: str) -> ActivityDefinition | None:
        """The activity of that type, or None."""
        return self.activities.get(name)

    def nearest_workflow(self, name: str) -> str | None:
        """The known workflow type that looks most like `name`, or None."""
        return nearest(name, self.workflows)

    def nearest_activity(self, name: str) -> str | None:
        """The known activity type that looks most like `name`, or None."""
        return nearest(name, self.activities)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that looks most like `name`, whatever its case; None if none does."""
    by_folded = {other.casefold(): other for other in sorted(known)}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=SIMILARITY_MIN)
    return by_folded[found[0]] if found else None


def load(names: Iterable[str], directory: str | None = None) -> Registry:
    """Import the modules of an application, looking in `directory` first, and collect them.

    InvalidArgument, naming the module and what to look at, if it is not there, or fails while it
    is imported.
    """
    if directory is not None and directory not in sys.path:
        sys.path.insert(0, directory)
    return collect([imported(name, Path(directory or ".")) for name in names])


def collect(modules: Iterable[ModuleType]) -> Registry:
    """The definitions of these modules, and of the modules that they refer to.

    A module counts if it is one of those given, is below one in its package, or is reached from
    one through names in it: modules, functions and classes. The standard library is not searched,
    installed packages only where they are named. InvalidArgument where two functions share a name.
    """
    reached = set(_reached(modules))
    return Registry(
        [d for d in workflow.defined if d.function.__module__ in reached],
        [d for d in activity.defined if d.function.__module__ in reached],
    )


def _reached(modules: Iterable[ModuleType]) -> Iterator[str]:
    waiting = [module.__name__ for module in modules]
    given = tuple(f"{name}." for name in waiting)
    waiting.extend(name for name in sys.modules if name.startswith(given))
    explicit = set(waiting)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in seen or module is None:
            continue
        seen.add(name)
        yield name
        if name in explicit or not _is_foreign(module):
            waiting.extend(_named_in(module))


def _is_foreign(module: ModuleType) -> bool:
    """Whether this is somebody else's: ours, or installed."""
    if module.__name__.partition(".")[0] == "perdure":
        return True
    file = getattr(module, "__file__", None)
    return not file or any(part in _INSTALLED for part in Path(file).parts)


def _named_in(module: ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            name: object = value.__name__
        else:
            name = getattr(value, "__module__", None)
        if isinstance(name, str) and name.partition(".")[0] not in sys.stdlib_module_names:
            yield name


def _by_name(kind: str, definitions: Iterable[AnyDefinition]) -> dict[str, AnyDefinition]:
    by_name: dict[str, AnyDefinition] = {}
    for definition in definitions:
        before = by_name.get(definition.name)
        if before is not None and not _is_newer(definition, before):
            raise InvalidArgument(
                f"two functions are the {kind} {definition.name!r}: {_place(before)} and "
                f"{_place(definition)}; give one another name",
                field="name",
            )
        by_name[definition.name] = definition
    return by_name


def _is_newer(definition: AnyDefinition, before: AnyDefinition) -> bool:
    """Whether this is the same function, perhaps of a module that was loaded again."""
    new, old = definition.function, before.function
    if new is old:
        return True
    place = _place(definition)
    return place == _place(before) and "<locals>" not in place


def _place(definition: AnyDefinition) -> str:
    function = definition.function
    name = getattr(function, "__qualname__", definition.name)
    return f"{function.__module__}.{name}"
