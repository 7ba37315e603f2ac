"""One entry per name: labels, colours, needs and defaults, of the package's own names and of plug-ins."""

from __future__ import annotations

import csv
import inspect
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mabrfl import catalog
from mabrfl.catalog import BUILT_IN, display_entry, entry
from mabrfl.catalog.entries import ALIASES
from mabrfl.catalog.options import parameters_of
from mabrfl.config import RunConfig, resolve
from mabrfl.errors import ConfigError, MabRflError
from mabrfl.reports.arrangement import arrange
from mabrfl.reports.figures import draw
from mabrfl.reports.naming import attack_name, dataset_name, defense_name, preset_name, selector_name
from mabrfl.reports.panels import looks
from mabrfl.reports.table_formats import as_csv, markdown
from mabrfl.reports.tables import tabulate
from result_folders import make_cell

PLUGIN = '''
import numpy as np

from mabrfl.simulation.data import Dataset
from mabrfl.updates import Decision


class Plain:
    """The mean."""

    label, colour, needs, revision = "Plain mean", "#12AB9F", ("attackers",), 3

    def __init__(self, num_malicious: int = 0):
        self.num_malicious = num_malicious

    def __call__(self, cohort):
        return Decision(weights=np.full(len(cohort), 1 / len(cohort)))


class Bandit:
    """By reputation."""

    label, learns = "Bandit", True

    def __call__(self, candidates):
        return candidates.ids


def blind(candidates):
    return candidates.ids


blind.learns = False


def nothing(view):
    return None


nothing.label = "Nothing at all"


def toy():
    return Dataset("toy", np.zeros((4, 2), np.float32), [0, 1, 0, 1], np.ones((1, 2), np.float32), [1], 2)


toy.label = "Toy data"
toy.defaults = {"clients": 7, "rounds": 3, "sizes": (2, 3), "draw": "replacement", "learning_rate": 0.5}
'''
NAMES = {
    "defenses": {"plain": "Plain"},
    "selectors": {"bandit": "Bandit", "blind": "blind"},
    "attacks": {"nothing": "nothing"},
    "datasets": {"toy": "toy"},
}


