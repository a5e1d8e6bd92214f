"""`python -m evidence`: make and show our results."""

from evidence.commands import app
from kgem.cli.console import report_errors

with report_errors():
    app(prog_name="python -m evidence")
