"""The end of a run as a sequence diagram in text: who said what to whom, and what struck whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from chaos.sim.fast.world import FastWorld
from chaos.sim.loop import MS_US
from chaos.sim.plan import Plan
from chaos.sim.result import Result
from chaos.sim.world import World
from perdure.core import commands, links

COLUMN = 10
TEXT_MAX = 110
LINES_MAX = 150
# What is said all the time and means little.
_NOISE = frozenset({"Newest", "Ping", "Pong", "Peers", "Sessions"})
_SHORT = {"lease_keeper": "keeper", "scheduler": "sched", "external": "ext"}

_decode = msgspec.msgpack.Decoder().decode


def _tags(module: Any, base: type) -> dict[int, str]:
    found = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, base) and value is not base:
            tag = value.__struct_config__.tag  # type: ignore[attr-defined]
            if isinstance(tag, int):
                found[tag] = value.__name__
    return found


_MESSAGES = _tags(links, links.Message)
_COMMANDS = _tags(commands, commands.Command)


def lines(plan: Plan, result: Result, world: World | FastWorld) -> Iterator[str]:
    """The plan's faults, the last messages, and what was violated."""
    yield from _plan_lines(plan)
    rows = [row for row in world.recent if _is_told(row)][-LINES_MAX:]
    roles = list(dict.fromkeys(role for row in rows for role in row[1:3] if role))
    order = [role for role in (*links.CORE_ROLES, links.ROOT) if role in roles]
    roles = sorted(role for role in roles if role not in order and role.startswith("client"))
    columns = [*roles, *order]
    columns += sorted({role for row in rows for role in row[1:3] if role} - set(columns))
    yield " " * 12 + "".join(f"{_short(role):<{COLUMN}}" for role in columns)
    for at_us, source, target, frames in rows:
        yield f"{at_us / MS_US:>10.3f}  " + _row(columns, source, target, frames)
    for violation in result.violations[:5]:
        yield str(violation)


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"seed {plan.seed}, {len(plan.flows)} workflows"
    for flow in plan.flows:
        steps = ", ".join(
            f"{step.id}" + (f" ({step.how})" if step.fails else "") for step in flow.steps
        )
        yield f"  {flow.id}: {flow.shape} of {steps}"
    for fault in (*plan.faults, *plan.net):
        yield "  " + _fault(fault)


def _fault(fault: Any) -> str:
    length = f" for {fault.ms} ms" if fault.ms else ""
    if hasattr(fault, "source"):
        return f"frame {fault.nth} from {fault.source} to {fault.target}: {fault.action}{length}"
    where = f"at {fault.nth} ms" if fault.place == "ms" else f"{fault.place} {fault.nth}"
    return f"{fault.role}, {where}: {fault.action} {fault.detail}{length}".rstrip()


def _short(role: str) -> str:
    name, dash, number = role.partition("-")
    return (_SHORT.get(name, name)[: COLUMN - 3] + dash + number)[: COLUMN - 1]


def _is_told(row: tuple[int, str, str, Sequence[bytes]]) -> bool:
    if not row[2]:
        return True
    names = _names(row[3])
    return bool(names) and not all(name.split("(")[0] in _NOISE for name in names)


def _row(columns: list[str], source: str, target: str, frames: Sequence[bytes]) -> str:
    cells = ["|" + " " * (COLUMN - 1) for _ in columns]
    text = "".join(cells)
    if not target:
        at = columns.index(source) * COLUMN
        return text[:at] + "X" + text[at + 1 :] + frames[0].decode()
    first, last = columns.index(source) * COLUMN, columns.index(target) * COLUMN
    low, high = min(first, last), max(first, last)
    arrow = "-" * (high - low - 1)
    arrow = arrow[:-1] + ">" if last > first else "<" + arrow[1:]
    said = ", ".join(name for name in _names(frames) if name.split("(")[0] not in _NOISE)
    return text[: low + 1] + arrow + text[high:] + said[:TEXT_MAX]


def _names(frames: Sequence[bytes]) -> list[str]:
    try:
        body = _decode(frames[-1])
    except (msgspec.MsgspecError, RecursionError):
        return []
    if isinstance(body, dict):
        return [_request(body)]
    if not isinstance(body, list):
        return []
    return [_message(item) for item in body if isinstance(item, list) and item]


def _request(body: dict[str, Any]) -> str:
    if "op" in body:
        args = body["args"]
        of = [str(args[key]) for key in ("workflow_id", "activity_id") if args.get(key)]
        return f"{body['op']}({' '.join(of)})"
    error = body.get("error")
    return f"error({error['code']})" if error else f"ok(n={body.get('n', 0)})"


def _message(item: list[Any]) -> str:
    name = _MESSAGES.get(item[0], f"message {item[0]}")
    if name == "Ask" and isinstance(item[2], list):
        command = item[2]
        plain = [str(part) for part in command[1:] if isinstance(part, str | int)][:4]
        return f"Ask({_COMMANDS.get(command[0], '?')} {' '.join(plain)})"
    plain = [str(part) for part in item[1:] if isinstance(part, str | int)][:4]
    return f"{name}({' '.join(plain)})"
