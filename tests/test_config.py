from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mabrfl.config import RunConfig, config_hash, dump_toml, load_config, resolve
from mabrfl.errors import ConfigError
from mabrfl.mab.presets import options


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "run.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "")) == RunConfig()


def test_overrides_win_over_the_file_and_leave_its_other_keys(tmp_path: Path) -> None:
    path = written(tmp_path, "rounds = 7\nseed = 3\n[training]\nepochs = 2\nbatch_size = 8\n")
    config = load_config(path, {"rounds": 9, "training.epochs": 1, "partition": {"q": 0.8}})
    assert (config.rounds, config.seed, config.partition.q) == (9, 3, 0.8)
    assert (config.training.epochs, config.training.batch_size) == (1, 8)


def test_tabs_and_underscores_in_numbers_are_fine(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "rounds\t=\t1_000\n")).rounds == 1000


BAD_FILES = {
    "byte order mark": (b"\xef\xbb\xbfrounds = 1", "byte order mark"),
    "utf-16": ("rounds = 1".encode("utf-16"), "UTF-16"),
    "nul bytes": (b"rounds = 1\x00", "NUL bytes"),
    "not utf-8": (b"dataset = '\xff'", "must be UTF-8; byte 11"),
    "duplicate key": (b"rounds = 1\nrounds = 2", "not valid TOML"),
    "no value": (b"rounds =", "not valid TOML"),
    "deep nesting": (b"rounds = " + b"[" * 5000, "nested too deeply|not valid TOML"),
    "too large": (b"#" + b"x" * 1_000_001, "at most 1,000,000 bytes"),
    "endless number": (b"rounds = " + b"9" * 5000, "not valid TOML"),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_in_one_line_that_names_it(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(written(tmp_path, content))
    assert "run.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml' does not exist"):
        load_config(tmp_path / "no.toml")
    with pytest.raises(ConfigError, match=r"is a folder$"):
        load_config(tmp_path)
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match=r"is a folder; did you mean '.*config\.toml'\?"):
        load_config(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_config(tmp_path / "pipe")


BAD_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"roundz": 3}, "unknown key 'roundz'; did you mean 'rounds'?"),
    "unknown key in a section": ({"training.epoch": 3}, "unknown key 'epoch' in [training]; did you mean 'epochs'?"),
    "key of another place": ({"epochs": 3}, "unknown key 'epochs'; did you mean 'training.epochs'?"),
    "key with a line break": ({"a\nb": 3}, "unknown key 'a b'; known: "),
    "text for a number": ({"training.learning_rate": "0.1"}, "training.learning_rate must be a number; got '0.1'"),
    "boolean for an integer": ({"rounds": True}, "rounds must be an integer; got True"),
    "float for an integer": ({"rounds": 3.0}, "rounds must be an integer; got 3.0"),
    "boolean for attackers": ({"attackers": True}, "attackers must be a share such as 0.3 or a count such as 15"),
    "nan": ({"partition.q": float("nan")}, "partition.q must be a finite number; got nan"),
    "infinity": ({"training.learning_rate": float("inf")}, "must be a finite number; got inf"),
    "nan in options": ({"defense_options.alpha": float("nan")}, "defense_options must hold finite numbers only"),
    "list for a scalar": ({"seed": [1]}, "seed must be an integer; got [1]"),
    "scalar for a section": ({"training": 3}, "training must be a table"),
    "scalar for a table": ({"attack_options": 3}, "attack_options must be a table of options; got 3"),
    "table in options": ({"attack_options.a": {"b": 1}}, "attack_options must hold numbers, strings, booleans"),
    "no rounds": ({"rounds": 0}, "rounds must be greater than or equal to 1; got 0"),
    "too many rounds": ({"rounds": 10**9}, "rounds must be less than or equal to 1000000"),
    "no clients": ({"clients": 0}, "clients must be greater than or equal to 1; got 0"),
    "negative seed": ({"seed": -1}, "seed must be greater than or equal to 0; got -1"),
    "huge seed": ({"seed": 2**64}, "seed must be less than 9223372036854775808"),
    "share of all": ({"attackers": 1.0}, "attackers must be a share from 0 to below 1"),
    "negative count": ({"attackers": -3}, "attackers must not be negative; got -3"),
    "unknown optimizer": ({"training.optimizer": "adamw"}, "training.optimizer must be 'adam' or 'sgd'; got 'adamw'"),
    "momentum of adam": ({"training.momentum": 0.9}, "training: momentum is for optimizer 'sgd'; got momentum=0.9"),
    "bf16 in a stack": (
        {"training.precision": "bf16", "training.engine": "stacked"},
        "training: precision 'bf16' is for engine 'loop'; got engine 'stacked'",
    ),
    "sizes the wrong way": ({"partition.sizes": [9, 3]}, "sizes must be [smallest, largest]; got [9, 3]"),
    "device": ({"device": "gpu"}, "device must match pattern"),
    "name with blanks": ({"dataset": " digits"}, "dataset must be a name; got ' digits'"),
}


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_a_bad_setting_is_named_with_its_rule_and_value(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_name_the_file_only_if_the_mistake_is_in_it(tmp_path: Path) -> None:
    path = written(tmp_path, "rounds = 0")
    with pytest.raises(ConfigError, match=r"^config file '.*run\.toml': rounds must"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"^seed must"):
        load_config(written(tmp_path, "rounds = 1"), {"seed": -1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "mnits"}, "unknown data set 'mnits'; did you mean 'mnist'"),
        ({"defense": "krumm"}, "unknown defense 'krumm'; did you mean 'krum'"),
        ({"selector": "asc"}, "unknown selector 'asc'; did you mean 'acs'"),
        ({"attack": "li"}, "unknown attack 'li'; did you mean 'lie'"),
        ({"model": "mnistcnn"}, "unknown model 'mnistcnn'; did you mean 'mnist-cnn'"),
        ({"preset": "papers"}, "unknown preset 'papers'; did you mean 'paper'"),
        ({"preset": "paper", "defense_options.alfa": 0.0}, "no option 'alfa'; did you mean 'alpha'"),
        ({"attack": "lie", "attackers": 10}, "fewer than half of the clients; got 10 of 20"),
        ({"attack": "lie", "attackers": 0.5}, "fewer than half of the clients; got 10 of 20"),
        ({"attack": "lie", "attackers": 20, "allow_majority": True}, "fewer than the clients; got 20 of 20"),
        ({"attack": "lie", "attackers": 0.01}, "0.01 of 20 clients is less than one client"),
        ({"assumed_malicious": 21}, "assumed_malicious must be at most 20"),
        ({"defense_options.inclusion": "bernoulli", "selector_options.inclusion": "cutoffs"}, "but selector_options"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(load_config(None, settings))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("digits", ("mlp", 20, 30, (20, 120), "unique", 16)),
        ("mnist", ("mnist-cnn", 50, 100, (10, 500), "disjoint", 64)),
        ("fashion-mnist", ("mnist-cnn", 50, 100, (10, 500), "disjoint", 64)),
        ("cifar10", ("vgg-lite", 50, 100, (1200, 2000), "unique", 64)),
    ],
)
def test_defaults_follow_the_data_set(dataset: str, expected: tuple[Any, ...]) -> None:
    run = resolve(RunConfig(dataset=dataset))
    shape = (run.model, run.clients, run.rounds, run.partition.sizes, run.partition.draw, run.training.batch_size)
    assert shape == expected


