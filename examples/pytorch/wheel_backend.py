"""Builds the wheel of deepum_torch: `pip wheel examples/pytorch`, after `deepum-run` was built. What is compiled is taken from
the folder that DEEPUM_BIN names; else from build/bin of this source tree."""
import base64
import hashlib
import os
import pathlib
import platform
import re
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def _version():
    header = (ROOT / "include/deepum/version.hpp").read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define DEEPUM_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def _compiled():
    folder = pathlib.Path(os.environ.get("DEEPUM_BIN", ROOT / "build" / "bin"))
    files = [folder / "deepum-run", folder / "libdeepum_run.so"]
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"{file} is not there: `cmake --build build --target deepum-run` builds it; DEEPUM_BIN names another folder")
    return files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517."""
    del config_settings, metadata_directory
    version = _version()
    tag = f"py3-none-linux_{platform.machine()}"
    name = f"deepum_torch-{version}"
    about = f"{name}.dist-info"
    content = {f"deepum_torch/{f.name}": (f.read_bytes(), 0o644) for f in sorted((HERE / "deepum_torch").glob("*.py"))}
    content.update({f"deepum_torch/bin/{f.name}": (f.read_bytes(), 0o755) for f in _compiled()})
    content[f"{about}/METADATA"] = (f"Metadata-Version: 2.1\nName: deepum-torch\nVersion: {version}\nRequires-Python: >=3.10\n".encode(), 0o644)
    content[f"{about}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: deepum\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644)
    record = ""
    for path, (data, _) in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    content[f"{about}/RECORD"] = ((record + f"{about}/RECORD,,\n").encode(), 0o644)
    file = f"{name}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, (data, mode) in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return file
