from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from mabrfl.errors import ConfigError, OutputError, StateError
from mabrfl.reports.curves import curve, isolation_curve, selection_curves, share_curve
from mabrfl.reports.drawing import LINES, render
from mabrfl.reports.figures import CAPTIONS, FIGURES, draw, save_figures
from mabrfl.reports.labels import Column
from mabrfl.reports.panels import Panels, literal, looks
from mabrfl.sweeps.results import Cell
from result_folders import LAPTOP, make_cell

LIE: dict[str, Any] = {"attack": "lie", "attackers": 0.3}


def cells_of_a_table(**scale: Any) -> list[Cell]:
    clean = {"mab-rfl": 97.0, "fedavg": 98.0, "krum": 95.0}
    cells = [make_cell(final, defense=defense, **scale) for defense, final in clean.items()]
    for attack in ("lie", "label-flip"):
        attacked = {"attack": attack, "attackers": 0.3, **scale}
        cells += [make_cell(90.0 + seed, defense="mab-rfl", seed=seed, **attacked) for seed in (0, 1)]
        cells += [make_cell(70.0, defense="krum", **attacked)]
    return cells


def with_series(cell: Cell, **series: Any) -> Cell:
    length = len(next(iter(series.values())))
    return cell.model_copy(update={"series": {"round": list(range(1, length + 1)), **series}})


def only(figures: dict[str, Figure]) -> tuple[str, Figure]:
    ((stem, figure),) = figures.items()
    return stem, figure


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def visible(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_visible()]


def test_a_curve_is_the_mean_over_seeds_with_the_sample_deviation() -> None:
    cells = [with_series(make_cell(), accuracy=values) for values in ([10.0, 20.0, None], [30.0, None, None])]
    found = curve(cells, "accuracy")
    np.testing.assert_array_equal(found.rounds, [1, 2, 3])
    np.testing.assert_array_equal(found.mean, [20.0, 20.0, np.nan])
    assert found.deviation is not None
    np.testing.assert_allclose(found.deviation[0], np.sqrt(200.0))
    assert curve([], "accuracy").empty
    assert curve(cells, "no such series").empty


def test_cells_of_unequal_length_are_cut_to_the_shortest() -> None:
    cells = [with_series(make_cell(), accuracy=values) for values in ([10.0, 20.0, 30.0], [20.0, 30.0])]
    np.testing.assert_array_equal(curve(cells, "accuracy").mean, [15.0, 25.0])


def test_a_run_that_is_there_twice_is_drawn_once_and_without_a_band() -> None:
    settings = {"defense": "fedavg", "selector": "uniform", "attack": "lie"}
    cells = [make_cell(90.0, axes={"sampling": "random A"}, attackers=count, **settings) for count in (0.3, 3)]
    for name in ("accuracy", "sampling"):
        _, figure = only(draw(cells, name))
        (axes,) = figure.axes
        assert len(axes.lines) == 1
        assert not axes.collections


def test_precision_and_recall_add_up_counts_of_five_rounds_and_all_seeds() -> None:
    caught, missed = [1, 0, 0, 0, 0, 0, 3], [1, 0, 0, 0, 0, 0, 1]
    cells = [with_series(make_cell(), caught=caught, missed=missed) for _ in range(2)]
    # Rounds 1-5 see the first round, round 6 sees nothing, round 7 sees 6 of 8.
    recall = share_curve(cells, ("caught",), ("caught", "missed")).mean
    np.testing.assert_array_equal(recall, [50, 50, 50, 50, 50, np.nan, 75])


def test_selection_is_a_share_of_the_honest_and_of_the_attackers() -> None:
    cell = with_series(make_cell(**LIE), selected=[10, 7, 7], selected_malicious=[3, 0, 3])
    honest, malicious = selection_curves([cell])
    np.testing.assert_allclose(honest.mean, [100, 100, 100 * (7 + 7 + 4) / 21])
    np.testing.assert_allclose(malicious.mean, [100, 50, 100 * 6 / 9])
    assert selection_curves([with_series(make_cell(), selected=[5], selected_malicious=[0])])[1].empty


