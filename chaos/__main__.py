"""`python -m chaos` is `perdure drill`."""

from __future__ import annotations

import os
import sys


def _forget_working_directory() -> None:
    """`-m` puts the working directory first on the path; a user's own package may bear one of our
    names.
    """
    here = os.getcwd()
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", here):
        del sys.path[0]


if __name__ == "__main__":
    _forget_working_directory()
    from perdure.cli.main import main

    main(["drill", *sys.argv[1:]])
