"""A run.sqlite that somebody changed by hand: one line that names the folder, never a traceback, code or a hang."""

import json
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from robustkit.reports import write_csv, write_report

from robustkit import Classifier, Smoothing, UserError, evaluate, load_run
from robustkit.evidence.rows import TABLE_OF
from tests.small import data, linear

Change = Callable[[Path], object]


def run(folder: Path) -> object:
    smoothed = Classifier(linear(), name="smoothed", smoothing=Smoothing(0.2, n=12, n0=4))
    return evaluate([linear(), smoothed], dataset=data(4), attacks=["fgsm", "pgd:steps=2"], eps="0.1", out=folder)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    run(folder)
    (folder / "report.html").unlink()
    return folder


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA writable_schema=ON")
    yield connection
    connection.commit()
    connection.close()


def sql(*statements: str) -> Change:
    def change(file: Path) -> None:
        with opened(file) as connection:
            for statement in statements:
                connection.execute(statement)

    return change


def cell(table: str, column: str, value: object) -> Change:
    def change(file: Path) -> None:
        with opened(file) as connection:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))

    return change


def entry(key: str, value: object) -> Change:
    text = value if isinstance(value, str) else json.dumps(value)

    def change(file: Path) -> None:
        with opened(file) as connection:
            connection.execute("UPDATE run SET value = ? WHERE key = ?", (text, key))

    return change


def identity(**values: Any) -> Change:
    """Changed entries of the identity; a `None` removes one."""

    def change(file: Path) -> None:
        with opened(file) as connection:
            text = connection.execute("SELECT value FROM run WHERE key = 'identity'").fetchone()[0]
        changed = {key: value for key, value in (json.loads(text) | values).items() if value is not None}
        entry("identity", changed)(file)

    return change


def at(offset: int, *numbers: int, like: str = ">H") -> Change:
    """Numbers written over the bytes of the file."""

    def change(file: Path) -> None:
        raw = bytearray(file.read_bytes())
        for place, number in enumerate(numbers):
            struct.pack_into(like, raw, offset + place * struct.calcsize(like), number)
        file.write_bytes(bytes(raw))

    return change


def circular(file: Path) -> None:
    """Every page of the file becomes an inner page whose children are one page."""
    raw = bytearray(file.read_bytes())
    size = struct.unpack_from(">H", raw, 16)[0]
    for start in range(size, len(raw), size):
        cells = 200
        page = bytearray(size)
        struct.pack_into(">BHHHBI", page, 0, 2, 0, cells, size - 6, 0, 2)
        for number in range(cells):
            struct.pack_into(">H", page, 12 + 2 * number, size - 6)
        struct.pack_into(">IBB", page, size - 6, 2, 1, 1)
        raw[start : start + size] = page
    file.write_bytes(bytes(raw))


ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n"


def view(table: str) -> Change:
    return sql(f"DROP TABLE {table}", f"CREATE VIEW {table} AS {ENDLESS} AS a, 1 AS b FROM t")


