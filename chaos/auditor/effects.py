"""Ledgers of effects against the log: nothing twice, nothing lost, nothing that no lease covers."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from typing import Any, NamedTuple

import msgspec

from chaos.auditor.findings import Findings
from chaos.auditor.fold import Fold
from chaos.auditor.interactions import RUN_MARK
from chaos.auditor.ledgers import Delivery, Ledger
from chaos.auditor.state import Activity, Closed, Grant

MAC_BYTES = 12
TOKEN_HASH_BYTES = 16
COMPLETED = "completed"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Known(NamedTuple):
    """An activity that a key names."""

    workflow_id: str
    activity_id: str
    activity: Activity | Closed


def key_of(workflow_id: str, activity_id: str) -> str:
    """The key of an activity's effect, as the contract has it: run 2 says "#2" behind the id."""
    name, mark, run = workflow_id.partition(RUN_MARK)
    of_run = f"#{run}" if mark else ""
    return f"{_escaped(name)}{of_run}/{_escaped(activity_id)}"


def _escaped(part: str) -> str:
    for sign, code in (("%", "%25"), ("/", "%2F"), ("#", "%23")):
        part = part.replace(sign, code)
    return part


def parts_of(key: str) -> tuple[str, str] | None:
    """(execution id, activity id) of a key; None for a text of another form.

    What follows a "#" behind the workflow's id is its run; behind the activity's it tells several
    effects of one activity apart.
    """
    parts = key.split("/", 1)
    if len(parts) != 2:
        return None
    name, mark, run = parts[0].partition("#")
    activity = parts[1].partition("#")[0]
    if "/" in activity or (mark and not run.isdecimal()):
        return None
    execution_id = _unescaped(name) + (f"{RUN_MARK}{run}" if mark else "")
    return execution_id, _unescaped(activity)


def _unescaped(part: str) -> str:
    for code, sign in (("%2F", "/"), ("%23", "#"), ("%25", "%")):
        part = part.replace(code, sign)
    return part


def token_hash(
    workflow_id: str, activity_id: str, generation: int, grant: int, store_key: bytes
) -> str:
    """How a ledger keeps the token of this grant."""
    address = _encode([workflow_id, activity_id, generation, grant])
    mac = hashlib.blake2b(address, key=store_key, digest_size=MAC_BYTES).digest()
    token = base64.urlsafe_b64encode(mac + address)
    return hashlib.blake2b(token, digest_size=TOKEN_HASH_BYTES).hexdigest()


