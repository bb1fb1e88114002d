"""`perdure policy import`, `snippet` and `app`: settings where they live, and back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli import output
from perdure.cli.options import AsJson, finite
from perdure.cli.policy_options import (
    AsMarkdown,
    AsSarif,
    Kind,
    Limit,
    Out,
    Rate,
    chain_of,
    say_json,
    table,
    write,
)

if TYPE_CHECKING:
    from perdure.audit.application import Settings
    from perdure.audit.chain import Layer
    from perdure.audit.review import Review

EXAMPLE = "\b\nExample:\n  perdure policy "


def add_to(app: typer.Typer) -> None:
    """Adds these commands to `perdure policy`."""
    app.command("import", epilog=f"{EXAMPLE}import envoy route.yaml -o chain.json")(import_)
    app.command(epilog=f"{EXAMPLE}snippet envoy fixed.json")(snippet)
    app.command("app", epilog=f"{EXAMPLE}app shop --outage-ms 900000")(app_)


def import_(
    kind: Kind,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="YAML, JSON or Python source (also a folder of it)."),
    ],
    out: Out = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Layers named like this.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", metavar="METHOD", help="HTTP method carried.")
    ] = None,
    idempotent: Annotated[
        bool | None,
        typer.Option("--idempotent/--not-idempotent", help="Whether calls may be made twice."),
    ] = None,
    idempotency_key: Annotated[
        bool, typer.Option("--idempotency-key", help="Calls carry an idempotency key.")
    ] = False,
    library_version: Annotated[
        str, typer.Option("--library-version", metavar="X.Y", help="botocore's version.")
    ] = "",
    service: Annotated[
        str, typer.Option("--service", metavar="NAME", help="The AWS service, such as dynamodb.")
    ] = "",
) -> None:
    """Read retry settings where they live, and write them as a chain; each number has its origin.

    KIND is envoy, istio, grpc, urllib3, requests, tenacity, botocore or perdure. --only and
    --method can be repeated.
    """
    from perdure.audit.chain import as_data
    from perdure.audit.imports import kinds

    said = kinds.Said(
        methods=tuple(method or ()),
        idempotent=idempotent,
        idempotency_key=idempotency_key,
        library_version=library_version,
        service=service,
        only=tuple(only or ()),
    )
    with output.reported():
        found = kinds.chain(kind, file, said)
    if found.alternatives:
        output.note(
            f"perdure: {len(found.layers)} policies side by side, each audited alone; --only NAME "
            "chooses some"
        )
    write(json.dumps(as_data(found), indent=2, ensure_ascii=False) + "\n", out)


def snippet(
    kind: Kind,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A chain; without one, the advised policy."),
    ] = None,
    layer: Annotated[
        str | None, typer.Option("--layer", metavar="NAME", help="One layer: its name or number.")
    ] = None,
    out: Out = None,
) -> None:
    """Write a policy in the syntax of KIND; what KIND can't do is said on standard error."""
    from perdure.audit import snippets

    with output.reported():
        chosen = [snippets.ADVISED] if file is None else _layers_for(kind, file, layer)
        written = [snippets.snippet(kind, each) for each in chosen]
    for each, made in zip(chosen, written, strict=True):
        for caveat in made.caveats:
            output.note(f"perdure: {each.name}: {caveat}")
    write("\n".join(made.text for made in written), out)


def _layers_for(kind: str, file: str, wanted: str | None) -> list[Layer]:
    """The layer that is named; else those imported from this kind; else all."""
    from perdure.audit.imports.kinds import known
    from perdure.errors import InvalidArgument

    layers = list(chain_of(file, None, None).layers)
    if wanted is None:
        own = "activity" if known(kind) == "perdure" else known(kind)
        return [each for each in layers if each.kind == own] or layers
    if wanted.isdigit() and 1 <= int(wanted) <= len(layers):
        return [layers[int(wanted) - 1]]
    found = [each for each in layers if wanted.casefold() in each.name.casefold()]
    if not found:
        names = ", ".join(each.name for each in layers)
        raise InvalidArgument(f"no layer is named like {wanted!r}; there are {names}")
    return found[:1]


def app_(
    module: Annotated[
        list[str], typer.Argument(metavar="MODULE", help="A module with workflows and activities.")
    ],
    clients: Annotated[
        str | None,
        typer.Option("--clients", metavar="FILE", help="Client layers by activity."),
    ] = None,
    outage_ms: Annotated[
        float | None,
        typer.Option(
            "--outage-ms",
            min=1,
            metavar="MS",
            callback=finite,
            help="The longest outage to get through.",
        ),
    ] = None,
    dlq_after_attempts: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The node's setting; else that of perdure.toml."),
    ] = None,
    failure_rate: Rate = None,
    max_amplification: Limit = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_sarif: AsSarif = False,
) -> None:
    """Audit every registered activity of an application, with the HTTP clients inside it.

    The modules are loaded, as a worker loads them; nothing in them is run.
    """
    if as_json + as_markdown + as_sarif > 1:
        raise typer.BadParameter("give one of --json, --markdown and --sarif")
    from perdure.audit import application
    from perdure.registry import load

    with output.reported():
        settings = _app_settings(
            failure_rate, max_amplification, outage_ms, dlq_after_attempts, clients
        )
        registry = load(module, os.getcwd())
        reviews = application.reviews(list(registry.activities.values()), settings)
    _print_app(reviews, as_json, as_markdown, as_sarif)
    raise typer.Exit(output.FAILED if any(each.high for each in reviews) else output.OK)


def _app_settings(
    failure_rate: float | None,
    max_amplification: float | None,
    outage_ms: float | None,
    dlq_after_attempts: int | None,
    clients: str | None,
) -> Settings:
    """What was said on the command line; what was not: perdure.toml's, or the defaults."""
    from perdure import config
    from perdure.audit import application, documents, given
    from perdure.audit.chain import FAILURE_RATE_DEFAULT, MAX_AMPLIFICATION_DEFAULT

    rate = FAILURE_RATE_DEFAULT if failure_rate is None else failure_rate
    limit = MAX_AMPLIFICATION_DEFAULT if max_amplification is None else max_amplification
    if dlq_after_attempts is None:
        dlq_after_attempts = config.load(None, Path.cwd()).durable.dlq_after_attempts
    return application.Settings(
        failure_rate=given.share(rate, "--failure-rate"),
        max_amplification=given.number(limit, "--max-amplification", at_least=1),
        outage_ms=application.OUTAGE_MS_DEFAULT if outage_ms is None else outage_ms,
        outage_is_assumed=outage_ms is None,
        dlq_after_attempts=dlq_after_attempts,
        clients={} if clients is None else application.parse_clients(documents.read(clients)),
    )


def _print_app(reviews: list[Review], as_json: bool, as_markdown: bool, as_sarif: bool) -> None:
    from perdure.audit import render
    from perdure.audit.review import as_json as review_json

    if as_json:
        high = sum(each.high for each in reviews)
        say_json({"activities": [review_json(each) for each in reviews], "high_flags": high})
    elif as_markdown:
        output.say("\n".join(render.markdown(each) for each in reviews).rstrip("\n"))
    elif as_sarif:
        from perdure import __version__
        from perdure.audit.sarif import sarif

        say_json(sarif(reviews, "application", __version__))
    else:
        output.say("\n\n".join(table(each) for each in reviews) or "no activities")
