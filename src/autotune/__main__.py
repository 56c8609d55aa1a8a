"""`python -m autotune` and the `autotune` command."""

import sys


def main() -> None:
    from autotune.cli import run  # noqa: PLC0415  a stray Ctrl-C while importing stays quiet

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
