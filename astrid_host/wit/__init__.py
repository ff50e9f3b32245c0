"""WIT: parser and resolved types. A text that cannot be read is a `WitError` with file, line and column."""

from astrid_host.wit.packages import Packages, load_packages, read
from astrid_host.wit.parser import parse
from astrid_host.wit.resolve import resolve

__all__ = ["Packages", "load_packages", "parse", "read", "resolve"]
