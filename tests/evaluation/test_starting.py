"""Which image of the first ones ended workers, if it was one."""

from robustkit.evaluation.lanes import Trying
from robustkit.evaluation.starting import FirstImages


def tried(*images, model="net"):
    return [Trying(model, image) for image in images]


def test_an_image_that_ends_three_workers_is_tried_no_more_and_before_that_after_all_others():
    starting = FirstImages([9])
    ended = [starting.blame(starting.suspected(tried(4, 7))) for _ in range(2)]
    suspects = starting.opening.suspects
    ended.append(starting.blame(starting.suspected(tried(4, 5, 7))))

    assert ended == [False, False, True]
    assert suspects == {7}
    assert starting.opening.avoided == {7, 9}


def test_a_model_that_ends_workers_at_any_image_is_blamed_on_none():
    starting = FirstImages([])
    starting.blame(starting.suspected(tried(4)))

    assert starting.suspected(tried(5)) is None


def test_the_end_at_all_first_images_together_is_blamed_on_none():
    assert FirstImages([]).suspected(tried(4, 5, None)) is None


def test_each_model_may_have_an_image_that_ends_workers():
    starting = FirstImages([])
    starting.blame(starting.suspected(tried(4)))
    other = Trying("other", 4)

    assert starting.suspected([*tried(5, 4, None), other]) == other
