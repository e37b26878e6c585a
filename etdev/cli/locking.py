"""The lock of `etdev lower`: compared with what is made, or written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from etdev.errors import LockError
from etdev.files import check_writable, write_text
from etdev.schema.lock import Lock

if TYPE_CHECKING:
    from etdev.lowerer import Lowerer
    from etdev.lowering.lowered import Lowered


@define
class Locking:
    """A lock file, for one lowering.

    Args:
        path: The file; None for none.
        locked: Compare with it instead of writing it.
    """

    path: Path | None
    locked: bool
    _made: Lock | None = field(default=None, init=False)

    def check_setup(self, lowerer: Lowerer) -> None:
        """Refuse another setup before the long work.

        Raises:
            LockError: The lock is of another setup, or its folder is not there.
            ArtifactError: It can't be written.
        """
        from etdev.lowering.locking import setup_of

        if self.path is None:
            return
        if self.locked:
            Lock.read(self.path).check_setup(setup_of(lowerer.compilation), self.path)
        elif not self.path.parent.is_dir():
            what = f"there is no folder {str(self.path.parent)!r}"
            raise LockError(str(self.path), what, "create it first")
        else:
            check_writable(self.path)

    def check(self, lowerer: Lowerer, lowered: Lowered, written: Path) -> None:
        """Note what was made, and refuse it if it is not what the lock says.

        Raises:
            LockError: It is not.
        """
        from etdev.lowering.locking import lock_of

        if self.path is None:
            return
        self._made = lock_of(lowerer.compilation, lowered, written)
        if self.locked:
            Lock.read(self.path).check(self._made, self.path)

    def write(self) -> None:
        """Write the lock, unless it was compared.

        Raises:
            ArtifactError: The file can't be written.
        """
        made = self._made
        if self.path and made and not self.locked:
            write_text(self.path, made.to_json())
