"""`tailtrace token`: scoped tokens, made, listed and revoked without a restart."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tailtrace.cli import options


class Action(StrEnum):
    """What to do."""

    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


class Scope(StrEnum):
    """What a token may do."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


TokensFile = Annotated[
    Path | None,
    typer.Option("--tokens-file", help="File of tokens (TAILTRACE_TOKENS_FILE; default: tokens.json in --data)."),
]


def token(
    action: Annotated[Action, typer.Argument(help="create, list or revoke.")],
    name: Annotated[str, typer.Argument(help="Name of the token; not for list.", show_default=False)] = "",
    scope: Annotated[
        list[Scope] | None, typer.Option("--scope", help="What it may do: ingest, read, admin; repeatable.")
    ] = None,
    data: options.Data = None,
    tokens_file: TokensFile = None,
) -> None:
    """Manage the tokens that doors, API and pages ask for. Running servers see a change within a second.

    Only hashes are kept: a new token is printed once.
    """
    from tailtrace.cli.configuration import load_settings
    from tailtrace.errors import ConfigError
    from tailtrace.ingest import tokens

    file = tokens.TokenFile(tokens.tokens_file(load_settings({"data": data, "tokens_file": tokens_file})))
    if action is Action.LIST:
        for entry in file.entries():
            typer.echo("\t".join(tokens.described(entry).values()))
        return
    if not name:
        raise ConfigError(f"tailtrace token {action} NAME: the name is missing")
    if action is Action.REVOKE:
        file.revoke(name)
        typer.echo(f"revoked {name}", err=True)
        return
    if not scope:
        raise ConfigError("say what the token may do: --scope ingest, --scope read or --scope admin")
    typer.echo(file.create(name, [each.value for each in scope]))
