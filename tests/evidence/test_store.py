"""The evidence file: whole, locked by one writer, and never the cause of a traceback."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from robustkit import UserError, load_run
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.store import Store
from tests.small import data, evaluated, evidence, linear


def run(folder):
    return evaluated(linear(), Path(folder), dataset=data(8), attacks="fgsm", eps="0.1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run, to copy."""
    folder = tmp_path_factory.mktemp("finished")
    run(folder)
    return folder


def changed(statement: str):
    def change(file):
        opened = sqlite3.connect(file)
        opened.execute(statement)
        opened.commit()
        opened.close()

    return change


def scribbled(file):
    raw = bytearray(file.read_bytes())
    raw[4096 : 4096 * 4] = os.urandom(4096 * 3)
    file.write_bytes(bytes(raw))


def foreign(file):
    file.unlink()
    changed("CREATE TABLE run (a, b)")(file)


DAMAGE = {
    "garbage": lambda file: file.write_bytes(os.urandom(20_000)),
    "text": lambda file: file.write_text("hello"),
    "cut in half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "scribbled over": scribbled,
    "of another program": foreign,
    "with broken JSON": changed("UPDATE run SET value = '{' WHERE key = 'identity'"),
    "without identity": changed("DELETE FROM run"),
}
NOTHING = {"empty": lambda file: file.write_bytes(b"")}


