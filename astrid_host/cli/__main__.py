"""`python -m astrid_host.cli`: the same command where its script is not on the path."""

from __future__ import annotations

from astrid_host.cli import main

if __name__ == "__main__":
    main()
