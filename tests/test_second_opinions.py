"""For each rule, pre-aggregator and attack of the literature: a test that repeats a result of its paper or authors.

The table names the test and the result. It is checked that every name of the catalogue is in it, or is not from the
literature, and that the tests exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mabrfl.catalog import BUILT_IN

HERE = Path(__file__).parent
_RULES, _ATTACKS = "aggregation", "attacks"
_CONFORMANCE = ("", "conformance", "test_a_rule_is_equal_to_a_peers_on_as_many_inputs_as_the_page_says")

Opinion = tuple[str, str, str]
"""Folder, file without ``test_``, and the test."""

RULES: dict[str, tuple[Opinion, str]] = {
    "mab-rfl": (
        ("mab", "matches_reference", "test_library_and_literal_twin_agree_on_ten_cohorts_of_each_run"),
        "the lines of the paper, written out",
    ),
    "fedavg-uniform": (_CONFORMANCE, "ByzFL, krum, Blades"),
    "krum": (_CONFORMANCE, "krum, the library of its authors' group, and Flower"),
    "multi-krum": (_CONFORMANCE, "the same"),
    "faba": ((_RULES, "distance", "test_faba_equals_its_slow_twin"), "the paper's algorithm, line by line"),
    "median": (_CONFORMANCE, "ByzFL, krum, Flower, Blades"),
    "trimmed-mean": (_CONFORMANCE, "the same"),
    "dnc": ((_RULES, "spectral", "test_dnc_equals_its_slow_twin"), "the paper's algorithm, line by line"),
    "centered-clip": (_CONFORMANCE, "ByzFL, Blades"),
    "geometric-median": (_CONFORMANCE, "byzpy; the median of a triangle is Fermat's point"),
    "bulyan": ((_RULES, "subset_rules", "test_bulyan_bounds_the_one_coordinate_that_krum_lets_through"), "section 3"),
    "meamed": ((_RULES, "paper_bounds", "test_meamed_is_within_the_same_bound_in_each_coordinate"), "lambda"),
    "mda": (
        (_RULES, "paper_bounds", "test_mda_is_within_2f_over_n_minus_f_diameters_of_the_mean_of_any_n_minus_f_rows"),
        "lambda = 2f / (n - f)",
    ),
    "smea": (_CONFORMANCE, "byzpy; the least largest eigenvalue of all subsets"),
    "caf": ((_RULES, "subset_rules", "test_caf_is_its_algorithm_with_the_exact_eigenvector"), "Algorithm 1"),
    "monna": (
        (
            _RULES,
            "paper_bounds",
            "test_monna_is_within_the_same_bound_of_the_mean_of_any_n_minus_f_rows_with_its_pivot",
        ),
        "the bound around an honest pivot",
    ),
    "aksel": (_CONFORMANCE, "krum, the library of its authors' group"),
    "cge": ((_RULES, "paper_bounds", "test_cge_averages_nothing_longer_than_the_longest_honest_update"), "the proof"),
    "median-of-means": (
        (_RULES, "subset_rules", "test_median_of_means_stays_within_the_bound_of_the_paper"),
        "Lemma 1",
    ),
    "robust-learning-rate": (
        (_RULES, "weighted_and_signs", "test_a_backdoor_of_f_clients_on_coordinates_of_their_own_is_always_reversed"),
        "section 3",
    ),
    "noisy-norm-bound": (
        (
            _RULES,
            "paper_bounds",
            "test_under_a_norm_bound_a_boosted_update_moves_the_mean_by_no_more_than_the_bounds_share",
        ),
        "section 4",
    ),
    "flame": ((_RULES, "clusters", "test_the_majority_cluster_is_hdbscans"), "HDBSCAN as the paper uses it"),
    "signguard": ((_RULES, "filters", "test_signguard_clusters_as_the_authors_code_does"), "the authors' code"),
    "sign-majority": (
        (_RULES, "clipped_and_signs", "test_a_minority_cannot_turn_a_coordinate_on_which_the_others_agree"),
        "fault tolerance",
    ),
    "clipped-clustering": (_CONFORMANCE, "Blades, the library of its authors"),
    "rflbat": ((_RULES, "filters", "test_rflbat_rejects_the_cluster_that_is_more_alike"), "the paper's premise"),
    "lasa": ((_RULES, "filters", "test_lasa_is_the_authors_algorithm"), "the authors' code"),
    "alignins": (
        (
            _RULES,
            "filters",
            "test_alignins_keeps_whom_the_authors_code_keeps_and_clips_them_to_their_median_norm",
        ),
        "Algorithm 1",
    ),
    "lfighter": ((_RULES, "filters", "test_lfighter_finds_the_flipped_classes_and_their_flippers"), "section 4"),
    "fldetector": (
        (_RULES, "fldetector", "test_attackers_that_do_not_follow_the_loss_are_found_and_nobody_else"),
        "the prediction of updates",
    ),
    "fltrust": (
        (_RULES, "fltrust", "test_a_majority_of_attackers_moves_the_step_by_no_more_than_its_cosine_buys"),
        "Theorem 1",
    ),
    "foolsgold": (
        (_RULES, "foolsgold", "test_ninety_sybils_of_a_hundred_do_not_overpower_ten_honest_clients"),
        "the paper's claim, and Algorithm 1",
    ),
}
BEFORE: dict[str, tuple[Opinion, str]] = {
    "nnm": ((_RULES, "preaggregators", "test_krum_after_nnm_keeps_the_bound_of_the_papers_lemma"), "Lemma 1"),
    "bucketing": ((_RULES, "preaggregators", "test_buckets_of_s_divide_the_spread_of_the_rows_by_s"), "Lemma 1"),
    "norm-bound": (_CONFORMANCE, "ByzFL"),
    "arc": ((_RULES, "preaggregators", "test_arc_scales_the_k_longest_to_the_next"), "Algorithm 2, and ByzFL"),
}
_SAME = ("", "conformance", "test_an_attack_sends_what_a_peers_sends")
ATTACKS: dict[str, tuple[Opinion, str]] = {
    "label-flip": (
        (_ATTACKS, "data_poisoning", "test_default_turns_each_label_round_and_leaves_the_middle_of_an_odd_number"),
        "the paper's mapping",
    ),
    "lie": (_SAME, "ByzFL, krum, byzpy, Blades; the worked example z = 1.75"),
    "ipm": (_SAME, "ByzFL, krum, byzpy, Blades"),
    "mimic": (_SAME, "ByzFL, byzpy"),
    "agr-krum": (
        (_ATTACKS, "optimized", "test_the_real_krum_chooses_it_and_would_not_choose_one_a_little_further"),
        "the aim",
    ),
    "min-max": ((_ATTACKS, "optimized", "test_min_max_goes_as_far_from_the_furthest_as_the_largest_gap"), "the bound"),
    "min-sum": ((_ATTACKS, "optimized", "test_min_sum_stops_where_its_sum_is_the_smallest_benign_one"), "the bound"),
    "optimal-lie": (
        (_ATTACKS, "optimal", "test_the_searched_factor_is_at_least_about_as_harmful_as_the_usual_ones"),
        "the reason for the search",
    ),
    "optimal-ipm": (
        (_ATTACKS, "optimal", "test_the_searched_factor_is_at_least_about_as_harmful_as_the_usual_ones"),
        "the same",
    ),
    "fang-krum": ((_ATTACKS, "fang", "test_the_bound_is_the_papers_by_hand"), "the bound on lambda"),
    "fang-trim": (
        (_ATTACKS, "fang", "test_trimmed_mean_and_median_deviate_against_every_coordinates_direction"),
        "the directed deviation",
    ),
    "sign-flip": (
        (_ATTACKS, "independent", "test_sign_flip_sends_each_attackers_own_update_backwards"),
        "RSA's definition",
    ),
    "free-rider": (
        (_ATTACKS, "fake_clients", "test_plain_free_riders_slow_averaging_down_and_do_not_turn_it"),
        "Fraboni et al., plain free-riding",
    ),
    "poisoned-fl": ((_ATTACKS, "fake_clients", "test_the_test_has_the_authors_critical_values"), "the authors' code"),
    "mpaf": ((_ATTACKS, "fake_clients", "test_averaging_with_the_right_factor_arrives_there_at_once"), "the equation"),
    "trapsetter": (
        (_ATTACKS, "trapping", "test_the_mean_over_all_clients_moves_the_model_into_the_trap"),
        "the authors' code",
    ),
    "statistical-mimicry": (
        (_ATTACKS, "drifting", "test_the_synthetic_part_has_the_mean_and_deviation_of_the_honest_updates"),
        "what the paper calls mimicry",
    ),
    "backdoor": (
        (
            _ATTACKS,
            "backdoor",
            "test_averaging_learns_the_backdoor_with_hardly_a_loss_of_accuracy_and_not_without_attackers",
        ),
        "the paper's claim",
    ),
    "dba": (
        (_ATTACKS, "backdoor_variants", "test_averaging_learns_the_whole_mark_from_its_parts"),
        "the paper's claim",
    ),
    "edge-case": (
        (_ATTACKS, "edge_cases", "test_it_succeeds_in_the_simulator_and_honest_clients_do_not_misread_the_edge_cases"),
        "success on the tail",
    ),
    "model-replacement": (
        (_ATTACKS, "backdoor_variants", "test_one_attacker_replaces_the_mean_of_all_clients"),
        "equation 3",
    ),
    "constrain-and-scale": (
        (_ATTACKS, "backdoor_variants", "test_the_distance_is_part_of_the_loss_and_its_gradient_reaches_the_model"),
        "equation 4",
    ),
    "neurotoxin": (
        (_ATTACKS, "backdoor_variants", "test_the_coordinates_of_the_largest_last_steps_are_left_out"),
        "the projection",
    ),
}

OWN = {
    "defenses": {"fedavg", "weighted-median", "weighted-trimmed-mean", "similarity-probe"},
    "preaggregators": set(),
    "attacks": {
        *("none", "silent", "gaussian", "nan-sender", "magnitude"),
        *("bridge", "hub", "frame", "split-sybils", "jittered-sybils", "orthogonal-drift", "decoy"),
        *("sleeper", "on-off", "whitewash", "braggart", "evade", "growing", "agr-mab-rfl", "layer-choosing"),
    },
}
"""Names without a paper of their own: averages, our own measurements and attacks, noise."""


@pytest.mark.parametrize(("kind", "table"), [("defenses", RULES), ("preaggregators", BEFORE), ("attacks", ATTACKS)])
def test_every_name_from_the_literature_has_a_second_opinion(kind, table):
    assert set(BUILT_IN[kind]) == set(table) | OWN[kind]
    assert not set(table) & OWN[kind]


@pytest.mark.parametrize(("name", "opinion"), [(n, o) for t in (RULES, BEFORE, ATTACKS) for n, (o, _) in t.items()])
def test_the_test_of_a_second_opinion_exists(name, opinion):
    folder, file, test = opinion
    text = (HERE / folder / f"test_{file}.py").read_text(encoding="utf-8")
    assert re.search(rf"def {test}\(", text)
