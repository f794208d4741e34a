"""The most that a file or an option may ask for. What asks for more is refused in one line, before memory is taken.

Each number is far above what publications use, as far as we know them, and small enough for a laptop. docs/limits.md
lists them for users.
"""

from numbers import Integral

from robustkit.errors import UserError

MIB = 2**20

# ---- data
CLASSES = 50_000  # ImageNet-21k has 21,841; a last layer for 50,000 classes takes 100 MB in a ResNet-18
ARRAY_BYTES = 4096 * MIB  # of one array, images counted as float32: 7,100 of 3 x 224 x 224. Folders have no limit
IMAGE_VALUES = 2**24  # of one image: 3 x 2364 x 2364; as float32 64 MiB, and every image of a batch takes as much
IMAGE_SIDE = 2048  # of --image-size; the largest published classifiers take 800 pixels
PICTURE_PIXELS = 89_478_485  # decoded at once: Pillow's own limit, 256 MiB of RGB. A camera with 50 megapixels is below
PICTURE_BYTES = 256 * MIB  # of a picture within a tar file or a table; as many as its pixels may have
SHARDS = 100_000  # tar files of one data set; LAION-400M has 41,455
PICTURES = 20_000_000  # of one folder, with everything else that lies there; ImageNet-21k has 14 million
OTHER_FILES = 10_000  # more files than pictures, beyond which a folder is no data set but a disk
PACKED_BYTES = 64 * MIB  # a packed array larger than this must not be packed more tightly than
PACKED = 200  # times: digits in black and white reach 40, an array of zeros 1,000
TABLE_BYTES = 16 * MIB  # of a table of accuracies; RobustBench's have 20 KB
MODEL_SETTINGS_BYTES = 64 * MIB  # of one JSON file beside a model; tokenizers have up to 30 MB
CODE_BYTES = 64 * MIB  # of the code in a TorchScript file, or of the graph in a .pt2 file; a ViT's have 100 KB
CLASS_NAME = 1000  # letters; the longest of ImageNet-21k has about 200

# ---- what options count
RESTARTS = 10_000  # of an attack on one image; 100 are many
RADII = 16  # tried by bisection: a precision of 0.02 %; 10 are the default
COUNT = 1_000_000  # steps, queries and other whole numbers of an attack; AutoAttack takes 100 steps and 5,000 queries
REPLAYS = 1000  # N of free:N; Shafahi et al. 2019 take 4 to 8
EPOCHS = 100_000  # of a fine-tuning; ten are the default
SEEDS = 1000  # trainings of one cell of an ablation; three are the default
TRAININGS = 10_000  # of one ablation; at a minute each they take a week
TRAINING_BATCH = 1_000_000  # images per step of an optimizer: most of ImageNet at once
DRAWS = 10_000_000  # noisy copies of one image for a certificate; Cohen et al. 2019 take 100,000
DRAWS_PER_QUERY = 10_000  # --eot; AutoAttack takes 20
PARALLEL = 256  # requests to a server under way at once; each has a connection and a thread

# ---- texts
DIGITS = 400  # of a radius such as 8/255; no float has more
EXPONENT = 400  # of a radius such as 1e-3: Fraction writes all its zeros down, and for 1e99999999999 never ends
SEED = 2**31 - 1  # what all generators take
SHOWN = 200  # letters of a user's text that an error repeats


def whole_seed(value: object) -> int:
    """A seed as Python's own number, whatever kind of whole number it is.

    Raises:
        UserError: it is none, or out of range.
    """
    seed = -1 if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if not 0 <= seed <= SEED:
        raise UserError(f"seed must be a whole number from 0 to {SEED:,}, not {shown(value)}.")
    return seed


def require_at_most(what: str, value: int, most: int) -> None:
    """Refuse a number above its limit.

    Raises:
        UserError: it is above.
    """
    if value > most:
        raise UserError(f"{what} must be at most {most:,}, not {shown(value)}.")


def shown(value: object) -> str:
    """A value as Python code for an error message; Python refuses to write down numbers of more than 4,300 digits."""
    try:
        return shortened(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def shortened(text: object) -> str:
    """A user's text for an error message: printable, on one line, and without its middle where it is too long."""
    words = str(text)
    if len(words) > 10 * SHOWN:  # so that the work below is bounded too
        words = words[: 5 * SHOWN] + words[-5 * SHOWN :]
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(words.split()))
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN // 2]}...{plain[-SHOWN // 2 :]}"
