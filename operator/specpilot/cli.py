"""The command line. Every command imports what it needs itself, so that --help is there at once."""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specpilot.console import FAILED, WRONG, end, plain, terminal, write
from specpilot.replay.cli import bench

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    T = TypeVar("T")


class EngineChoice(StrEnum):
    sim = "sim"
    vllm = "vllm"


app = typer.Typer(
    name="specpilot",
    help="Adaptive speculative serving: vLLM's draft depth, kept at what pays.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help takes half a second to import
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench, name="bench")


def examples(*lines: str) -> str:
    """An epilog; the backspace keeps its lines as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


@app.command(
    epilog=examples(
        "specpilot up deploy/samples/sim-two-replicas.yaml --engine sim --clients 16",
        "specpilot up my-model.yaml --python ~/vllm/bin/python --host 0.0.0.0",
        "specpilot up my-model.yaml --engine sim --port 0 --for 60s",
    )
)
def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with one SpeculativeDeployment.")],
    engine: Annotated[
        EngineChoice, typer.Option(help="What serves: the real vLLM, or a simulation of it.")
    ] = (EngineChoice.vllm),
    port: Annotated[
        int, typer.Option(help="Of the first replica; the others follow. 0: any free ones.")
    ] = 8000,
    host: Annotated[str, typer.Option(help="Address to serve on; 0.0.0.0 for all.")] = "127.0.0.1",
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="End after so long, for example 60s.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps profile and memory between runs; by default one below $TMPDIR."),
    ] = None,
    python: Annotated[str | None, typer.Option(help="The Python that has vLLM.")] = None,
    clients: Annotated[int, typer.Option(min=0, help="Send made-up traffic from so many clients.")] = 0,
    traffic: Annotated[
        str,
        typer.Option(metavar="KIND", help="Its kind, for the simulated engine: chat, code, prose or mixed."),
    ] = "",
) -> None:
    """Run a SpeculativeDeployment on this machine, without a cluster.

    Its pods become processes, and the operator's own loop measures them and retunes their depth. Ctrl-C
    ends everything; the next run goes on with what this one learnt.
    """
    from specpilot.local.up import Options
    from specpilot.local.up import up as run

    options = Options(engine.value, port, host, _seconds(duration), state, python, clients, traffic)
    _run(run(file, options, terminal()))


@app.command(
    epilog=examples(
        "specpilot explain llm/flash",
        "specpilot explain llm/flash --batch 16 --batch 64 --html why.html",
        "specpilot explain deploy/samples/sim-two-replicas.yaml   (after specpilot up)",
        "specpilot explain profile.yaml",
    )
)
def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="NAMESPACE/NAME on the cluster, or a file with a CostProfile or SpeculativeDeployment.",
        ),
    ],
    batch: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="Running requests to show; may be repeated.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page to this file.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="The folder that specpilot up was given, if it was.")
    ] = None,
) -> None:
    """Say why this depth, and what every other one would give.

    Shows accepted length, step time and goodput of each depth, the marginal rule, and the choice.
    """
    from specpilot.explain import sources
    from specpilot.explain.subject import explain as explained
    from specpilot.explain.table import render

    file = Path(subject)
    if file.exists() or subject.endswith((".yaml", ".yml", ".json")):
        found = _try(lambda: sources.from_file(file, state))
    else:
        namespace, slash, name = subject.partition("/")
        if not slash or not namespace or not name or "/" in name:
            end(f"{subject} is neither a file nor NAMESPACE/NAME: name one of the two", WRONG)
        found = _run(sources.from_cluster(namespace, name))
    it = explained(found, batch or ())
    terminal().print(render(it))
    if html is not None:
        from specpilot.explain.page import page

        write(html, page(it))
        terminal().print(f"[bold]{html}[/] written: open it in a browser.")


@app.command(epilog=examples("specpilot demo", "specpilot demo --out /tmp/demo"))
def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and report.json.")] = Path("demo"),
    file: Annotated[Path | None, typer.Option(help="Another SpeculativeDeployment than its own.")] = None,
) -> None:
    """Watch it work in two minutes: two simulated replicas, traffic that shifts twice, a report at the end."""
    from specpilot.local.demo import demo as play
    from specpilot.local.demo import sample, summary

    console = terminal()
    record = _run(play(file or _try(sample), out, console))
    if record is None:
        end("the demonstration was interrupted, so there is no report: run it again", FAILED)
    for line in summary(record, out):
        console.print(line, soft_wrap=not console.is_terminal)  # a terminal breaks between words


@app.command(epilog=examples("specpilot crd | kubectl apply --server-side -f -"))
def crd() -> None:
    """Print the CustomResourceDefinitions."""
    from specpilot.api.crd import crds, dump

    plain("---\n".join(dump(one) for one in crds()))


@app.command(epilog=examples("specpilot operator", "specpilot operator --config config.yaml"))
def operator(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file (default: $SPECPILOT_CONFIG).")
    ] = None,
) -> None:
    """Run the operator: in its pod, or anywhere with a kubeconfig."""
    from specpilot.operator_main import operator_command

    raise typer.Exit(operator_command(config))


def show_version(wanted: bool = True) -> None:
    """Print the version."""
    if not wanted:
        return
    try:
        plain(f"{version('specpilot')}\n")
    except PackageNotFoundError:
        plain("unknown: specpilot is not installed as a package\n")
    raise typer.Exit


@app.callback()
def main(
    _: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What is asked of the program as a whole."""


@app.command("version")
def version_command() -> None:
    """Print the version."""
    show_version()


def _seconds(duration: str | None) -> float | None:
    from specpilot.api.base import seconds

    if duration is None:
        return None
    try:
        return seconds(duration)
    except ValueError:
        end(f"--for takes a duration such as 60s or 5m, not {duration}", WRONG)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; what people can do something about ends in one sentence."""
    import asyncio

    return _try(lambda: asyncio.run(work))


def _try(work: Callable[[], T]) -> T:
    from specpilot.cluster.errors import ClusterError
    from specpilot.local.errors import LocalError

    try:
        return work()
    except (LocalError, ClusterError) as e:
        end(str(e), FAILED)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


if __name__ == "__main__":
    app()
