"""Operators of the drill `features`: they pause, keep schedules, take workflows back, and have
processes begin anew.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter

from chaos.apps.fair import GATED
from chaos.drills.features_fair import Person
from chaos.drills.features_notes import Bell, Pause
from chaos.drills.operator import Operator
from perdure.clock import wall_ms
from perdure.errors import FailedPrecondition

EVERY_MS = 1_000
CATCH_UP = 1_000
RUNS_MAX = 1_000
# History's clock is the machine's as of its start: by so much the two may have drifted apart.
SKEW_MS = 100
WHOLE, PAUSED = "bells", "chimes"
RELOADED = ("--workers", "scheduler", "history", "gateway", "outbox", "lease_keeper", "dlq")


class Doorkeeper(Person):
    """Pauses an activity type, or a workflow, looks away for a while, and lets it go on."""

    def _act(self, number: int) -> None:
        if number % 3:
            self._gate(f"gate-{number}")
        elif running := [it for it in self.fair.load.ids[-5:]]:
            self._workflow(self.dice.choice(running), f"pause-{number}")

    def _gate(self, request: str) -> None:
        client = self.client
        self.insist(lambda: client.pause_activity_type(GATED, "full", request_id=request))
        [gate] = [it for it in self.insist(client.list_pauses) if it.name == GATED]
        self.rest(self.dice.uniform(0.2, 0.9))
        self.fair.gates.append(Pause(gate.since_ms, wall_ms() - SKEW_MS))
        self.insist(lambda: client.resume_activity_type(GATED, request_id=f"{request}-over"))
        self.fair.did["pauses of an activity type"] += 1

    def _workflow(self, workflow_id: str, request: str) -> None:
        client = self.client
        with contextlib.suppress(FailedPrecondition):  # It has ended.
            self.insist(lambda: client.pause_workflow(workflow_id, "wait", request_id=request))
            self.fair.did["pauses of a workflow"] += 1
            self.rest(self.dice.uniform(0.1, 0.4))
            over = f"{request}-over"
            self.insist(lambda: client.resume_workflow(workflow_id, request_id=over))


class Ringer(Person):
    """Two schedules, from the first act to the last: one runs each second, the other is paused and
    resumed meanwhile.
    """

    def _begin(self) -> None:
        self._create(WHOLE)
        self._create(PAUSED)
        self._began_ms = wall_ms()

    def _create(self, schedule_id: str) -> None:
        self.insist(
            lambda: self.client.create_schedule(
                schedule_id,
                "FairBell",
                every_ms=EVERY_MS,
                overlap="allow_all",
                catch_up=CATCH_UP,
                request_id="create",
                ledger=self.fair.ledger,
            )
        )

    def _act(self, number: int) -> None:
        self.rest(self.dice.uniform(0.5, 2))
        client, request = self.client, f"pause-{number}"
        self.insist(lambda: client.pause_schedule(PAUSED, "hush", request_id=request))
        since_ms = wall_ms()
        self.rest(self.dice.uniform(0.5, 2.5))
        until_ms = wall_ms()
        over = f"{request}-over"
        self.insist(lambda: client.resume_schedule(PAUSED, "", request_id=over))
        self.fair.hushes.append(Pause(since_ms + SKEW_MS, until_ms - SKEW_MS))
        self.fair.did["pauses of a schedule"] += 1

    def _finish(self) -> None:
        # What fell due while nobody was there to see is dealt with first.
        self.until(lambda: self.client.describe_schedule(WHOLE).upcoming_ms[0] > wall_ms())
        self.fair.rung = (self._began_ms, wall_ms() - EVERY_MS)
        for schedule_id in (WHOLE, PAUSED):
            self._remove(schedule_id)
            bells = [self._bell(it) for it in self._runs(schedule_id)]
            self.fair.bells[schedule_id] = bells
            self.fair.did["runs of schedules"] += len(bells)

    def _remove(self, schedule_id: str) -> None:
        self.insist(lambda: self.client.delete_schedule(schedule_id, request_id="delete"))

    def _runs(self, schedule_id: str) -> list[str]:
        answer = self.insist(
            lambda: self.client.list_workflows(
                attributes={"schedule_id": schedule_id}, limit=RUNS_MAX
            )
        )
        return [it.workflow_id for it in answer.workflows]

    def _bell(self, workflow_id: str) -> Bell:
        self.fair.load.others.append(workflow_id)
        if (status := self.end_of(workflow_id)) != "Completed":
            self.violate(f"{workflow_id} ended {status}")
        found = self.insist(lambda: self.client.describe_workflow(workflow_id))
        return Bell(workflow_id, found.search_attributes["due_ms"], found.started_ms)


class Historian(Person):
    """Takes workflows that have ended back behind their first effect; they end once more."""

    def _act(self, number: int) -> None:
        workflow_id = self.fair.id_of("pair", number)
        self.begin_workflow("FairPair", workflow_id)
        self.end_of(workflow_id)
        events = self.insist(lambda: self.client.history(workflow_id))
        [to_event] = [
            it.event_id
            for it in events
            if it.kind == "ActivityTaskCompleted" and it.activity_id == "first"
        ]
        answer = self.insist(
            lambda: self.client.reset_workflow(workflow_id, to_event, "anew", request_id="reset")
        )
        if answer.effects_count != 1:
            self.violate(f"{workflow_id} would ask for {answer.effects_count} effects again, not 1")
        if (status := self.end_of(workflow_id)) != "Completed":
            self.violate(f"{workflow_id} was taken back, and ended {status}")
        events = self.insist(lambda: self.client.history(workflow_id))
        times = Counter(it.kind for it in events)
        if (times["WorkflowReset"], times["WorkflowCompleted"]) != (1, 2):
            self.violate(f"{workflow_id} was taken back once, and its history says {dict(times)}")
        self.fair.did["workflows taken back"] += 1


class Deployer(Person):
    """Has actors, and the workers one after the other, begin anew, by command."""

    def _begin(self) -> None:
        self._operator = Operator(self.fair.arena, self.fair.node)

    def _act(self, number: int) -> None:
        what = RELOADED[(number - 1) % len(RELOADED)]
        try:
            code, said = self._operator.tries("reload", what)
        except subprocess.TimeoutExpired:  # What it waited for was killed; it is killed itself.
            return
        if "differs" in said:
            self.violate(f"perdure reload {what}: {said}")
        if code == 0:
            self.fair.did[f"reloads of {what.strip('-')}"] += 1
            self.fair.did["reloads"] += 1
        self.rest(self.dice.uniform(0.5, 1.5))
