"""Command line of the lint: prints findings; exit status 1 if any is an error, 2 if a file is unreadable."""

import argparse
import sys

from trncheck.kernels.simulator.lint import UnreadableSource, lint_file


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m trncheck.kernels.simulator.lint",
        description="Find what the NKI 0.7 compiler refuses in kernel sources.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a Python source with NKI kernels")
    status = 0
    for path in parser.parse_args(arguments).files:
        try:
            findings = lint_file(path)
        except UnreadableSource as error:
            print(error, file=sys.stderr)
            status = 2
            continue
        for finding in findings:
            print(finding)
        if any(finding.severity == "error" for finding in findings):
            status = max(status, 1)
    return status


if __name__ == "__main__":
    sys.exit(main())
