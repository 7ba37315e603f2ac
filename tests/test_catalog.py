from __future__ import annotations

import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mabrfl import MabRfl, catalog
from mabrfl.aggregation import FedAvg, Krum
from mabrfl.attacks import LIE, AgrKrum, Knowledge, Sleeper, Wrapper
from mabrfl.catalog import BUILT_IN
from mabrfl.cli.listing import PARTITIONS
from mabrfl.config import RunConfig, load_config, resolve
from mabrfl.config.model import PARTITION_SETTINGS
from mabrfl.errors import ConfigError, DatasetError
from mabrfl.mab.presets import PRESETS
from mabrfl.selection import ACS, All, Budgeted, ThompsonTop, Uniform
from mabrfl.simulation.data import DATASETS, Dataset
from mabrfl.simulation.simulator import defense_of
from mabrfl.simulation.training import MODELS
from mabrfl.updates import Cohort, Updates

MINE = '''
"""A user's own module."""
import numpy as np
import torch

from mabrfl.simulation.data import Dataset
from mabrfl.updates import Decision, Outcome, Verdict


class Norms:
    """Keep what is not much longer than the median.

    More words.
    """

    def __init__(self, num_malicious, *, factor: float = 1.5):
        self.num_malicious, self.factor = num_malicious, factor

    def __call__(self, cohort):
        keep = cohort.norms <= self.factor * np.median(cohort.norms)
        return Decision(weights=keep / keep.sum())


def mean(cohort, scale: float = 1.0):
    return Decision(weights=np.full(len(cohort), scale / len(cohort)))


def first(candidates):
    return candidates.ids[:1]


def spy(view, scale: float = 2.0):
    return -scale * view.benign[: len(view.attackers)]


spy.knowledge = "partial"


class Whole:
    def __init__(self, seed):
        self.seed = seed

    def select(self, ids, *, round):
        return list(ids)[:2]

    def aggregate(self, updates, *, round):
        step = np.mean(np.asarray(updates.matrix), axis=0)
        return Outcome(step, {client: Verdict(True, "accepted") for client in updates.ids}, round)


class Net(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer = torch.nn.Linear(2, num_classes)


def data():
    return Dataset("toy", np.zeros((4, 2), np.float32), [0, 1, 0, 1], np.ones((1, 2), np.float32), [1], 2)


toy = data()
number = 3


def fussy(*, depth):
    raise ValueError("never called without depth")
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def built(config: RunConfig) -> Any:
    return defense_of(resolve(config))


def cohort(matrix: Any) -> Cohort:
    rows = np.asarray(matrix, dtype=np.float64)
    n = len(rows)
    return Cohort(tuple(range(n)), rows, np.linalg.norm(rows, axis=1), np.ones(n), round=1, population=n)


@pytest.mark.parametrize("kind", [*catalog.KINDS, "preaggregators"])
def test_everything_in_the_catalogue_can_be_imported_and_has_its_line(kind: catalog.Kind) -> None:
    lines = dict(catalog.describe(kind))
    assert set(BUILT_IN[kind]) <= set(lines)
    for name in BUILT_IN[kind]:
        assert lines[name]
        assert "\n" not in lines[name]
        assert "`" not in lines[name]
        if kind != "presets" and name != "none":
            assert callable(catalog.resolve_name(kind, name))


def test_the_tables_hold_what_the_packages_hold() -> None:
    assert set(BUILT_IN["models"]) == set(MODELS)
    assert set(BUILT_IN["datasets"]) == set(DATASETS)
    assert set(BUILT_IN["presets"]) == set(PRESETS)
    assert {name for name, _ in PARTITIONS} == set(PARTITION_SETTINGS)


def test_listing_the_catalogue_does_not_import_torch() -> None:
    code = "import sys; from mabrfl import catalog; print([catalog.describe(kind) for kind in catalog.KINDS])"
    code += "; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "vgg-lite" in done.stdout


def test_a_rule_is_told_the_number_of_attackers_if_it_asks() -> None:
    krum = catalog.build_rule("krum", {"power": 1}, num_malicious=3)
    assert isinstance(krum, Krum)
    assert (krum.num_malicious, krum.power) == (3, 1)
    uniform = catalog.build_rule("fedavg-uniform", num_malicious=3)
    assert isinstance(uniform, FedAvg)
    assert uniform.weighting == "uniform"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("acs", ACS), ("all", All), ("uniform", Uniform), ("thompson-top", ThompsonTop), ("budgeted", Budgeted)],
)
def test_selectors_are_built_by_name(name: str, kind: type) -> None:
    assert isinstance(catalog.build_selector(name), kind)


def test_attacks_are_built_by_name_and_alias_and_none_is_none() -> None:
    assert catalog.build_attack("none") is None
    lie = catalog.build_attack("lie", {"z": 1.5})
    assert isinstance(lie, LIE)
    assert lie.z == 1.5
    assert isinstance(catalog.build_attack("agrt"), AgrKrum)


BAD_OPTIONS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "unknown": (
        "rule",
        "krum",
        {"neighbors": "n"},
        "defense_options.neighbors: .* no such option; did you mean 'neighb",
    ),
    "unknown of none": ("attack", "none", {"z": 1}, "attack_options.z: attack 'none' has no such option; it has none"),
    "of the run": ("rule", "krum", {"num_malicious": 3}, "set assumed_malicious instead"),
    "wrong word": ("rule", "fedavg", {"weighting": "samples"}, "defense_options.weighting must be 'examples' or"),
    "text for a number": (
        "selector",
        "uniform",
        {"num_selected": "5"},
        "selector_options.num_selected must be .*integer",
    ),
    "boolean for a number": ("selector", "uniform", {"num_selected": True}, "num_selected must be .*integer; got True"),
}


@pytest.mark.parametrize(("what", "name", "options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_an_error_and_never_dropped(
    what: str, name: str, options: dict[str, Any], message: str
) -> None:
    kinds: dict[str, catalog.Kind] = {"rule": "defenses", "selector": "selectors", "attack": "attacks"}
    with pytest.raises(ConfigError, match=message):
        catalog.complete_options(kinds[what], name, options)


def test_a_value_that_the_constructor_refuses_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"num_selected must be .*; got 0"):
        catalog.build_selector("uniform", {"num_selected": 0})


def test_a_users_rule_may_be_a_class_or_a_function(mine: str) -> None:
    rule: Any = catalog.build_rule(f"{mine}:Norms", {"factor": 3.0}, num_malicious=4)
    assert (rule.num_malicious, rule.factor) == (4, 3.0)
    decision = catalog.build_rule(f"{mine}:mean", {"scale": 3.0})(cohort(np.eye(3)))
    assert decision.weights is not None
    np.testing.assert_array_equal(decision.weights, np.ones(3))
    assert catalog.complete_options("defenses", f"{mine}:mean", {}) == {"scale": 1.0}


def test_a_users_selector_and_attack_may_be_functions(mine: str) -> None:
    assert catalog.build_defense("median", f"{mine}:first").select([4, 5], round=1) == [4]
    for options in ({}, {"scale": 3.0}):
        attack = catalog.build_attack(f"{mine}:spy", options)
        assert attack is not None
        assert attack.knowledge is Knowledge.PARTIAL


def test_a_users_whole_defense_goes_through_the_stages_of_a_round(mine: str) -> None:
    defense = built(RunConfig(defense=f"{mine}:Whole", seed=5))
    assert defense.name == f"{mine}:Whole"
    assert defense.select([7, 8, 9], round=1) == [7, 8]
    screening = defense.screen(Updates([7, 8], np.array([[1.0, 2.0], [3.0, 6.0]])), round=1)
    defense.reward(screening)
    np.testing.assert_array_equal(defense.combine(screening).step, [2.0, 4.0])
    with pytest.raises(ConfigError, match="selects clients itself; it takes no selector, but got 'acs'"):
        built(RunConfig(defense=f"{mine}:Whole", selector="acs"))


def test_a_users_model_gets_what_it_asks_for(mine: str) -> None:
    model: Any = catalog.build_model(f"{mine}:Net", (2,), 7)
    assert model.layer.out_features == 7
    with pytest.raises(ConfigError, match=r"must give a torch\.nn\.Module; got Dataset"):
        catalog.build_model(f"{mine}:data", (2,), 7)
    with pytest.raises(ConfigError, match="cannot be built for inputs"):
        catalog.build_model(f"{mine}:fussy", (2,), 7)


def test_a_users_data_set_may_be_an_object_or_a_function(mine: str) -> None:
    for name in ("data", "toy"):
        assert isinstance(catalog.build_dataset(f"{mine}:{name}"), Dataset)
    with pytest.raises(DatasetError, match=r"must be a mabrfl\.simulation\.data\.Dataset; got int"):
        catalog.build_dataset(f"{mine}:number")


def test_built_in_models_fit_the_shape_of_the_data() -> None:
    model = catalog.build_model("mnist-cnn", (1, 28, 28), 10)
    assert model(torch.zeros(1, 1, 28, 28)).shape == (1, 10)


BAD_NAMES = [
    ("krumm", "unknown defense 'krumm'; did you mean 'krum'?"),
    ("no_such_module_here:X", "cannot import 'no_such_module_here': there is no such module in the current folder"),
    ("a b:c", "is not of the form module:Name"),
    (":X", "is not of the form module:Name"),
    ("os:", "is not of the form module:Name"),
    ("../evil:X", "is not of the form module:Name"),
    ("json:dumpss", "module 'json' has no 'dumpss'; did you mean 'dumps'?"),
]


@pytest.mark.parametrize(("name", "message"), BAD_NAMES)
def test_a_bad_name_is_an_error_that_says_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        catalog.build_rule(name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [("import nothing_like_this", "ModuleNotFoundError"), ("def f(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError")],
)
def test_a_users_module_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    name = f"broken_{message.lower()}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=f"cannot import '{name}': {message}") as caught:
        catalog.build_rule(f"{name}:X")
    assert "\n" not in str(caught.value)


def test_entry_points_are_found_and_cannot_take_a_name_of_the_package(
    mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[mabrfl.defenses]\nnorms = {mine}:Norms\nkrum = {mine}:mean\nbroken = nowhere_at_all:X\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rule: Any = catalog.build_rule("norms", num_malicious=1)
    assert rule.factor == 1.5
    assert isinstance(catalog.build_rule("krum"), Krum)
    lines = dict(catalog.describe("defenses"))
    assert lines["norms"] == f"Keep what is not much longer than the median. [{mine}:Norms]"
    assert lines["broken"].startswith("cannot be used: ")
    with pytest.raises(ConfigError, match="did you mean 'norms'"):
        catalog.build_rule("norm")


def test_acs_with_krum_is_one_line_of_config() -> None:
    defense = built(RunConfig(defense="krum", selector="acs", attack="lie", attackers=6, seed=4))
    assert isinstance(defense.rule, Krum)
    assert isinstance(defense.selector, ACS)
    assert (defense.rule.num_malicious, defense.name, defense.seed) == (6, "krum", 4)


def test_rules_are_told_the_assumed_number_of_attackers_if_there_is_one() -> None:
    config = RunConfig(defense="krum", attack="lie", attackers=6, assumed_malicious=2)
    rule: Any = built(config).rule
    assert rule.num_malicious == 2


def test_mab_rfl_gets_its_preset_its_options_and_another_selector() -> None:
    config = load_config(None, {"preset": "reference", "defense_options.history": 0.4, "seed": 3})
    shield = built(config)
    assert isinstance(shield, MabRfl)
    assert (shield.preset, shield.options.history, shield.options.warmup_rounds, shield.seed) == (
        "reference",
        0.4,
        10,
        3,
    )
    assert isinstance(shield.selector, ACS)
    assert shield.selector.inclusion == "cutoffs"
    other = built(load_config(None, {"selector": "uniform", "selector_options.num_selected": 3}))
    assert isinstance(other.selector, Uniform)
    assert len(other.select(range(9), round=1)) == 3


def test_the_rule_of_mab_rfl_is_there_for_other_selectors() -> None:
    rule: Any = catalog.build_rule("mab-rfl", {"preset": "reference", "history": 0.2})
    assert (rule.options.history, rule.options.step_size) == (0.2, "median")


def test_an_attack_around_another_takes_its_name_and_its_options() -> None:
    options = {"inner": "lie", "honest_rounds": 7, "z": 1.5}
    attack: Any = catalog.build_attack("sleeper", options)
    assert isinstance(attack, Sleeper)
    assert (attack.honest_rounds, attack.inner.z, attack.knowledge) == (7, 1.5, Knowledge.PARTIAL)
    full = catalog.complete_options("attacks", "sleeper", options)
    assert (full["inner"], full["honest_rounds"], full["z"], full["z_rule"]) == ("lie", 7, 1.5, "paper")
    assert catalog.complete_options("attacks", "sleeper", full) == full
    alias: Any = catalog.build_attack("on-off", {"inner": "agrt"})
    assert isinstance(alias.inner, AgrKrum)


def test_a_users_function_may_be_the_inner_attack(mine: str) -> None:
    attack: Any = catalog.build_attack("on-off", {"inner": f"{mine}:spy", "scale": 3.0})
    assert attack.knowledge is Knowledge.PARTIAL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner": "lei"}, "attack_options.inner: unknown attack 'lei'; did you mean 'lie'?"),
        ({"inner": "none"}, "attack_options.inner must be the name of another attack; got 'none'"),
        ({"inner": 3}, "attack_options.inner must be the name of another attack; got 3"),
        (
            {"honest_round": 3},
            "attack_options.honest_round: neither attack 'sleeper' nor its inner attack 'lie' has such an option; "
            "did you mean 'honest_rounds'?",
        ),
        ({"inner": "sign-flip", "z": 1.5}, "nor its inner attack 'sign-flip' has such an option"),
        ({"z": "much"}, "attack_options.z must be a valid number"),
        ({"honest_rounds": "3"}, "attack_options.honest_rounds must be a valid integer"),
    ],
)
def test_a_bad_inner_attack_is_an_error_that_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    for function in (catalog.complete_options, lambda _, name, given: catalog.build_attack(name, given)):
        with pytest.raises(ConfigError) as caught:
            function("attacks", "sleeper", options)
        assert message in str(caught.value)


def test_the_page_on_attacks_has_a_line_on_each_with_its_knowledge() -> None:
    page = (Path(__file__).parent.parent / "docs" / "attacks.md").read_text(encoding="utf-8")
    rows = {cells[1].split("`")[1]: cells for cells in (line.split("|") for line in page.splitlines() if "| `" in line)}
    assert list(rows) == list(BUILT_IN["attacks"])
    for name, cells in rows.items():
        attack: Any = catalog.build_attack(name)
        wraps = isinstance(attack, Wrapper)
        expected = "" if attack is None else "as the inner" if wraps else attack.knowledge.value
        assert cells[3].strip() == expected, name
        for number in cells[4].replace(",", " ").split():
            assert f"- **{number}** " in page


def test_annotations_are_evaluated_once_however_often_options_are_checked(monkeypatch):
    calls = []
    evaluate = typing.get_type_hints
    monkeypatch.setattr("typing.get_type_hints", lambda target: calls.append(target) or evaluate(target))
    for _ in range(3):
        catalog.complete_options("defenses", "trimmed-mean", {})
    assert len(calls) <= 2, "once for the class and once for its constructor, if at all"


OWN_FACTORIES = """
from torch import nn

def lazy(num_classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(num_classes))

def misfit(num_classes):
    return nn.Sequential(nn.LazyLinear(8), nn.Linear(9, num_classes))

def no_key():
    raise KeyError("weights")

def no_layer():
    raise RuntimeError("no such layer")
"""


@pytest.fixture
def own_factories(tmp_path, monkeypatch):
    (tmp_path / "own_factories.py").write_text(OWN_FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_factories", None)


@pytest.mark.usefixtures("own_factories")
def test_a_model_of_lazy_layers_has_its_sizes_when_it_is_built():
    model = catalog.build_model("own_factories:lazy", (1, 8, 8), 10)
    assert [tuple(weights.shape) for weights in model.parameters()] == [(8, 64), (8,), (10, 8), (10,)]


@pytest.mark.usefixtures("own_factories")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_key", r"cannot be built for inputs \(1, 8, 8\): KeyError: 'weights'"),
        ("no_layer", r"cannot be built for inputs \(1, 8, 8\): RuntimeError: no such layer"),
        ("misfit", r"cannot be built for inputs \(1, 8, 8\): RuntimeError: "),
    ],
)
def test_whatever_a_model_factory_raises_is_told_in_one_error(name, message):
    with pytest.raises(ConfigError, match=message):
        catalog.build_model(f"own_factories:{name}", (1, 8, 8), 10)


@pytest.mark.usefixtures("own_factories")
def test_whatever_a_data_set_factory_raises_is_told_in_one_error():
    with pytest.raises(DatasetError, match="data set 'own_factories:no_key' cannot be loaded: KeyError: 'weights'"):
        catalog.build_dataset("own_factories:no_key")
