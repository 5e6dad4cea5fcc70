"""The command line, and the processes it starts: the only place that composes the rooms.

Exit codes, the same for every command:

0    done
1    it was tried and failed (a server that is gone, a request that was refused, a failed check)
2    it cannot work as asked (an option, a setting, a taken port, a missing extra)
3    the data directory is in use by another process
4    nothing is stored under that id
130  interrupted
"""

from __future__ import annotations

import sys

from tailtrace.errors import ConfigError, MissingExtra, NotFound, StoreLocked, TailtraceError


def exit_code(error: TailtraceError) -> int:
    """The exit code that stands for this error."""
    if isinstance(error, ConfigError):
        return 2
    if isinstance(error, StoreLocked):
        return 3
    if isinstance(error, NotFound):
        return 4
    return 1


def main() -> None:
    """Entry point of the `tailtrace` command."""
    try:
        sys.exit(_run(sys.argv[1:]))
    except TailtraceError as error:
        print(f"tailtrace: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `tailtrace requests | head`
        sys.stderr.close()
        sys.exit(1)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["sample"]:
        # One a host, with the client alone: nothing of the server's packages is there to be imported.
        from tailtrace.instrumentation.sampler.command import main as sample

        return sample(arguments[1:])
    if arguments[:1] == ["run"]:
        # Runs with the client alone, beside an engine that has none of the server's packages.
        from tailtrace.instrumentation.run.command import run as run_command

        return run_command(arguments[1:])
    try:
        from tailtrace.cli.app import run

        return run(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tailtrace":
            raise
        command = next((word for word in arguments if not word.startswith("-")), "")
        raise MissingExtra(f"`tailtrace {command}`".replace(" `", "`"), "server") from error
