"""How many bytes `--keep-adversarial` stores for a photo of 3 x 224 x 224, beside the bytes of its floats.

python bench/kept_sizes.py
"""

import zlib

import numpy as np
from sklearn.datasets import load_sample_images

from robustkit.evidence.pixels import packed


def main() -> None:
    photo = (load_sample_images().images[0][:224, :224].transpose(2, 0, 1) / 255).astype(np.float32)
    rng = np.random.default_rng(0)
    changes = {
        "clean": np.zeros(photo.shape),
        "8/255 up or down": 8 / 255 * rng.choice([-1, 1], photo.shape),
        "uniform up to 8/255": rng.uniform(-8 / 255, 8 / 255, photo.shape),
    }
    for name, change in changes.items():
        image = np.clip(photo + change, 0, 1).astype(np.float32)
        grouped = zlib.compress(np.ascontiguousarray(image.reshape(-1, 1).view(np.uint8).T).tobytes(), 3)
        sizes = [len(packed(image)), len(grouped)]
        shares = ", ".join(f"{size / image.nbytes:.2f}" for size in sizes)
        print(
            f"{name:<20} {image.nbytes:,} bytes of floats, stored {sizes[0]:,}; grouped {sizes[1]:,} (shares {shares})"
        )


if __name__ == "__main__":
    main()
