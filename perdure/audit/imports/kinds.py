"""Every kind of settings that can be imported, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from perdure.audit.chain import Chain, Layer
from perdure.errors import InvalidArgument

KINDS = ("envoy", "istio", "grpc", "urllib3", "requests", "tenacity", "botocore", "perdure")
ALIASES = {
    "aws": "botocore",
    "boto3": "botocore",
    "activity": "perdure",
    "activities": "perdure",
    "grpc-service-config": "grpc",
}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever imports knows beyond the file."""

    methods: tuple[str, ...] = ()
    idempotent: bool | None = None
    idempotency_key: bool = False
    library_version: str = ""
    service: str = ""
    only: tuple[str, ...] = ()


def known(kind: str) -> str:
    """The kind's own name. InvalidArgument, with the nearest, if there is none."""
    name = ALIASES.get(kind.lower(), kind.lower())
    if name in KINDS:
        return name
    near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(KINDS)}"
    raise InvalidArgument(f"there is no kind {kind!r}; {hint}")


def chain(kind: str, file: str, said: Said | None = None) -> Chain:
    """The layers that `file` holds settings of `kind` for, as one chain in the file's order.

    InvalidArgument, on one line, for what can't be read.
    """
    said = said or Said()
    kind = known(kind)
    found = [_as_said(layer, said) for layer in _layers(kind, file, said)]
    if said.only:
        found = _chosen(found, said.only)
    name = file.rpartition("/")[2] if file != "-" else kind
    return Chain(name=name, layers=tuple(found), alternatives=len(found) > 1)


def _layers(kind: str, file: str, said: Said) -> list[Layer]:
    if kind in ("envoy", "istio", "grpc"):
        from perdure.audit.imports import envoy, grpc, istio, text

        texts = text.read(file)
        return {"envoy": envoy.layers, "istio": istio.layers, "grpc": grpc.layers}[kind](texts)
    if kind == "botocore":
        from perdure.audit.imports import botocore

        return botocore.layers(file, said.library_version, said.service)
    from perdure.audit.imports import activities, python_source, tenacity, urllib3

    sources = python_source.read(file)
    if kind == "tenacity":
        return tenacity.layers(sources)
    if kind == "perdure":
        return activities.layers(sources)
    return urllib3.layers(sources, kind)


def _as_said(layer: Layer, said: Said) -> Layer:
    changes: dict[str, object] = {}
    if said.methods:
        writes = bool({"POST", "PATCH"} & {method.upper() for method in said.methods})
        changes |= {"methods": said.methods, "idempotent": not writes}
    if said.idempotent is not None:
        changes["idempotent"] = said.idempotent
    if said.idempotency_key:
        changes["idempotency_key"] = True
    if not changes:
        return layer
    origin = dict(layer.origin or {}) | dict.fromkeys(changes, "said on the command line")
    assumed = tuple(key for key in layer.assumed if key not in changes)
    return replace(layer, **changes, origin=origin, assumed=assumed)


def _chosen(layers: list[Layer], only: Iterable[str]) -> list[Layer]:
    found: list[Layer] = []
    for wanted in only:
        matching = [layer for layer in layers if wanted.casefold() in layer.name.casefold()]
        if not matching:
            names = ", ".join(layer.name for layer in layers)
            raise InvalidArgument(f"no layer is named like {wanted!r}; there are {names}")
        found += [layer for layer in matching if layer not in found]
    return found
