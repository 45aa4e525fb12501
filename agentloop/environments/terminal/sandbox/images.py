"""Where a sandbox's file system comes from: the machine's own programs, or a Debian made for it.

host     /usr of the machine, under a small root folder that is made here: nothing to download. Beside /usr no
         file of the machine can be seen, so keep secrets out of /usr. The default.
FOLDER   a root file system, such as `make_debian` makes; read only for every sandbox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from occupancy.record.errors import DataError, InputError, RunError

from ...cache import cache_folder, made_once
from .launch import USER_BASE, Layers, is_root

HOST = "host"
PACKAGES = (
    "bash coreutils findutils grep sed gawk mawk tar gzip bzip2 xz-utils diffutils file less procps psmisc "
    "tmux tree cpio jq bc bsdextrautils util-linux netbase python3 vim-tiny rename"
)
SKELETON = 5
"""Version of the files below; a new one makes a new folder in the cache."""
_FOLDERS = (
    "app boot dev etc/profile.d home media mnt opt proc root run srv sys tmp usr var/cache var/lib var/log "
    "var/spool var/tmp"
)
_USERS = (
    "root:0:/root:/bin/bash daemon:1:/usr/sbin:/usr/sbin/nologin bin:2:/bin:/usr/sbin/nologin "
    "sys:3:/dev:/usr/sbin/nologin mail:8:/var/mail:/usr/sbin/nologin www-data:33:/var/www:/usr/sbin/nologin "
    "backup:34:/var/backups:/usr/sbin/nologin nobody:65534:/nonexistent:/usr/sbin/nologin"
)
_GROUPS = (
    "root:0 daemon:1 bin:2 sys:3 adm:4 tty:5 disk:6 mail:8 sudo:27 audio:29 www-data:33 backup:34 shadow:42 "
    "staff:50 users:100 nogroup:65534"
)
_PROMPT = "PS1='\\u@\\h:\\w\\$ '\n"
_FILES = {
    "etc/hostname": "sandbox\n",
    "etc/hosts": "127.0.0.1\tlocalhost sandbox\n",
    "etc/networks": "default\t\t0.0.0.0\nloopback\t127.0.0.0\nlink-local\t169.254.0.0\n\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/bash.bashrc": f'[ -z "$PS1" ] && return\n{_PROMPT}',
    "etc/profile": 'umask 022\nfor f in /etc/profile.d/*.sh; do [ -r "$f" ] && . "$f"; done\nunset f\n'
    f'if [ "$PS1" ]; then\n{_PROMPT}fi\n',
    "root/.bashrc": "",
    "root/.profile": "[ -f ~/.bashrc ] && . ~/.bashrc\n",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A file system that sandboxes start from."""

    name: str
    """Part of a run's version: outputs may differ from one image to another."""
    layers: Layers


def open_image(spec: str = HOST) -> Image:
    """The image that `spec` names: 'host', or the folder of a root file system.

    Raises:
        InputError: there is no such folder, or no shell in it.
    """
    if spec == HOST:
        return _host()
    folder = Path(spec).resolve()
    fault = "" if (folder / "usr" / "bin" / "bash").exists() else "no /usr/bin/bash in it"
    if not fault and is_root() and (folder / "usr").stat().st_uid != USER_BASE:
        fault = "its files do not belong to the users of a sandbox"
    if fault:
        made = "what `fewsteps doctor --make-image FOLDER` made"
        raise InputError(f"image {spec!r}: {fault}; expected '{HOST}', or {made}")
    told = folder / "etc" / "debian_version"
    name = told.read_text().strip() if told.exists() else folder.name
    return Image(f"debian-{name}", Layers((folder,)))


def unpacked(archive: Path) -> Path:
    """A tar archive as a folder in the cache, to be laid over an image; unpacked once.

    Raises:
        DataError: it is no archive, or holds paths that lead out of it.
    """
    digest = blake2b(archive.read_bytes(), digest_size=8).hexdigest()

    def fill(folder: Path) -> None:
        try:
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="tar")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise DataError(f"{archive}: {error}; expected a tar archive of a start state") from error
        # Folders that an archive does not name are the image's own.
        folder.chmod(0o755)

    return _kept(f"{archive.name.split('.')[0]}-{digest}-{_owner()}", fill)


