"""`python -m s2sent`, for launchers such as torchrun that start a module."""

from s2sent.cli import main

if __name__ == "__main__":
    main()
