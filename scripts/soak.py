"""`make soak`, whose text and work are in tests/soak.py. What it forks imports this file, so nothing is in it."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.soak import main

    sys.exit(main())
