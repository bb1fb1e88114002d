"""`perdure policy simulate` and `plot`: a chain under load, and in pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli import output
from perdure.cli.options import AsJson, finite
from perdure.cli.policy_options import File, Limit, Rate, chain_of, say_json

if TYPE_CHECKING:
    from perdure.audit.pictures.scene import Scene

EXAMPLE = "\b\nExample:\n  perdure policy "
REQUESTS_MAX = 5_000_000


Clients = Annotated[
    int, typer.Option(min=1, max=1_000_000, metavar="N", help="How many there are.")
]
ClientRate = Annotated[
    float,
    typer.Option(
        "--rate",
        min=0.0,
        metavar="R",
        callback=finite,
        help="Requests per second of each client.",
    ),
]
Duration = Annotated[
    float,
    typer.Option(
        min=1_000.0,
        max=86_400_000.0,
        metavar="MS",
        callback=finite,
        help="Simulated time.",
    ),
]
Start = Annotated[
    float,
    typer.Option(
        min=0.0,
        metavar="MS",
        callback=finite,
        help="When the innermost dependency fails.",
    ),
]
Outage = Annotated[
    float,
    typer.Option(
        min=0.0,
        metavar="MS",
        callback=finite,
        help="For how long it fails.",
    ),
]
Latency = Annotated[
    float,
    typer.Option(
        min=0.0,
        metavar="MS",
        callback=finite,
        help="How long it takes to answer.",
    ),
]
Hangs = Annotated[bool, typer.Option("--hangs", help="In the outage it does not answer at all.")]
Together = Annotated[
    bool, typer.Option("--together", help="Every client sends one request as the outage begins.")
]
EveryLayer = Annotated[
    bool, typer.Option("--every-layer", help="Every layer fails at the failure rate.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Same seed, same numbers.")]
Drawing = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT", help="Draw it: a .svg or .png file."),
]


def add_to(app: typer.Typer) -> None:
    """Adds these commands to `perdure policy`."""
    app.command(epilog=f"{EXAMPLE}simulate chain.json --clients 1000 --outage-ms 60000 --seed 7")(
        simulate
    )
    app.command(epilog=f"{EXAMPLE}plot chain.json -o chain.png")(plot)


def simulate(
    file: File,
    clients: Clients = 1_000,
    rate: ClientRate = 0.1,
    duration_ms: Duration = 600_000.0,
    outage_start_ms: Start = 120_000.0,
    outage_ms: Outage = 60_000.0,
    latency_ms: Latency = 20.0,
    hangs: Hangs = False,
    together: Together = False,
    every_layer: EveryLayer = False,
    seed: Seed = 0,
    failure_rate: Rate = None,
    out: Drawing = None,
    as_json: AsJson = False,
) -> None:
    """Run the chain under load with an outage: calls per second at the innermost dependency.

    As it is, without jitter, with full jitter, with a retry budget, and with a circuit breaker.
    Exit code 1: the simulation does not agree with the formulas.
    """
    from perdure.audit import experiment
    from perdure.audit.simulation import Load

    if clients * rate * duration_ms / 1_000 > REQUESTS_MAX:
        raise typer.BadParameter(
            f"that is more than {REQUESTS_MAX} requests: lower --clients, --rate or --duration-ms"
        )
    load = Load(
        clients=clients,
        requests_per_s=rate,
        duration_ms=duration_ms,
        outage_start_ms=outage_start_ms,
        outage_ms=outage_ms,
        latency_ms=latency_ms,
        hangs=hangs,
        together=together,
        every_layer_fails=every_layer,
    )
    with output.reported():
        found = experiment.experiment(chain_of(file, failure_rate, None), load, seed)
    if as_json:
        say_json(experiment.as_json(found))
    else:
        output.say(experiment.table(found))
    if out is not None:
        from perdure.audit.pictures.load_picture import picture

        draw(picture(found), out, 1.5)
    agrees = all(each.holds for each in found.agreements)
    raise typer.Exit(output.OK if agrees else output.FAILED)


def plot(
    file: File,
    out: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="OUT", help="A .svg or .png file."),
    ] = Path("chain.svg"),
    scale: Annotated[
        float,
        typer.Option(
            min=0.5,
            max=4.0,
            metavar="X",
            callback=finite,
            help="PNG: pixels per unit.",
        ),
    ] = 1.5,
    failure_rate: Rate = None,
    max_amplification: Limit = None,
) -> None:
    """Draw the delay bands of every retry, the worst case as a timeline, and the cliff."""
    from perdure.audit.pictures.chain_picture import picture
    from perdure.audit.review import audit

    with output.reported():
        review = audit(chain_of(file, failure_rate, max_amplification))
    draw(picture(review), out, scale)


def draw(scene: Scene, out: Path, scale: float) -> None:
    """The scene as SVG or PNG, as the file's name says."""
    if out.suffix.lower() == ".svg":
        from perdure.audit.pictures.svg import svg

        data = svg(scene).encode()
    elif out.suffix.lower() == ".png":
        from perdure.audit.pictures.png import png

        data = png(scene, scale)
    else:
        raise typer.BadParameter(f"-o: {out} must end in .svg or .png")
    try:
        out.write_bytes(data)
    except OSError as problem:
        raise output.fail(f"{out} can't be written: {problem.strerror}", output.USAGE) from None
    output.note(f"written to {out}")
