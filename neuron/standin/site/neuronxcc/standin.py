"""What there is of the compiler in a rehearsal."""

__version__ = "stand-in"
