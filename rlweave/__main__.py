"""`python -m rlweave`: the same as `rlweave`."""

from rlweave.cli import main

if __name__ == "__main__":
    main()