def test_an_attacker_is_isolated_after_the_round_it_was_last_selected_in_but_not_at_the_very_end() -> None:
    cell = make_cell(**LIE).model_copy(
        update={"clients": {"attacker": [False, True, True, True, True], "last_selected": [4, 0, 2, 3, 4]}}
    )
    found = isolation_curve([cell], "last_selected")
    np.testing.assert_array_equal(found.rounds, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(found.mean, [25, 25, 50, 75, 75])
    assert isolation_curve([make_cell()], "last_selected").empty


def test_all_gives_every_figure_that_the_results_have() -> None:
    stems = list(draw(cells_of_a_table()))
    scale = "mnist-mnist-cnn-small-4-rounds"
    # Every run made by hand has the fact, not only MAB-RFL's.
    expected = [f"similarity-{scale}-{name}" for name in ("krum", "mab-rfl-paper", "fedavg")]
    expected += [f"attackers-{scale}-lie", f"attackers-{scale}-lf", f"accuracy-{scale}"]
    expected += [
        f"{name}-{scale}-{attack}"
        for name in ("detection", "selection", "reputation", "isolation")
        for attack in ("lie", "lf")
    ]
    assert stems == expected


def test_accuracy_has_a_panel_per_scenario_and_a_line_per_defense() -> None:
    _, figure = only(draw(cells_of_a_table(), "accuracy"))
    assert [axes.get_title(loc="left") for axes in visible(figure)] == ["no attack", "30% LIE", "30% LF"]
    assert [len(axes.lines) for axes in visible(figure)] == [3, 2, 2]
    assert legend(figure) == ["Krum", "MAB-RFL paper", "FedAvg"]
    krum = visible(figure)[1].lines[0]
    np.testing.assert_array_equal(krum.get_xydata(), [[1, 40], [2, 50], [3, 60], [4, 70]])


def test_accuracy_under_many_attacks_is_no_wider_than_a_page() -> None:
    attacks = ["lie", "label-flip", "bridge", "hub", "frame", "decoy", "magnitude"]
    cells = [make_cell(), *(make_cell(attack=attack, attackers=0.3) for attack in attacks)]
    _, figure = only(draw(cells, "accuracy"))
    assert len(visible(figure)) == 8
    assert figure.get_figwidth() < 15
    assert all(len(axes.lines) == 1 for axes in visible(figure))


def test_bars_of_the_deviation_end_where_accuracies_do() -> None:
    clean = make_cell(97.0, defense="krum")
    cells = [make_cell(final, defense="krum", seed=seed, **LIE) for seed, final in enumerate((9.8, 96.1))]
    _, figure = only(draw([clean, *cells], "attackers"))
    (axes,) = visible(figure)
    ends = np.concatenate(
        [np.asarray(part)[:, 1] for bars in axes.collections for part in bars.get_segments() if len(part)]
    )
    ends = ends[np.isfinite(ends)]
    assert (ends.min(), ends.max()) == (0.0, 100.0)


def test_accuracy_against_attackers_begins_where_nobody_attacks_and_has_gaps_where_runs_are_missing() -> None:
    cells = [*cells_of_a_table(), make_cell(60.0, defense="krum", attack="lie", attackers=0.4)]
    figure = draw(cells, "attackers")["attackers-mnist-mnist-cnn-small-4-rounds-lie"]
    (axes,) = figure.axes
    krum, mab_rfl = (line for line in axes.lines if line.get_marker() not in ("None", "_", "", "|"))
    np.testing.assert_array_equal(krum.get_xydata(), [[0, 95], [30, 70], [40, 60]])
    np.testing.assert_array_equal(mab_rfl.get_xydata(), [[0, 97], [30, 90.5], [40, np.nan]])
    assert legend(figure)[:2] == ["Krum", "MAB-RFL paper"]
    assert axes.get_ylim() == (50, 100)


def test_a_defense_that_never_meets_the_attack_is_no_line_and_the_baseline_a_level() -> None:
    cells = [*cells_of_a_table(), make_cell(96.0, defense="median")]
    figure = draw(cells, "attackers")["attackers-mnist-mnist-cnn-small-4-rounds-lie"]
    assert legend(figure) == ["Krum", "MAB-RFL paper", "FedAvg without attackers"]
    assert [98.0, 98.0] in [np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].lines]
    assert 96.0 not in [value for line in figure.axes[0].lines for value in np.asarray(line.get_ydata()).tolist()]
    # FedAvg that is planned under the attack, and not run there yet, is a line of which there is one point so far.
    planned = [*cells, make_cell(status="missing", defense="fedavg", **LIE)]
    assert "FedAvg" in legend(draw(planned, "attackers")["attackers-mnist-mnist-cnn-small-4-rounds-lie"])


