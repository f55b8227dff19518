"""``python -m hushrec`` is the ``hushrec`` command."""

from hushrec.cli import main

if __name__ == "__main__":
    main()
