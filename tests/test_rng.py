import numpy as np

from mabrfl.rng import digest, generator, uniforms


def test_streams_differ_in_every_part_of_their_name():
    names = [(0, "a", 1, 2), (1, "a", 1, 2), (0, "b", 1, 2), (0, "a", 2, 2), (0, "a", 1, 3), (0, "a", 1, "2")]
    draws = {generator(*name).random() for name in names}
    assert len(draws) == len(names)


def test_parts_cannot_be_shifted_into_each_other():
    assert digest("a", "bc") != digest("ab", "c")
    assert digest(1, 23) != digest(12, 3)
    assert digest("a", "b") != digest("a\x1fstr:b")
    assert digest("a\x1f", "b") != digest("a", "\x1fb")


def test_numpys_numbers_and_strings_name_the_same_streams_as_pythons():
    assert digest(np.int64(3), "a", np.int32(1)) == digest(3, "a", 1)
    assert digest(np.str_("x")) == digest("x")


def test_a_client_draws_the_same_whoever_else_is_there():
    few, many = uniforms(7, "select", 3, [4, "x"]), uniforms(7, "select", 3, [*range(100), "x"])
    assert few[0] == many[4]
    assert few[1] == many[100]


def test_uniforms_are_uniform_and_uncorrelated_between_rounds():
    first, second = (uniforms(0, "select", t, range(20_000)) for t in (1, 2))
    assert 0 < first.min() < first.max() < 1
    assert abs(first.mean() - 0.5) < 0.01
    assert abs(first.var() - 1 / 12) < 0.002
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.02


def test_the_streams_never_change_between_releases():
    assert digest(0, "select", 1) == 6640105738477506562
    np.testing.assert_allclose(
        uniforms(0, "select", 1, [0, 1, "a"]), [0.009863881244705719, 0.01698380508519637, 0.9422341008750442]
    )
