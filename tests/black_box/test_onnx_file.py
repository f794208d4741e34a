"""An ONNX file gets the labels and the black-box verdicts of the network that it was made of."""

import numpy as np
import pytest
import torch

import robustkit
from robustkit.black_box import OnnxModel
from robustkit.errors import UserError
from robustkit.models import load_model
from tests.small import cnn, data, evaluated, linear

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
import onnx

from tests.black_box.onnx_files import save_onnx

VERDICTS = ["norm", "eps_text", "attack", "sample", "label", "clean_pred", "verdict", "adv_pred", "queries_to_break"]


def test_an_onnx_file_has_the_verdicts_of_its_network(tmp_path):
    network = cnn().eval()
    file = save_onnx(tmp_path / "net.onnx", network)
    more = {"dataset": data(8), "attacks": ["square:queries=30", "hopskipjump:queries=40"], "eps": ["0.1", "0.25"]}

    module, onnx = (evaluated([model], None, **more).samples for model in (network, str(file)))

    assert (module["verdict"] == "broken").any()
    assert onnx[VERDICTS].equals(module[VERDICTS])


def test_a_fixed_number_of_images_is_filled_up(tmp_path):
    x, _ = data(7)
    network = linear().eval()

    logits = OnnxModel(save_onnx(tmp_path / "four.onnx", network, batch=4))(x)

    torch.testing.assert_close(logits, network(x).detach())


def test_a_file_that_takes_one_image_and_claims_to_take_any_number_gets_one(tmp_path):
    x, _ = data(5)
    network = linear().eval()

    logits = OnnxModel(save_onnx(tmp_path / "one.onnx", network, flattened_to=1))(x)

    torch.testing.assert_close(logits, network(x).detach())


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"batch": 0}, "batches of 0 images"), ({"batch": 10**9}, "1,000,000,000 images, more than 4,096 MiB"),
     ({"flattened_to": 3}, r"cannot be run on images \[1, 1, 8, 8\] .* export it again")],
)  # fmt: skip
def test_a_number_of_images_that_nobody_can_give_is_one_line(tmp_path, settings, words):
    file = save_onnx(tmp_path / "net.onnx", linear().eval(), **settings)
    with pytest.raises(UserError, match=words) as caught:
        load_model(str(file), dataset="digits")

    assert "\n" not in str(caught.value)


def test_the_output_called_logits_is_used_also_behind_features(tmp_path):
    x, _ = data(5)
    model = onnx.load(save_onnx(tmp_path / "net.onnx", linear().eval()))
    (scores,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("Identity", [scores.name], ["logits"]))
    features = onnx.helper.make_tensor_value_info("0", onnx.TensorProto.FLOAT, ["images", 64])
    scores.name = "logits"
    model.graph.output.insert(0, features)
    onnx.save(model, tmp_path / "two.onnx")

    torch.testing.assert_close(OnnxModel(tmp_path / "two.onnx")(x), linear()(x).detach())


def test_labels_alone_are_enough_for_decision_attacks(tmp_path):
    x, y = data(6)
    model = robustkit.load_model(str(save_onnx(tmp_path / "net.onnx", linear(), labels=True)), dataset="digits")
    own = robustkit.attack(linear(), x, y, "rays:queries=60", eps="0.2")
    found = robustkit.attack(model, x, y, "rays:queries=60", eps="0.2")

    assert own.success.any()
    assert torch.equal(found.x_adv, own.x_adv)


def test_an_unusable_file_is_one_line(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(np.random.default_rng(0).bytes(300))
    for name in ("broken.onnx", "missing.onnx"):
        with pytest.raises(UserError) as caught:
            robustkit.load_model(str(tmp_path / name), dataset="digits")

        assert "\n" not in str(caught.value)


def test_a_file_whose_weights_were_left_behind_says_to_copy_them(tmp_path):
    """The line ended with a message of onnxruntime, without a way out."""
    file = save_onnx(tmp_path / "net.onnx", linear().eval())
    onnx.save(onnx.load(file), file, save_as_external_data=True, location="net.weights", size_threshold=0)
    (tmp_path / "net.weights").unlink()

    with pytest.raises(UserError, match=r"cannot load .*net\.onnx \(.*\); copy it again, with the files beside it"):
        OnnxModel(file)


def test_a_file_of_labels_asks_for_the_number_of_classes(tmp_path):
    with pytest.raises(UserError, match="--num-classes"):
        load_model(str(save_onnx(tmp_path / "labels.onnx", linear().eval(), labels=True)))
