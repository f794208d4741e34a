"""A data set from a file of the user: `path/file.py:NAME`, an object there or what a function returns."""

from dataclasses import replace

from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from robustkit.errors import UserError
from robustkit.host.failures import described_error
from robustkit.primitives.user_call import returned_by
from robustkit.primitives.user_code import Address

from .dataset import Dataset, TensorData
from .given import MapStyle, given_dataset
from .pictures import LazyData
from .torch_dataset import TorchData


def load_code_dataset(where: Address, split: str) -> Dataset:
    """The data set at an address; a function gets `split` if it has such a parameter.

    Raises:
        UserError: the file or the name is missing, the call fails, or it returns no images with labels.
    """
    value, _, origin, given = returned_by(where, (Dataset, TorchDataset, DataLoader, MapStyle), split=split)
    if split != "test" and "split" not in given:
        raise UserError(f"{origin} in {where.file} gets no split; add the parameter, or leave out --split {split}.")
    try:
        data = given_dataset(value)
    except UserError as error:
        raise UserError(f"{origin} in {where.file}: {error}") from None
    except Exception as error:  # the user's own class
        raise UserError(f"{origin} in {where.file} cannot be read: {described_error(error)}.") from error
    if isinstance(data, TensorData | TorchData | LazyData):
        return replace(data, name=where.name, split=split if "split" in given else data.split or split)
    return data
