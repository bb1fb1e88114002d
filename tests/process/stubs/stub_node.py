"""A node of stub children: `stub_node.py DATA_DIR OPTIONS` with options as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from supervisors.child_spec import ChildSpec, Kind, SupervisorSpec
from supervisors.intensity import Intensity
from supervisors.root import NodeConfig, run_node

assert os.environ.get("STUB_NODE_LOADED") is None, "a child has imported the main module"
os.environ["STUB_NODE_LOADED"] = "1"


def tree(options: dict) -> SupervisorSpec:
    actors = tuple(
        ChildSpec(
            id=name,
            start="stub_children:main",
            silence_ms=options.get("silence_ms", 60_000),
            ready_within_ms=options.get("ready_within_ms", 60_000),
            shutdown_ms=options.get("shutdown_ms", 1_000),
        )
        for name in options.get("actors", ("history", "scheduler", "gateway"))
    )
    workers = tuple(
        ChildSpec(
            id=f"worker-{i + 1}", start="stub_children:main", kind=Kind.WORKER, silence_ms=None
        )
        for i in range(options.get("workers", 2))
    )
    return SupervisorSpec(
        id="node",
        children=(
            SupervisorSpec(
                id="core",
                children=actors,
                intensity=Intensity(period_ms=options.get("period_ms", 10_000)),
            ),
            SupervisorSpec(id="workers", children=workers, escalates=False, stops_together=True),
        ),
    )


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    config = NodeConfig(
        data_dir=sys.argv[1],
        apps=tuple(given.get("apps", ())),
        bind=tuple(given.get("bind", ())),
        queues=tuple(given.get("queues", ("default",))),
    )
    sys.exit(run_node(config, tree=tree(given), check_apps="stub_children:check_apps"))
