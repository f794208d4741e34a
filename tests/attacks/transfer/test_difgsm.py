import torch
from robustkit.attacks import DIFGSM

from tests.problems import images, trials


def changed(method: DIFGSM, count: int = 400) -> torch.Tensor:
    x = 0.5 + images(count, 1, 12, 20) / 2
    return (method.init(trials(x)).query != x).flatten(1).any(1)


def test_a_query_is_transformed_with_the_given_probability():
    # Four standard deviations of 400 coins are 10 %.
    assert abs(changed(DIFGSM(0.1)).float().mean() - 0.5) < 0.1
    assert not changed(DIFGSM(0.1, diversity=0)).any()
    assert changed(DIFGSM(0.1, diversity=1)).all()


def test_both_sides_shrink_by_one_ratio_down_to_the_smallest():
    query = DIFGSM(0.1, diversity=1, resize=0.5).init(trials(torch.ones(300, 1, 12, 20))).query[:, 0]
    height, width = (query.sum(2) > 0).sum(1), (query.sum(1) > 0).sum(1)

    assert sorted(set(height.tolist())) == [6, 7, 8, 9, 10, 11]
    assert torch.equal((height * 20 - width * 12).abs() < 20, torch.ones(300, dtype=torch.bool))


def test_every_query_of_an_image_has_a_transformation_of_its_own():
    method, x = DIFGSM(0.1, diversity=1, resize=0.2), images(1, 1, 28, 28)
    copies = [method.transformed(x, trials(x), torch.tensor([number])) for number in range(20)]

    assert len({tuple(copy.flatten().tolist()) for copy in copies}) == 20
