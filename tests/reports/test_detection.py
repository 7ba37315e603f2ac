"""The table of detection: who is one condition, what it is called, and its numbers worked by hand."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest

from mabrfl.errors import StateError
from mabrfl.reports.arrangement import conditions
from mabrfl.reports.detection import Isolation, detection_table, has_detection
from mabrfl.reports.detection_formats import DETECTION_FORMATS, detection_csv, detection_latex, detection_markdown
from mabrfl.sweeps.packing import pack
from mabrfl.sweeps.results import Cell, load_results
from mabrfl.sweeps.sweep_file import load_sweep
from result_folders import make_cell as any_cell
from result_folders import write_sweep

ROOT = Path(__file__).parents[2]
LIE: dict[str, Any] = {"attack": "lie", "attackers": 0.3}


def make_cell(final: float | None = 90.0, status: str = "done", **settings: Any) -> Cell:
    """Return a cell without a folder, with the preset hardened unless another is named."""
    return any_cell(final, status, **{"preset": "hardened", **settings})


NAMES = ("Attackers", "Attack", "Defense")


def lines(cells: list[Cell], **options: Any) -> list[dict[str, str]]:
    """The rows of the Markdown table, by the heads of its columns."""
    text = detection_markdown(detection_table(cells, **options))
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in row] for row in rows]
    return [dict(zip(head, row, strict=True)) for row in body]


def named(cells: list[Cell]) -> list[tuple[str, str, str, str]]:
    return [(one.row.share, one.row.label, one.column.label, one.rest) for one in conditions(cells)]


def changed(cell: Cell, **parts: dict[str, Any]) -> Cell:
    """The cell with these entries of its summary, series or clients."""
    return cell.model_copy(update={name: {**getattr(cell, name), **entries} for name, entries in parts.items()})


def test_the_numbers_of_one_run_by_hand() -> None:
    # Of 10 clients 3 attack. All are selected in rounds 1 and 2, the honest alone in 3 and 4. In round 1 one honest
    # client is rejected, in round 2 the attackers: 3 of 4 rejections are right, 3 of 6 attackers' updates rejected, and
    # 1 of 28 honest ones. Attackers were selected last in round 2 and accepted last in round 1.
    (row,) = lines([make_cell(90.0, defense="mab-rfl", **LIE)])
    assert row == {
        "Attackers": "30%",
        "Attack": "LIE",
        "Defense": "MAB-RFL hardened",
        "accuracy": "90.00",
        "vs. clean FedAvg": "—",
        "precision": "75.0",
        "recall": "50.0",
        "honest rejected": "3.57",
        "honest selected": "100.0",
        "attackers selected": "0.0",
        "isolated after": "2",
        "shut out after": "1",
    }


def test_means_and_deviations_are_over_seeds() -> None:
    first, second = (make_cell(value, seed=seed, **LIE) for seed, value in enumerate((90.0, 92.0)))
    second = changed(
        second,
        summary={"detection_recall": 0.9, "honest_rejected_rate": 0.0, "selection_rate_honest": 0.5},
        series={"selected_malicious": [3, 3, 2, 1]},
    )
    (row,) = lines([first, second])
    assert row["accuracy"] == "91.00 ± 1.41"
    # 0.5 and 0.9: mean 0.7, deviation 0.4 / sqrt 2 = 0.283.
    assert row["recall"] == "70.0 ± 28.3"
    assert row["precision"] == "75.0 ± 0.0"
    # 1/28 and 0: mean 1/56, deviation (1/28) / sqrt 2.
    assert row["honest rejected"] == "1.79 ± 2.53"
    assert row["honest selected"] == "75.0 ± 35.4"
    # None, and 3 of 6 in the last two of four rounds: 0.25 +- 0.354.
    assert row["attackers selected"] == "25.0 ± 35.4"


def test_a_run_that_is_there_twice_is_one_seed() -> None:
    cells = [make_cell(90.0, attack="lie", attackers=attackers) for attackers in (0.3, 3)]
    (row,) = lines(cells)
    assert (row["accuracy"], row["recall"]) == ("90.00", "50.0")
    table = detection_table(cells)
    assert table.rows[0].isolated == Isolation(2, 0, 3)
    assert "1 of 1 runs done" in detection_markdown(table)


def test_the_last_third_of_twenty_rounds_is_from_the_fourteenth_on() -> None:
    cell = make_cell(90.0, clients=10, rounds=20, **LIE)
    early = changed(cell, series={"selected": [10] * 20, "selected_malicious": [3] * 13 + [0] * 7})
    late = changed(cell, series={"selected": [10] * 20, "selected_malicious": [0] * 13 + [3] * 7})
    assert [lines([one])[0]["attackers selected"] for one in (early, late)] == ["0.0", "100.0"]


def test_isolation_is_the_median_of_all_attackers_of_all_seeds_and_says_how_many_never_are() -> None:
    def ends(cell: Cell, *rounds: int) -> Cell:
        return changed(cell, clients={"last_selected": [4] * 7 + list(rounds)})

    first, second, third = (make_cell(90.0, seed=seed, **LIE) for seed in range(3))
    found = [ends(first, 1, 2, 2), ends(second, 3, 3, 4)]
    # 1 2 2 3 3 never: halfway between the third and the fourth.
    assert detection_table(found).rows[0].isolated == Isolation(2.5, 1, 6)
    assert lines(found)[0]["isolated after"] == "2.5 (1 of 6 never)"
    lost = [*found, ends(third, 4, 4, 4), ends(make_cell(90.0, seed=3, **LIE), 4, 4, 1)]
    # Six of twelve: between the last who is isolated and the first who is not there is no middle.
    assert detection_table(lost).rows[0].isolated == Isolation(math.inf, 6, 12)
    assert lines(lost)[0]["isolated after"] == "never (6 of 12 never)"
    assert ",inf,6,12," in detection_csv(detection_table(lost))


def test_without_attackers_there_is_nothing_to_detect_but_honest_clients_to_reject() -> None:
    (row,) = lines([make_cell(90.0)])
    assert [row[name] for name in (*NAMES, "precision", "recall")] == ["0%", "—", "MAB-RFL hardened", "—", "—"]
    # Client 0, once; and in round 2, nobody: 1 of 40.
    assert row["honest rejected"] == "2.50"
    assert (row["isolated after"], row["attackers selected"]) == ("—", "—")


def test_the_difference_to_clean_fedavg_is_seed_by_seed_against_fedavg_without_attackers() -> None:
    cells = [make_cell(value, defense="fedavg", seed=seed) for seed, value in ((1, 97.0), (2, 95.0))]
    cells += [make_cell(value, seed=seed, **LIE) for seed, value in ((1, 96.0), (2, 95.5), (3, 50.0))]
    clean, ours = lines(cells)
    assert clean["vs. clean FedAvg"] == "clean"
    # -1.0 and +0.5; the third seed has nothing to be compared with.
    assert ours["vs. clean FedAvg"] == "−0.25 ± 1.06 (2 of 3)"
    (_, row) = detection_table(cells).rows
    assert row.difference is not None
    assert (row.difference.mean, row.difference.seeds) == (-0.25, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"rounds": 5},
        {"clients": 20},
        {"model": "mnist-cnn"},
        {"dataset": "fashion-mnist"},
        {"training": {"init": "default"}},
        {"partition": {"q": 0.8}},
        {"selector": "uniform"},
        {"defense": "median"},
        {"attack": "lie", "attackers": 0.3},
    ],
    ids=str,
)
def test_what_ran_under_other_conditions_is_not_what_clean_means(other: dict[str, Any]) -> None:
    cells = [make_cell(97.0, **{"defense": "fedavg", **other}), make_cell(90.0, attack="sign-flip", attackers=0.3)]
    (found,) = [row for row in detection_table(cells).rows if row.condition.row.label == "Sign flip"]
    assert found.difference is None


def test_clean_is_clean_under_any_preset_with_the_same_data_and_training() -> None:
    cells = [make_cell(97.0, defense="fedavg", preset="paper"), make_cell(90.0, **LIE)]
    assert lines(cells)[1]["vs. clean FedAvg"] == "−7.00"
    partition = {"kind": "dirichlet", "concentration": 0.1}
    cells = [
        make_cell(97.0, defense="fedavg", partition={**partition, "q": 0.8}),
        make_cell(96.0, partition={**partition, "q": 0.5}, **LIE),
    ]
    # Dirichlet's partition has no use for q.
    assert [row["vs. clean FedAvg"] for row in lines(cells)] == ["clean", "−1.00"]


def test_another_metric_is_compared_with_its_own_clean() -> None:
    cells = [make_cell(97.0, defense="fedavg"), make_cell(90.0, **LIE)]
    # The last rounds are at 60, 70, 80, 90, and at 67, 77, 87, 97.
    row = lines(cells, metric="mean_last10")[1]
    assert (row["accuracy"], row["vs. clean FedAvg"]) == ("75.00", "−7.00")


def test_missing_failed_and_begun_conditions_say_so_and_show_no_number() -> None:
    states = {"lie": "missing", "label-flip": "failed", "ipm": "running"}
    cells = [make_cell(status=status, attack=attack, attackers=0.3) for attack, status in states.items()]
    text = detection_markdown(detection_table(cells))
    assert "0 of 3 runs done, 1 failed, 1 begun, 1 missing." in text
    for row, status in zip(lines(cells), states.values(), strict=True):
        assert row["accuracy"] == {"running": "begun (0 of 4 rounds)"}.get(status, status)
        assert {value for name, value in row.items() if name not in (*NAMES, "accuracy")} == {""}
    some = [make_cell(90.0, **LIE), make_cell(status="missing", seed=1, **LIE)]
    assert lines(some)[0]["accuracy"] == "90.00 (1 of 2)"


def test_a_run_that_ended_without_a_number_failed_in_the_row_in_the_sum_and_in_the_legend() -> None:
    cells = [make_cell(None, **LIE), make_cell(90.0, seed=1, **LIE)]
    assert lines(cells)[0]["accuracy"] == "90.00 (1 of 2, 1 failed)"
    text = detection_markdown(detection_table(cells))
    assert "1 of 2 runs done, 1 failed." in text
    assert "failed: ended by an error, or without a number" in text
    assert "failed" not in detection_markdown(detection_table(cells[1:]))


def test_there_is_a_column_of_attack_success_only_where_an_attack_has_a_goal() -> None:
    plain, backdoor = make_cell(90.0, **LIE), make_cell(90.0, attack="backdoor", attackers=0.3)
    assert "attack success" not in lines([plain])[0]
    found = [plain, changed(backdoor, summary={"attack_success": 12.345})]
    assert [row["attack success"] for row in lines(found)] == ["—", "12.3"]


def test_attackers_that_change_their_ids_are_counted_under_each_and_the_table_says_so() -> None:
    cell = make_cell(90.0, **LIE)
    table = detection_table([cell])
    assert "changes its id" not in detection_markdown(table)
    two = {name: [*column, column[-1]] for name, column in cell.clients.items()}
    renamed = detection_table([cell.model_copy(update={"clients": two})])
    assert renamed.rows[0].isolated == Isolation(2, 0, 4)
    assert "changes its id" in detection_markdown(renamed)


def test_conditions_are_named_by_labels_and_by_what_varies() -> None:
    init = {"training": {"init": "default"}}
    cells = [
        make_cell(axes={"seed": 0}),
        make_cell(axes={"seed": 1}, seed=1),
        make_cell(axes={"conditions": "PyTorch's initialisation", "defense": "ours"}, **init),
        make_cell(axes={"conditions": "PyTorch's initialisation", "defense": "FedAvg"}, defense="fedavg", **init),
        make_cell(axes={"training.epochs": 1}, training={"epochs": 1}),
        make_cell(axes={"defense": "eager"}, defense_options={"copy_similarity": 0.8}),
        make_cell(axes={"attackers": 0.3, "attack": "sleeper (LIE)"}, attack="sleeper", attackers=0.3),
        make_cell(axes={"attack": "agrt"}, attack="agrt", attackers=0.1),
        make_cell(partition={"q": 0.8}),
    ]
    assert named(cells) == [
        ("0%", "—", "MAB-RFL hardened", ""),
        ("0%", "—", "eager", ""),
        ("10%", "AGRT", "MAB-RFL hardened", ""),
        ("30%", "sleeper (LIE)", "MAB-RFL hardened", ""),
        ("0%", "—", "MAB-RFL hardened", "PyTorch's initialisation"),
        ("0%", "—", "FedAvg", "PyTorch's initialisation"),
        ("0%", "—", "MAB-RFL hardened", "epochs=1"),
        ("0%", "—", "MAB-RFL hardened", "q=0.8"),
    ]
    assert len(conditions(cells)[0].cells) == 2


def test_a_setting_that_a_label_does_not_stand_for_is_named_beside_it() -> None:
    cells = [make_cell(), make_cell(seed=1), make_cell(seed=2)]
    cells += [
        make_cell(axes={"how": "SGD", "partition.q": q}, training={"optimizer": "sgd"}, partition={"q": q})
        for q in (0.5, 0.8)
    ]
    cells.append(make_cell(axes={"how": "long"}, rounds=6, training={"epochs": 1}))
    # The label SGD stands for the learning rate that comes with it, too; no label stands for a number of rounds.
    assert [rest for *_, rest in named(cells)] == ["", "SGD, q=0.5", "SGD, q=0.8", "long, rounds=6"]


def test_conditions_of_one_name_are_told_apart_by_what_differs() -> None:
    cells = [make_cell(attack="sleeper", attackers=0.3, attack_options={"honest_rounds": n}) for n in (1, 2)]
    assert [attack for _, attack, *_ in named(cells)] == ["sleeper, honest_rounds=1", "sleeper, honest_rounds=2"]
    same = [make_cell(axes={"x": "same"}, training={"epochs": epochs}) for epochs in (1, 2)]
    assert [rest for *_, rest in named([make_cell(), make_cell(seed=1), *same])] == [
        "",
        "same, epochs=1",
        "same, epochs=2",
    ]


def test_presets_differ_by_their_name_and_not_by_all_their_options() -> None:
    cells = [make_cell(preset=preset, **LIE) for preset in ("paper", "reference", "hardened")]
    cells += [make_cell(defense="krum", **LIE)]
    assert {rest for *_, rest in named(cells)} == {""}
    assert [label for _, _, label, _ in named(cells)] == [
        "Krum",
        "MAB-RFL paper",
        "MAB-RFL reference",
        "MAB-RFL hardened",
    ]


def test_packed_results_give_the_same_tables_as_their_folder(tmp_path: Path) -> None:
    runs: list[tuple[dict[str, Any], float | str | None]] = [
        ({"defense": "fedavg"}, 97.0),
        ({**LIE}, 90.0),
        ({**LIE, "seed": 1}, "running"),
    ]
    folder = write_sweep(tmp_path / "s", runs)
    pack(folder, tmp_path / "s.json.gz")
    first, second = (detection_table(load_results(path).cells) for path in (folder, tmp_path / "s.json.gz"))
    for write in DETECTION_FORMATS.values():
        assert write(first) == write(second)
    assert "−7.00" in detection_markdown(second)


def test_csv_has_unrounded_numbers_and_is_empty_where_there_are_none() -> None:
    cells = [make_cell(97.0, defense="fedavg"), make_cell(90.0, **LIE)]
    cells.append(make_cell(status="missing", attack="ipm", attackers=0.3))
    rows = list(csv.DictReader(io.StringIO(detection_csv(detection_table(cells)))))
    assert [(row["attack"], row["attackers_percent"], row["status"], row["mean"]) for row in rows] == [
        ("none", "0", "done", "97.0"),
        ("lie", "30", "done", "90.0"),
        ("ipm", "30", "missing", ""),
    ]
    lie = rows[1]
    assert float(lie["honest_rejected_rate_mean"]) == pytest.approx(1 / 28)
    assert (lie["detection_precision_mean"], lie["detection_precision_std"]) == ("0.75", "")
    assert (lie["isolated_median"], lie["isolated_never"], lie["shut_out_median"]) == ("2.0", "0", "1.0")
    assert (lie["difference_mean"], lie["difference_seeds"]) == ("-7.0", "1")
    assert (rows[2]["difference_mean"], rows[2]["isolated_median"]) == ("", "")


def test_latex_has_as_many_cells_in_each_line_as_columns_and_escapes_labels() -> None:
    cells = [make_cell(90.0, axes={"attack": "50% & _more_"}, **LIE), make_cell(97.0, training={"epochs": 1})]
    text = detection_latex(detection_table(cells))
    (found,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL)
    body = [line for line in found[1].splitlines() if line.endswith(r"\\")]
    assert len(body) == 3
    assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in body} == {len(found[0])}
    assert r"50\% \& \_more\_" in text


def test_labels_cannot_break_the_table() -> None:
    (row,) = lines([make_cell(90.0, axes={"attack": "a|b\n<i>"}, **LIE)])
    assert row["Attack"] == r"a\|b &lt;i&gt;"


def test_results_without_attackers_and_without_mab_rfl_have_nothing_to_detect() -> None:
    assert not has_detection([make_cell(defense="krum")])
    assert has_detection([make_cell(defense="krum", **LIE)])
    assert has_detection([make_cell(status="missing")])
    with pytest.raises(StateError, match="have no runs"):
        detection_table([])


def written(value: float) -> str:
    """A number as the page has it: 1, 0.5, 1e6."""
    return f"{value:g}".replace("e+0", "e")


def test_the_ablation_switches_off_every_mechanism_of_the_page_and_nothing_else() -> None:
    page = (ROOT / "docs" / "hardening.md").read_text(encoding="utf-8")
    table = page.partition("| :-- |")[2].partition("\n\n")[0].splitlines()[1:]
    documented = {
        tuple(setting.strip().split("="))
        for line in table
        for code in re.findall(r"`([^`]*=[^`]*)`", line.rsplit("|", 2)[1])
        for setting in code.split(",")
    } - {("budget", "0")}
    cells = load_sweep(ROOT / "experiments" / "hardening-ablation.toml").cells
    ours = [cell for cell in cells if cell.config.defense == "mab-rfl"]
    full = next(cell for cell in ours if cell.axes["ablation"] == "full method").config.defense_options
    off = {
        (name, value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else written(value))
        for cell in ours
        for name, value in cell.config.defense_options.items()
        if value != full[name]
    }
    assert off == {(name, value.strip('"')) for name, value in documented}
    attacked = {(cell.config.attack, cell.config.num_attackers) for cell in ours}
    of_full = {
        (cell.config.attack, cell.config.num_attackers) for cell in ours if cell.axes["ablation"] == "full method"
    }
    assert attacked == of_full
