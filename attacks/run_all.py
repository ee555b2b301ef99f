"""Try every attack of this folder, or those that are named: `python attacks/run_all.py hang wrong_weights`."""

import sys

from common import main

if __name__ == "__main__":
    main(sys.argv[1:])