THREATS = {
    "an exponent": [["Linf", "1e99999999999"]], "a text": [["Linf", "x"]], "no pair": [["Linf"]],
    "a norm": [["Lp", "0.1"]], "a number": [["Linf", 0.1]], "a list": "Linf", "a zero": [["Linf", "1/0"]],
    "in L0": [["L0", "3"]], "negative": [["Linf", "-1"]], "long": [["Linf", "1" * 9999]],
}  # fmt: skip
DEEP = "[" * 100_000 + "]" * 100_000
CASES: dict[str, Change] = {
    **{f"a view in place of {name}": view(name) for name in ["run", *TABLE_OF.values()]},
    "a view beside": sql(f"CREATE VIEW more AS {ENDLESS} FROM t"),
    "views of each other": sql("CREATE VIEW a AS SELECT * FROM b", "CREATE VIEW b AS SELECT * FROM a"),
    "a trigger": sql("CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM attacked; END"),
    "a trigger that ends never": sql(
        f"CREATE TRIGGER t AFTER INSERT ON run BEGIN INSERT INTO clean SELECT 'm', n, 1, 1, '' FROM ({ENDLESS} AS n"
        " FROM t); END"
    ),
    "a table beside": sql("CREATE TABLE more (a)"),
    "a virtual table": sql("CREATE VIRTUAL TABLE more USING fts5(a)"),
    "an index": sql("CREATE INDEX more ON clean (label)"),
    "an index on an expression": sql("CREATE INDEX more ON clean (length(hex(zeroblob(1000))))"),
    "a further column": sql("ALTER TABLE clean ADD COLUMN more INT"),
    "a generated column": sql("ALTER TABLE clean ADD COLUMN more AS (length(hex(zeroblob(100000000))))"),
    "a renamed column": sql("ALTER TABLE clean RENAME COLUMN label TO more"),
    "another statement": sql("UPDATE sqlite_master SET sql = 'CREATE TABLE run (key, value)' WHERE name = 'run'"),
    "no statement": sql("UPDATE sqlite_master SET sql = '' WHERE name = 'run'"),
    "two tables on one page": sql("UPDATE sqlite_master SET rootpage = 2 WHERE type = 'table'"),
    "a table on no page": sql("UPDATE sqlite_master SET rootpage = 9999 WHERE name = 'attacked'"),
    **{f"without {name}": sql(f"DROP TABLE {name}") for name in ("run", "clean", "certified", "attacked", "picture")},
    "pages in a circle": circular,
    "a free page in a circle": at(32, 2, 3, like=">I"),
    "a page size of 1": at(16, 1),
    "a page size of 3": at(16, 3),
    "a page count of 2^31": at(28, 2**31 - 1, like=">I"),
    "another schema format": at(44, 77, like=">I"),
    "another encoding": at(56, 2, like=">I"),
    "a cell outside its page": at(4096 + 8, 65_535),
    "an empty wal and a text": lambda file: file.with_name("run.sqlite-wal").write_text("hello") and scribbled(file),
    "a huge value": entry("command", '"' + "a" * 10_000_000 + '"'),
    "labels as texts": cell("clean", "label", "x"),
    "labels that are missing": cell("clean", "label", None),
    "labels as bytes": cell("clean", "label", b"\x00"),
    "huge labels": cell("clean", "label", 2**62),
    "negative labels": cell("clean", "label", -7),
    "predictions as fractions": cell("clean", "pred", 0.5),
    "models as bytes": cell("attacked", "success", b"1"),
    "verdicts as texts": cell("attacked", "success", "yes"),
    "verdicts of 7": cell("attacked", "success", 7),
    "distances as texts": cell("attacked", "linf", "far"),
    "distances as bytes": cell("attacked", "l2", b"far"),
    "passes as texts": cell("attacked", "forwards", "many"),
    "huge passes": cell("attacked", "forwards", 2**63 - 1),
    "votes as texts": cell("certified", "votes", "x"),
    "radii as texts": cell("certified", "l2", "x"),
    "another image": sql("UPDATE attacked SET sample = sample + 1000"),
    "a certificate of another image": sql("UPDATE certified SET sample = sample + 1000"),
    "a picture of another image": sql("UPDATE picture SET sample = sample + 1000"),
    "a picture of no attack": sql("UPDATE picture SET attack = attack || 'x'"),
    "a picture of no shape": cell("picture", "shape", "x"),
    "a picture of a huge shape": cell("picture", "shape", "99999999 99999999 99999999"),
    "a picture of a negative shape": cell("picture", "shape", "-1 8 8"),
    "a picture of no size": cell("picture", "shape", "0 0 0"),
    "a picture as a text": cell("picture", "x", "x"),
    "half a picture": cell("picture", "x_adv", b"\x00" * 100),
    "a picture of NaN": cell("picture", "x", b"\xff" * 256),
    "confidences as texts": cell("confidence", "probability", "sure"),
    "confidences above 1": cell("confidence", "probability", 1.5),
    "text in another encoding": sql("UPDATE run SET value = CAST(x'22ff22' AS TEXT) WHERE key = 'command'"),
    "keys as bytes": sql("UPDATE run SET key = x'00' WHERE key = 'command'"),
    "an entry too deep": entry("environment", DEEP),
    "an identity too deep": entry("identity", DEEP),
    "an entry deep enough to overflow a page": entry("environment", {"a": json.loads("[" * 500 + "]" * 500)}),
    "an identity as a list": entry("identity", []),
    "an identity as a number": entry("identity", 1e300),
    "an identity of null": entry("identity", None),
    "a number of 9999 digits": entry("seconds", '{"a": ' + "9" * 9999 + "}"),
    "seconds as texts": entry("seconds", {"a": "b"}),
    "seconds that are infinite": entry("seconds", '{"a": Infinity}'),
    "warnings as a text": entry("warnings", "abc"),
    "warnings as numbers": entry("warnings", [1]),
    "a time of creation as a list": entry("created", [1]),
    "an end as a number": entry("finished", 7),
    "no command": sql("DELETE FROM run WHERE key = 'command'"),
    **{f"an identity without {key}": identity(**{key: None})
       for key in ("schema", "n", "models", "dataset", "class_names", "threats", "attacks", "seed")},
    **{f"threats with {name}": identity(threats=value) for name, value in THREATS.items()},
    "models as numbers": identity(models=[1]),
    "models without names": identity(models=[{}]),
    "models of one name": identity(models=[{"name": "a"}, {"name": "a"}]),
    "a model's name of two lines": identity(models=[{"name": "a\nb"}]),
    "a model's name with a blank that looks like another": identity(models=[{"name": "a\u00a0b"}]),
    "a name of a megabyte": identity(models=[{"name": "a" * 2**20}]),
    "a smoothing of nothing": identity(models=[{"name": "a", "smoothing": {}}]),
    "a smoothing as a text": identity(models=[{"name": "smoothed", "smoothing": "x"}]),
    "attacks as texts": identity(attacks=["fgsm"]),
    "threats without attacks": identity(attacks=[]),
    "measures as a number": identity(attacks=[{"name": "fgsm", "measures": 5}]),
    "a data set as a text": identity(dataset="digits"),
    "class names as numbers": identity(class_names=[1, 2]),
    "a fraction of an image": identity(n=0.5),
    "an audit without members": identity(audit=3),
    "an audit of a text": identity(audit="3"),
    "an audit of nothing": identity(audit=0, attacks=[{"name": "audit/square"}]),
    "members of no audit": identity(attacks=[{"name": "audit/square"}]),
}  # fmt: skip


