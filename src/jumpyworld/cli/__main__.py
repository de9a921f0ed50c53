"""``python -m jumpyworld.cli`` is ``jumpy``."""

from jumpyworld.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