def test_the_learning_rate_follows_the_optimizer() -> None:
    assert resolve(RunConfig(dataset="mnist")).training.learning_rate == 0.001
    assert resolve(load_config(None, {"dataset": "mnist", "training.optimizer": "sgd"})).training.learning_rate == 0.1


def test_the_preset_sets_the_conditions_of_the_run_too() -> None:
    paper, reference = (resolve(RunConfig(preset=preset)) for preset in ("paper", "reference"))
    assert (paper.training.optimizer_state, paper.attackers_chosen, paper.partition.skip_last) == (
        "reset",
        "random",
        False,
    )
    assert (reference.training.optimizer_state, reference.attackers_chosen) == ("kept", "last")
    assert (reference.partition.draw, reference.partition.skip_last) == ("replacement", True)
    assert (paper.defense_options["warmup_rounds"], reference.defense_options["warmup_rounds"]) == (0, 10)


def test_hardened_is_the_default_and_has_the_same_options_for_every_data_set() -> None:
    runs = [resolve(RunConfig(dataset=name)) for name in ("digits", "mnist", "fashion-mnist", "cifar10")]
    assert {run.preset for run in runs} == {"hardened"}
    assert all(run.defense_options == runs[0].defense_options for run in runs)


def test_an_option_of_another_preset_says_which() -> None:
    with pytest.raises(ConfigError, match="preset hardened of MAB-RFL has no option 'c_max'; the preset paper has it"):
        resolve(load_config(None, {"defense_options.c_max": 0.5}))