def scribbled(file: Path) -> int:
    raw = bytearray(file.read_bytes())
    raw[100:4000] = bytes(3900)
    return file.write_bytes(bytes(raw))


def test_there_are_sixty_cases():
    assert len(CASES) >= 60


def used(folder: Path) -> None:
    result = load_run(folder)
    write_csv(result, folder)
    write_report([result], folder / "report.html")


@pytest.mark.parametrize("case", CASES)
def test_a_tampered_file_is_refused_in_one_line(case, original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    CASES[case](tmp_path / "run" / "run.sqlite")
    with pytest.raises(UserError) as error:
        used(tmp_path / "run")

    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))
    assert not (tmp_path / "run" / "report.html").exists()


# A table that is missing is created and filled again.
MENDED = {"without clean", "without attacked", "without picture", "without certified", "without run"}


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if not case.startswith(("confidences", "half a picture"))
        and ("a view" in case or "picture" not in case)
        and case not in MENDED
    ],
)
def test_a_tampered_file_is_not_gone_on_with(case, original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    CASES[case](tmp_path / "run" / "run.sqlite")
    with pytest.raises(UserError) as error:
        run(tmp_path / "run")

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("column", ["predicted", "clean_step", "random_error"])
def test_a_measurement_without_a_number_is_refused_in_one_line(tmp_path, column):
    evaluate(linear(), dataset=data(8), attacks="default", eps="0.01", out=tmp_path)
    cell("near", column, None)(tmp_path / "run.sqlite")

    with pytest.raises(UserError, match=r"^.* was damaged or changed \(a measurement of nearness has no number\)"):
        load_run(tmp_path)
