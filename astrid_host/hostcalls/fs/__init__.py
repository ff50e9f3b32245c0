"""astrid:fs: files of the workspace, of homes and of scratch folders, by path and by handle.

`Fs` is the host functions. A guest's path goes through `gated` (form, rights), `walk` (descriptors only, never out of its
root) and is acted on by descriptor and name in `content` and `folders`.
"""

from astrid_host.hostcalls.fs.handles import Descriptors, FileHandle, Handles
from astrid_host.hostcalls.fs.reading import Reading
from astrid_host.hostcalls.fs.status import Datetime, FileStat
from astrid_host.hostcalls.fs.views import Views
from astrid_host.hostcalls.fs.writing import Writing
from astrid_host.hostcalls.paths import Roots
from astrid_host.hostcalls.threads import Threads

__all__ = ["Datetime", "FileHandle", "FileStat", "Fs", "Views"]


class Fs(Reading, Writing, Handles):
    """All host functions of astrid:fs.

    Args:
        roots: what guests' paths lead into.
        views: what homes show that is not in them; by default empty folders.
        threads: where what takes long is done.
    """

    def __init__(self, roots: Roots, views: Views | None = None, threads: Threads | None = None) -> None:
        super().__init__(roots, views, threads)
        self._descriptors = Descriptors()
