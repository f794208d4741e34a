import torch
from robustkit.attacks import SignHunter

from tests.attacks.linear import linear
from tests.attacks.score.driven import states
from tests.problems import trials


def test_one_pass_over_the_single_values_finds_every_sign_of_a_linear_margin():
    # Theorem 1 of the paper: as good as the gradient's sign after the blocks of all sizes, here 1 + 1 + 2 + ... + 20.
    made = linear(2)
    weight = made.model[0].weight.detach()
    *_, last = states(SignHunter(0.01, queries=1 + 31 + 20 + 2), made.model, trials(made.x, made.y))

    assert torch.equal(last.signs, (weight[1 - made.y] - weight[made.y]).sign())


def test_every_query_flips_one_block_of_the_best_signs():
    made = linear(2)
    method = SignHunter(0.01, queries=40)
    sizes = []
    for state in states(method, made.model, trials(made.x, made.y)):
        away = ((state.query - made.x) * state.signs < 0).sum(1)
        assert len(set(away.tolist())) == 1
        sizes.append(int(away[0]))

    assert sizes[:15] == [20, 10, 10, 5, 5, 5, 5, 3, 3, 3, 3, 3, 3, 2, 2]


def test_every_value_moves_by_eps_where_the_box_allows_it():
    made = linear(2)
    start = SignHunter(0.01).init(trials(made.x, made.y)).query

    assert torch.allclose(start - made.x, torch.tensor(0.01), atol=1e-6)
