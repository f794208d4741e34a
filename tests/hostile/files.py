"""Hostile files: each table has `name: file`, and `file.make(folder)` writes it and returns the path to pass on.

Nothing here is large on disk or slow to write; some files unpack to gigabytes, point at themselves or would run code.
"""

from tests.hostile.arrays import ARRAY_FILES as ARRAY_FILES
from tests.hostile.checkpoints import SAFETENSORS_FILES as SAFETENSORS_FILES
from tests.hostile.checkpoints import TORCH_FILES as TORCH_FILES
from tests.hostile.hostile_file import HostileFile as HostileFile
from tests.hostile.model_files import DESCRIBED_MODELS as DESCRIBED_MODELS
from tests.hostile.model_files import names_code as names_code
from tests.hostile.pictures import PICTURE_FOLDERS as PICTURE_FOLDERS
from tests.hostile.words import NUMBERS as NUMBERS
from tests.hostile.words import PATHS as PATHS
