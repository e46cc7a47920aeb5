"""Run the whole matrix: `make faults`."""

import sys

if __name__ == "__main__":
    # Not above: every process that is started imports this module again.
    from tests.faults.run import main

    sys.exit(main(sys.argv[1:]))
