import errno
import os
from pathlib import Path

import pytest

from robustkit.errors import UserError
from robustkit.host.files import write_text


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    write_text(path, "old")
    monkeypatch.setattr(os, step, full_disk)

    with pytest.raises(UserError, match=r"report\.html: No space left on device"):
        write_text(path, "new")

    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)

    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "report.html", "new")

    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_is_a_sentence_for_the_user(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")

    with pytest.raises(UserError, match="Cannot write"):
        write_text(tmp_path / "taken" / "report.html", "text")


@pytest.mark.parametrize(("code", "advice"), [(errno.ENOSPC, "Free some space there"), (errno.EROFS, "Choose another")])
def test_the_advice_fits_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(UserError, match=advice):
        write_text(tmp_path / "report.html", "text")


def test_missing_folders_are_made_and_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.csv"

    write_text(path, "a\nb\r\n")

    assert path.read_bytes() == b"a\nb\r\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_report_is_as_readable_as_any_other_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")

    write_text(tmp_path / "report.html", "")

    assert (tmp_path / "report.html").stat().st_mode == (tmp_path / "plain").stat().st_mode


def things(folder: Path) -> dict[str, Path]:
    """What no report may replace, by its kind."""
    (folder / "target.html").write_text("mine")
    (folder / "link.html").symlink_to("target.html")
    os.mkfifo(folder / "pipe.html")
    (folder / "folder.html").mkdir()
    (folder / "run.sqlite").write_bytes(b"SQLite format 3\0")
    (folder / "evidence.html").write_bytes(b"SQLite format 3\0")
    (folder / "model.py").write_text("def factory(): ...")
    return {path.name: path for path in folder.iterdir() if path.name != "target.html"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in folders")
@pytest.mark.parametrize("name", ["link.html", "pipe.html", "folder.html", "run.sqlite", "evidence.html", "model.py"])
def test_a_report_replaces_no_link_pipe_folder_evidence_or_code(name: str, tmp_path: Path) -> None:
    path = things(tmp_path)[name]
    before = path.lstat()

    with pytest.raises(UserError, match="not replaced"):
        write_text(path, "report")

    assert path.lstat().st_mtime_ns == before.st_mtime_ns
    assert path.lstat().st_mode == before.st_mode
    assert (tmp_path / "target.html").read_text() == "mine"


def test_a_name_with_bytes_that_are_no_utf8_can_stand_in_a_report(tmp_path: Path) -> None:
    write_text(tmp_path / "report.html", "caf\udce9")

    assert (tmp_path / "report.html").read_text() == "caf\\udce9"
