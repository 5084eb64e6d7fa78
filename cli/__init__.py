"""The command line: one verb per function, each of which calls one room."""


def main() -> int:
    return 0