def test_the_axis_of_accuracies_begins_higher_only_if_everything_is_far_above() -> None:
    for final, floor in ((91.5, 90), (90.5, 75), (60.0, 50), (50.5, 0), (9.8, 0)):
        cells = [make_cell(97.0), make_cell(final, **LIE)]
        (figure,) = draw(cells, "attackers").values()
        assert figure.axes[0].get_ylim() == (floor, 100)


def test_shares_that_are_too_close_to_be_written_are_not() -> None:
    cells = [
        make_cell(90.0, clients=50),
        *(make_cell(90.0, clients=50, attack="lie", attackers=n) for n in (5, 22, 24)),
    ]
    cells.append(make_cell(90.0, clients=50, attack="lie", attackers=25, allow_majority=True))
    (figure,) = draw(cells, "attackers").values()
    assert figure.axes[0].get_xticks().tolist() == [0, 10, 44, 50]


def test_the_papers_values_are_drawn_on_request() -> None:
    cells = cells_of_a_table(**LAPTOP)
    figure = draw(cells, "attackers", compare=True)["attackers-mnist-mnist-cnn-small-40-rounds-lie"]
    drawn = [np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines]
    assert [[0.0, 97.82], [30.0, 97.05]] in drawn
    assert [[0.0, 95.56], [30.0, 79.73]] in drawn
    assert "the paper's, same colour" in legend(figure)


def test_sampling_has_a_line_per_value_of_that_axis() -> None:
    cells = [
        make_cell(90.0, axes={"sampling": "random A"}, defense="fedavg", selector="uniform", **LIE),
        make_cell(95.0, axes={"sampling": "rational"}, defense="fedavg", selector="uniform"),
        make_cell(97.0, axes={"sampling": "rational"}, defense="fedavg", selector="uniform", seed=1),
        make_cell(50.0, defense="krum"),
    ]
    stem, figure = only(draw(cells, "sampling"))
    assert stem == "sampling-mnist-mnist-cnn-small-4-rounds"
    assert legend(figure) == ["random A", "rational"]
    assert [line.get_ydata()[-1] for line in figure.axes[0].lines] == [90.0, 96.0]  # type: ignore[index]


def test_a_way_of_sampling_under_two_settings_has_two_lines_and_no_deviation_between_them() -> None:
    settings = {"defense": "fedavg", "selector": "uniform", "attack": "lie"}
    cells = [
        make_cell(final, axes={"sampling": "random A", "attackers": count}, attackers=count, seed=seed, **settings)
        for count, finals in ((1, (90.0, 92.0)), (3, (50.0, 52.0)))
        for seed, final in enumerate(finals)
    ]
    cells.append(make_cell(95.0, axes={"sampling": "rational", "attackers": 1}, defense="fedavg"))
    _, figure = only(draw(cells, "sampling"))
    labels = [" ".join(text.split()) for text in legend(figure)]
    assert labels[0].startswith("random A, attackers=1")
    assert labels[1].startswith("random A, attackers=3")
    assert labels[2:] == ["rational"]
    (axes,) = figure.axes
    assert [line.get_ydata()[-1] for line in axes.lines] == [91.0, 51.0, 95.0]  # type: ignore[index]
    # A band per line with two seeds, as wide as those are apart.
    corners = [np.asarray(band.get_paths()[0].vertices) for band in axes.collections]
    widths = [float(np.ptp(points[points[:, 0] == 4, 1])) for points in corners]
    np.testing.assert_allclose(widths, [2 * 2**0.5] * 2)


def test_similarity_has_the_cosine_on_the_left_and_the_distance_on_the_right() -> None:
    _, figure = only(draw([make_cell(90.0), make_cell(80.0, **LIE)], "similarity"))
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [0.5, 0.25, 0.166667, 0.125])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [2.0, 1.0, 0.666667, 0.5])
    assert right.get_ylabel() == "largest Euclidean distance"


def test_similarity_has_a_picture_per_defense() -> None:
    cells = [make_cell(90.0, preset="paper"), make_cell(90.0, preset="reference"), make_cell(80.0, **LIE)]
    assert [str(figure.get_suptitle()) for figure in draw(cells, "similarity").values()] == [
        "MNIST, mnist-cnn-small, 4 rounds: MAB-RFL paper",
        "MNIST, mnist-cnn-small, 4 rounds: MAB-RFL reference",
    ]


