"""An evaluation of a server: verdicts about the pictures that were sent, a ledger, and a clean stop."""

import json
import sqlite3

import pytest
import torch
from jsonschema import Draft202012Validator
from robustkit.reports import write_csv
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.card import card_json, card_schema
from robustkit.reports.evaluation.card_markdown import card_markdown
from robustkit.reports.evaluation.cost import requests
from robustkit.reports.evaluation.json_form import json_text, schema

import robustkit
from robustkit.black_box import RemoteAccess
from robustkit.errors import UserError
from robustkit.evidence.consistency import contradictions_in
from tests.black_box.loopback import Answer, label, pixels_of, scores, serving
from tests.small import data, evaluated, linear

ATTACKS = ["square:queries=15", "hopskipjump:queries=15"]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def eight_bit(count: int):
    x, y = data(count)
    return (x * 255).round() / 255, y


def rows(folder, query: str):
    opened = sqlite3.connect(folder / "queries.sqlite")
    try:
        return opened.execute(query).fetchall()
    finally:
        opened.close()


@pytest.mark.parametrize("norm", [pytest.param("Linf", marks=pytest.mark.slow), "L2"])
def test_every_adversarial_example_is_a_picture_that_was_sent(tmp_path, norm):
    with serving() as server:
        run = evaluated(
            server.url, tmp_path, dataset=data(8), attacks="square:queries=30", norm=norm,
            eps={"Linf": 0.25, "L2": 1.6}[norm], keep_adversarial=True,
        )  # fmt: skip
        sent = torch.cat([pixels_of(each.body) for each in server.log])
    kept = run.adversarial(norm=norm)
    levels = (kept.x_adv.double() * 255).round()

    assert len(levels) > 1
    torch.testing.assert_close(kept.x_adv.double(), levels / 255, rtol=0, atol=1e-7)
    assert all(bool((sent * 255 - each).abs().flatten(1).amax(1).min() < 0.01) for each in levels)
    assert not list(contradictions_in(run))
    assert any("256 levels" in warning for warning in run.manifest["warnings"])


def test_the_ledger_is_the_log_of_the_server(tmp_path):
    with serving() as server:
        run = evaluated(server.url, tmp_path, dataset=eight_bit(4), attacks=ATTACKS, eps="0.25")
        asked = [each.body for each in server.log]
        evaluated(server.url, tmp_path, dataset=eight_bit(4), attacks=ATTACKS, eps="0.25")

        assert len(server.log) == len(asked)
    (counts,) = run.manifest["requests"].values()

    assert counts == {"sent": len(asked), "answered": len(set(asked)) + 2}  # two pictures are sent twice on purpose
    assert rows(tmp_path, "SELECT DISTINCT outcome FROM request") == [(200,)]
    assert len(rows(tmp_path, "SELECT * FROM request")) == len(asked)
    assert not run.query_curve().empty

    (shown,) = requests(boards([run])[0])
    read, audit = json.loads(json_text([run]))["runs"][0], json.loads(card_json(run))
    Draft202012Validator(schema()).validate(json.loads(json_text([run])))
    Draft202012Validator(card_schema()).validate(audit)

    assert shown[1:] == (counts["sent"], counts["answered"])
    assert read["requests"] == audit["requests"] == run.manifest["requests"]
    assert f"{counts['sent']:,} sent" in card_markdown(run)
    assert "Rounding" not in " ".join(audit["not_tested"])


def test_a_server_gets_the_verdicts_of_a_model_of_pictures():
    more = {"attacks": ["square:queries=25"], "eps": "64/255", "names": "model", "dataset": eight_bit(6)}

    class Rounding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear()

        def forward(self, x):
            return self.inner((x * 255).round() / 255)

    with serving() as server:
        remote = evaluated(server.url, None, **more).samples
    local = evaluated(Rounding(), None, **more).samples
    columns = ["sample", "clean_pred", "verdict", "adv_pred", "queries_to_break"]

    assert (local["verdict"] == "broken").any()
    assert remote[columns].equals(local[columns])


def test_labels_alone_are_enough_and_scores_are_refused(tmp_path):
    with serving(label) as server:
        run = evaluated(
            server.url, tmp_path, dataset=eight_bit(4), num_classes=10, attacks=["rays:queries=40"], eps="0.25"
        )
        with pytest.raises(UserError, match="labels only"):
            evaluated(server.url, None, dataset=eight_bit(4), num_classes=10, attacks=["square:queries=9"], eps="0.25")

    assert (run.samples["verdict"] == "broken").any()


def test_a_run_stops_when_its_requests_are_spent_and_goes_on_later(tmp_path):
    request = {"dataset": eight_bit(4), "attacks": ["square:queries=15"], "eps": "0.2"}
    with serving() as server:
        whole = evaluated(server.url, None, **request)
        needed = len(server.log)
        stopped = evaluated(server.url, tmp_path, **request, remote=RemoteAccess(max_queries=needed // 2))
        write_csv(stopped, tmp_path)

        assert stopped.manifest["finished"] is None
        assert len(server.log) == needed + needed // 2

        resumed = evaluated(server.url, tmp_path, **request, remote=RemoteAccess(max_queries=needed))

        assert len(server.log) == 2 * needed
    assert resumed.samples.equals(whole.samples)


def test_a_server_that_changes_its_mind_is_said_to():
    count = iter(range(10**6))

    def fickle(png: bytes) -> Answer:
        return Answer(b'{"label": %d}' % (next(count) % 10))

    with serving(fickle) as server:
        run = evaluated(
            server.url, None, dataset=eight_bit(3), num_classes=10, attacks=(), corruptions="contrast", severities=1
        )

    assert any("when it is sent again" in warning for warning in run.manifest["warnings"])


def test_tensors_that_are_no_pictures_are_refused():
    x, y = data(2)
    with serving() as server:
        model = robustkit.HttpModel(server.url, num_classes=10)
        with pytest.raises(UserError, match="8-bit images"):
            robustkit.attack(model, x, y, "square:queries=5", eps="0.2")
        found = robustkit.attack(model, (x * 255).round() / 255, y, "square:queries=5", eps="0.2")

        assert bool(((found.x_adv - x).abs() <= 0.2 + 1 / 255).all())


def test_transfer_to_a_server_asks_it_about_last_points_only():
    with serving(scores) as server:
        evaluated(
            server.url, None, dataset=eight_bit(5), attacks=["pgd:steps=5"], eps="0.2", surrogates=[linear()],
        )  # fmt: skip

        assert len(server.log) <= 5 + 5 + 2


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"checks": "standard"}, "each a request"), ({"workers": 2}, "One process")],
    ids=["checks", "workers"],
)  # fmt: skip
def test_what_would_spend_uncounted_requests_is_refused(asked, why):
    with serving() as server:
        with pytest.raises(UserError, match=why):
            evaluated(server.url, None, dataset=eight_bit(2), attacks=["square"], eps="0.2", **asked)

        assert server.log == []
