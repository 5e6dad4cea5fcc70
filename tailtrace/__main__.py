"""`python -m tailtrace`: the same as the `tailtrace` command."""

from tailtrace.cli import main

main()
