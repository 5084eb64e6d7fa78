"""trncheck's stand-in for the Neuron compiler, which compiles nothing: the package alone."""

from neuronxcc.standin import __version__

__all__ = ["__version__"]
