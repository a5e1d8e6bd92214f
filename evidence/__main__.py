"""`python -m evidence`: make and show our results."""

from evidence.commands import app
from kgem.cli.console import errors_told

with errors_told():
    app(prog_name="python -m evidence")