def install(folder: Path, module: str, source: str, names: dict[str, dict[str, str]]) -> None:
    """Write a package with entry points, as an installer leaves it."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    groups = (
        f"[mabrfl.{kind}]\n" + "".join(f"{name} = {module}:{target}\n" for name, target in targets.items())
        for kind, targets in names.items()
    )
    (info / "entry_points.txt").write_text("".join(groups))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    module = f"plugin_{tmp_path.name.replace('-', '_')}"
    install(tmp_path, module, PLUGIN, NAMES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return module


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_has_its_label_and_its_colour_in_tables_and_figures() -> None:
    assert (defense_name("plain"), selector_name("bandit")) == ("Plain mean", "Bandit")
    assert (attack_name("nothing"), dataset_name("toy")) == ("Nothing at all", "Toy data")
    attacked: dict[str, Any] = {"attack": "nothing", "attackers": 0.3}
    cells = [make_cell(90.0, defense=name, **attacked) for name in ("plain", "krum")]
    text = markdown(tabulate(cells))
    assert "Plain mean" in text
    assert "Nothing at all" in text
    (grid,) = arrange(cells)
    colours = {column.label: look["color"] for column, look in looks(grid.columns).items()}
    assert colours == {"Plain mean": "#12AB9F", "Krum": entry("defenses", "krum").colour}


@pytest.mark.usefixtures("plugin")
def test_a_selector_that_learns_has_a_figure_of_reputation_and_one_that_says_it_does_not_has_none() -> None:
    for selector, expected in (("bandit", True), ("blind", False)):
        cells = [make_cell(90.0, defense="fedavg", selector=selector, attack="lie", attackers=0.3)]
        if expected:
            ((_, figure),) = draw(cells, "reputation").items()
            assert figure.axes[0].get_title(loc="left") == "30%: FedAvg + Bandit"
        else:
            with pytest.raises(MabRflError, match="a selector that learns"):
                draw(cells, "reputation")


def test_a_plug_in_says_what_it_needs_and_a_data_set_gives_the_run_its_defaults(plugin: str) -> None:
    assert (entry("defenses", "plain").needs, entry("defenses", "plain").revision) == (("attackers",), 3)
    assert dict(catalog.describe("defenses"))["plain"] == f"The mean. [needs the number of attackers] [{plugin}:Plain]"
    for name in ("toy", f"{plugin}:toy"):
        run = resolve(RunConfig(dataset=name))
        assert (run.model, run.clients, run.rounds, run.training.learning_rate) == ("mlp", 7, 3, 0.5)
        assert (run.partition.sizes, run.partition.draw) == ((2, 3), "replacement")


def test_a_name_from_a_file_of_results_is_never_imported(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert defense_name(f"{plugin}:Plain") == "Plain"
    assert display_entry("defenses", f"{plugin}:Plain").colour == ""
    assert display_entry("selectors", "not_installed_here").learns
    assert defense_name("not:a:name") == "name"


BAD: dict[str, tuple[str, str]] = {
    "label": ("label = 3", "its attribute label must be text; got 3"),
    "colour": ("colour = 'red'", "its attribute colour must be of the form '#rrggbb'; got 'red'"),
    "learns": ("learns = 'yes'", "its attribute learns must be true or false; got 'yes'"),
    "needs": ("needs = ('atackers',)", "its attribute needs has an unknown word 'atackers'; did you mean 'attackers'?"),
    "needs as text": ("needs = 'attackers'", "its attribute needs must be a tuple of words; got 'attackers'"),
    "revision": ("revision = 0", "its attribute revision must be at least 1; got 0"),
    "revision as text": ("revision = '2'", "its attribute revision must be a whole number; got '2'"),
    "defaults": ("defaults = 3", "its attribute defaults must be a mapping; got 3"),
    "key of defaults": ("defaults = {'client': 3}", "defaults has an unknown key 'client'; did you mean 'clients'?"),
    "value of defaults": ("defaults = {'clients': 'x'}", "its default clients must be a valid integer; got 'x'"),
    "range of defaults": (
        "defaults = {'learning_rate': -1.0}",
        "learning_rate must be greater than 0; got -1.0",
    ),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD)
def test_a_plug_in_with_a_wrong_attribute_is_refused_in_one_line(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"wrong_{tmp_path.name.replace('-', '_')}"
    install(tmp_path, module, f"class Data:\n    {line}\n", {"datasets": {"wrong": "Data"}})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        resolve(RunConfig(dataset="wrong"))
    assert message in str(caught.value)
    assert "data set 'wrong': " in str(caught.value)
    assert dataset_name("wrong") == "wrong"


def test_every_rule_that_takes_the_number_of_attackers_says_that_it_needs_it() -> None:
    for name, own in BUILT_IN["defenses"].items():
        asks = "num_malicious" in parameters_of(catalog.resolve_name("defenses", name))
        assert ("attackers" in own.needs) == asks, name


def test_an_alias_has_the_entry_of_its_name() -> None:
    for kind, aliases in ALIASES.items():
        for alias, name in aliases.items():
            assert entry(kind, alias) is BUILT_IN[kind][name]  # type: ignore[index]
            assert display_entry(kind, alias) is BUILT_IN[kind][name]  # type: ignore[index]


def test_the_spellings_of_committed_results_are_the_same_runs_as_the_names() -> None:
    old = RunConfig(
        defense="mabrfl.experiments.probes:SimilarityProbe",
        selector="mabrfl.experiments.oracle:HonestOnly",
        attack="mabrfl.experiments.oracle:Silent",
    )
    assert resolve(old) == resolve(RunConfig(defense="similarity-probe", selector="honest-only", attack="silent"))


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("defenses", "similarity-probe", "only a measurement"),
        ("selectors", "honest-only", "knows who attacks"),
        ("attacks", "silent", "knew who attacks"),
    ],
)
def test_what_no_server_can_do_is_listed_with_a_line_that_says_so(kind: catalog.Kind, name: str, words: str) -> None:
    assert words in dict(catalog.describe(kind))[name]


def test_a_preset_is_named_only_where_it_means_something() -> None:
    assert preset_name("median", "reference") == "reference"
    assert preset_name("mab-rfl", "hardened") == "hardened"
    assert preset_name("median", "hardened") == ""
    assert preset_name("my.module:Rule", "paper") == ""


def test_columns_of_a_defense_without_presets_differ_by_the_settings_that_the_preset_made() -> None:
    for selector, labels in (
        ("all", ["DnC"]),
        ("acs", ["DnC + ACS, warmup_rounds=0", "DnC + ACS, warmup_rounds=1"]),
    ):
        cells = [make_cell(90.0, defense="dnc", selector=selector, preset=preset) for preset in ("paper", "hardened")]
        (grid,) = arrange(cells)
        assert [column.label for column in grid.columns] == labels
        assert {line["preset"] for line in csv.DictReader(io.StringIO(as_csv(tabulate(cells))))} == {""}


def test_no_two_entries_have_the_same_colour() -> None:
    colours = [own.colour for kind in ("defenses", "presets") for own in BUILT_IN[kind].values() if own.colour]  # type: ignore[index]
    assert len(colours) == len(set(colours)) == 9


def test_the_papers_labels_and_sizes_are_those_of_its_text() -> None:
    names = ["centered-clip", "dnc", "faba", "krum", "median", "mab-rfl", "fedavg"]
    assert [defense_name(name) for name in names] == ["CC", "DnC", "FABA", "Krum", "Median", "MAB-RFL", "FedAvg"]
    assert [attack_name(name) for name in ("agrt", "lie", "label-flip")] == ["AGRT", "LIE", "LF"]
    sizes = {name: entry("datasets", name).defaults.sizes for name in ("mnist", "cifar10")}
    assert sizes == {"mnist": (10, 500), "cifar10": (1200, 2000)}


def test_one_function_builds_the_defense_of_a_simulation_and_of_a_flower_server() -> None:
    pytest.importorskip("flwr")
    from mabrfl.flower import RobustStrategy
    from mabrfl.simulation.simulator import defense_of

    for defense, selector in (("krum", "uniform"), ("mab-rfl", None), ("mab-rfl", "uniform"), ("median", None)):
        config = resolve(RunConfig(defense=defense, selector=selector, clients=20, assumed_malicious=3, seed=4))
        ours = defense_of(config)
        theirs = RobustStrategy(defense, selector, num_malicious_nodes=3, min_available_nodes=20, seed=4).defense
        assert ours.name == theirs.name
        assert ours.select(range(20), round=1) == theirs.select(range(20), round=1)
        assert type(ours.rule) is type(theirs.rule)


def test_a_flower_server_refuses_a_selector_that_knows_who_attacks() -> None:
    pytest.importorskip("flwr")
    from mabrfl.flower import RobustStrategy

    with pytest.raises(ConfigError, match="selector 'honest-only' needs to know who attacks, and no server knows that"):
        RobustStrategy("fedavg", "honest-only")


def test_the_catalogue_does_not_import_the_configuration() -> None:
    for path in Path(inspect.getfile(catalog)).parent.glob("*.py"):
        assert "mabrfl.config" not in path.read_text(encoding="utf-8")


def test_a_run_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:

    from mabrfl.runs import simulate

    config = resolve(RunConfig(rounds=1, workers=1))
    monkeypatch.setattr(catalog, "complete_options", lambda *_: pytest.fail("a resolved run is resolved again"))
    (record,) = simulate(config)
    assert np.isfinite(record.accuracy)
