"""Long names of layers are shortened and stay whole when their two parts are joined."""

from robustkit.reports.shared.layer_names import common_prefix, table_names

NAMES = ["model.backbone.conv1", "model.backbone.layer1.0.conv1", "model.backbone.layer1.0.bn1", "model.backbone.fc"]


def test_the_prefix_ends_at_a_dot_and_leaves_every_layer_a_name():
    assert common_prefix(NAMES) == "model.backbone."
    assert common_prefix(["features.a1", "features.a2"]) == "features."
    assert common_prefix(["features", "features.a2"]) == ""
    assert common_prefix(["features.a1"]) == ""


def test_a_short_prefix_stays():
    assert common_prefix(["net.a", "net.b"]) == ""


def test_a_name_is_divided_where_it_leaves_the_one_before_it():
    assert [tuple(name) for name in table_names(NAMES)] == [
        ("", "conv1"), ("", "layer1.0.conv1"), ("layer1.0.", "bn1"), ("", "fc"),
    ]  # fmt: skip
    assert table_names([]) == []
