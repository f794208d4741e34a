"""How an epoch is judged."""

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.inner_attack.specification import inner_attack
from robustkit.defenses.training.identity import first_difference, identity_of
from robustkit.defenses.training.selection import Judge, ValidationScore

from robustkit import attack
from robustkit.data import from_tensors
from robustkit.errors import UserError
from robustkit.primitives import registry
from tests.defenses.doubles import Wrapped
from tests.defenses.nets import SHORT, TRAIN, VAL, changed, digits, net, state
from tests.small import linear


def test_the_worst_of_two_attacks_is_counted():
    x, y = VAL
    score = Judge(x, y, "pgd:steps=3", "Linf", 0.05, 0).score(net())
    ce, margin = (
        attack(net(), x, y, registry.build(f"pgd:steps=3,loss={loss}", "Linf", 0.05)) for loss in ("ce", "margin")
    )

    assert score.clean == ce.clean_accuracy
    assert score.ce == ce.robust_accuracy
    both = ce.clean_correct & ~ce.success & ~margin.success
    assert score.worst == pytest.approx(both.double().mean().item(), abs=1.01 / len(y))
    assert 0 < score.worst <= score.ce < score.clean
    assert score.gap == score.ce - score.worst


def test_a_linear_network_has_the_accuracy_of_its_closed_form():
    x, y = digits(1200, 40)
    network, eps = linear(), 0.02
    weight = network[1].weight.detach()
    logits = network(x).detach()
    # The margin to class j falls by eps times the L1 norm of the difference of the weights, or less at the box.
    margins = logits.gather(1, y[:, None]) - logits
    reach = eps * (weight[y][:, None] - weight[None]).abs().sum(2)
    certain = ((margins > reach) | (torch.arange(10) == y[:, None])).all(1)

    score = Judge(x, y, "pgd:steps=10", "Linf", eps, 0).score(network)

    assert score.worst >= certain.double().mean()
    assert score.worst < score.clean


def test_judging_does_not_change_the_network():
    network = net().train()
    network.bn1.eval()
    before, flags = state(network), [module.training for module in network.modules()]
    Judge(*VAL, "pgd:steps=1", "Linf", 0.1, 0).score(network)

    assert changed(network, before) == set()
    assert [module.training for module in network.modules()] == flags


OWN = "from robustkit.attacks import PGD\n\nclass Climb(PGD):\n    pass\n"


def test_an_attack_of_the_users_own_judges_as_one_of_the_package(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    own, ours = (
        Judge(*VAL, select, "Linf", 0.05, 0).verdicts(net()) for select in (f"{file}:Climb:steps=3", "pgd:steps=3")
    )

    assert all(torch.equal(*pair) for pair in zip(own, ours, strict=True))


def test_a_training_that_another_code_judges_is_another_training(tmp_path):
    file, inner, data = tmp_path / "mine.py", inner_attack("pgd:steps=2", "Linf", 0.1), from_tensors(*VAL)
    identities = []
    for code in (OWN, OWN, OWN.replace("pass", "power = 2")):
        file.write_text(code)
        identities.append(identity_of(net(), data, data, inner, SHORT.but(select=f"{file}:Climb"), 1))

    assert first_difference(identities[0], identities[1]) is None
    assert first_difference(identities[0], identities[2]) == "judging attack, code,"


def test_without_a_radius_clean_images_are_judged():
    score = Judge(*VAL, "pgd:steps=1", "Linf", 0.0, 0).score(net())

    assert score.clean == score.worst == (net()(VAL[0]).argmax(1) == VAL[1]).double().mean()


def test_robust_accuracy_counts_first_and_clean_accuracy_breaks_ties():
    assert ValidationScore(0.8, 0.4, 0.3).better_than(ValidationScore(0.9, 0.5, 0.2))
    assert ValidationScore(0.9, 0.3, 0.3).better_than(ValidationScore(0.8, 0.4, 0.3))
    assert not ValidationScore(0.9, 0.4, 0.3).better_than(ValidationScore(0.9, 0.4, 0.3))


def test_chance_is_the_share_of_the_most_frequent_class():
    assert Judge(torch.zeros(4, 1), torch.tensor([0, 2, 2, 1]), "pgd", "Linf", 0.1, 0).chance == 0.5


@pytest.mark.parametrize("text", ["square", "noise", "pgd:stepz=1", "nothing"])
def test_an_attack_that_cannot_judge_is_refused(text):
    with pytest.raises(UserError):
        Judge(*VAL, text, "Linf", 0.1, 0)


def test_verdicts_are_fp32_though_the_training_is_bf16():
    network, seen = net(), set()

    def remember(x):
        if isinstance(x, torch.Tensor):  # and not a proxy of a trace
            seen.add((network.training, torch.is_autocast_enabled("cpu"), x.dtype))
        return x

    model = Wrapped(network, before=remember)
    finetune(model, digits(0, 32), VAL, eps=0.1, recipe=SHORT.but(epochs=1, bf16=True))
    assert (True, True, torch.float32) in seen

    seen.clear()
    Judge(*VAL, "pgd:steps=1", "Linf", 0.1, 0).score(model)

    assert seen == {(False, False, torch.float32)}


def test_the_choice_of_an_epoch_never_sees_a_test_label():
    x, y = digits(1500, 30)
    histories = [
        finetune(net(), TRAIN, VAL, eps=0.1, recipe=SHORT.but(epochs=1), test=test).history.drop(columns="seconds")
        for test in (None, from_tensors(x, (y + 3) % 10))
    ]

    assert histories[0].equals(histories[1])
