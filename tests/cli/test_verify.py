"""`robustkit verify`: a folder that nobody touched passes, one that somebody edited does not."""

import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from robustkit import evaluate, load_run
from robustkit.evidence.digest import evidence_digest
from tests.black_box.loopback import serving
from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused
from tests.small import data, linear, save


def mkfifo(path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(path)


@pytest.fixture
def made(run_once):
    return run_once("made", "evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1")


def test_an_untouched_run_passes(made, robustkit):
    printed = robustkit("verify", "made")

    assert printed.status == 0
    assert [line.split()[0] for line in printed.out.splitlines()] == ["pass"] * 4 + ["run.sqlite:"]


def test_a_run_passes_under_another_name_and_from_inside_its_folder(made, robustkit, monkeypatch):
    shutil.move(made, made.with_name("moved"))

    assert robustkit("verify", "moved").status == 0
    monkeypatch.chdir("moved")
    assert robustkit("verify", ".").status == 0


def test_a_page_with_another_name_and_another_figure_is_found(made, robustkit):
    shutil.move(made, made.with_name("moved"))
    page = made.with_name("moved") / "report.html"
    page.write_text(page.read_text().replace("0", "9", 1))

    assert robustkit("verify", "moved").status == 1


@pytest.mark.parametrize("data", ["", "[", "[{}]", "[]", "3", '[{"folder": 3}]', "[" * 100_000])
def test_a_page_that_names_no_run_is_found(data, made, robustkit):
    (made / "report.html").write_text(f'<script id="robustkit-results">{data}</script>')

    assert robustkit("verify", "made").status == 1


def test_an_unfinished_run_is_called_so(made, robustkit):
    with sqlite3.connect(made / "run.sqlite") as evidence:
        evidence.execute("UPDATE run SET value = 'null' WHERE key = 'finished'")
    evidence.close()

    assert "unfinished" in robustkit("verify", "made").out.splitlines()[0]


@pytest.mark.parametrize("name", ["results.csv", "samples.csv", "report.html"])
def test_an_edited_file_is_found_and_written_again(name, made, robustkit):
    before = (made / name).read_bytes()
    (made / name).write_bytes(before.replace(b"0", b"9", 1))

    assert robustkit("verify", "made").status == 1
    assert robustkit("report", "made").status == 0
    assert robustkit("verify", "made").status == 0
    assert (made / name).read_bytes() == before


def test_a_missing_file_is_no_lie(made, robustkit):
    (made / "samples.csv").unlink()
    printed = robustkit("verify", "made")

    assert printed.status == 0
    assert "not there" in printed.out


@pytest.mark.parametrize("name", ["results.csv", "report.html"])
@pytest.mark.parametrize(("create", "kind"), [(Path.mkdir, "a folder"), (mkfifo, "a pipe")])
def test_what_is_no_file_is_not_called_missing_and_never_waited_for(name, create, kind, made, robustkit):
    (made / name).unlink()
    create(made / name)
    printed = robustkit("verify", "made")

    assert printed.status == 1
    assert f"{name}: is {kind}, not a file" in printed.out


def test_what_is_no_run_is_one_line(robustkit, place):
    refused(robustkit("verify", "nowhere"), "nowhere", "run folder")


# With the model.


BOTH = (*DATA, "-m", "net.py:factory", "-m", "net.py:other", "--name", "linear", "--name", "cnn")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run with its adversarial examples, which is made once: the first test that wants it puts it here."""
    return tmp_path_factory.mktemp("kept") / "run"


@pytest.fixture
def copy(kept, place, robustkit):
    if not kept.exists():
        attack = ("-a", "fgsm", "--eps", "0.05", "--eps", "0.1", "-n", "16", "--keep-adversarial")
        assert robustkit("evaluate", "-q", *BOTH, *attack, "--out", kept).status == 0
    shutil.copytree(kept, place / "run")
    return place / "run"


def edited(folder, *statements):
    with sqlite3.connect(folder / "run.sqlite") as store:
        for statement in statements:
            assert store.execute(statement).rowcount > 0
    store.close()


def test_the_models_of_the_run_confirm_it(copy, robustkit):
    printed = robustkit("verify", "run", *BOTH)

    assert printed.status == 0
    assert sum("the same model gives the stored classes" in line for line in printed.out.splitlines()) == 2


def test_another_model_is_no_tampering(copy, robustkit):
    printed = robustkit("verify", "run", *DATA, "-m", "net.py:other", "--name", "linear")

    assert printed.status == 2
    assert "not the model of the run" in printed.out
    assert re.search(r"It predicts other classes than stored for adversarial examples of images \d+", printed.out)
    assert "FAIL" not in printed.out


_FALLEN = "(SELECT sample FROM attacked WHERE success = 1 AND eps_text = '0.05')"
# Each edit agrees with itself, so that no check without the model finds it.
CONSISTENT = {
    "the class of an adversarial example":
        ["UPDATE attacked SET adv_pred = (SELECT 45 - label - adv_pred FROM clean WHERE clean.model = attacked.model "
         "AND clean.sample = attacked.sample) % 10 WHERE success = 1"],
    "a clean prediction": ["UPDATE clean SET pred = (label + 1) % 10 WHERE pred != label"],
    "broken images that are said to be clean errors": [
        f"DELETE FROM witness WHERE sample IN {_FALLEN}", "DELETE FROM picture",
        f"DELETE FROM attacked WHERE sample IN {_FALLEN}",
        "UPDATE clean SET pred = (label + 1) % 10 WHERE NOT EXISTS "
        "(SELECT 1 FROM attacked WHERE attacked.model = clean.model AND attacked.sample = clean.sample)",
    ],
}  # fmt: skip


@pytest.mark.parametrize("statements", CONSISTENT.values(), ids=CONSISTENT)
def test_an_edit_that_only_the_model_can_tell_is_found(statements, copy, robustkit):
    edited(copy, *statements)
    assert robustkit("report", "run").status == 0
    printed = robustkit("verify", "run", *BOTH)

    assert printed.status == 1
    assert "the evidence was changed" in printed.out


def test_other_data_are_no_answer(copy, robustkit, place):
    save(place / "other.npz", data(30)[0].flip(0), data(30)[1])
    refused(robustkit("verify", "run", "-d", "other.npz", "-m", "net.py:factory"), "--dataset", "digits")


def test_a_clean_image_that_is_not_of_the_data_is_found(copy, robustkit):
    edited(copy, "UPDATE original SET x = (SELECT x FROM original ORDER BY sample DESC LIMIT 1)")

    assert "differs from the data" in robustkit("verify", "run", *BOTH).out


def test_swapped_evidence_is_found_by_the_files_beside_it(copy, robustkit):
    evaluate(linear(), names="linear", dataset=data(30), attacks="fgsm", eps="0.1", out=copy.parent / "other")
    shutil.copy(copy.parent / "other" / "run.sqlite", copy / "run.sqlite")

    assert robustkit("verify", "run").status == 1


def test_the_published_sum_finds_what_nothing_else_can(copy, robustkit):
    printed = robustkit("verify", "run")
    (published,) = re.findall(r"SHA-256 of the evidence ([0-9a-f]{64})", printed.out)
    assert robustkit("verify", "run", "--sha256", published).status == 0
    edited(copy, "UPDATE attacked SET forwards = forwards + 1 WHERE success = 1")
    robustkit("report", "run")

    assert robustkit("verify", "run").status == 0
    assert robustkit("verify", "run", "--sha256", published).status == 1


def test_the_sum_is_of_the_content_and_not_of_the_file(copy, robustkit):
    before = evidence_digest(copy)
    edited(copy, "UPDATE attacked SET forwards = forwards + 0")
    with sqlite3.connect(copy / "run.sqlite") as store:
        store.execute("VACUUM")
    store.close()

    assert evidence_digest(copy) == before


def test_a_run_without_kept_examples_is_judged_by_its_pictures(place, robustkit):
    assert robustkit("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1", "--out", "made").status == 0
    printed = robustkit("verify", "made", *MODEL, *DATA)

    assert printed.status == 0
    assert "30 clean images and 0 stored" not in printed.out


def test_rejections_are_judged_again(place, robustkit):
    model = ("-m", "net.py:rejecting")
    attack = ("-a", "pgd:steps=10", "--eps", "0.1", "--rejects", "--keep-adversarial")
    assert robustkit("evaluate", "-q", *model, *DATA, *attack, "--out", "run").status == 0
    run = load_run("run")
    assert {"robust", "broken"} <= set(run.samples["verdict"])
    assert -1 in set(run.samples["clean_pred"])
    assert -1 in set(run.samples.query("verdict == 'robust'")["adv_pred"])

    assert robustkit("verify", "run", *model, *DATA).status == 0
    edited(place / "run", "UPDATE clean SET pred = label WHERE pred = -1")
    assert robustkit("verify", "run", *model, *DATA).status == 1


def test_pictures_that_are_rejected_are_no_adversarial_examples(place, robustkit):
    model = ("-m", "net.py:rejecting")
    asked = ("-a", "pgd:steps=10", "--eps", "0.1", "-n", "20", "--rejects", "--out", "run")
    assert robustkit("evaluate", "-q", *model, *DATA, *asked).status == 0
    samples = load_run("run").samples
    assert -1 in set(samples["adv_pred"])
    broken = int((samples["verdict"] == "broken").sum())

    assert f"and {broken} stored adversarial examples" in robustkit("verify", "run", *model, *DATA).out


def test_corrupted_images_are_judged_again(place, robustkit):
    asked = ("--corruptions", "contrast", "--severity", "3", "--severity", "5")
    assert robustkit("corruptions", "-q", *MODEL, *DATA, *asked, "--out", "corrupted").status == 0
    printed = robustkit("verify", "corrupted", *MODEL, *DATA)
    assert printed.status == 0
    assert "at 60 corrupted images" in printed.out

    edited(place / "corrupted", "UPDATE corrupted SET pred = (pred + 1) % 10 WHERE sample = 7 AND severity = 5")
    assert robustkit("report", "corrupted").status == 0
    printed = robustkit("verify", "corrupted", *MODEL, *DATA)
    assert printed.status == 1
    assert "corrupted image" in printed.out

    edited(place / "corrupted", "UPDATE corrupted SET pixels = pixels + 1")
    assert "60 corrupted images differ" in robustkit("verify", "corrupted", *MODEL, *DATA).out


def test_a_run_of_a_server_is_judged_again_on_its_rounded_images(robustkit, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        run = ("evaluate", "-q", "-m", server.url, *DATA, "-n", "5", "-a", "square:queries=8", "--eps", "0.3")
        assert robustkit(*run, "--keep-adversarial", "-o", "served").status == 0
        again = ("verify", "served", "-m", server.url, *DATA)
        printed = robustkit(*again)
        limited = robustkit(*again, "--max-queries", "3", "--parallel", "2")

    refused(limited, "3 requests", "allow more with --max-queries")
    assert printed.status == 0
    assert "the same model gives the stored classes at 5 clean images" in printed.out