def test_similarity_does_without_a_distance_that_was_not_recorded() -> None:
    cell = make_cell(90.0)
    series = {name: values for name, values in cell.series.items() if name != "largest_distance"}
    _, figure = only(draw([cell.model_copy(update={"series": series})], "similarity"))
    assert len(figure.axes) == 1
    assert legend(figure) == ["largest cosine"]


def test_a_defense_that_is_blind_to_one_attack_has_a_recall_of_nothing_there() -> None:
    def harmless(cell: Cell) -> Cell:
        nobody = [0] * len(cell.series["caught"])
        missed = list(np.add(cell.series["caught"], cell.series["missed"]))
        counts = {"caught": nobody, "honest_rejected": nobody, "missed": missed}
        return cell.model_copy(update={"series": cell.series | counts})

    flips: dict[str, Any] = {"attack": "label-flip", "attackers": 0.3}
    cells = [make_cell(**LIE), harmless(make_cell(**flips)), harmless(make_cell(defense="fedavg", **flips))]
    figures = draw([*cells, make_cell(defense="krum", **flips)], "detection")
    assert len(figures) == 2
    flipped = next(figure for stem, figure in figures.items() if stem.endswith("lf"))
    # FedAvg rejects nobody anywhere, and so there is nothing to detect with.
    assert legend(flipped) == ["Krum", "MAB-RFL paper"]
    precision, recall = visible(flipped)
    assert len(precision.lines) == 1
    krums, ours = sorted((np.nanmax(line.get_ydata()) for line in recall.lines), reverse=True)
    assert krums > 0
    assert ours == 0


def test_selection_leaves_out_those_who_select_everybody() -> None:
    figures = draw(cells_of_a_table(), "selection")
    assert legend(next(iter(figures.values()))) == ["MAB-RFL paper", "honest clients", "attackers"]


def test_reputation_and_isolation_are_drawn_of_selectors_that_learn_or_may_and_of_no_others() -> None:
    def selected(selector: str) -> list[Cell]:
        cell = make_cell(90.0, defense="fedavg", selector="uniform", **LIE)
        series = cell.series | dict.fromkeys(("caught", "honest_rejected"), [0] * 4)
        return [cell.model_copy(update={"config": {**cell.config, "selector": selector}, "series": series})]

    for name in ("reputation", "isolation"):
        for selector in ("acs", "thompson-top", "budgeted", "my.module:Bandit"):
            assert len(draw(selected(selector), name)) == 1
        for selector in ("all", "uniform", "honest-only"):
            with pytest.raises(StateError, match="of a selector that learns"):
                draw(selected(selector), name)


def luminance(colour: str) -> float:
    """Relative luminance, as in the rules for accessible web pages."""
    parts = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
    return float(np.dot([0.2126, 0.7152, 0.0722], list(parts)))


def test_a_line_of_uniform_selection_is_well_seen_on_white() -> None:
    for defense, preset in (("fedavg", "paper"), ("krum", "paper"), ("mab-rfl", "hardened")):
        columns = [Column(defense, preset, "uniform"), Column("mab-rfl", "paper", "acs")]
        assert 1.05 / (luminance(looks(columns)[columns[0]]["color"]) + 0.05) > 3


def test_ways_of_sampling_look_as_in_the_figure_of_them() -> None:
    columns = [Column("fedavg", "paper", "uniform", sampling=way) for way in ("random A", "random B", "rational")]
    assert [look["color"] for look in looks(columns).values()] == list(LINES[:3])


def test_a_defense_with_other_options_has_a_colour_of_its_own_and_the_plain_one_the_known_look() -> None:
    plain = [Column("mab-rfl", preset, "acs") for preset in ("paper", "hardened")]
    told = Column("mab-rfl", "paper", "acs", sweep_label="MNIST's thresholds")
    varied = Column("mab-rfl", "hardened", "acs", variant="history=0.5")
    others = [Column(name, "paper", "all") for name in ("centered-clip", "dnc", "faba", "krum", "median", "fedavg")]
    found = looks([told, plain[0], varied, plain[1], Column("mab-rfl", "reference", "acs"), *others])
    assert len({look["color"] for look in found.values()}) == len(found)
    alone = looks(plain)
    assert [found[column] for column in plain] == [alone[column] for column in plain]
    many = [Column("mab-rfl", "paper", "acs", variant=f"history={number}") for number in range(30)]
    assert len(looks(many)) == len(many)


