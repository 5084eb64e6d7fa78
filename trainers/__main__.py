"""``torchrun --nproc_per_node N -m trncheck.trainers --config NAME [torchtitan flags]``."""

import sys

from trncheck.trainers.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
