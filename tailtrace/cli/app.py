"""The commands of `tailtrace`, in the order in which a user meets them."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tailtrace.cli.commands import (
    alerts,
    answers,
    backup,
    batch_curve,
    demo,
    doctor,
    explain,
    export,
    gate,
    gpu_idle,
    lab,
    load,
    parts,
    requests,
    root_cause,
    schema,
    sql,
    token,
    up,
    why,
)
from tailtrace.version import VERSION

app = typer.Typer(
    help="Where an inference request waited, why, and what share of its time that was.",
    epilog="With the client alone: `tailtrace run -- COMMAND` and `tailtrace sample`; both take --help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("load")(load.load)
app.command("export")(export.export)
app.command("requests")(requests.requests)
app.command("explain")(explain.explain)
app.command("attribution")(answers.attribution)
app.command("compare")(answers.compare)
app.command("slow")(answers.slow)
app.command("whatif")(answers.whatif)
app.command("replicas")(answers.replicas)
app.command("tokens")(answers.tokens)
app.command("batch-curve")(batch_curve.batch_curve)
app.command("gpu-idle")(gpu_idle.gpu_idle)
app.command("root-cause")(root_cause.root_cause)
app.command("why")(why.why)
app.add_typer(alerts.app, name="alerts")
app.command("gate")(gate.gate)
app.add_typer(lab.app, name="lab")
app.command("doctor")(doctor.doctor)
app.command("sql")(sql.sql)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("schema")(schema.schema)
app.command("token")(token.token)
app.command("ingest")(parts.ingest)
app.command("worker")(parts.worker)
app.command("beat")(parts.beat)
app.command("dashboard")(parts.dashboard)
app.command("drain")(parts.drain)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tailtrace {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")


def run(arguments: list[str]) -> int:
    """Run one command line; gives its exit code. Errors of the product's own tree pass through."""
    try:
        result = app(arguments, prog_name="tailtrace", standalone_mode=True)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return result if isinstance(result, int) else 0
