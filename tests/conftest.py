"""What is set for Perdure in the shell of whoever runs the tests does not reach them."""

from __future__ import annotations

import os

FOR_TESTS = "PERDURE_TEST_"  # Servers that some of them need.

for name in [name for name in os.environ if name.startswith("PERDURE_")]:
    if not name.startswith(FOR_TESTS):
        del os.environ[name]
