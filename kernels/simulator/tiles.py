"""Functions over tiles: ``nl.add(x, y)`` allocates its result; thin forms of the instructions."""
