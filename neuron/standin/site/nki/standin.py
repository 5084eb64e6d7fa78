"""The parts of the simulator, registered as the parts of ``nki``.

None of them is a file of this package: that is how the kit tells it from the official one.
"""

import sys
from types import ModuleType

from trncheck.kernels.simulator.modules import as_nki

with as_nki():
    _modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "nki"}

whole: ModuleType = _modules.pop("nki")
sys.modules.update(_modules)
