"""The folder with a model file and a data file that the tests of the command line use."""

from tests.cli.conftest import place as place
from tests.cli.conftest import robustkit as robustkit
