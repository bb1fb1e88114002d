"""From what operators ask of the flow of work to commands of history. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import wire, wire_flow
from perdure.core.commands import (
    AnyCommand,
    PauseWorkflow,
    ResetWorkflow,
    RetryNow,
    SetGate,
    WasReset,
)
from perdure.core.gates import ACTIVITY_TYPE, QUEUE, Gate


def _queue(form: wire.Form, args: wire_flow.OfQueue) -> AnyCommand:
    paused = isinstance(args, wire_flow.PauseQueue)
    return SetGate("", QUEUE, args.name, paused, args.reason or "", args.request_id)


def _activity_type(form: wire.Form, args: wire_flow.OfActivityType) -> AnyCommand:
    paused = isinstance(args, wire_flow.PauseActivityType)
    return SetGate("", ACTIVITY_TYPE, args.type, paused, args.reason or "", args.request_id)


def _pause(form: wire.Form, args: wire_flow.PauseWorkflow) -> AnyCommand:
    return PauseWorkflow(args.workflow_id, True, args.reason or "", args.request_id)


def _resume(form: wire.Form, args: wire_flow.ResumeWorkflow) -> AnyCommand:
    return PauseWorkflow(args.workflow_id, False, args.reason or "", args.request_id)


def _retry(form: wire.Form, args: wire_flow.RetryWorkflow) -> AnyCommand:
    return RetryNow(args.workflow_id, args.activity_id or "", args.request_id)


def _reset(form: wire.Form, args: wire_flow.ResetWorkflow) -> AnyCommand:
    reason = args.reason or ""
    return ResetWorkflow(args.workflow_id, args.to_event, reason, args.request_id, args.dry_run)


COMMANDS: dict[type[wire.Args], Callable[[wire.Form, Any], AnyCommand]] = {
    wire_flow.PauseQueue: _queue,
    wire_flow.ResumeQueue: _queue,
    wire_flow.PauseActivityType: _activity_type,
    wire_flow.ResumeActivityType: _activity_type,
    wire_flow.PauseWorkflow: _pause,
    wire_flow.ResumeWorkflow: _resume,
    wire_flow.RetryWorkflow: _retry,
    wire_flow.ResetWorkflow: _reset,
}


def reset_view(answer: WasReset) -> dict[str, Any]:
    """The `ok` of ResetWorkflow."""
    return {
        "event_id": answer.event_id or None,
        "effects_count": answer.effects_count,
        "effects": [
            {
                "kind": it.kind,
                "id": it.id,
                "type": it.type,
                "idempotency_key": it.key,
                "outcome": it.outcome,
                "at_ms": it.at_ms,
            }
            for it in answer.effects
        ],
        "said_count": answer.said_count,
        "said": [
            {
                "kind": it.kind,
                "id": it.id or None,
                "name": it.name or None,
                "becomes": it.becomes,
                "at_ms": it.at_ms,
            }
            for it in answer.said
        ],
    }


def pauses_view(gates: list[Gate]) -> dict[str, Any]:
    """The `ok` of ListPauses."""
    return {
        "pauses": [
            {"kind": it.kind, "name": it.name, "since_ms": it.since_ms, "reason": it.reason}
            for it in gates
            if it.paused
        ]
    }