def test_a_title_does_not_run_into_the_legend() -> None:
    for attack in ("LIE", "AGRT, factor up to 1.5", "strikes: sign flip, 1 on, 2 off, and many more words of a label"):
        panels = Panels(1, 1, title=f"MNIST, mnist-cnn-small, 40 rounds: {attack}", labels=["MAB-RFL paper"])
        panels.at(0, 0)
        panels.explain("MAB-RFL paper", {"color": "black"})
        figure = panels.finish("round", "accuracy")
        FigureCanvasAgg(figure).draw()
        (told,) = figure.legends
        (title,) = (text for text in figure.findobj(Text) if text.get_text() == figure.get_suptitle())
        assert title.get_window_extent().x1 < told.get_window_extent().x0


def test_isolation_shows_for_those_who_select_everybody_only_who_is_never_accepted_again() -> None:
    _, figure = only(draw([make_cell(90.0, defense="krum", **LIE)], "isolation"))
    (line,) = figure.axes[0].lines
    # All three attackers are accepted in round 1 for the last time.
    np.testing.assert_array_equal(line.get_ydata(), [0, 100, 100, 100, 100])


def test_reputation_does_without_a_band_that_was_not_recorded() -> None:
    cell = make_cell(90.0, defense="mab-rfl", **LIE)
    series = {name: values for name, values in cell.series.items() if not name.startswith("low_belief")}
    _, figure = only(draw([cell.model_copy(update={"series": series})], "reputation"))
    (axes,) = figure.axes
    assert len(axes.lines) == 2
    assert not axes.collections


def test_reputation_has_both_sides_with_a_band_each() -> None:
    _, figure = only(draw([make_cell(90.0, defense="mab-rfl", **LIE)], "reputation"))
    (axes,) = figure.axes
    assert [set(line.get_ydata()) for line in axes.lines] == [{0.75}, {0.25}]
    assert len(axes.collections) == 2


@pytest.mark.parametrize("figure", FIGURES)
def test_results_without_a_finished_run_say_what_a_figure_needs(figure: str) -> None:
    with pytest.raises(StateError, match=f"nothing to draw: figure '{figure}' needs runs that are done"):
        draw([make_cell(status="failed", **LIE), make_cell(status="missing")], figure)
    assert figure in CAPTIONS


def test_an_unknown_figure_is_named_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="unknown figure 'acuracy'; did you mean 'accuracy'"):
        draw([make_cell()], "acuracy")


def test_two_settings_of_one_title_get_two_files() -> None:
    cells = [make_cell(90.0), make_cell(80.0, training={"epochs": 1})]
    assert list(draw(cells, "accuracy")) == [
        "accuracy-mnist-mnist-cnn-small-4-rounds",
        "accuracy-mnist-mnist-cnn-small-4-rounds-epochs-1",
    ]


