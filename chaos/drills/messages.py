"""The drill `messages`: what actors, workers and clients say to each other is dropped, doubled,
delayed, put out of order, answered into the void, or cut off, on every link at rates of its own.

Three acts. First the links are hurt while workflows with retries, heartbeats, timers and dead
letters run, clients go through the same relay, and history is killed on the way. Then the links are
healed, and reports of finished attempts are held back until their leases are over, others have
taken their place and history is another one: they must change nothing. At last everything must
come to its end.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from chaos.apps import post
from chaos.drill_kit import Arena, Drill, Load, Options, Start
from chaos.drill_kit.kills import bring_up, kill_role
from chaos.faults.link_faults import KINDS, LINKS, Cut, Plan, swarm, thorough
from chaos.faults.relay_process import RelayProcess
from chaos.harness import NodeProcess
from chaos.history_audit import key_of
from perdure.client import Client
from perdure.clock import boottime_ms
from perdure.errors import NotFound, PerdureError

HURT_MS = 30_000
MORE_MS = 6_000
SUBMIT_EVERY_S = 0.25
REDRIVE_EVERY_S = 0.2
CALL_MS = 3_000
LOOK_S = 0.02
KILLS_AT_MS = (9_000, 19_000)
HELD = 3
HOLD_S = 15.0
REFUSED_S = 15.0
# What a round takes, and what the work needs to come to its end.
RESERVE_S = HOLD_S + REFUSED_S + 10
# Fewer of a kind than these, and the run says nothing about that kind.
ENOUGH = {"drop": 20, "double": 20, "delay": 20, "reorder": 20, "swallow": 5, "cut": 10}
WORDS = {
    "drop": "dropped",
    "double": "doubled",
    "delay": "delayed",
    "reorder": "out of order",
    "swallow": "answers swallowed",
    "cut": "lost in cuts",
}


def run(arena: Arena) -> bool:
    """Whether enough messages of every kind were hurt, and a late report was refused."""
    options = arena.options
    with RelayProcess(arena.directory / "r", options.seed) as relay:
        node = arena.node(
            apps=("chaos.apps.post",), slots=options.workflows, environment=relay.environment
        )
        bring_up(arena, node)
        start = Start(type="Post", arguments={"seed": options.seed}, effects=post.EFFECTS)
        load = arena.load(node, start)
        client = arena.client(node, timeout_ms=CALL_MS, endpoint=relay.endpoint)
        customers = _Customers(load, client)
        customers.start()
        try:
            _hurt(arena, node, load, relay)
            healed_ms = boottime_ms()
            late = _late_reports(arena, node, load, relay)
        finally:
            customers.stop()
        _finish(arena, load)
        applied = [run.applied_ms for run in load.ledger.runs() if run.applied_ms is not None]
        arena.figures["from the heal to the last effect, in ms"] = max(applied) - healed_ms
        bitten = _figures(arena, relay.fired())
    arena.figures["late reports held back"] = late[0]
    arena.figures["late reports refused"] = late[1]
    arena.figures["calls of clients that were not answered"] = customers.unanswered
    return bitten and late[1] > 0


class _Customers(threading.Thread):
    """Clients behind the relay: they start workflows, and redrive what comes back."""

    def __init__(self, load: Load, client: Client) -> None:
        super().__init__(name="customers")
        self.unanswered = 0
        self._load = load
        self._client = client
        self._over = threading.Event()

    def run(self) -> None:
        arena = self._load.arena
        wanted = arena.options.workflows
        number = 0
        while not self._over.wait(SUBMIT_EVERY_S):
            workflow_id = f"post-{arena.options.seed}-{number + 1}"
            try:
                if number < wanted:
                    self._start_one(workflow_id)
                    number += 1
                redrive(self._client)
            except PerdureError:
                self.unanswered += 1  # The very same is asked again.

    def _start_one(self, workflow_id: str) -> None:
        start = self._load.start
        self._client.start_workflow(
            start.type,
            workflow_id=workflow_id,
            request_id=workflow_id,
            ledger=str(self._load.ledger_path),
            **start.arguments,
        )
        self._load.parks.add(key_of(workflow_id, post.RETURNED))
        self._load.ids.append(workflow_id)

    def stop(self) -> None:
        self._over.set()
        self.join()


def redrive(client: Client) -> None:
    """Gives every dead letter another chance."""
    for letter in client.list_dead_letters().dead_letters:
        try:
            client.redrive_dead_letter(letter.workflow_id, letter.activity_id)
        except NotFound:
            continue  # Somebody has, or an earlier call did, whose answer was lost.


def _hurt(arena: Arena, node: NodeProcess, load: Load, relay: RelayProcess) -> None:
    seed = arena.options.seed
    arena.say("links are hurt")
    _follow(arena, node, load, relay, swarm(seed, HURT_MS), HURT_MS)
    while (short := _too_few(relay)) and arena.left_s() > RESERVE_S + 20:
        seed += 1
        arena.say(f"too few messages: {', '.join(WORDS[kind] for kind in short)}; some more")
        _submit_some(load)
        _follow(arena, node, load, relay, thorough(seed, MORE_MS), MORE_MS)
    relay.heal()
    arena.say("links are healed")


def _follow(
    arena: Arena, node: NodeProcess, load: Load, relay: RelayProcess, plan: Plan, length_ms: int
) -> None:
    """Hurts links by a plan, and history besides, for so long."""
    relay.plan(plan)
    began_ms = boottime_ms()
    _show(arena, plan, began_ms, length_ms)
    kills = list(KILLS_AT_MS)
    while (at_ms := boottime_ms() - began_ms) < length_ms:
        load.look()
        arena.progress.bar("time of faults", at_ms // 1_000, length_ms // 1_000, colour="red")
        if kills and at_ms >= kills[0]:
            kills.pop(0)
            kill_role(arena, node, "history")
        time.sleep(LOOK_S)


def _too_few(relay: RelayProcess) -> list[str]:
    """The kinds of which too little was done so far."""
    done: Counter[str] = Counter()
    for name, count in relay.fired().items():
        done[name.partition(" ")[2]] += count
    return [kind for kind, least in ENOUGH.items() if done[kind] < least]


def _submit_some(load: Load) -> None:
    load.submit(HELD)
    load.parks.update(key_of(each, post.RETURNED) for each in load.ids)


def _show(arena: Arena, plan: Plan, began_ms: int, length_ms: int) -> None:
    """The cuts, for the picture; one that flaps is one."""
    by_route: dict[str, list[Cut]] = {}
    for cut in plan.cuts:
        of_route = by_route.setdefault(cut.route, [])
        if of_route and cut.from_ms - of_route[-1].to_ms <= 100:
            of_route[-1] = Cut(cut.route, of_route[-1].from_ms, cut.to_ms)
        else:
            of_route.append(cut)
    for route, cuts in by_route.items():
        for cut in cuts:
            sender, receiver = route.split(">")
            at_ms = began_ms + cut.from_ms
            fault = arena.fault("cut", receiver, at_ms=at_ms, note=f"nothing came from {sender}")
            fault.until_ms = began_ms + min(cut.to_ms, length_ms)


def _late_reports(
    arena: Arena, node: NodeProcess, load: Load, relay: RelayProcess
) -> tuple[int, int]:
    """How many reports were held back until they were stale, and how many were refused then.

    On a busy machine a report may come too late for its lease to be over in time, or be forgotten
    by its worker: so again, until enough were refused or there is no time for more.
    """
    held, refused = _hold(arena, node, load, relay)
    while refused < HELD and arena.left_s() > RESERVE_S:
        arena.say(f"{refused} late reports were refused: once more")
        held, refused = _hold(arena, node, load, relay)
    return held, refused


def _hold(arena: Arena, node: NodeProcess, load: Load, relay: RelayProcess) -> tuple[int, int]:
    """Holds reports back until they are stale. How many were so far, and how many refused then."""
    before = set(relay.held()[0])
    relay.hold(HELD)
    _submit_some(load)
    fault = arena.fault("reports held back", "worker")
    until = time.monotonic() + HOLD_S
    tokens: list[str] = []
    while time.monotonic() < until and not _replaced(load, tokens, HELD):
        load.look()
        tokens = [token for token in relay.held()[0] if token not in before]
        time.sleep(LOOK_S)
    kill_role(arena, node, "history")
    load.client.list_workflows(limit=1)  # Answered by the next history.
    relay.release()
    fault.until_ms = boottime_ms()
    arena.say(f"{len(tokens)} late reports are let go, to another history")
    refused: list[str] = []
    until = time.monotonic() + REFUSED_S
    while not set(tokens) <= set(refused) and time.monotonic() < until:
        load.look()
        refused = relay.held()[1]
        time.sleep(LOOK_S)
    return len(before) + len(tokens), len(refused)


def _replaced(load: Load, tokens: list[str], wanted: int) -> bool:
    """Whether so many reports are held, and each of their activities runs or ran again."""
    keys = {run.key: run.number for run in load.runs.values() if run.token in tokens}
    return len(tokens) >= wanted and all(
        load.by_key[key][-1].number > number for key, number in keys.items()
    )


def _finish(arena: Arena, load: Load) -> None:
    """Operators go on until nothing is left to do."""
    while not load.done() and not arena.over():
        load.look()
        try:
            redrive(load.client)
        except PerdureError as error:
            arena.say(f"no answer: {error.message}")
        time.sleep(REDRIVE_EVERY_S)
    load.await_end()


def _figures(arena: Arena, fired: dict[str, int]) -> bool:
    """What was done to messages, for the report; whether it was enough to prove anything."""
    by_kind: Counter[str] = Counter()
    by_link: dict[tuple[str, str], Counter[str]] = {link: Counter() for link in LINKS}
    for name, count in fired.items():
        route, kind = name.split(" ")
        sender, receiver = route.split(">")
        link = (sender, receiver) if (sender, receiver) in by_link else (receiver, sender)
        by_kind[kind] += count
        by_link[link][kind] += count
    arena.figures["messages relayed"] = by_kind.total()
    for kind in KINDS:
        arena.figures[f"messages {WORDS[kind]}"] = by_kind[kind]
    for (a, b), counts in by_link.items():
        hurt = [f"{counts[kind]} {WORDS[kind]}" for kind in KINDS if counts[kind]]
        arena.figures[f"between {a} and {b}"] = f"{counts.total()}: " + ", ".join(hurt)
    return all(by_kind[kind] >= least for kind, least in ENOUGH.items())


DRILL = Drill(
    name="messages",
    does="messages between actors, workers and clients are dropped, doubled, delayed, reordered, "
    "cut off; reports come after their lease is over",
    inconclusive="too few messages of one kind were hurt, or no late report was refused",
    run=run,
    defaults=Options(workflows=30),
    takes=("workflows",),
)
