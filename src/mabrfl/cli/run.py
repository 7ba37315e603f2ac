"""``mabrfl run``: one run, shown live, recorded in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console

from mabrfl.cli.completion import names_of, one_of_these
from mabrfl.cli.execution import default_folder, execute
from mabrfl.cli.once import INTEGER, share_or_count
from mabrfl.cli.run_summary import show_interruption, show_run, warnings
from mabrfl.cli.stopping import Stopped, importing
from mabrfl.config import ResolvedConfig, RunConfig, load_config, resolve
from mabrfl.config.toml import parse_toml
from mabrfl.errors import ConfigError, OutputError
from mabrfl.recording.folder import CONFIG, shown
from mabrfl.recording.ownership import reserved
from mabrfl.recording.tracker_logs import check_tracker

if TYPE_CHECKING:
    from mabrfl.simulation.simulator import Simulation

_WHAT, _HOW, _WHERE = "What to run", "How", "Where"


def build_simulation(config: RunConfig) -> Simulation:
    """Build the simulation of a run; torch is imported here and not before."""
    with importing():
        from mabrfl.simulation.simulator import build_simulation as build  # seconds that --help need not wait for

    return build(config)


def run(  # the options document themselves
    config: Annotated[
        str | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; '-' reads standard input. Options win.")
    ] = None,
    *,
    dataset: Annotated[
        str | None,
        typer.Option(
            autocompletion=names_of("datasets"), help="digits, mnist, ... or module:Name.", rich_help_panel=_WHAT
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=names_of("models"),
            help="mlp, mnist-cnn, ...; by data set if left out.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    defense: Annotated[
        str | None,
        typer.Option(
            autocompletion=names_of("defenses"),
            help="mab-rfl, fedavg, krum, ... or module:Name.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    before: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=names_of("preaggregators"),
            metavar="NAME",
            help="Pre-aggregator before the defense's rule: nnm, bucketing, ...; repeatable, in order.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            autocompletion=names_of("presets"),
            help="Of mab-rfl: hardened (default), paper or reference.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    selector: Annotated[
        str | None,
        typer.Option(
            autocompletion=names_of("selectors"),
            help="acs, uniform, ...; the defense's own if left out.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            autocompletion=names_of("attacks"), help="none, lie, label-flip, ... or module:Name.", rich_help_panel=_WHAT
        ),
    ] = None,
    attackers: Annotated[
        float | None,
        typer.Option(
            parser=share_or_count,
            metavar="SHARE|COUNT",
            help="How many attack: a share (0.3, 30%) or a count (15).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    clients: Annotated[int | None, typer.Option(**INTEGER, help="How many clients.", rich_help_panel=_HOW)] = None,
    rounds: Annotated[int | None, typer.Option(**INTEGER, help="How many rounds.", rich_help_panel=_HOW)] = None,
    seed: Annotated[int | None, typer.Option(**INTEGER, help="Root of all randomness.", rich_help_panel=_HOW)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other setting, e.g. training.epochs=1 or defense_options.clip=2.0; repeatable.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(**INTEGER, help="Worker processes; all cores if left out.", rich_help_panel=_WHERE)
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.", rich_help_panel=_WHERE)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (default: a new one in runs/).", rich_help_panel=_WHERE)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the results in --out.", rich_help_panel=_WHERE)
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted run in --out.", rich_help_panel=_WHERE)
    ] = False,
    checkpoint_every: Annotated[
        int, typer.Option(**INTEGER, help="Rounds between checkpoints; 0: none.", rich_help_panel=_WHERE)
    ] = 1,
    observe: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=names_of("observers"),
            metavar="NAME",
            help="Have an observer watch the run: module:Name, or a plug-in's name; repeatable.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=one_of_these(("tensorboard", "mlflow", "wandb")),
            metavar="NAME",
            help="tensorboard, mlflow or wandb; repeatable.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    save_model: Annotated[
        bool,
        typer.Option("--save-model", help="Write the final model: model.safetensors.", rich_help_panel=_WHERE),
    ] = False,
    no_plots: Annotated[
        bool, typer.Option("--no-plots", help="Draw no pictures of the run.", rich_help_panel=_WHERE)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print the folder's name at the end, nothing else.", rich_help_panel=_WHERE)
    ] = False,
) -> None:
    """Run a federation, show it live, and record it.

    Everything has a default: plain `mabrfl run` trains on the embedded digits with MAB-RFL.
    """
    named: dict[str, Any] = {
        "dataset": dataset,
        "model": model,
        "defense": defense,
        "before": before or None,
        "preset": preset,
        "selector": selector,
    }
    named |= {"attack": attack, "attackers": attackers, "clients": clients, "rounds": rounds, "seed": seed}
    named |= {"workers": workers, "device": device}
    overrides = _with_settings({key: value for key, value in named.items() if value is not None}, settings or ())
    if checkpoint_every < 0:
        raise click.UsageError(f"--checkpoint-every takes a number of rounds, or 0 for none; got {checkpoint_every}")
    if resume:
        config = _config_of(out, config, force=force)
    _perform(
        load_config(config, overrides),
        out,
        quiet=quiet,
        plots=not no_plots,
        observers=[*(observe or ()), *map(check_tracker, track or ())],
        force=force,
        resume=resume,
        checkpoint_every=checkpoint_every,
        save_model=save_model,
    )


def _config_of(out: Path | None, config: str | None, *, force: bool) -> str:
    """Return the file with the settings of the run to resume: its own, unless another is named."""
    if out is None or force:
        raise click.UsageError(
            "--resume goes on with the run in --out; it does not go with --force"
            if force
            else "--resume needs the folder of the run to go on with: --out FOLDER"
        )
    own = out / CONFIG
    if config is None and not own.is_file():
        raise OutputError(f"there is no run to resume in {shown(out)}; leave out --resume to start one")
    return config or str(own)


def _perform(config: RunConfig, out: Path | None, *, quiet: bool, **options: Any) -> None:
    """Resolve a configuration, run it, and show the result."""
    resolved, console = resolve(config), Console()
    if not quiet:
        _remark(console, config, resolved)
    with nullcontext(out) if out is not None else reserved(default_folder(resolved)) as path:
        try:
            result = execute(resolved, path, build=build_simulation, console=console, quiet=quiet, **options)
        except (KeyboardInterrupt, Stopped):
            show_interruption(path)
            raise
        if quiet:
            for warning in warnings(result.records):
                typer.secho(f"warning: {warning}", fg="yellow", err=True)
            typer.echo(str(path))
        else:
            show_run(console, result, path)


def _remark(console: Console, config: RunConfig, resolved: ResolvedConfig) -> None:
    """Print a note on settings that have no effect."""
    if config.attackers and not resolved.attackers:
        console.print(f"note: the attack is 'none', so attackers = {config.attackers} has no effect", soft_wrap=True)
    if config.attack != "none" and not config.attackers:
        console.print(
            f"note: attackers is 0, so nobody attacks by '{config.attack}'; try --attackers 0.3", soft_wrap=True
        )


def _with_settings(overrides: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Add the ``--set KEY=VALUE`` of the command line; nothing may be set twice."""
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key or not all(key.split(".")):
            raise click.UsageError(f"--set takes KEY=VALUE, e.g. training.epochs=1; got {setting!r}")
        if key in overrides:
            raise click.UsageError(f"'{key}' is set twice on the command line")
        overrides[key] = parse_value(value, key)
    return overrides


def parse_value(text: str, key: str) -> Any:
    """Return a TOML value; a bare word is a string, so that the shell needs no second pair of quotes.

    Examples
    --------
    >>> parse_value("[1, 2]", "sizes"), parse_value("krum", "defense"), parse_value("true", "strict")
    ([1, 2], 'krum', True)
    """
    try:
        parsed = parse_toml(f"value = {text}".encode("utf-8", "surrogateescape"), "value")
    except ConfigError as error:
        word = text.strip()
        if word and (word[0].isalpha() or word[0] in "_/.") and all(c.isalnum() or c in "_-.:/" for c in word):
            return word
        raise ConfigError(f"--set {key}: {text!r} is not a TOML value") from error
    if set(parsed) != {"value"}:
        raise ConfigError(f"--set {key}: {text!r} is more than one value")
    return parsed["value"]
