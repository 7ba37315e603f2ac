"""``python -m mabrfl``."""

import sys

from mabrfl.cli.main import main

# Worker processes import this module again under another name, and must not start a run of their own.
if __name__ == "__main__":
    sys.exit(main())
