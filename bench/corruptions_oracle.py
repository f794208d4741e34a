"""Pictures by PyPI's imagecorruptions 1.1.2, for `bench/corruptions.py`; runs in an interpreter of its own.

    python bench/corruptions_oracle.py IN.npz OUT.npz

IN has the pictures `x` [N, H, W, C] uint8 and, as JSON, `strengths`: by corruption the five published parameters for
this size. The package has those of 224 pixels alone, so the list in each function is replaced, and what it does another
way than the code of the published data is done here as there: elastic_transform; frost at 32 pixels; and a magnified
picture is cut to its centre.
"""

import json
import re
import sys
import time
import types
from functools import partial
from pathlib import Path

import imagecorruptions
import numpy as np
from PIL import Image


def package(strengths):
    file = imagecorruptions.__path__[0] + "/corruptions.py"
    text = Path(file).read_text()
    for name, values in strengths.items():
        literal = f"[np.arange(1, e, s) for e, s in {values!r}]" if name == "zoom_blur" else repr(values)
        pattern = rf"(def {name}\(.*?\n    c = )\[.*?\](\s*\[\s*severity - 1\])"
        text = re.sub(pattern, rf"\g<1>{literal}[severity - 1]", text, count=1, flags=re.DOTALL)
    text = text.replace("multichannel=True", "channel_axis=-1")  # renamed in scikit-image 0.19
    module = types.ModuleType("imagecorruptions.corruptions")
    module.__file__, module.__dict__["__name__"] = file, "imagecorruptions.corruptions"
    exec(compile(text, file, "exec"), module.__dict__)
    untrimmed = module.clipped_zoom
    module.clipped_zoom = lambda image, factor: centre(untrimmed(image, factor), image.shape)
    return module


def centre(image, shape):
    row, column = ((image.shape[axis] - shape[axis]) // 2 for axis in (0, 1))
    return image[row : row + shape[0], column : column + shape[1]]


def elastic(image, shares):
    import cv2
    from scipy.ndimage import map_coordinates
    from skimage.filters import gaussian

    image = np.array(image, dtype=np.float32) / 255
    height, width = image.shape[:2]
    length, sigma, move = (share * height for share in shares)
    centre, half = np.float32((height, width)) // 2, min(height, width) // 3
    before = np.float32([centre + half, [centre[0] + half, centre[1] - half], centre - half])
    after = before + np.random.uniform(-move, move, before.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(before, after)
    image = cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    rows, columns = np.mgrid[:height, :width]
    down, right = (
        gaussian(np.random.uniform(-1, 1, (height, width)), sigma, mode="reflect", truncate=3) * length for _ in "xy"
    )
    channels = [
        map_coordinates(image[..., c], (rows + down, columns + right), order=1, mode="reflect") for c in range(3)
    ]
    return np.stack(channels, -1).clip(0, 1) * 255


def small_frost(image, weights):
    import cv2

    folder = imagecorruptions.__path__[0] + "/frost/"
    names = ["frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"]
    ice = cv2.resize(cv2.imread(folder + names[np.random.randint(5)]), (0, 0), fx=0.2, fy=0.2)[..., ::-1]
    image = np.array(image)
    row, column = (np.random.randint(0, ice.shape[axis] - image.shape[axis]) for axis in (0, 1))
    ice = ice[row : row + image.shape[0], column : column + image.shape[1]]
    return (weights[0] * image + weights[1] * ice).clip(0, 255)


given = np.load(sys.argv[1])
strengths = json.loads(str(given["strengths"]))
module, out = package(strengths), {}
for name, values in strengths.items():
    for severity in range(1, 6):
        np.random.seed(severity)
        if name == "elastic_transform":
            make = partial(elastic, shares=values[severity - 1])
        elif name == "frost" and given["x"].shape[1] < 100:
            make = partial(small_frost, weights=values[severity - 1])
        else:
            make = partial(getattr(module, name), severity=severity)
        start = time.process_time()
        made = [np.uint8(make(Image.fromarray(picture))) for picture in given["x"]]
        out[f"{name} {severity}"] = np.stack(made)
        out[f"seconds {name} {severity}"] = np.array(time.process_time() - start)
np.savez(sys.argv[2], **out)