def network_layer() -> Layers:
    """What a sandbox with a network needs of the machine: its name servers and certificates."""
    files = ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt")
    found = {name: Path("/", name).read_bytes() for name in files if Path("/", name).is_file()}
    digest = blake2b(repr(sorted(found.items())).encode(), digest_size=8).hexdigest()

    def fill(folder: Path) -> None:
        for name, data in found.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

    return Layers((_kept(f"network-{digest}-{_owner()}", fill),))


def make_debian(folder: Path) -> Image:
    """Make a Debian 12 root file system in `folder` with mmdebstrap; needs root, a network and two minutes.

    Raises:
        InputError: the folder exists, or this is not root.
        RunError: mmdebstrap failed; the message has its last words.
    """
    if folder.exists():
        raise InputError(f"{folder} exists: name a folder that does not, or remove it")
    if not is_root() or shutil.which("mmdebstrap") is None:
        raise InputError("making an image needs root and mmdebstrap: apt-get install mmdebstrap")
    command = ["mmdebstrap", "--variant=minbase", '--aptopt=APT::Sandbox::User "root"']
    command += [f"--include={','.join(PACKAGES.split())}", "bookworm", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise RunError(f"mmdebstrap failed: {done.stderr.strip()[-400:]}")
    for device in (folder / "dev").iterdir():
        device.unlink() if not device.is_dir() or device.is_symlink() else shutil.rmtree(device)
    _write(folder, {name: text for name, text in _FILES.items() if name != "etc/networks"})
    (folder / "app").mkdir(exist_ok=True)
    give_to_sandboxes(folder)
    return open_image(str(folder))


def _host() -> Image:
    def fill(folder: Path) -> None:
        for name in _FOLDERS.split():
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "var/tmp"):
            (folder / name).chmod(0o1777)
        (folder / "root").chmod(0o700)
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_dir():
                (folder / name).symlink_to(f"usr/{name}")
        users = (user.split(":") for user in _USERS.split())
        lines = [f"{name}:x:{number}:{number}:{name}:{home}:{shell}\n" for name, number, home, shell in users]
        groups = [f"{name}:x:{number}:\n" for name, number in (g.split(":") for g in _GROUPS.split())]
        _write(folder, _FILES | {"etc/passwd": "".join(lines), "etc/group": "".join(groups)})
        for name in ("ld.so.cache", "ld.so.conf", "localtime", "debian_version", "os-release"):
            if (source := Path("/etc", name)).is_file():
                shutil.copyfile(source, folder / "etc" / name)
        (folder / "etc" / "alternatives").mkdir()
        for link in sorted(Path("/etc/alternatives").glob("*")):
            if link.is_symlink() and "/man/" not in (target := os.readlink(link)):
                (folder / "etc" / "alternatives" / link.name).symlink_to(target)

    # What the machine's programs print changes with its packages: then the image has a new name.
    programs = Path("/var/lib/dpkg/status")
    digest = blake2b(f"{SKELETON} {_owner()}".encode(), digest_size=8)
    if programs.exists():
        digest.update(programs.read_bytes())
    name = f"{HOST}-{digest.hexdigest()}"
    return Image(name, Layers((_kept(name, fill),), (Path("/usr"),)))


def _kept(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of the cache whose files are the sandboxes' users'; filled if it is not there."""

    def given(folder: Path) -> None:
        fill(folder)
        give_to_sandboxes(folder)

    return made_once(cache_folder("terminal") / name, given)


def give_to_sandboxes(folder: Path) -> None:
    """Shift the owners of all files to the users that a sandbox has; changes nothing where there is one."""
    if not is_root():
        return
    for place, names, files in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in (*names, *files))]:
            found = os.lstat(path)
            if found.st_uid < 65536:
                os.chown(path, USER_BASE + found.st_uid, USER_BASE + found.st_gid, follow_symlinks=False)
                if not os.path.islink(path):
                    os.chmod(path, found.st_mode & 0o7777)  # a change of owner takes away the set-id bits


def _owner() -> str:
    return "shifted" if is_root() else f"user-{os.getuid()}"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
