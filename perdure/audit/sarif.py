"""A review as SARIF 2.1.0, the form in which code hosts and editors take findings."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from perdure.audit import codes
from perdure.audit.findings import Finding
from perdure.audit.review import Review

LEVELS = {codes.HIGH: "error", codes.MEDIUM: "warning", codes.LOW: "note", codes.INFO: "note"}
_PLACE = re.compile(r"^(?P<file>.+?):(?P<line>[0-9]+)\b")


def sarif(reviews: list[Review], file: str, version: str) -> dict[str, Any]:
    """The log of one run over `file`; a finding stands where its layer's settings came from."""
    used = sorted({each.code for review in reviews for each in review.findings}, key=codes.rank)
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "perdure policy",
                        "version": version,
                        "rules": [_rule(code) for code in used],
                    }
                },
                "results": [
                    _result(review, each, used.index(each.code), file)
                    for review in reviews
                    for each in review.findings
                ],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    meaning = codes.CODES[code][1] if code in codes.CODES else code
    return {
        "id": code,
        "shortDescription": {"text": meaning},
        "help": {"text": f"See {codes.GUIDE}."},
        "defaultConfiguration": {"level": LEVELS[codes.severity(code)]},
    }


def _result(review: Review, each: Finding, rule: int, file: str) -> dict[str, Any]:
    layer = review.chain.layers[each.layer]
    place: dict[str, Any] = {"artifactLocation": {"uri": "stdin" if file == "-" else quote(file)}}
    for origin in (layer.origin or {}).values():
        if found := _PLACE.match(origin):
            place = {
                "artifactLocation": {"uri": quote(found["file"])},
                "region": {"startLine": max(1, int(found["line"]))},
            }
            break
    return {
        "ruleId": each.code,
        "ruleIndex": rule,
        "level": LEVELS[each.severity],
        "message": {"text": f"{layer.name}: {each.detail}"},
        "locations": [
            {
                "physicalLocation": place,
                "logicalLocations": [
                    {"name": layer.name, "fullyQualifiedName": f"{review.chain.name}/{layer.name}"}
                ],
            }
        ],
        "partialFingerprints": {
            "policyFinding/v1": f"{review.chain.name}/{each.layer}/{layer.name}/{each.code}"
        },
    }
