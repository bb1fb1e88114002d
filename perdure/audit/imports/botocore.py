"""The AWS SDK's retry modes, from ~/.aws/config, the environment, and Config(retries=…).

The defaults changed with botocore 1.44.0 (November 2026): `standard` instead of `legacy`, and
within `standard` 50 ms instead of 1 s as the base for all but throttling.

Sources: botocore's retries/standard.py, retryhandler.py, _retry.json, args.py (1.43.11 and 1.44.8).
"""

from __future__ import annotations

import ast
import configparser
import re
from importlib import metadata
from typing import Any, NamedTuple

from perdure.audit import documents, given
from perdure.audit.chain import Layer
from perdure.audit.imports import text as texts
from perdure.audit.imports.draft import Draft
from perdure.audit.imports.python_source import (
    Source,
    UnknownValueError,
    arguments,
)
from perdure.errors import InvalidArgument

MODES = ("legacy", "standard", "adaptive")
# The version whose defaults hold where botocore is not installed and no version is said.
VERSION_ASSUMED = "1.43.11"
NEW_DEFAULTS_SINCE = (1, 44)
LEGACY_ATTEMPTS = 5
LEGACY_DYNAMODB_ATTEMPTS = 10
STANDARD_ATTEMPTS = 3
STANDARD_DYNAMODB_ATTEMPTS = 4
STANDARD_CAP_MS = 20_000
TIMEOUT_MS_DEFAULT = 60_000
DYNAMODB = ("dynamodb", "dynamodb-streams", "dynamodbstreams")
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(?P<name>AWS_[A-Z_]+)\s*=\s*(?P<value>\S+)\s*$")


class Told(NamedTuple):
    """What one client was told: settings with their lines. `total`: attempts, the first included;
    `retries`: attempts without it.
    """

    name: str
    mode: tuple[str, int | None] | None = None
    total: tuple[int, int | None, str] | None = None
    read_timeout_ms: tuple[float, int | None] | None = None
    service: str = ""
    unknown: tuple[tuple[str, int], ...] = ()


def layers(file: str, version: str = "", service: str = "") -> list[Layer]:
    """A layer for every profile, Config or set of variables in `file`.

    `version` of botocore decides the defaults: by default the one that is installed here.
    """
    found = [_layer(told, file, version, service) for told in _read(file)]
    if not found:
        raise InvalidArgument(f"{documents.shown(file)}: no AWS retry settings in it")
    return found


def of_source(source: Source) -> list[Layer]:
    """A layer for every client in this source; none is no error."""
    return [_layer(told, source.file, "", "") for told in _of_source(source)]


def version_here() -> str:
    """The botocore version that is installed here, "" without one. It is not imported."""
    try:
        return metadata.version("botocore")
    except metadata.PackageNotFoundError:
        return ""