def test_the_same_results_give_the_same_bytes_whatever_the_users_style(tmp_path: Path) -> None:
    cells = [make_cell(90.0, **LIE), make_cell(95.0)]
    first = save_figures(draw(cells, "attackers"), tmp_path / "a")
    with mpl.rc_context({"font.size": 25, "axes.facecolor": "black", "svg.hashsalt": None, "savefig.dpi": 10}):
        second = save_figures(draw(cells, "attackers"), tmp_path / "b")
    assert [path.suffix for path in first] == [".png", ".svg"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert b"<dc:date>" not in first[1].read_bytes()
    assert mpl.__version__.encode() not in first[0].read_bytes()[:2000] + first[1].read_bytes()[:2000]


def test_only_the_endings_asked_for_are_saved(tmp_path: Path) -> None:
    saved = save_figures(draw([make_cell()], "accuracy"), tmp_path / "new" / "folder", ["svg"])
    assert [path.name for path in saved] == ["accuracy-mnist-mnist-cnn-small-4-rounds.svg"]
    assert list((tmp_path / "new" / "folder").iterdir()) == saved
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        save_figures(draw([make_cell()], "accuracy"), tmp_path / "file", ["svg"])


def test_names_with_dollars_and_underscores_are_drawn_as_they_are() -> None:
    cell = make_cell(90.0, defense="krum", **LIE)
    odd = cell.model_copy(update={"config": {**cell.config, "model": r"$\nonsense{$", "defense": "_hidden$x"}})
    _, figure = only(draw([odd], "accuracy"))
    render(figure, "svg")
    assert legend(figure) == [literal("_hidden$x")]
    assert len(figure.legends) == 1


def test_drawing_leaves_pyplot_and_the_users_style_alone() -> None:
    from matplotlib import pyplot as plt

    before = plt.get_fignums(), dict(mpl.rcParams)
    render(only(draw([make_cell()], "accuracy"))[1], "png")
    assert (plt.get_fignums(), dict(mpl.rcParams)) == before


def test_a_share_that_nobody_was_run_with_is_left_out_and_no_gap() -> None:
    shares = (0.1, 0.4)
    missing = [make_cell(status="missing", defense="krum", attack="lie", attackers=one, **LAPTOP) for one in shares]
    cells = [*cells_of_a_table(**LAPTOP), *missing]
    scale = "mnist-mnist-cnn-small-40-rounds"
    (axes,) = draw(cells, "attackers", compare=True)[f"attackers-{scale}-lie"].axes
    assert list(axes.get_xticks()) == [0, 30]
    # The caps of error bars are lines too, but none that connect anything.
    krum = [line for line in axes.lines if line.get_color() == "#D55E00" and line.get_linestyle() != "None"]
    assert [list(line.get_xdata()) for line in krum] == [[0, 30], [0, 10, 30, 40]]
    panels = [axes for axes in draw(cells, "accuracy")[f"accuracy-{scale}"].axes if axes.get_visible()]
    assert [panel.get_title(loc="left") for panel in panels] == ["no attack", "30% LIE", "30% LF"]


def test_many_shares_of_attackers_make_a_second_row_of_panels() -> None:
    shares = (0.1, 0.2, 0.3, 0.4)
    cells = [make_cell(90.0, defense="mab-rfl", attack="lie", attackers=share) for share in shares]
    for name in ("selection", "isolation"):
        (figure,) = draw(cells, name).values()
        panels = [axes for axes in figure.axes if axes.get_visible()]
        assert [panel.get_title(loc="left") for panel in panels] == ["10%", "20%", "30%", "40%"]
        assert len({round(panel.get_subplotspec().rowspan.start) for panel in panels}) == 2


def test_every_pair_of_a_defense_and_a_selector_looks_different_even_without_dashes() -> None:
    columns = [
        Column(defense, "paper", selector)
        for defense in ("krum", "median", "mab-rfl", "fedavg")
        for selector in ("acs", "all", "uniform")
    ]
    found = looks(columns)
    assert len({look["color"] for look in found.values()}) == len(columns)
    assert found[Column("mab-rfl", "paper", "acs")]["color"] == "#0072B2"
    assert len({found[Column("krum", "paper", name)]["linestyle"] for name in ("acs", "all", "uniform")}) == 3
    assert (
        found[Column("krum", "paper", "all")]["color"]
        == looks([Column("krum", "paper", "all")])[Column("krum", "paper", "all")]["color"]
    )


def test_long_titles_do_not_run_into_those_beside_them() -> None:
    titles = ["30% on-off, inner=label-flip, mapping=pair, on_rounds=5, off_rounds=5", "30% sleeper, inner=lie", "-"]
    panels = Panels(1, 3, title="many options")
    shown = [panels.at(0, column, title) for column, title in enumerate(titles)]
    FigureCanvasAgg(panels.figure).draw()
    boxes = [
        text.get_window_extent()
        for axes, title in zip(shown, titles, strict=True)
        for text in axes.get_children()
        if isinstance(text, Text) and text.get_text() == title
    ]
    assert len(boxes) == len(titles)
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_single_runs_are_points_and_collapsed_ones_are_counted() -> None:
    ends = {"mab-rfl": [97.0, 9.8, 96.0, 95.0], "dnc": [90.0, 91.0, 92.0, 93.0]}
    cells = [
        make_cell(final, defense=defense, seed=seed, **LIE)
        for defense, finals in ends.items()
        for seed, final in enumerate(finals)
    ]
    stem, figure = only(draw(cells, "seeds"))
    assert stem.startswith("seeds-")
    (axes,) = visible(figure)
    strips = [np.asarray(points.get_offsets()) for points in axes.collections]
    assert sorted(strip[:, 1].tolist() for strip in strips) == sorted(ends.values())
    assert all(len(set(strip[:, 0])) == 4 for strip in strips)
    assert {text.get_text() for text in axes.texts} == {"1 of 4", "0 of 4"}
    assert set(legend(figure)) == {"DnC", "MAB-RFL paper"}


def test_two_seeds_are_too_few_for_a_figure_of_single_runs() -> None:
    cells = [make_cell(90.0, defense="dnc", seed=seed, **LIE) for seed in (0, 1)]
    with pytest.raises(StateError, match="at least three seeds"):
        draw(cells, "seeds")
