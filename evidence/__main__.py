"""`python -m evidence`: make and show our results."""

from evidence.commands import main

main()
