"""`make soak` and `make soak-stream`: their text and work are in tests/soak.py and tests/stream_soak.py.

What they fork imports this file, so nothing is in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if "--stream" in sys.argv:
        sys.argv.remove("--stream")
        from tests.stream_soak import main
    else:
        from tests.soak import main
    sys.exit(main())
