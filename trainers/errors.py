"""How a run fails, importable without any framework."""


class RunFailed(RuntimeError):
    """A process that was started for a run failed; the message is its exception, and where the log is."""
