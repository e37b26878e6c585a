"""An OpenSSH server on the loopback address, with keys of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Server:
    """A server that runs as this user, and a client's configuration that knows it as `box`.

    Args:
        folder: Where its keys and configuration lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Where a worker makes its folder.
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        for name in ("host", "other", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(key, check=True)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {folder}/host\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n"
            f"PermitRootLogin yes\nSubsystem sftp internal-sftp\n"
            f"SetEnv TMPDIR={self.temporary} XDG_CACHE_HOME={folder}/cache\n"
        )
        self.know("host")
        self.log = folder / "sshd.log"
        assert SSHD
        self._process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
            stderr=self.log.open("wb"),
        )

    def know(self, key: str) -> None:
        """Have the client take this key for the server's."""
        public = (self.folder / f"{key}.pub").read_text()
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {public}")
        (self.folder / "config").write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.folder}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known\n  GlobalKnownHostsFile none\n"
        )

    def answers(self) -> bool:
        """Whether it takes connections."""
        for _ in range(50):
            if self._process.poll() is not None:
                return False
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return True
            time.sleep(0.1)
        return False

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not SSHD or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        pytest.skip("OpenSSH's server or client is not installed")
    if os.geteuid() == 0:
        # A server of the superuser insists on this folder, which its package makes at boot.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    server = Server(tmp_path_factory.mktemp("ssh"))
    if not server.answers():
        server.close()
        pytest.skip(f"sshd doesn't run here: {server.log.read_text().strip()}")
    yield server
    server.close()


@pytest.fixture
def ssh(_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, and the system's ssh with the configuration that knows it."""
    client = tmp_path / "ssh"
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {_server.folder}/config "$@"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _server.know("host")
    return _server
