"""`python -m robustkit` is `robustkit`."""

from robustkit.cli import main

if __name__ == "__main__":
    main(prog_name="robustkit")
