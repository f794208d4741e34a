"""The metadata of a model card: YAML that Hugging Face's own reader takes, whatever models are called."""

import pytest
import yaml
from robustkit.reports import write_form
from robustkit.reports.evaluation.model_card import model_card

NAMES = ("plain", "a: b\n- name: other", "# ---\n---", "{x: [", "\u2028y", "!!python/object/apply:os.system ['true']")


def metadata(text):
    assert text.startswith("---\n")
    return yaml.safe_load(text[4:].partition("\n---\n")[0])


def test_names_are_texts_and_values_are_those_of_the_run(make_run):
    run = make_run(models=NAMES, n=30)
    index = metadata(model_card([run]))["model-index"]
    worst = run.results[(run.results.role == "worst-case") & (run.results.model == "plain")]

    assert len(index) == len(NAMES)
    assert index[0]["name"] == "plain"
    assert [metric["value"] for metric in index[0]["results"][0]["metrics"]][1:] == worst.accuracy.tolist()


def test_names_outside_of_the_basic_plane_are_read_as_they_are(make_run):
    names = ("\U0001f600 net", "\u05e9\u05dc\u05d5\u05dd", 'a "b" \\ c')
    index = metadata(model_card([make_run(models=names, n=30)]))["model-index"]

    assert [entry["name"] for entry in index] == list(names)


def test_the_reader_of_hugging_face_understands_it(run):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(model_card([run]))

    assert {each.metric_type for each in card.data.eval_results} == {"accuracy"}


def test_a_card_that_somebody_wrote_is_not_replaced(run, tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# My model\n")
    with pytest.raises(ValueError, match="not replaced"):
        write_form([run], tmp_path / "README.md", "model-card")
    write_form([run], tmp_path / "card.md", "model-card")
    write_form([run], tmp_path / "card.md", "model-card")
