import pytest
import torch

from robustkit import UserError
from robustkit import masked_defenses as broken
from robustkit.diagnosis import diagnose
from tests.diagnosis.nets import EPS, base, defended, images, undefended_accuracy

every_defence = pytest.mark.parametrize("name", broken.names())


@pytest.fixture(scope="module")
def found():
    x, y = images()
    return {name: diagnose(defended(name), x, y, eps=EPS, loss=record.loss) for name, record in broken.RECORDS.items()}


@every_defence
def test_the_right_layer_is_named_with_the_right_cause(found, name):
    record, layer = broken.RECORDS[name], broken.place(name, defended(name))
    named = {row.layer: row.verdict for row in found[name].rows if row.verdict != "faithful"}

    assert named == {layer: record.cause}


@every_defence
def test_the_right_remedy_is_prescribed_for_it(found, name):
    (remedy,) = found[name].prescription

    assert remedy.kind == broken.RECORDS[name].prescription
    assert remedy.layer == broken.place(name, defended(name))


@every_defence
def test_with_the_remedy_the_defence_is_worth_nothing(found, name):
    proof = found[name].proof

    # Three images of 32.
    assert proof.after <= undefended_accuracy() + 3 / 32
    assert proof.clean > 0.8


@pytest.mark.parametrize("name", ["quantised", "zeroed", "temperature"])
def test_without_the_remedy_the_same_attack_is_helpless(found, name):
    assert found[name].proof.before > 0.8


@pytest.mark.parametrize("name", ["binarised", "detached"])
def test_an_attack_that_cannot_even_run_is_said_to_be_so(found, name):
    assert found[name].proof.before is None
    assert "do not depend on its input" in found[name].proof.refusal


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("quantised", "masked"), ("softmax", "masked"), ("noisy", "stochastic"), ("temperature", "loss saturated"),
     ("smoothed", "clear")],
)  # fmt: skip
def test_the_overall_verdict_says_what_kind_of_trouble_it_is(found, name, verdict):
    assert found[name].verdict == verdict
    assert found[name].masked == (verdict != "clear")


def test_hot_logits_are_no_trouble_to_a_loss_that_does_not_saturate():
    x, y = images()
    found = diagnose(defended("temperature"), x, y, eps=EPS, prove=False)

    assert found.verdict == "clear"
    assert "Cross-entropy would have no usable gradient" in found.notes[0]


@pytest.mark.parametrize("name", ["quantised", "binarised", "softmax"])
def test_a_defence_is_put_on_a_copy(name):
    network = base()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    names = [key for key, _ in network.named_modules()]
    broken.build(name, network)

    assert [key for key, _ in network.named_modules()] == names
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", ["noisy", "smoothed"])
def test_a_defence_is_built_alike_each_time_and_draws_nothing_global(name):
    state = torch.random.get_rng_state()
    one, other = defended(name), broken.build(name, base())

    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_an_unknown_defence_is_an_error_with_the_nearest_name():
    with pytest.raises(UserError, match="quantised"):
        broken.build("quantized", base())


def test_a_network_without_activations_is_told_so():
    with pytest.raises(UserError, match="no activation"):
        broken.build("detached", torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
