"""The scenarios of the arena are ordinary runs."""

from __future__ import annotations

import shlex
import tomllib

import pytest

from mabrfl import catalog
from mabrfl.arena.arena_records import committed
from mabrfl.arena.fresh import fresh_tier
from mabrfl.arena.repeating import run_command
from mabrfl.arena.running import column_parts, column_sweeps
from mabrfl.arena.scenarios import (
    NOBODY,
    TIERS,
    Scenario,
    Tier,
    data_file,
    entrants,
    load_tier,
    named,
    parse_tier,
    planned,
    run_settings,
)
from mabrfl.cli.arena import _defense
from mabrfl.cli.run import parse_value
from mabrfl.config import config_hash, load_config
from mabrfl.errors import ConfigError

HARDENED = next(entrant for entrant in entrants() if entrant.label == "mab-rfl hardened")


def test_every_defense_of_the_catalogue_enters_or_is_left_out_for_a_reason() -> None:
    left_out = tomllib.loads(data_file("entrants.toml").decode())["left_out"]
    assert {entrant.settings["defense"] for entrant in entrants()} == set(catalog.BUILT_IN["defenses"]) - set(left_out)
    assert len({entrant.label for entrant in entrants()}) == len(entrants())
    presets = {entrant.settings.get("preset") for entrant in entrants()} - {None}
    assert presets == set(catalog.BUILT_IN["presets"])


@pytest.mark.parametrize("name", TIERS)
def test_a_tier_expands_into_runs_and_its_document_is_the_tier_again(name: str) -> None:
    tier = load_tier(name).with_seeds([1])
    cells = planned(tier, [HARDENED])
    assert [scenario for _, scenario in cells if scenario.attack == NOBODY] == list(tier.scenarios())[: len(tier.tasks)]
    assert {scenario for _, scenario in cells} == set(tier.scenarios())
    assert len(cells) == len(tier.tasks) * (1 + len(tier.attacks) * len(tier.shares))
    assert parse_tier(tier.document()) == tier


def test_no_seed_of_a_tier_is_the_one_that_hardened_was_tuned_on() -> None:
    assert all(0 not in load_tier(name).seeds for name in TIERS)


def test_all_columns_meet_the_same_clients_data_and_attackers() -> None:
    scenario = Scenario(1, "digits", 0.3, "lie")
    configs = [cell.config for cell in planned(_only(load_tier("quick"), "lie"), entrants()).values()]
    attacked = [config for config in configs if config.attack == "lie" and config.dataset == "digits"]
    assert len(attacked) == 3 * len(entrants())
    for config in attacked:
        assert config.partition == attacked[0].partition
        assert config.training == attacked[0].training
        assert (config.attackers_chosen, config.assumed_malicious) == ("random", config.num_attackers)
    assert run_settings(load_tier("quick"), HARDENED, scenario)["attackers"] == 0.3


def _only(tier: Tier, attack: str) -> Tier:
    return tier.with_seeds([1]).with_attacks([one for one in tier.attacks if one.label == attack])


@pytest.mark.parametrize("scenario", [Scenario(1, "clusters", 0.44, "sleeper"), Scenario(2, "digits", 0.0, NOBODY)])
def test_the_command_of_a_run_repeats_it_under_the_same_key(scenario: Scenario) -> None:
    tier = load_tier("quick")
    words = shlex.split(run_command(tier, HARDENED, scenario))
    assert words[:2] == ["mabrfl", "run"]
    settings = {}
    for option, value in zip(words[2::2], words[3::2], strict=True):
        key, _, text = value.partition("=") if option == "--set" else (option.removeprefix("--"), "", value)
        settings[key] = parse_value(text, key)
    cells = planned(tier.with_seeds([scenario.seed]), [HARDENED])
    assert config_hash(load_config(None, settings)) == cells[HARDENED.label, scenario].key


def test_lists_are_words_of_a_command_too() -> None:
    command = run_command(load_tier("laptop"), HARDENED, Scenario(1, "cifar10", 0.1, "lie"))
    assert "--set 'partition.sizes=[120, 200]'" in command
    assert "partition.sizes=[120, 200]" in shlex.split(command)


def test_many_columns_of_one_attack_are_one_sweep_and_of_many_attacks_a_sweep_each(tier, tmp_path) -> None:
    two = [named("defense", "krum"), named("defense", "median")]
    assert [len(one.sweep.cells) for one in column_sweeps(tier, two, tmp_path)] == [20]
    quick = load_tier("quick").with_seeds([1])
    sweeps = list(column_sweeps(quick, two, tmp_path))
    assert [(one.label, one.folder.name, len(one.sweep.cells)) for one in sweeps] == [
        ("krum", "krum", 248),
        ("median", "median", 248),
    ]


def test_of_a_larger_tier_a_task_is_run_with_all_defenses_before_the_next_one(tmp_path) -> None:
    laptop = load_tier("laptop").with_seeds([1, 2])
    order = [entrant.label for entrant in entrants("laptop")]
    assert order[:3] == ["mab-rfl hardened", "mab-rfl paper", "dnc"]
    assert set(order) == {entrant.label for entrant in entrants()}
    two = [HARDENED, named("defense", "fedavg")]
    parts = list(column_parts(laptop.with_tasks(["mnist", "cifar10"]), two, tmp_path))
    assert [(part.label, part.seed, len(part.cells)) for part in parts[:7]] == [
        ("fedavg, mnist, nobody attacks", 1, 1),
        ("mab-rfl hardened, mnist", 1, 52),
        ("fedavg, mnist", 1, 52),
        ("fedavg, cifar10, nobody attacks", 1, 1),
        ("mab-rfl hardened, cifar10", 1, 52),
        ("fedavg, cifar10", 1, 52),
        ("fedavg, mnist, nobody attacks", 2, 1),
    ]


def test_a_part_of_a_tier_has_some_of_its_seeds_and_tasks() -> None:
    laptop = load_tier("laptop")
    assert laptop.with_seeds([2]).with_tasks(["cifar10"]).is_part_of(laptop)
    assert not load_tier("quick").is_part_of(laptop)
    assert not laptop.is_part_of(laptop.with_seeds([2]))


def test_fresh_scenarios_are_runs_with_other_keys_and_no_committed_records() -> None:
    quick = load_tier("quick")
    drawn = fresh_tier(quick, 5)
    assert [int((share > 0.2) + (share > 0.35)) for share in drawn.shares] == [0, 1, 2]
    keys = {cell.key for cell in planned(drawn, [HARDENED]).values()}
    assert len(keys) == 2 * (1 + 3 * 12)
    assert not keys & {cell.key for cell in planned(quick.with_seeds([1]), [HARDENED]).values()}
    assert parse_tier(drawn.document()) == drawn
    assert committed(drawn).columns == ()


def test_what_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match="the arena has no tier 'quik'; did you mean 'quick'"):
        load_tier("quik")
    with pytest.raises(ConfigError, match="the tier 'quick' has the seeds 1, 2, 3; got 4"):
        load_tier("quick").with_seeds([1, 4])


def test_a_name_with_presets_stands_for_its_first_entry() -> None:
    assert _defense("mab-rfl", ()) == _defense("mab-rfl hardened", ())
    assert _defense("mab-rfl paper", ()).settings["preset"] == "paper"
    assert _defense("krum", ["before=nnm"]).label == "krum (before=nnm)"
