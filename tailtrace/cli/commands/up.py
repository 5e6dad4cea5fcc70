"""`tailtrace up`: receiver, store, jobs, dashboard and API on this machine."""

from __future__ import annotations

import typer

from tailtrace.cli import options


def up(
    data: options.Data = None,
    host: options.Host = None,
    port: options.Port = None,
    otlp_http_port: options.OtlpHttpPort = None,
    otlp_grpc_port: options.OtlpGrpcPort = None,
    clickhouse_port: options.ClickHousePort = None,
    token: options.ServerToken = None,
    insecure: options.Insecure = None,
    scrape: options.Scrape = None,
    sample: options.Sample = False,
    config: options.Config = None,
) -> None:
    """Run the server: OTLP in, dashboard and API out.

    Settings come from options, then TAILTRACE_* variables, then the TOML file. Ctrl-C stops within 5 seconds.
    """
    from tailtrace.cli.configuration import load_settings
    from tailtrace.cli.processes.sampler import sampling
    from tailtrace.cli.processes.service import run_service

    settings = load_settings(
        {
            "data": data,
            "host": host,
            "port": port,
            "otlp_http_port": otlp_http_port,
            "otlp_grpc_port": otlp_grpc_port,
            "clickhouse_port": clickhouse_port,
            "token": token,
            "insecure": insecure,
            "scrape": " ".join(scrape) if scrape else None,
        },
        config,
    )
    if not sample:
        raise typer.Exit(run_service(settings, say=typer.echo))
    with sampling(settings) as sampler:
        code = run_service(settings, on_ready=sampler.start, on_stop=sampler.ask_to_stop, say=typer.echo)
    raise typer.Exit(code)