class LedgerCheck:
    """Compares ledgers with the log, after the whole log was read."""

    def __init__(
        self,
        found: Findings,
        fold: Fold,
        store_key: bytes | None,
        removed: set[str],
        rekeyed_ms: int = 0,
    ) -> None:
        self._found = found
        self._fold = fold
        self._store_key = store_key
        self._removed = removed
        self._rekeyed_ms = rekeyed_ms
        self._applied: Counter[str] = Counter()
        self._unknown: set[str] = set()
        self.deliveries = 0

    @property
    def effects(self) -> int:
        """How many keys were applied."""
        return len(self._applied)

    def run(self, ledgers: list[Ledger]) -> None:
        """Report every contradiction."""
        for ledger in ledgers:
            self._deliveries(ledger)
            self._effects(ledger)
        for key, times in self._applied.items():
            if times > 1:
                self._found.add(38, key, f"its effect was applied {times} times")
        self._completed([ledger for ledger in ledgers if ledger.covers])
        if ledgers and self._store_key is None:
            self._found.note("tokens in ledgers: the store's key is not known")

    # --- what was asked for --------------------------------------------------
    def _deliveries(self, ledger: Ledger) -> None:
        payloads: dict[str, str] = {}
        fences: dict[str, int] = {}
        for number, one in enumerate(ledger.deliveries):
            self.deliveries += 1
            if one.applied:
                self._applied[one.key] += 1
            if one.payload_hash is not None:
                first = payloads.setdefault(one.key, one.payload_hash)
                if first != one.payload_hash:
                    self._found.add(38, one.key, "it was asked for with two different payloads")
            if one.fence is not None:
                newest = fences.get(one.key, one.fence)
                if one.applied and one.fence < newest:
                    text = f"applied under fence {one.fence} after {newest} had asked"
                    self._found.add(42, one.key, text)
                fences[one.key] = max(newest, one.fence)
            if ledger.leased is None or number < ledger.leased:
                self._leased(one, ledger.name)

    def _leased(self, one: Delivery, name: str) -> None:
        known = self._activity(one.key)
        ids = parts_of(one.key)
        workflow = None if ids is None else self._fold.workflows.get(ids[0])
        if workflow is not None and workflow.is_tainted:
            return
        if self._rekeyed_ms and one.at_ms <= self._rekeyed_ms:
            self._found.note("leases of effects from before the store was restored")
            return
        if known is None:
            if self._fold.base_n or (ids is not None and ids[0] in self._removed):
                self._found.note("effects of workflows that the log no longer tells of")
            elif one.key not in self._unknown:
                self._unknown.add(one.key)  # Said once, however often it was delivered.
                self._found.add(40, one.key, f"{name} has it, the log has no such activity")
            return
        grants = known.activity.grants
        fits: list[Grant] = [grant for grant in grants if grant[2] == one.attempt]
        if not fits:
            text = f"{name} was asked by attempt {one.attempt}, which no lease was granted for"
            self._found.add(40, one.key, text)
            return
        if one.token_hash is None or self._store_key is None:
            return
        key = self._store_key
        hashes = {
            token_hash(known.workflow_id, known.activity_id, generation, grant, key)
            for generation, grant, _ in fits
        }
        if one.token_hash not in hashes:
            text = f"{name} was asked under a token that no grant of attempt {one.attempt} has"
            self._found.add(40, one.key, text)

    def _activity(self, key: str) -> Known | None:
        ids = parts_of(key)
        workflow = None if ids is None else self._fold.workflows.get(ids[0])
        if ids is None or workflow is None:
            return None
        activity = workflow.activities.get(ids[1]) or workflow.closed.get(ids[1])
        return None if activity is None else Known(*ids, activity)

    # --- what was applied ----------------------------------------------------
    def _effects(self, ledger: Ledger) -> None:
        applied = {one.key for one in ledger.deliveries if one.applied}
        if ledger.results is not None:
            for key in applied - ledger.results.keys():
                self._found.add(38, key, f"{ledger.name} says applied, and forgot the key")
            for key in ledger.results.keys() - applied:
                self._found.add(38, key, f"{ledger.name} knows the key, and no delivery applied it")
        if ledger.effects is None:
            return
        for key, times in Counter(ledger.effects).items():
            if times > 1:
                self._found.add(38, key, f"its effect stands {times} times in {ledger.name}")
            if key not in applied:
                text = f"its effect stands in {ledger.name}, applied by no delivery"
                self._found.add(38, key, text)
        for key in applied.difference(ledger.effects):
            self._found.add(38, key, f"{ledger.name} says applied, and its effect is not there")

    def _completed(self, ledgers: list[Ledger]) -> None:
        """Every completed activity of a covered type has its effect, and the ledger's receipt."""
        covers = frozenset[str]().union(*(ledger.covers for ledger in ledgers))
        for workflow_id, workflow in self._fold.workflows.items():
            if not covers or workflow.is_tainted:
                continue
            for activity_id, closed in workflow.closed.items():
                if closed.how == COMPLETED and closed.activity_type in covers:
                    self._receipt(ledgers, key_of(workflow_id, activity_id), closed)

    def _receipt(self, ledgers: list[Ledger], key: str, closed: Closed) -> None:
        if key not in self._applied:
            self._found.add(39, key, "it completed, and its effect was never applied")
            return
        is_value, value = _value(closed.result)
        attempt = closed.grants[-1][2] if closed.grants else 0
        for ledger in ledgers:
            receipts, returned = ledger.receipts, ledger.returned
            if receipts is None or key not in receipts:
                continue  # Its effect stands in another one.
            if is_value and receipts[key] != value:
                text = f"it returned {value!r}, the ledger has {receipts[key]!r}"
                self._found.add(39, key, text)
            if returned is not None and (key, attempt) not in returned:
                text = f"attempt {attempt} completed, and was not seen to return"
                self._found.add(30, key, text)


def _value(payload: bytes | None) -> tuple[bool, Any]:
    """(True, the value) of a payload that is there whole."""
    if not payload:
        return True, None
    if payload[:1] == b"m":
        return True, _decode(payload[1:])
    if payload[:1] == b"j":
        return True, json.loads(payload[1:])
    return False, None
