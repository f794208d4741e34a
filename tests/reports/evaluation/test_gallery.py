import base64
import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.gallery import MOST, MOST_LARGE, gallery, hero

from robustkit.evidence.picture import Picture
from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows


def pixels(uri: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def showing(run: Run, *pictures: Picture) -> Run:
    return replace(run, pictures=list(pictures))


@pytest.fixture(scope="module")
def picture(run: Run) -> Picture:
    return next(one for one in run.pictures if one.norm == "Linf" and one.adv_pred != one.label)


def test_the_models_share_the_room_and_the_broken_come_first(make_run: Callable[..., Run]) -> None:
    shown = gallery(boards([make_run(hardness=2.5)])[0])

    assert {one.model for one in shown} == {"resnet18", "resnet18-adversarial"}
    for model in ("resnet18", "resnet18-adversarial"):
        broken = [one.broken for one in shown if one.model == model]
        assert 0 < len(broken) <= MOST / 2
        assert broken == sorted(broken, reverse=True)
        assert any(broken)
        assert not all(broken)


def test_an_image_stands_once_for_each_model_and_is_robust_only_if_nothing_broke_it(run: Run) -> None:
    broken = run.samples[run.samples["verdict"] == "broken"]
    fallen = {*zip(broken["model"], broken["sample"], strict=True)}

    shown = gallery(boards([run])[0])

    assert len({(one.model, one.sample) for one in shown}) == len(shown)
    assert all(one.broken == ((one.model, one.sample) in fallen) for one in shown)


def test_a_distance_is_written_like_the_radii(run: Run, picture: Picture) -> None:
    x_adv = picture.x + np.where(picture.x > 0.5, -1, 1).astype(np.float32) * np.float32(0.05)
    eps = {"0.05": "1/20", "0.1": "1/10", "0.2": "1/5"}
    rows = [frame.replace({"eps_text": eps}) for frame in (run.results, run.samples)]
    renamed = replace(run, results=rows[0], sample_rows=SampleRows.of_frame(rows[1]))
    one = replace(picture, x_adv=x_adv, eps_text=eps[picture.eps_text])

    (shown,) = gallery(boards([showing(renamed, one)])[0])

    assert shown.distance == "1/20"


def test_the_large_picture_is_the_first_broken_one_of_the_best_model(run: Run) -> None:
    shown = hero(boards([run])[0])

    assert shown is not None
    assert (shown.model, shown.threat, shown.broken) == ("resnet18-adversarial", "Linf 0.1", True)
    samples = [one.sample for one in run.pictures if one.model == shown.model and one.adv_pred != one.label]
    assert shown.sample >= min(samples)


def test_clean_pixels_are_the_data_s_own(run: Run, picture: Picture) -> None:
    (shown,) = gallery(boards([showing(run, picture)])[0])

    np.testing.assert_array_equal(pixels(shown.clean), np.round(picture.x[0] * 255))


def test_the_difference_is_grey_where_nothing_moved_and_its_factor_is_true(run: Run, picture: Picture) -> None:
    x_adv = picture.x.copy()
    x_adv[0, 0, 0] += 0.25
    (shown,) = gallery(boards([showing(run, replace(picture, x_adv=x_adv))])[0])

    difference = pixels(shown.difference)

    assert difference[0, 0] == 255
    assert set(difference.ravel()[1:]) == {128}
    assert shown.factor.endswith(" 2")
    assert shown.distance == "0.25"


def test_a_picture_that_did_not_move_is_no_division_by_zero(run: Run, picture: Picture) -> None:
    (shown,) = gallery(boards([showing(run, replace(picture, x_adv=picture.x))])[0])

    assert shown.factor == "no difference"


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_any_number_of_channels_can_be_shown(channels: int, run: Run, picture: Picture) -> None:
    x = np.repeat(picture.x, channels, axis=0)
    (shown,) = gallery(
        boards([showing(run, replace(picture, x=x, x_adv=np.repeat(picture.x_adv, channels, axis=0)))])[0]
    )

    assert pixels(shown.clean).shape == ((8, 8, 3) if channels == 3 else (8, 8))


def test_data_beyond_zero_and_one_is_stretched_and_says_so(run: Run, picture: Picture) -> None:
    wide = replace(picture, x=picture.x * 2 - 1, x_adv=picture.x_adv * 2 - 1)
    (shown,) = gallery(boards([showing(run, wide)])[0])

    assert shown.span == "-1 to 1"


def test_large_pictures_are_fewer(make_run: Callable[..., Run]) -> None:
    run = make_run(n=30, models=("m",))
    large = [
        replace(one, x=np.zeros((3, 80, 80), np.float32), x_adv=np.ones((3, 80, 80), np.float32))
        for one in run.pictures
    ]

    assert len(gallery(boards([showing(run, *large)])[0])) == MOST_LARGE


def test_confidences_stand_with_the_classes_where_they_are_known(run: Run, picture: Picture) -> None:
    sure = replace(picture, clean_confidence=0.9996, adv_confidence=0.4321)
    (shown,) = gallery(boards([showing(run, sure)])[0])
    (older,) = gallery(boards([showing(run, picture)])[0])

    assert (shown.clean_confidence, shown.adv_confidence) == ("over 99 %", "43 %")
    assert (older.clean_confidence, older.adv_confidence) == ("", "")
