"""Try every attack of this folder in one process."""

from common import attacks_of_this_folder, main

if __name__ == "__main__":
    main(attacks_of_this_folder())
