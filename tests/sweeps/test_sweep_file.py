"""Sweep files: which cells follow from them, what a cell's identity is, and what is wrong with a file."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mabrfl.config import RunConfig, config_hash, load_config, resolve
from mabrfl.config.toml import known_keys
from mabrfl.errors import ConfigError
from mabrfl.mab.presets import options
from mabrfl.sweeps.cells import select
from mabrfl.sweeps.plan import changes, plan_entries
from mabrfl.sweeps.sweep_file import Sweep, load_sweep, parse_sweep

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


def sweep(text: str) -> Sweep:
    return parse_sweep(text.encode())


def labels(text: str) -> list[str]:
    return [cell.label for cell in sweep(text).cells]


def test_axes_are_multiplied_the_first_outermost() -> None:
    assert labels("axes.seed = [1, 2]\naxes.defense = ['krum', 'median']") == [
        "seed=1, defense=krum",
        "seed=1, defense=median",
        "seed=2, defense=krum",
        "seed=2, defense=median",
    ]


def test_an_axis_may_reach_into_sections_and_hold_lists() -> None:
    text = (
        "axes.training.epochs = [1, 3]\naxes.'partition.sizes' = [[5, 9], [6, 8]]\naxes.defense_options.memory = [0.2]"
    )
    cells = sweep(text).cells
    assert [(cell.config.training.epochs, cell.config.partition.sizes) for cell in cells] == [
        (1, (5, 9)),
        (1, (6, 8)),
        (3, (5, 9)),
        (3, (6, 8)),
    ]
    assert cells[0].axes == {"training.epochs": 1, "partition.sizes": [5, 9], "defense_options.memory": 0.2}
    assert cells[0].config.defense_options["memory"] == 0.2


def test_a_point_of_an_axis_may_be_several_settings_under_one_label() -> None:
    cells = sweep(
        """
        base.training.epochs = 2
        [[axes.row]]
        label = "30 % of label flippers"
        attack = "label-flip"
        attackers = 0.3
        [[axes.row]]
        attack = "lie"
        training.batch_size = 8
        attackers = 4
        """
    ).cells
    assert [cell.axes for cell in cells] == [
        {"row": "30 % of label flippers"},
        {"row": "attack=lie, training.batch_size=8, attackers=4"},
    ]
    assert [cell.config.num_attackers for cell in cells] == [6, 4]
    assert [(cell.config.training.epochs, cell.config.training.batch_size) for cell in cells] == [(2, 16), (2, 8)]


def test_a_point_that_sets_its_axis_alone_is_called_by_its_value() -> None:
    cells = sweep(
        'base.attackers = 2\naxes.attack = [{ attack = "lie" }, { label = "flip", attack = "sign-flip" }]'
    ).cells
    assert [cell.axes for cell in cells] == [{"attack": "lie"}, {"attack": "flip"}]


@pytest.mark.parametrize(
    "values",
    [
        '[{ label = "A", seed = 1 }, { label = "A", seed = 2 }]',
        '[{ seed = 1 }, { label = "seed=1", seed = 2 }]',
        "[{ seed = 1 }, { seed = 2 }, { seed = 1 }]",
    ],
)
def test_two_points_of_an_axis_cannot_have_one_label(values: str) -> None:
    with pytest.raises(ConfigError, match=r"axes\.way: 2 values are called '(A|seed=1)'"):
        sweep(f"axes.way = {values}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "axes.defense = ['krum', {label = 'K', defense = 'krum'}]",
            "axes.defense: 'krum' and 'K' have the same settings",
        ),
        ("axes.foo = [{label = 'a'}, {label = 'b'}, {label = 'c', seed = 1}]", "axes.foo: 'a' and 'b' have the same"),
        (
            "axes.foo = [{label = 'a', seed = 1, rounds = 2}, {rounds = 2, seed = 1}]",
            "axes.foo: 'a' and 'rounds=2, seed=1'",
        ),
        ("base.seed = 1\naxes.foo = [{label = 'a'}, {label = 'b', seed = 1}]", "axes.foo: 'a' and 'b' have the same"),
        ("[[grid]]\nbase.seed = 1\naxes.x = [{label = 'a'}, {label = 'b', seed = 1}]", "grid 1: axes.x: 'a' and 'b'"),
        ("axes.training.learning_rate = [1, 0.1, 1.0]", "axes.training.learning_rate: '1' and '1.0' have the same"),
        (
            "axes.seed = [1, 2, 1]",
            "axes.seed: 2 values are called '1' with the same settings; leave out all but one",
        ),
    ],
)
def test_two_points_of_an_axis_cannot_have_the_same_settings(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(text)
    assert message in str(caught.value)
    assert "label of its own" not in str(caught.value)


def test_points_that_differ_in_a_type_or_are_alone_are_no_twins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_some_type.py").write_text("class Rule:\n    def __init__(self, x):\n        self.x = x\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert len(sweep("base.defense = 'of_some_type:Rule'\naxes.defense_options.x = [1, true]").cells) == 2
    assert labels("axes.ablation = [{label = 'full method'}]") == ["ablation=full method"]
    # What several grids have in common is no slip of the pen.
    assert len(sweep("[[grid]]\naxes.x = [{label = 'a'}]\n[[grid]]\naxes.x = [{label = 'b'}]").cells) == 1


def test_grids_add_up_and_what_is_the_same_is_run_once() -> None:
    text = """
    [base]
    attackers = 0.3
    [[grid]]
    axes.defense = ["krum", "median"]
    [[grid]]
    base = { attack = "lie", rounds = 5 }
    axes.defense = ["krum", "fedavg"]
    exclude = [{ defense = "fedavg", attack = ["lie", "ipm"] }]
    [[grid]]
    axes.defense = ["median", "faba"]
    axes.seed = [0]
    """
    cells = sweep(text).cells
    assert [(cell.config.defense, cell.config.attack) for cell in cells] == [
        ("krum", "none"),
        ("median", "none"),
        ("krum", "lie"),
        ("faba", "none"),
    ]
    assert [cell.config.rounds for cell in cells] == [30, 30, 5, 30]
    assert len({cell.key for cell in cells}) == 4


def test_cells_at_the_same_place_of_different_grids_are_told_apart_by_what_differs() -> None:
    text = """
    [[grid]]
    base = { defense = "fedavg", preset = "paper" }
    axes.seed = [1, 2]
    [[grid]]
    axes.seed = [1]
    [[grid]]
    base = { rounds = 5 }
    axes.seed = [1]
    [[grid]]
    base = { defense = "median", rounds = 6 }
    axes.seed = [3]
    [[grid]]
    base = { rounds = 7, preset = "paper" }
    axes.seed = [1]
    axes.defense = ["fedavg", "krum"]
    """
    assert labels(text) == [
        "seed=1, defense=fedavg, rounds=30",
        "seed=2",
        "seed=1, defense=mab-rfl, rounds=30",
        "seed=1, defense=mab-rfl, rounds=5",
        "seed=3",
        "seed=1, defense=fedavg",
        "seed=1, defense=krum",
    ]
    assert labels("[[grid]]\n[[grid]]\nbase.seed = 3") == ["seed=0", "seed=3"]
    # One label for two points of different grids, and settings that only one of two cells has.
    seeds = "".join(f"[[grid]]\naxes.x = [{{ label = 'a', seed = {seed} }}]\n" for seed in (1, 2))
    assert labels(seeds) == ["x=a, seed=1", "x=a, seed=2"]
    lists = "".join(
        f"[[grid]]\naxes.row = [{{ label = 'a', partition.sizes = {sizes} }}]\n" for sizes in ([1, 2], [3, 4])
    )
    assert labels(lists) == ["row=a, partition.sizes=[1, 2]", "row=a, partition.sizes=[3, 4]"]
    # What was found for one pair may be the label of another cell.
    both = "[[grid]]\nbase = { defense = 'fedavg' }\naxes.seed = [1]\n[[grid]]\naxes.seed = [1]\n"
    third = "[[grid]]\nbase = { clients = 9 }\naxes.seed = [1]\naxes.defense = ['fedavg']"
    assert labels(both + third) == [
        "seed=1, defense=fedavg, clients=20",
        "seed=1, defense=mab-rfl",
        "seed=1, defense=fedavg, clients=9",
    ]


def test_cells_that_are_written_alike_are_told_apart_by_their_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_of_a_kind.py").write_text("class Rule:\n    def __init__(self, x):\n        self.x = x\n")
    monkeypatch.syspath_prepend(tmp_path)
    grids = "".join(f"[[grid]]\naxes.row = [{{ label = 'a', defense_options.x = {x} }}]\n" for x in ("1", "'1'"))
    cells = sweep(f"base.defense = 'two_of_a_kind:Rule'\n{grids}").cells
    assert [cell.label for cell in cells] == [f"row=a, defense_options.x=1, cell={cell.key[:16]}" for cell in cells]
    assert len(cells) == 2


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_no_two_cells_of_an_experiment_have_one_label(path: Path) -> None:
    found = [cell.label for cell in load_sweep(path).cells]
    assert len(set(found)) == len(found)


def test_what_no_setting_says_cannot_make_two_cells() -> None:
    # Without an attack the share of attackers says nothing.
    assert len(sweep("axes.attackers = [0.1, 0.3]").cells) == 1
    # Nor does the attack without attackers: one clean cell for all of them.
    cells = sweep("axes.attackers = [0, 0.3]\naxes.attack = ['lie', 'ipm', 'label-flip']").cells
    assert [(cell.config.attack, cell.config.num_attackers) for cell in cells] == [
        ("none", 0),
        ("lie", 6),
        ("ipm", 6),
        ("label-flip", 6),
    ]
    assert len(sweep("axes.attackers = [0.1, 0.3]\naxes.attack = ['none', 'lie']").cells) == 3
    assert len(sweep("axes.seed = [0]").cells) == len(sweep("").cells) == 1


def test_a_cell_is_the_run_that_its_configuration_file_would_be() -> None:
    cell = sweep("base.attack = 'lie'\naxes.attackers = [0.3]\naxes.training.epochs = [1]").cells[0]
    assert cell.key == config_hash(load_config(None, {"attack": "lie", "attackers": 0.3, "training.epochs": 1}))
    assert config_hash(RunConfig(**cell.plain_config)) == cell.key


BASE: dict[str, Any] = {"attack": "lie", "attackers": 0.3, "partition.kind": "iid"}
OTHERWISE: dict[str, Any] = {
    "dataset": "fashion-mnist",
    "model": "mnist-cnn",
    "before": "nnm",
    "defense": "krum",
    "preset": "reference",
    "selector": "all",
    "attack": "ipm",
    "attackers": 0.2,
    "allow_majority": True,
    "attackers_per_round": 2,
    "attackers_chosen": "last",
    "clients": 21,
    "rounds": 31,
    "seed": 1,
    "assumed_malicious": 1,
    "training.engine": "loop",
    "training.epochs": 4,
    "training.batch_size": 17,
    "training.optimizer": "sgd",
    "training.learning_rate": 0.5,
    "training.momentum": 0.5,
    "training.weight_decay": 0.1,
    "training.optimizer_state": "kept",
    "training.init": "default",
    "training.precision": "bf16",
    "partition.kind": "dirichlet",
    "partition.q": 0.6,
    "partition.concentration": 0.6,
    "partition.shards": 3,
    "partition.gamma": 0.6,
    "partition.feature_shift": "rotation",
    "partition.shift_strength": 0.5,
    "partition.label_noise": 0.1,
    "partition.noisy_clients": 0.5,
    "partition.sizes": [3, 5],
    "partition.draw": "disjoint",
    "partition.skip_last": True,
    "partition.dominant": "balanced",
}
NO_EFFECT = {"workers", "device", "allow_majority"}
SECTIONS = {"training", "partition", "before_options", "defense_options", "selector_options", "attack_options"}


def identity(**settings: Any) -> str:
    return config_hash(load_config(None, {**BASE, **settings}))


@pytest.mark.parametrize("key", sorted(set(known_keys()) - NO_EFFECT - SECTIONS))
def test_any_other_setting_is_another_cell(key: str) -> None:
    assert key in OTHERWISE, f"say here what else '{key}' could be"
    beside = {
        "training.momentum": {"training.optimizer": "sgd"},
        "before": {"defense": "krum"},
        "attackers_per_round": {"selector": "uniform"},
    }
    extra = beside.get(key, {})
    assert identity(**extra, **{key: OTHERWISE[key]}) != identity(**extra)


@pytest.mark.parametrize(
    ("preset", "option"), [(preset, option) for preset in ("hardened", "paper") for option in asdict(options(preset))]
)
def test_any_other_option_of_the_defense_is_another_cell(preset: str, option: str) -> None:
    before = asdict(options(preset, "digits"))[option]
    if isinstance(before, str):
        tried = WORDS[option]
    else:
        tried = [not before] if isinstance(before, bool) else [before + 1, before + 0.125, before - 0.125]
    found = set()
    for value in tried:
        try:
            found.add(identity(preset=preset, **{f"defense_options.{option}": value}))
        except ConfigError:
            continue
    assert found - {identity(preset=preset)}


WORDS = {
    "inclusion": ["cutoffs"],
    "empty_selection": ["all"],
    "beliefs": ["reset"],
    "graph_vectors": ["momentum"],
    "momentum_memory": ["unit"],
    "momentum_updated": ["selected"],
    "momentum_age": ["selected"],
    "edge_test": ["above"],
    "component_ties": ["lowest-id"],
    "linkage": ["average"],
    "cluster_means": ["unit"],
    "alpha_test": ["below"],
    "equal_clusters": ["first"],
    "small_cohort": ["count-crash"],
    "step_size": ["median"],
    "weighting": ["examples"],
}


def test_options_of_attacks_and_selectors_are_part_of_the_identity() -> None:
    assert identity(**{"attack": "ipm", "attack_options.epsilon": 2.0}) != identity(attack="ipm")
    uniform = {"defense": "krum", "selector": "uniform"}
    assert identity(**uniform, **{"selector_options.num_selected": 3}) != identity(**uniform)


def test_what_has_no_effect_is_no_part_of_the_identity() -> None:
    assert identity(workers=3) == identity(workers=1) == identity(device="cuda")


MISTAKES = {
    "unknown key": ("nmae = 'x'", "unknown key 'nmae' in a sweep file; did you mean 'name'?"),
    "setting outside base": ("rounds = 5", "unknown key 'rounds' in a sweep file; settings of the runs belong into"),
    "bad name": ("name = '../x'", "name must be made of letters"),
    "name that is no text": ("name = 3", "name must be made of letters"),
    "unknown setting": ("base.round = 5", "unknown key 'round'; did you mean 'rounds'?"),
    "unknown axis": ("axes.defence = ['krum']", "axes.defence: there is no such setting; did you mean 'defense'?"),
    "a section as an axis": ("axes.training = [1]", "axes.training: there is no such setting"),
    "unknown setting of a point": ("axes.row = [{atack = 'lie'}]", "no setting 'atack'; did you mean 'attack'?"),
    "no values": ("axes.seed = []", "axes.seed must be a list of values"),
    "a value for a list": ("axes.seed = 3", "axes.seed must be a list of values; got 3"),
    "wrong value": ("axes.rounds = [1, 0]", "at rounds=0: rounds must be greater than or equal to 1; got 0"),
    "unknown defense": ("axes.defense = ['krumm']", "at defense=krumm: unknown defense 'krumm'; did you mean 'krum'?"),
    "wrong option": ("axes.defense_options.suspicon = [1]", "has no option 'suspicon'; did you mean 'suspicion'?"),
    "twice the same": ("axes.seed = [1]\naxes.row = [{seed = 2}]", "two axes set 'seed'"),
    "label that is no text": ("axes.row = [{label = 3, seed = 2}]", "a label must be a string; got 3"),
    "axes beside grids": ("axes.seed = [1]\n[[grid]]\naxes.seed = [2]", "[axes] at the top does not go with [[grid]]"),
    "grid that is none": ("grid = 3", "grid must be a list of tables"),
    "unknown key of a grid": ("[[grid]]\naxis.seed = [1]", "unknown key 'axis' in [[grid]] number 1"),
    "place in a grid": ("[[grid]]\n[[grid]]\naxes.rounds = [0]", "grid 2: at rounds=0: rounds must be"),
    "exclude nothing": ("exclude = [{}]", "exclude must be a list of tables"),
    "exclude unknown": (
        "exclude = [{deffense = 'x'}]",
        "exclude: no axis or setting 'deffense'; did you mean 'defense'?",
    ),
    "exclude what no combination has": (
        "axes.defense = ['krum', 'median']\nexclude = [{defense = 'krum'}, {defense = 'medain'}]",
        "exclude: no combination has defense=medain; did you mean 'median'?",
    ),
    "exclude two values that do not meet": (
        "axes.x = [{label = 'a', seed = 1}, {label = 'b', seed = 2}]\nexclude = [{x = 'a', seed = [2, 3]}]",
        "exclude: no combination has x=a, seed=2 or 3",
    ),
    "exclude an option that none has": (
        "[[grid]]\nbase.defense = 'fedavg'\nexclude = [{defense_options.memory = 0.5}]",
        "grid 1: exclude: no combination has defense_options.memory=0.5; no cell has that setting",
    ),
    "nothing left": ("axes.seed = [1]\nexclude = [{seed = 1}]", "no cell is left to run"),
    "no TOML": ("axes = ", "is not valid TOML"),
    "too many": ("\n".join(f"axes.{key} = {list(range(1, 101))}" for key in ("seed", "rounds", "clients")), "at most"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_that_names_the_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("sweep")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml' does not exist"):
        load_sweep(tmp_path / "no.toml")
    (tmp_path / "x.toml").write_text("axes.seed = [1, 2]")
    assert load_sweep(tmp_path / "x.toml").name == "x"


GRID = """
base.attack = "lie"
axes.attackers = [0.1, 0.3]
axes.row = [{ label = "ours", preset = "paper" }, { defense = "krum" }]
"""


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({"attackers": [0.3]}, 2),
        ({"attackers": ["0.3"]}, 2),
        ({"attackers": [0.1, 0.3]}, 4),
        ({"row": ["ours"]}, 2),
        ({"defense": ["krum"]}, 2),
        ({"defense": ["krum"], "attackers": [0.1]}, 1),
        ({"training.epochs": [3]}, 4),
        ({"allow_majority": [False]}, 4),
    ],
)
def test_only_takes_axes_labels_and_settings(wanted: dict[str, list[Any]], number: int) -> None:
    assert len(select(sweep(GRID).cells, wanted)) == number


def test_only_refuses_what_no_cell_has() -> None:
    cells = sweep(GRID).cells
    with pytest.raises(ConfigError, match="neither an axis nor a setting 'defence'; did you mean 'defense'"):
        select(cells, {"defence": ["krum"]})
    with pytest.raises(ConfigError, match=r"no cell of the sweep has attackers=0\.5"):
        select(cells, {"attackers": [0.1, 0.3, 0.5]})
    with pytest.raises(ConfigError, match=r"no cell of the sweep has defense=krun; did you mean 'krum'\?"):
        select(cells, {"defense": ["mab-rfl", "krun"]})
    with pytest.raises(ConfigError, match=r"no cell of the sweep has row=ours, defense=krum$"):
        select(cells, {"row": ["ours"], "defense": ["krum"]})
    with pytest.raises(ConfigError, match="no cell"):
        select(cells, {"allow_majority": [0]})


def test_what_changed_since_last_time_is_named_by_its_key() -> None:
    before = plan_entries(sweep("base.rounds = 5\naxes.seed = [1, 2]\naxes.defense = ['krum', 'median']").cells, "x")
    now = sweep(
        "base.rounds = 6\nbase.training.epochs = 1\naxes.seed = [1, 3]\naxes.defense = ['krum', 'median']"
    ).cells
    found = changes(before, now)
    assert set(found.values()) == {"rounds: 5 -> 6, training.epochs: 3 -> 1"}
    assert set(found) == {cell.key for cell in now if cell.config.seed == 1}
    assert changes(plan_entries(now, "x"), now) == {}
    assert changes([], now) == {}


def test_a_cell_changed_from_the_one_most_like_it_at_its_place_and_not_from_one_that_is_still_planned() -> None:
    def two(rounds: int, *more: str) -> Sweep:
        grids = ["base = { defense = 'fedavg', preset = 'paper' }", f"base.rounds = {rounds}", *more]
        return sweep("\n".join(f"[[grid]]\n{grid}\naxes.seed = [1, 2]" for grid in grids))

    now = two(7).cells
    for before in (two(6).cells, two(6).cells[::-1]):
        found = changes(plan_entries(before, "x"), now)
        assert set(found) == {cell.key for cell in now if cell.config.defense == "mab-rfl"}
        assert set(found.values()) == {"rounds: 6 -> 7"}
    # A grid that is new has nothing to have changed from.
    assert changes(plan_entries(now, "x"), two(7, "base = { defense = 'krum' }").cells) == {}


def test_the_experiments_of_the_repository_are_all_there() -> None:
    names = {path.stem for path in EXPERIMENTS}
    tables = {f"table1-{data}{size}" for data in ("mnist", "cifar10") for size in ("", "-laptop")}
    assert names >= tables | {"figure1a", "figure1b", "selection"}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_says_what_it_is_and_can_be_read(path: Path) -> None:
    head = path.read_text().split("\n\n")[0]
    for word in ("Fixed:", "Varies:", "Command:", "Minutes:"):
        assert f"# {word}" in head, f"the header of {path.name} lacks '{word}'"
    read = load_sweep(path)
    assert read.name == path.stem
    assert f"mabrfl sweep experiments/{path.name}" in head
    told = [int(word) for word in head.replace(",", "").replace(":", "").split() if word.isdigit()]
    assert len(read.cells) in told, f"{path.name} has {len(read.cells)} cells; its header says otherwise"
    if not path.stem.startswith("hardening"):
        assert {cell.config.clients for cell in read.cells} == {50}
    assert resolve(read.cells[-1].config) == read.cells[-1].config


def test_the_tables_have_every_row_and_column_of_the_paper() -> None:
    columns = {"centered-clip", "dnc", "faba", "krum", "median", "mab-rfl", "fedavg"}
    attacks, counts = ("agr-krum", "lie", "label-flip"), (5, 10, 15, 20, 22, 24)
    rows = {("none", 0), *((attack, count) for attack in attacks for count in counts)}
    for path in EXPERIMENTS:
        # The table of the middle size has the rows that two cores can do.
        if path.stem.startswith("table1") and not path.stem.endswith("-mid"):
            cells = [cell.config for cell in load_sweep(path).cells if cell.config.preset == "paper"]
            found = {(cell.attack, cell.num_attackers, cell.defense) for cell in cells if cell.seed == 0}
            assert found == {(*row, column) for row in rows for column in columns}, path.name


HARDENED = {
    "table1-mnist-laptop": {(0, 0), (10, 0)} | {(share, seed) for share in (30, 48) for seed in (0, 1, 2)},
    "table1-mnist": {(48, 0)},
    "table1-cifar10-laptop": {(0, 0), (30, 0)},
    "table1-cifar10-mid": {(0, 3), (30, 3), (48, 3), (30, 4)},
    "table1-cifar10": {(30, 0), (48, 0)},
}


@pytest.mark.parametrize(
    "path", [path for path in EXPERIMENTS if path.stem.startswith("table1")], ids=lambda path: path.stem
)
def test_the_preset_hardened_has_its_place_in_every_table(path: Path) -> None:
    cells = [cell.config for cell in load_sweep(path).cells if cell.config.preset == "hardened"]
    assert {(cell.defense, cell.selector) for cell in cells} == {("mab-rfl", "acs")}
    attacks: dict[tuple[int, int], set[str]] = {}
    for cell in cells:
        attacks.setdefault((100 * cell.num_attackers // cell.clients, cell.seed), set()).add(cell.attack)
    three = {"agr-krum", "lie", "label-flip"}
    assert attacks == {place: three if place[0] else {"none"} for place in HARDENED[path.stem]}
    assert len(cells) == sum(map(len, attacks.values()))


def test_at_the_papers_scale_what_is_compared_first_runs_first() -> None:
    (path,) = [path for path in EXPERIMENTS if path.stem == "table1-mnist"]
    first = [cell.config for cell in load_sweep(path).cells[:8]]
    attacks = ("agr-krum", "lie", "label-flip")
    assert [(cell.defense, cell.preset, cell.num_attackers, cell.attack) for cell in first] == [
        ("fedavg", "paper", 0, "none"),
        ("mab-rfl", "paper", 0, "none"),
        *(("mab-rfl", "paper", count, attack) for count in (15, 24) for attack in attacks),
    ]


def test_make_sweeps_names_every_experiment_that_a_laptop_can_finish() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    named = re.findall(r"^SWEEPS \?= (.+)$", makefile, flags=re.MULTILINE)[0].split()
    assert sorted(named) == sorted(path.stem for path in EXPERIMENTS if path.stem != "table1-cifar10")


def test_no_experiment_leaves_the_preset_to_the_default() -> None:
    # A new default would make other cells of all of them, and MAB-RFL's columns would be those of another preset.
    for path in EXPERIMENTS:
        assert re.search(r'^\[base\]\npreset = "(paper|hardened)"$', path.read_text(), flags=re.MULTILINE), path.name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "axes.workers = [1, 2]",
            "axes.workers: '1' and '2' are one cell, since 'workers' does not change the result;",
        ),
        (
            "base = { attack = 'ipm', attackers = 2 }\n"
            "axes.x = [{ label = 'default' }, { label = 'a', attack_options.epsilon = 3 }]",
            "axes.x: 'default' and 'a' are one cell, since 'attack_options.epsilon' is 3.0 for both;",
        ),
        (
            "axes.device = ['cpu', 'cuda']",
            "axes.device: 'cpu' and 'cuda' are one cell, since 'device' does not change the result;",
        ),
        (
            "axes.defense = ['mab-rfl', { label = 'ours, hardened', defense = 'mab-rfl', preset = 'hardened' }]",
            "axes.defense: 'mab-rfl' and 'ours, hardened' are one cell, since 'preset' is hardened for both;",
        ),
        (
            "base.defense = 'fedavg'\naxes.x = [{ label = 'a', training.epochs = 3 }, { label = 'default' }]",
            "axes.x: 'a' and 'default' are one cell, since 'training.epochs' is 3 for both;",
        ),
        (
            "axes.preset = ['paper', 'reference']\n"
            "axes.x = [{ label = 'its own' }, { label = 'kept', training.optimizer_state = 'kept' }]",
            "axes.x: 'its own' and 'kept' are one cell at preset=reference, since 'training.optimizer_state' is kept",
        ),
        (
            "[[grid]]\naxes.seed = [1]\n"
            "[[grid]]\naxes.workers = [1, 2]\naxes.attackers = [0, 0.3]\naxes.attack = ['lie', 'ipm']",
            "grid 2: axes.workers: '1' and '2' are one cell at attackers=0, attack=lie, since 'workers' does not",
        ),
    ],
)
def test_points_of_an_axis_that_come_to_the_same_run_are_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(text)
    assert told in str(caught.value)


def test_points_that_come_to_the_same_run_somewhere_may_be_excluded_there() -> None:
    points = "{ label = 'own' }, { label = 'kept', training.optimizer_state = 'kept' }"
    axes = f"preset = ['paper', 'reference']\nx = [{points}]"
    cells = sweep(f"[axes]\n{axes}\n[[exclude]]\npreset = 'reference'\nx = 'kept'").cells
    assert [cell.label for cell in cells] == ["preset=paper, x=own", "preset=paper, x=kept", "preset=reference, x=own"]


def test_grids_may_have_cells_in_common_and_are_run_once() -> None:
    assert (
        len(sweep("[[grid]]\nbase.workers = 1\naxes.seed = [1]\n[[grid]]\nbase.workers = 2\naxes.seed = [1]").cells)
        == 1
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("axes.seed = [1979-05-27]", 'at seed="1979-05-27": seed must be an integer'),
        ("axes.partition.sizes = [[1979-05-27, 3]]", "partition.sizes.0 must be an integer"),
        ("axes.x = [{ seed = 07:32:00 }]", "seed must be an integer"),
        ("axes.seed = [1]\nexclude = [{ seed = 1979-05-27 }]", 'exclude: no combination has seed="1979-05-27"'),
        ("axes.seed = [1]\nexclude = [{ seed = [1, 1979-05-27T07:32:00Z], rounds = 3 }]", "no combination has"),
    ],
)
def test_a_date_is_refused_like_any_other_value(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(text)
    assert told in str(caught.value)