def test_a_set_value_is_not_replaced_by_a_default() -> None:
    settings = {"preset": "reference", "partition.draw": "disjoint", "partition.skip_last": False}
    run = resolve(load_config(None, {**settings, "training.optimizer_state": "reset", "clients": 7}))
    assert (run.partition.draw, run.partition.skip_last) == ("disjoint", False)
    assert (run.training.optimizer_state, run.clients) == ("reset", 7)


def test_the_resolved_run_lists_every_option_of_mab_rfl_for_its_data_set() -> None:
    run = resolve(load_config(None, {"dataset": "cifar10", "preset": "paper", "defense_options.history": 0.5}))
    expected = options("paper", "cifar10", history=0.5)
    assert run.defense_options == {name: getattr(expected, name) for name in run.defense_options}
    assert run.defense_options["c_max"] == 0.3
    assert "alpha" in run.defense_options
    assert run.selector_options == {}


def test_options_of_acs_may_stand_under_the_selector_of_mab_rfl() -> None:
    run = resolve(load_config(None, {"preset": "paper", "selector_options.inclusion": "cutoffs"}))
    assert (run.defense_options["inclusion"], run.selector_options) == ("cutoffs", {})


def test_acs_with_another_rule_follows_the_preset() -> None:
    run = resolve(load_config(None, {"defense": "krum", "selector": "acs", "preset": "reference"}))
    assert (run.selector_options["warmup_rounds"], run.selector_options["inclusion"]) == (10, "cutoffs")


def test_without_an_attack_nobody_is_an_attacker() -> None:
    run = resolve(RunConfig(attackers=0.3))
    assert (run.num_attackers, run.assumed_malicious) == (0, 0)


@pytest.mark.parametrize(
    ("attackers", "clients", "count"), [(0.3, 50, 15), (0.48, 50, 24), (0.29, 100, 29), (0.49, 20, 9), (7, 20, 7)]
)
def test_a_float_is_a_share_rounded_down_and_an_integer_a_count(attackers: float, clients: int, count: int) -> None:
    run = resolve(RunConfig(attack="lie", attackers=attackers, clients=clients))
    assert (run.num_attackers, run.assumed_malicious) == (count, count)


def test_an_alias_is_the_same_run() -> None:
    assert config_hash(RunConfig(attack="agrt", attackers=6)) == config_hash(RunConfig(attack="agr-krum", attackers=6))


def test_the_hash_names_what_changes_the_result_and_nothing_else() -> None:
    base = config_hash(RunConfig())
    assert base == config_hash(resolve(RunConfig(workers=3, device="cuda")))
    assert base == config_hash(load_config(None, {"model": "mlp", "rounds": 30, "defense_options.memory": 0.8}))
    zero = [config_hash(load_config(None, {"defense_options.suspicion": value})) for value in (0, 0.0)]
    assert zero[0] == zero[1] != base
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"rounds": 31},
        {"training.epochs": 2},
        {"defense": "krum"},
        {"partition.q": 0.1},
    ]
    assert len({base, *(config_hash(load_config(None, other)) for other in others)}) == 6


SETTINGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "dataset": st.sampled_from(["digits", "mnist", "cifar10", "sklearn.datasets:load_wine"]),
        "defense": st.sampled_from(["mab-rfl", "krum", "fedavg-uniform", "dnc", "median"]),
        "preset": st.sampled_from(["hardened", "paper", "reference"]),
        "selector": st.sampled_from(["acs", "all", "uniform", "thompson-top", "budgeted"]),
        "attack": st.sampled_from(["none", "lie", "agrt", "label-flip", "mimic"]),
        "attackers": st.sampled_from([0, 0.0, 0.3, 6]),
        "seed": st.integers(0, 2**63 - 1),
        "rounds": st.integers(1, 1000),
        "training.learning_rate": st.floats(1e-300, 1e300),
        "training.init": st.sampled_from(["he-normal", "default"]),
        "partition.sizes": st.tuples(st.integers(1, 50), st.integers(50, 99)).map(list),
        "partition.kind": st.sampled_from(["iid", "dirichlet"]),
    },
)


@given(SETTINGS)
def test_a_configuration_survives_the_way_through_toml(
    tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any]
) -> None:
    config = load_config(None, given)
    path = tmp_path_factory.mktemp("toml") / "config.toml"
    path.write_text(dump_toml(config))
    assert load_config(path) == config
    resolved = resolve(config)
    path.write_text(dump_toml(resolved))
    again = resolve(load_config(path))
    assert again == resolved
    assert resolve(resolved) is resolved
    assert config_hash(again) == config_hash(config)
    assert "None" not in dump_toml(resolved)
