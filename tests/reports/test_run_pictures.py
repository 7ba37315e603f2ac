from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex

from mabrfl.errors import OutputError
from mabrfl.recording import RoundRecord
from mabrfl.reports.run_pictures import accuracy_figure, clients_figure, save
from mabrfl.rng import ClientId
from mabrfl.updates import Reason, Verdict

ATTACKERS: frozenset[ClientId] = frozenset({0, 3})


def record(number: int, reasons: dict[ClientId, Reason], silent: tuple[ClientId, ...] = ()) -> RoundRecord:
    verdicts = {client: Verdict(reason == "accepted", reason) for client, reason in reasons.items()}
    return RoundRecord(number, 50.0 + number, 1.0, (*reasons, *silent), verdicts, attackers=ATTACKERS)


RECORDS = [
    record(1, {0: "sybil", 1: "accepted", 4: "malformed"}),
    record(2, {1: "outlier", 2: "accepted"}, silent=(3,)),
    record(3, {0: "accepted", 4: "accepted"}),
]


def mesh_of(
    records: list[RoundRecord], num_clients: int = 5
) -> tuple[list[str], np.ndarray[tuple[int, ...], np.dtype[np.int_]]]:
    axes = clients_figure(records, ATTACKERS, num_clients).axes[1]
    (mesh,) = (artist for artist in axes.collections if isinstance(artist, QuadMesh))
    values = np.asarray(mesh.get_array()).reshape(num_clients, len(records))
    return [label.get_text() for label in axes.get_yticklabels()], values


def test_the_map_shows_what_became_of_each_client_with_the_attackers_at_the_bottom() -> None:
    rows, states = mesh_of(RECORDS)
    assert rows == ["1", "2", "4", "0", "3"]
    absent, silent, accepted, sybil, outlier, malformed = range(6)
    assert states.tolist() == [
        [accepted, outlier, absent],
        [absent, accepted, absent],
        [malformed, absent, accepted],
        [sybil, absent, accepted],
        [absent, silent, absent],
    ]


def test_the_true_attackers_are_marked_by_words_and_colour() -> None:
    figure = clients_figure(RECORDS, ATTACKERS, 5)
    assert [text.get_text() for text in figure.axes[0].texts] == ["3 honest", "2 attackers"]
    labels = figure.axes[1].get_yticklabels()
    colours = [to_hex(label.get_color()) for label in labels]
    assert len(set(colours[:3])) == len(set(colours[3:])) == 1
    assert colours[0] != colours[4]


def test_the_legend_mentions_silence_only_if_there_was_some() -> None:
    def words(records: list[RoundRecord]) -> list[str]:
        legend = clients_figure(records, ATTACKERS, 5).axes[1].get_legend()
        assert legend is not None
        return [text.get_text() for text in legend.get_texts()]

    assert "selected, sent nothing" in words(RECORDS)
    assert words(RECORDS[:1]) == [
        "not selected",
        "accepted",
        "rejected: sybil",
        "rejected: outlier",
        "rejected: malformed",
    ]


def test_clients_with_names_get_rows_too() -> None:
    records = [record(1, {"ada": "accepted", "eve": "sybil"})]
    axes = clients_figure(records, frozenset({"eve"}), 0).axes[1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ada", "eve"]


def test_accuracy_has_a_line_per_run_with_its_final_value() -> None:
    figure = accuracy_figure({"fedavg": RECORDS[:2], "mab-rfl": RECORDS}, title="digits")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["fedavg  (52.0 %)", "mab-rfl  (53.0 %)"]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[1, 51], [2, 52], [3, 53]])
    assert len({to_hex(line.get_color()) for line in axes.lines}) == 2
    assert len({line.get_linestyle() for line in axes.lines}) == 2


def test_a_run_that_diverged_and_a_run_without_rounds_can_be_drawn(tmp_path: Path) -> None:
    diverged = [RoundRecord(1, math.nan, math.nan, (), {})]
    save(accuracy_figure({"a": diverged, "b": []}), tmp_path / "accuracy")
    save(accuracy_figure({}), tmp_path / "none")
    save(clients_figure([], frozenset(), 3), tmp_path / "clients")


@pytest.mark.parametrize(("clients", "rounds"), [(1, 1), (50, 100), (200, 3)])
def test_every_size_can_be_saved_as_png_and_svg(tmp_path: Path, clients: int, rounds: int) -> None:
    every: dict[ClientId, Reason] = dict.fromkeys(range(clients), "accepted")
    figure = clients_figure([record(number, every) for number in range(1, rounds + 1)], frozenset({0}), clients)
    png, svg = save(figure, tmp_path / "map.png")
    assert (png.name, svg.name) == ("map.png", "map.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(accuracy_figure({"x": RECORDS}), tmp_path / name)
    for ending in ("png", "svg"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    from matplotlib import pyplot as plt

    before = plt.get_fignums()
    save(accuracy_figure({"x": RECORDS}), tmp_path / "a")
    assert plt.get_fignums() == before


def test_a_picture_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write picture .*accuracy\.png"):
        save(accuracy_figure({"x": RECORDS}), tmp_path / "missing" / "accuracy")


def test_long_names_do_not_squeeze_the_accuracy_picture() -> None:
    long = "a_package_of_mine.robust.rules:MyVeryOwnRuleWithAnExceptionallyLongNameThatSaysEverything"
    figure = accuracy_figure({long: RECORDS}, title=f"digits, mlp, {long}, lie by 6 of 20 clients, seed 0")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_position().width > 0.55
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text().replace("\n", " ").startswith("MyVeryOwnRuleWith")
    assert axes.title.get_window_extent().x1 <= figure.bbox.x1
    assert axes._left_title.get_window_extent().x1 <= figure.bbox.x1