def has_new_defaults(version: str) -> bool:
    """Whether this version has the defaults of 2026."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return numbers >= NEW_DEFAULTS_SINCE


def _layer(told: Told, file: str, version: str, service: str) -> Layer:
    draft = Draft("botocore", told.name, documents.shown(file))
    known = version or version_here()
    version = known or VERSION_ASSUMED
    default = f"library default (botocore {version})"
    is_new = has_new_defaults(version)
    if not known:
        draft.note(
            "ASSUMED",
            f"botocore is not installed here: reckoned with {version}; from 1.44 on the default is "
            "standard with 3 tries (--library-version says which)",
        )
    service = (service or told.service).lower()
    mode = told.mode[0] if told.mode else ("standard" if is_new else "legacy")
    _attempts(draft, told, mode, service, default)
    _pace(draft, mode, service, is_new, default)
    _quota(draft, mode, is_new)
    for name, line in told.unknown:
        draft.note("NOT_STATICALLY_KNOWN", f"{name} is not statically known ({draft.file}:{line})")
    timeout = told.read_timeout_ms or (None, None)
    draft.either(
        "per_try_timeout_ms", timeout[0], timeout[1], TIMEOUT_MS_DEFAULT, "read_timeout", default
    )
    draft.default("deadline_ms", None, "the SDK has none")
    draft.default("idempotent", False, "retried whatever the operation; say --idempotent if it is")
    return draft.layer()


def _attempts(draft: Draft, told: Told, mode: str, service: str, default: str) -> None:
    if told.total is not None:
        total, line, what = told.total
        draft.given("attempts", total, line, what)
        if what.startswith("max_attempts in code"):
            draft.note(
                "ATTEMPTS_ARE_RETRIES", f"{what}: {total} tries; total_max_attempts counts all"
            )
        return
    if mode == "legacy":
        attempts = LEGACY_DYNAMODB_ATTEMPTS if service in DYNAMODB else LEGACY_ATTEMPTS
    else:
        is_dynamodb = service in DYNAMODB and "1.43" not in default
        attempts = STANDARD_DYNAMODB_ATTEMPTS if is_dynamodb else STANDARD_ATTEMPTS
    draft.default("attempts", attempts, f"{default}, mode {mode}")


def _pace(draft: Draft, mode: str, service: str, is_new: bool, default: str) -> None:
    why = f"{default}, mode {mode}"
    is_dynamodb = service in DYNAMODB
    draft.default("multiplier", 2, why)
    if mode == "legacy":
        draft.default("base_delay_ms", 50 if is_dynamodb else 1000, why)
        draft.default("max_delay_ms", None, why)
        draft.default("jitter", "none" if is_dynamodb else "full", why)
        draft.default("respect_retry_after", False, why)
    else:
        base = 1000 if not is_new else 25 if is_dynamodb else 50
        draft.default("base_delay_ms", base, why)
        draft.default("max_delay_ms", STANDARD_CAP_MS, why)
        draft.default("jitter", "full", why)
        draft.default("respect_retry_after", is_new, why)
        if is_new:
            draft.note(
                "RETRY_AFTER_TRUNCATED",
                "x-amz-retry-after is obeyed only up to 5 s above the backoff, and the standard "
                "Retry-After header not at all; throttled calls wait from 1 s on, others from "
                f"{base} ms",
            )
    statuses = [500, 502, 503, 504] + ([429] if is_new or mode == "legacy" else [])
    draft.default("retry_on", ["network", "timeout", "throttling", *statuses], why)


def _quota(draft: Draft, mode: str, is_new: bool) -> None:
    if mode == "legacy":
        return
    cost = 14 if is_new else 5
    draft.default(
        "retry_budget",
        {"ratio": round(1 / cost, 4), "min_per_s": 0},
        f"retry quota: 500 tokens, a retry costs {cost}",
    )
    draft.note(
        "BUDGET_PER_OBJECT",
        f"the retry quota ({500 // cost} retries, then {1 / cost:.0%} of the clean successes) "
        "belongs to one client object: keep the client, one per request has no budget",
    )


# --- where it is written -----------------------------------------------------


def _read(file: str) -> list[Told]:
    text = documents.read_text(file)
    if file.endswith(".py"):
        return _of_source(Source(text, file))
    if file.endswith((".json", ".yaml", ".yml")) or text.lstrip()[:1] == "{":
        return [_of_options(each) for each in texts.parse(text, file)]
    if any(_ASSIGNMENT.match(line) for line in text.splitlines()):
        return [_of_environment(text)]
    if re.search(r"^\s*(import|from)\s|\bConfig\(", text, re.MULTILINE):
        return _of_source(Source(text, documents.shown(file)))
    return _of_profiles(text, file)


def _mode(value: Any, where: str) -> str:
    if value in MODES:
        return str(value)
    raise InvalidArgument(f"{where}: must be one of {', '.join(MODES)}, not {given.shown(value)}")


def _count(value: Any, where: str, at_least: int = 1) -> int:
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    return given.whole(value, where, at_least=at_least, at_most=2**31)


def _of_profiles(text: str, file: str) -> list[Told]:
    parser = configparser.RawConfigParser(default_section="", strict=True)
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        message = " ".join(str(problem).split())
        raise InvalidArgument(
            f"{documents.shown(file)} is no AWS configuration: {message}"
        ) from None
    found = []
    for section in parser.sections():
        values = dict(parser.items(section))
        where = f"{documents.shown(file)}, [{section}]"
        mode = attempts = None
        if "retry_mode" in values:
            line = _line(text, section, "retry_mode")
            mode = (_mode(values["retry_mode"].strip(), f"{where} retry_mode"), line)
        if "max_attempts" in values:
            count = _count(values["max_attempts"], f"{where} max_attempts")
            line = _line(text, section, "max_attempts")
            attempts = (count, line, f"max_attempts {count}, the first included")
        found.append(Told(f"aws {section.removeprefix('profile ')}", mode, attempts))
    return found


def _line(text: str, section: str, key: str) -> int | None:
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith("["):
            inside = line.strip() == f"[{section}]"
        elif inside and line.split("=")[0].split(":")[0].strip().lower() == key:
            return number
    return None


def _of_environment(text: str) -> Told:
    mode = attempts = None
    for number, line in enumerate(text.splitlines(), 1):
        found = _ASSIGNMENT.match(line)
        if found and found["name"] == "AWS_RETRY_MODE":
            mode = (_mode(found["value"].strip("'\""), "AWS_RETRY_MODE"), number)
        elif found and found["name"] == "AWS_MAX_ATTEMPTS":
            count = _count(found["value"].strip("'\""), "AWS_MAX_ATTEMPTS")
            attempts = (count, number, f"AWS_MAX_ATTEMPTS {count}, the first included")
    return Told("aws environment", mode, attempts)


def _of_options(text: texts.Text) -> Told:
    """The options of Config(…) as JSON or YAML, or a profile's or the environment's as such.

    In Config `max_attempts` counts retries; beside `retry_mode`, as in a profile, and in the
    environment it includes the first attempt.
    """
    if not isinstance(text.data, dict):
        raise InvalidArgument(f"{text.file}: must be an object with the options of Config")
    base: texts.Path = ("retries",) if "retries" in text.data else ()
    mode = total = timeout = None
    for name in ("mode", "retry_mode", "AWS_RETRY_MODE"):
        path = (*base, name)
        if text.get(path) is not None:
            mode = (_mode(text.get(path), text.where(path)), text.line(path))
    is_profile = text.get((*base, "retry_mode")) is not None
    for name, more in (
        ("max_attempts", 0 if is_profile else 1),
        ("total_max_attempts", 0),
        ("AWS_MAX_ATTEMPTS", 0),
    ):
        path = (*base, name)
        if text.get(path) is not None:
            count = _count(text.get(path), text.where(path), at_least=1 - more)
            what = f"{name} in code {count}: retries" if more else f"{name} {count}"
            total = (count + more, text.line(path), what)
    seconds = text.number(("read_timeout",))
    if seconds:
        timeout = (seconds * 1000, text.line(("read_timeout",)))
    return Told("aws client", mode, total, timeout)


def _of_source(source: Source) -> list[Told]:
    found = []
    for call in source.calls("Config"):
        name = source.dotted(call.func)
        if "botocore" in name or name == "Config":
            found.append(_of_config(source, call))
    with_config = {node for each in source.calls("Config") for node in ast.walk(each)}
    for call in source.calls("boto3.client", "boto3.resource", "Session.client"):
        has_config = any(each.arg == "config" for each in call.keywords)
        if not has_config and call not in with_config:
            found.append(
                Told(f"aws {_service(source, call)} client", service=_service(source, call))
            )
    return found


def _service(source: Source, call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return str(first.value) if isinstance(first, ast.Constant) else "client"


def _client_of(source: Source, config: ast.Call) -> str:
    """The service of the one client that this Config is given to, "" if that is not plain."""
    for call in source.calls("client", "resource"):
        for keyword in call.keywords:
            if keyword.arg == "config" and source.resolved(keyword.value) is config:
                return _service(source, call)
    return ""


def _of_config(source: Source, call: ast.Call) -> Told:
    unknown: list[tuple[str, int]] = []
    try:
        options = arguments(call)
    except UnknownValueError:
        options = {each.arg: each.value for each in call.keywords if each.arg}
        unknown.append(("**", call.lineno))
    retries: dict[str, Any] = {}
    mode = total = timeout = None
    if "retries" in options:
        line = options["retries"].lineno
        try:
            retries = source.value(options["retries"])
        except UnknownValueError:
            unknown.append(("retries", line))
        where = f"{source.file}:{line}, retries"
        given.mapping(retries, ("mode", "max_attempts", "total_max_attempts"), where)
        if "mode" in retries:
            mode = (_mode(retries["mode"], where), line)
        if "total_max_attempts" in retries:
            count = _count(retries["total_max_attempts"], where)
            total = (count, line, f"total_max_attempts {count}")
        elif "max_attempts" in retries:
            count = _count(retries["max_attempts"], where, at_least=0)
            total = (count + 1, line, f"max_attempts in code {count}: retries")
    if "read_timeout" in options:
        try:
            seconds = source.value(options["read_timeout"])
            timeout = (float(seconds) * 1000, options["read_timeout"].lineno)
        except (UnknownValueError, TypeError, ValueError):
            unknown.append(("read_timeout", options["read_timeout"].lineno))
    service = _client_of(source, call)
    name = f"aws {service or source.owner(call) or f'line {call.lineno}'} client"
    return Told(name, mode, total, timeout, service, tuple(unknown))
