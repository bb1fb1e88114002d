"""MODULE[:WORKFLOW] and an input, as a plan."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from perdure import registry
from perdure.binding import result_annotation
from perdure.core.records import Payload
from perdure.errors import InvalidArgument
from perdure.registry import Registry
from perdure.verifying.life import Plan
from perdure.worker import guard

_INSTALLED = frozenset(("site-packages", "dist-packages"))


def planned(target: str, directory: str, payload: Payload | None, *, redrive: bool = True) -> Plan:
    """The plan for what `target` names, looked for in `directory` first. Loads the module.

    InvalidArgument, with what there is, where it names no workflow, or there are several.
    """
    module, _, name = target.partition(":")
    before = set(sys.modules)
    found = registry.load([module], directory)
    guard.install()
    # Annotations are read while the names of their modules mean what they always do.
    for workflow in found.workflows.values():
        result_annotation(workflow.function)
    for activity in found.activities.values():
        result_annotation(activity.function)
    return Plan(
        registry=found,
        workflow=_chosen(found, module, name),
        payload=payload,
        modules=list(_applications(set(sys.modules) - before | {module})),
        redrive=redrive,
    )


def _chosen(found: Registry, module: str, name: str) -> str:
    if name:
        if name in found.workflows:
            return name
        near = found.nearest_workflow(name)
        hint = f"; did you mean {near}?" if near else _there(list(found.workflows))
        raise InvalidArgument(f"{module} has no workflow {name!r}{hint}", field="workflow")
    own = [one.name for one in found.workflows.values() if one.function.__module__ == module]
    names = own or list(found.workflows)
    if len(names) == 1:
        return names[0]
    if not names:
        raise InvalidArgument(f"{module} has no workflow", field="workflow")
    raise InvalidArgument(
        f"{module} has several workflows; name one, as in {module}:{names[0]}{_there(names)}",
        field="workflow",
    )


def _there(names: list[str]) -> str:
    return f"; there are: {', '.join(sorted(names))}" if names else "; it has none"


def _applications(names: set[str]) -> Iterator[ModuleType]:
    """Those of the modules that are the user's own."""
    for name in sorted(names):
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        root = name.partition(".")[0]
        if module is None or not file or root == "perdure" or root in sys.stdlib_module_names:
            continue
        if _INSTALLED.isdisjoint(Path(file).parts):
            yield module
