"""Wheel and source archive of the committed tree, the same bytes whenever they are built: ``make dist``.

Builds both twice, compares them, leaves them in dist/, then runs the README's lines with the wheel alone in a
fresh environment. build/sbom/ gets the bill of materials of that environment, as CycloneDX.

Times in the archives are those of the last commit (SOURCE_DATE_EPOCH). The README becomes the long
description, with links to files as addresses in the repository at this version.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

from docs._ext.pages import PROJECT, absolute

ROOT = Path(__file__).parents[1]
#: The build backend's own functions, as `python -m build` calls them.
BUILD = [sys.executable, "-c", "import sys, setuptools.build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"]
TOY = os.environ.get("TOY") == "1"
DIST, FRESH, SBOM = ROOT / "dist", ROOT / "build" / "dist-check", ROOT / "build" / "sbom"


def exported(folder: Path) -> Path:
    """The committed tree, with the README's links made absolute."""
    tree = folder / f"{PROJECT['name']}-{PROJECT['version']}"
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")
    readme = tree / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8")), encoding="utf-8")
    return tree


def epoch() -> int:
    """Return the time of the last commit."""
    found = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, check=True)
    return int(os.environ.get("SOURCE_DATE_EPOCH") or found.stdout)


def repacked(source: Path, when: int) -> bytes:
    """The same archive with nothing in it of when, where and by whom it was packed."""
    packed = io.BytesIO()
    with (
        tarfile.open(source) as old,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=when) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = when, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def built(when: int) -> dict[str, bytes]:
    """The files of a release by name; the wheel is built from the source archive."""
    with tempfile.TemporaryDirectory() as folder:
        tree, out = exported(Path(folder)), Path(folder, "out")
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0"}
        out.mkdir()
        quietly([*BUILD, "build_sdist", out], tree, environment)
        (source,) = out.glob("*.tar.gz")
        source.write_bytes(repacked(source, when))
        with tarfile.open(source) as archive:
            archive.extractall(Path(folder, "unpacked"), filter="data")
        (unpacked,) = Path(folder, "unpacked").iterdir()
        quietly([*BUILD, "build_wheel", out], unpacked, environment)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def quietly(command: list, folder: Path, environment: dict[str, str]) -> None:
    """Run a command; show its output only if it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")


def description(wheel: bytes) -> str:
    """The long description in a wheel's metadata."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name)).get_payload(decode=True).decode("utf-8")


def make() -> int:
    """Build twice, compare, keep; 1 if the bytes differ or the README does not render."""
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout:
        print("note: what is not committed is not in the release")
    when = epoch()
    once, again = built(when), built(when)
    folder = ROOT / "build" / "toy-dist" if TOY else DIST
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in once.items():
        (folder / name).write_bytes(content)
        same = again.get(name) == content
        digest = hashlib.sha256(content).hexdigest()
        print(f"{'PASS' if same else 'FAIL'} {name}: {len(content):,} bytes, built twice, sha256 {digest}")
    (wheel,) = (content for name, content in once.items() if name.endswith(".whl"))
    relative = absolute(description(wheel)) != description(wheel)
    print(f"{'FAIL' if relative else 'PASS'} links of the long description are absolute")
    if once != again or relative or TOY:
        return int(once != again or relative)
    rendered = [sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir()]
    return subprocess.run(rendered, check=False).returncode or check()


def check() -> int:
    """The README's lines with the wheel alone, in a fresh environment."""
    (wheel,) = DIST.glob("*.whl")
    venv.create(FRESH, with_pip=True, clear=True)
    python = FRESH / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    script = ROOT / "docs" / "_ext" / "execute.py"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = [python, "-P", script, ROOT / "README.md"]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(ran, cwd=folder, env=environment, check=False).returncode or bill()


def bill() -> int:
    """Write what the fresh environment holds: the wheel, its dependencies, their licences."""
    SBOM.mkdir(parents=True, exist_ok=True)
    file = SBOM / "hushrec.cdx.json"
    words = ["environment", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml"]
    made = [sys.executable, "-m", "cyclonedx_py", *words, "--output-file", file, FRESH]
    return subprocess.run(made, check=False).returncode


if __name__ == "__main__":
    sys.exit(make())
