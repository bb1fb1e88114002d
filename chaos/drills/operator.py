"""The drill `operator`: activities run out of attempts, and an operator brings them back, all of it
through the command line.

The operator looks, redrives one before anything is repaired (it comes back as a dead letter),
repairs, redrives most, twice at once where two operators meet, settles some by hand, gives some up.
Meanwhile the dead-letter actor and history are killed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from chaos.drill_kit import Arena, Drill, Load, Options, Start
from chaos.drill_kit.kills import TICK_S, bring_up, kill_role
from chaos.harness import NodeProcess
from chaos.history_audit import key_of
from perdure.errors import WorkflowFailed

ATTEMPTS = 3
BROKEN, AFTER = "broken", "after"
BY_HAND = 2
GIVEN_UP = 2
COMMAND_S = 30.0
NOT_FOUND = 5
HAND_MADE = "made by hand"
CODE = "import sys; from perdure.cli.main import main; main(sys.argv[1:])"


class Operator:
    """Somebody at a command line in the directory of the node."""

    def __init__(self, arena: Arena, node: NodeProcess) -> None:
        self._arena = arena
        self._node = node
        self.commands = 0

    def does(self, *words: str, exits: tuple[int, ...] = (0,)) -> Any:
        """Runs `perdure WORDS --json`; what it printed, None for nothing. Another exit code than
        those of `exits` is a violation.
        """
        code, out, said = self._run(words)
        if code not in exits:
            self._arena.violate(f"perdure {' '.join(words)} exited {code}: {said}")
        return msgspec.json.decode(out) if out.strip() else None

    def tries(self, *words: str) -> tuple[int, str]:
        """Runs `perdure WORDS --json`; its exit code, and what it said on standard error."""
        code, _, said = self._run(words)
        return code, said

    def _run(self, words: tuple[str, ...]) -> tuple[int, bytes, str]:
        self.commands += 1
        command = [sys.executable, "-P", "-c", CODE, *words, "--json", "--timeout", "20"]
        done = subprocess.run(
            command,
            cwd=self._node.directory,
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr.decode(errors="replace").strip()


def run(arena: Arena) -> bool:
    """Whether every broken activity was parked after its attempts, before anybody repaired it."""
    node = arena.node(apps=("chaos.workload",), slots=64)
    bring_up(arena, node)
    remedy = node.directory / "remedy"
    arguments = {"number": arena.options.seed, "remedy": str(remedy)}
    load = arena.load(node, Start(type="Repaired", arguments=arguments, effects=2))
    load.submit()
    load.parks |= {key_of(workflow_id, BROKEN) for workflow_id in load.ids}
    operator = Operator(arena, node)
    letters = _await_letters(arena, load, operator, len(load.ids))
    exhausted = _look(arena, operator, letters)
    first = load.ids[0]
    operator.does("wf", "dlq", "redrive", first, BROKEN)
    letters = _await_letters(arena, load, operator, len(load.ids), redriven=first)
    remedy.touch()
    arena.say("repaired")
    _settle(arena, node, load, operator)
    load.await_end()
    left = operator.does("wf", "dlq", "list")
    if left:
        arena.violate(f"{len(left)} dead letters are left after all were settled")
    arena.figures["activities parked after three attempts"] = exhausted
    arena.figures["commands of the operator"] = operator.commands
    return exhausted == arena.options.workflows


def _await_letters(
    arena: Arena, load: Load, operator: Operator, count: int, *, redriven: str | None = None
) -> list[Any]:
    """Looks at the dead letters until there are so many, and `redriven` is one of them again."""
    while not arena.over():
        load.look()
        letters: list[Any] = operator.does("wf", "dlq", "list", "--limit", "1000") or []
        arena.progress.bar("dead letters", len(letters), count, colour="red")
        again = [it for it in letters if it["workflow_id"] == redriven and it["redrives"] == 1]
        if len(letters) >= count and (redriven is None or again):
            arena.say(f"{len(letters)} dead letters")
            return letters
        time.sleep(TICK_S * 25)
    arena.violate(f"there were never {count} dead letters")
    return []


def _look(arena: Arena, operator: Operator, letters: list[Any]) -> int:
    """Shows a few in full; how many letters are as they should be."""
    for letter in letters[:3]:
        shown = operator.does("wf", "dlq", "show", letter["workflow_id"], BROKEN)
        if shown is None:
            continue
        if len(shown["failures"]) != ATTEMPTS:
            arena.violate(f"dlq show has {len(shown['failures'])} failures of {ATTEMPTS}")
        if shown["idempotency_key"] != key_of(letter["workflow_id"], BROKEN):
            arena.violate(f"dlq show names the key {shown['idempotency_key']}")
    found = operator.does("wf", "dlq", "list", "--failure-type", "Broken0", "--limit", "1000") or []
    found += (
        operator.does("wf", "dlq", "list", "--failure-type", "Broken1", "--limit", "1000") or []
    )
    if len(found) != len(letters):
        arena.violate(f"by type of failure {len(found)} of {len(letters)} letters are listed")
    return sum(1 for it in letters if it["attempts"] == ATTEMPTS and it["activity_id"] == BROKEN)


def _settle(arena: Arena, node: NodeProcess, load: Load, operator: Operator) -> None:
    """Redrives, completes and gives up, in an order of the seed, with kills in between."""
    dice = arena.dice("operator")
    ids = list(load.ids)
    dice.shuffle(ids)
    by_hand, given_up, rest = ids[:BY_HAND], ids[BY_HAND:][:GIVEN_UP], ids[BY_HAND + GIVEN_UP :]
    for workflow_id in by_hand:
        load.by_hand.add(key_of(workflow_id, BROKEN))
        operator.does("wf", "dlq", "complete", workflow_id, BROKEN, "--result", f'"{HAND_MADE}"')
    for workflow_id in given_up:
        operator.does("wf", "dlq", "fail", workflow_id, BROKEN)
        load.ids.remove(workflow_id)
        load.others.append(workflow_id)
    kills = dict(
        zip(dice.sample(range(len(rest)), k=min(2, len(rest))), ("dlq", "history"), strict=False)
    )
    for number, workflow_id in enumerate(rest):
        if number in kills:
            kill_role(arena, node, kills[number])
        if number % 4 == 0:
            _two_at_once(arena, operator, workflow_id)
        else:
            operator.does("wf", "dlq", "redrive", workflow_id, BROKEN)
        arena.progress.bar("settled", number + 1, len(rest))
        load.look()
    for workflow_id in given_up:
        _is_failed(arena, load, workflow_id)
    operator.does("wf", "dlq", "show", ids[0], BROKEN, exits=(NOT_FOUND,))


def _two_at_once(arena: Arena, operator: Operator, workflow_id: str) -> None:
    """Two operators redrive the same letter: the one succeeds, the other finds none."""
    with ThreadPoolExecutor(2) as pool:
        words = ("wf", "dlq", "redrive", workflow_id, BROKEN)
        codes = sorted(pool.map(lambda _: operator.tries(*words)[0], range(2)))
    if codes != [0, NOT_FOUND]:
        arena.violate(f"two operators redrove {workflow_id} at once, and got exit codes {codes}")


def _is_failed(arena: Arena, load: Load, workflow_id: str) -> None:
    try:
        load.client.result(workflow_id, timeout_ms=5_000)
    except WorkflowFailed as error:
        if not str(error.failure).count("Broken"):
            arena.violate(f"{workflow_id} was given up, and failed of {error.failure}")
    else:
        arena.violate(f"{workflow_id} was given up, and completed all the same")


DRILL = Drill(
    name="operator",
    does="activities run out of attempts; an operator looks, repairs and redrives by commands",
    inconclusive="not every broken activity was parked after its attempts",
    run=run,
    defaults=Options(workflows=16),
    takes=("workflows",),
)
