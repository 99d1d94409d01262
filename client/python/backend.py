"""Makes the wheel, and the source archive, of the package with the standard library alone (PEP 517, PEP 427)."""

import base64
import hashlib
import io
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
NAME, VERSION = "holdfast", "0.2.0"
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: The client of Holdfast for any training program
License: MIT
Requires-Python: >=3.9
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _package():
    return {f"{NAME}/{path.name}": path.read_bytes() for path in sorted((HERE / NAME).iterdir()) if path.suffix in (".py", ".typed")}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {**_package(), f"{INFO}/METADATA": METADATA.encode(), f"{INFO}/WHEEL": WHEEL.encode()}
    record = io.StringIO()
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.write(f"{name},sha256={digest},{len(data)}\n")
    record.write(f"{INFO}/RECORD,,\n")
    files[f"{INFO}/RECORD"] = record.getvalue().encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # the same bytes each time
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}-{VERSION}"
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for path in (HERE / "pyproject.toml", HERE / "backend.py", *sorted((HERE / NAME).glob("*.py")), HERE / NAME / "py.typed"):
            archive.add(path, f"{name}/{path.relative_to(HERE)}")
        metadata = tarfile.TarInfo(f"{name}/PKG-INFO")
        metadata.size = len(METADATA)
        archive.addfile(metadata, io.BytesIO(METADATA.encode()))
    return f"{name}.tar.gz"
