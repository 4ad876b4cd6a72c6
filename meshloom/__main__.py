"""``python -m meshloom`` is the command ``meshloom``."""

from meshloom.cli.main import main

if __name__ == "__main__":
    main()
