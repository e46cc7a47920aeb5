"""Run the whole fault matrix: `make faults`."""

import sys

if __name__ == "__main__":
    # Not at the top: every started process imports this module again.
    from tests.faults.run import main

    sys.exit(main(sys.argv[1:]))