@pytest.mark.parametrize("damage", [*DAMAGE, *NOTHING])
def test_a_damaged_file_cannot_be_read_and_says_so(damage, finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    (DAMAGE | NOTHING)[damage](tmp_path / "run.sqlite")
    with pytest.raises(UserError) as error:
        load_run(tmp_path)

    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_not_gone_on_with(damage, finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    DAMAGE[damage](tmp_path / "run.sqlite")
    for _ in range(2):
        # The second time too: a first refusal must not leave the file locked.
        with pytest.raises(UserError) as error:
            run(tmp_path)

        assert "at work" not in str(error.value)


@pytest.mark.parametrize("damage", NOTHING)
def test_a_file_without_evidence_is_a_fresh_start(damage, tmp_path):
    run(tmp_path / "a")
    NOTHING[damage](tmp_path / "a" / "run.sqlite")

    assert run(tmp_path / "a").results.equals(run(tmp_path / "b").results)


def test_evidence_of_another_schema_is_not_read_as_ours(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    opened = sqlite3.connect(tmp_path / "run.sqlite")
    identity = json.loads(opened.execute("SELECT value FROM run WHERE key = 'identity'").fetchone()[0])
    opened.execute("UPDATE run SET value = ? WHERE key = 'identity'", (json.dumps(identity | {"schema": 99}),))
    opened.commit()
    opened.close()

    with pytest.raises(UserError, match=r"schema|version"):
        load_run(tmp_path)


def test_a_folder_without_evidence_is_no_run(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        load_run(tmp_path)


def test_reading_a_run_does_not_write(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    load_run(tmp_path)

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_can_read_one_run_at_once(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    reader = sqlite3.connect(tmp_path / "run.sqlite")
    rows = reader.execute("SELECT * FROM attacked")
    rows.fetchone()

    assert len(load_run(tmp_path).results) == 3
    reader.close()


def test_a_second_writer_is_refused(tmp_path):
    first = Store(tmp_path)
    first.set_manifest(key=1)
    with pytest.raises(UserError, match="at work"):
        Store(tmp_path)
    first.close()

    Store(tmp_path).close()


def test_a_run_at_work_cannot_be_reported_and_is_not_called_damaged(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    writer = Store(tmp_path)
    writer.set_manifest(key=1)
    with pytest.raises(UserError, match="at work") as error:
        load_run(tmp_path)
    writer.close()

    assert "damaged" not in str(error.value)
    assert "--out" not in str(error.value)


def killed(finished, folder):
    """A run whose process was killed: its rows are in the journal."""
    shutil.copytree(finished, folder / "run")
    store = Store(folder / "run")
    store.write([CleanRecord("sequential", 999, 1, 1, "")])
    (folder / "copy").mkdir()
    for file in (folder / "run").iterdir():
        (folder / "copy" / file.name).write_bytes(file.read_bytes())
    store.close()
    return folder / "copy"


@pytest.mark.parametrize(
    "words", ["attempt to write a readonly database", "unable to open database file", "disk I/O error"]
)
def test_a_killed_run_is_read_where_nothing_can_be_written_beside_it(words, finished, tmp_path, monkeypatch):
    folder = killed(finished, tmp_path)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert "run.sqlite-wal" in before
    connect = sqlite3.connect

    def refusing(place, **more):
        if folder.name in str(place):
            raise sqlite3.OperationalError(words)
        return connect(place, **more)

    monkeypatch.setattr(sqlite3, "connect", refusing)

    assert load_run(folder).results.n[0] == 9
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


@pytest.mark.parametrize(
    "words", ["database or disk is full", "disk I/O error", "attempt to write a readonly database"]
)
def test_good_evidence_on_a_full_or_read_only_disk_is_not_called_damaged(words, finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)

    def refusing(*_, **__):
        raise sqlite3.OperationalError(words)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    for use in (load_run, run):
        with pytest.raises(UserError) as error:
            use(tmp_path)

        assert not any(word in str(error.value) for word in ("damaged", "delete", "\n"))


def test_a_pipe_in_place_of_the_file_is_refused(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(tmp_path / "run.sqlite")
    for use in (load_run, run):
        with pytest.raises(UserError, match="regular file"):
            use(tmp_path)


def test_a_row_that_is_there_stays_as_it_is(tmp_path):
    store = Store(tmp_path)
    store.write([CleanRecord("m", 1, 2, 2, "3")])
    store.write([CleanRecord("m", 1, 2, 5, "4"), CleanRecord("m", 2, 0, 0, "")])
    store.close()

    assert evidence(tmp_path)["clean"] == [("m", 1, 2, 2, "3"), ("m", 2, 0, 0, "")]


def test_rows_are_written_all_or_none(tmp_path):
    def rows():
        yield CleanRecord("m", 1, 2, 2, "")
        raise KeyboardInterrupt

    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        store.write(rows())
    store.close()

    assert evidence(tmp_path)["clean"] == []


def test_a_place_below_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(UserError, match="cannot be written"):
        run(tmp_path / "file" / "run")


def test_the_evidence_of_a_finished_run_is_one_file(tmp_path):
    run(tmp_path)

    assert [file.name for file in tmp_path.glob("run.sqlite*")] == ["run.sqlite"]


def test_a_file_that_is_deleted_meanwhile_is_an_error(tmp_path):
    store = Store(tmp_path / "run")
    (tmp_path / "run" / "run.sqlite").unlink()
    with pytest.raises(UserError, match="was moved or deleted"):
        store.write([CleanRecord("net", 0, 1, 1, "2 3")])

    store.close()


def test_a_run_whose_folder_was_moved_keeps_its_rows(tmp_path):
    place, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    store = Store(place)
    store.write([CleanRecord("m", 0, 1, 1, "")])
    place.rename(elsewhere)
    with pytest.raises(UserError, match="if it was moved, move it back"):
        store.write([CleanRecord("m", 1, 1, 1, "")])
    store.close()
    elsewhere.rename(place)
    again = Store(place)

    assert set(again.clean("m")) == {0}

    again.close()


@pytest.mark.parametrize("name", ["results.csv", "samples.csv", "report.html", "corruptions.csv"])
def test_files_without_their_evidence_are_not_written_over(name, tmp_path):
    (tmp_path / name).write_text("all that is left")

    with pytest.raises(UserError, match=f"has a {name} and no run.sqlite"):
        run(tmp_path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["all that is left"]
