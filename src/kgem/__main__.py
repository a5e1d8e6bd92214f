"""`python -m kgem`: the command line."""

from kgem.cli import main

if __name__ == "__main__":
    main()
