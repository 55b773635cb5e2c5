"""`python -m specpilot_engine.sim`."""

from __future__ import annotations

import sys

from specpilot_engine.sim.server import main

if __name__ == "__main__":
    sys.exit(main())
