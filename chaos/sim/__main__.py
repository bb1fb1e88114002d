"""`python -m chaos.sim`: run seeds, replay plans, shrink what fails."""

from __future__ import annotations

import sys

from chaos.sim.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
