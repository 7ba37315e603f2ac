import pytest
import torch
from torch import nn

from mabrfl.errors import ConfigError
from mabrfl.simulation.training import MODELS, initialise
from mabrfl.simulation.training.flat import flatten, size, trainable


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("mnist-cnn", (1, 28, 28), 139_960),
        ("mnist-cnn-small", (1, 28, 28), 160 + 4_640 + 800 * 64 + 64 + 650),
        ("mnist-cnn-bn", (1, 28, 28), 9 * 16 + 2 * 16 + 9 * 16 * 32 + 2 * 32 + 32 * 36 * 10),
        ("mnist-lstm", (1, 28, 28), 4 * 48 * (28 + 48 + 2) + 490),
        ("vgg-lite", (3, 32, 32), 1_186_378),
        ("vgg-tiny", (3, 32, 32), 448 + 2_320 + 4_640 + 9_248 + 18_496 + 36_928 + 10_250),
        ("cifar-cnn", (3, 32, 32), 896 + 18_496 + 73_856 + 20_490),
        ("mlp", (64,), 64 * 64 + 64 + 650),
        ("mlp", (1, 8, 8), 64 * 64 + 64 + 650),
    ],
)
def test_models_have_the_stated_number_of_parameters(name, shape, count):
    assert size(trainable(MODELS[name](shape, 10))) == count


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 10, 13)])
def test_every_model_takes_any_image_that_is_large_enough(name, shape):
    model = MODELS[name](shape, 7)
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


def test_pooling_before_the_rectifier_changes_nothing():
    model = MODELS["mnist-cnn"]((1, 28, 28), 10)
    conv1, pool, relu, conv2, _, _, *rest = model
    images = torch.randn(3, 1, 28, 28)
    other_order = nn.Sequential(conv1, relu, pool, conv2, relu, pool, *rest)
    assert torch.equal(model(images), other_order(images))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("mnist-cnn", (64,), r"'mnist-cnn' .* such as \(1, 28, 28\); .* shape \(64,\)"),
        ("mnist-cnn-small", (1, 8, 8), r"at least 10, such as \(1, 28, 28\); .* shape \(1, 8, 8\)"),
        ("vgg-lite", (3, 32, 7), r"'vgg-lite' .* at least 8, such as \(3, 32, 32\); .* shape \(3, 32, 7\)"),
        ("mlp", (), r"'mlp' takes .* shape \(\)"),
    ],
)
def test_an_unsuitable_shape_is_named_beside_a_suitable_one(name, shape, message):
    with pytest.raises(ConfigError, match=message):
        MODELS[name](shape, 10)


def test_he_normal_has_variance_two_over_fan_in_and_zero_biases():
    model = initialise(MODELS["vgg-lite"]((3, 32, 32), 10), "he-normal", seed=1)
    for layer in model:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            assert float(layer.weight.detach().std()) == pytest.approx((2 / fan_in) ** 0.5, rel=0.1)
            assert not layer.bias.any()


def test_default_initialisation_is_pytorchs_own_and_not_he_normal():
    model = initialise(MODELS["mlp"]((64,), 10), "default", seed=1)
    bound = 1 / 64**0.5
    assert float(model[1].weight.detach().abs().max()) <= bound
    assert float(model[1].weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    assert model[1].bias.any()


@pytest.mark.parametrize("scheme", ["he-normal", "default"])
def test_initialisation_depends_on_the_seed_alone(scheme):
    def weights(seed, disturbance):
        torch.manual_seed(disturbance)
        return flatten(trainable(initialise(MODELS["mlp"]((64,), 10), scheme, seed=seed)))

    assert (weights(3, 0) == weights(3, 1)).all()
    assert (weights(3, 0) != weights(4, 0)).any()


def test_initialisation_leaves_the_global_random_state_alone():
    model = MODELS["mlp"]((64,), 10)
    before = torch.get_rng_state()
    initialise(model, "default", seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_scheme_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"unknown initialisation 'he_normal'; did you mean 'he-normal'"):
        initialise(MODELS["mlp"]((4,), 2), "he_normal")
