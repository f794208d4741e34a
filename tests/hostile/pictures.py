"""Hostile folders of pictures: the picture p.png of the class `a` is the hostile one."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tests.hostile.arrays import deflated_zeros
from tests.hostile.hostile_file import HostileFile, raw


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, pixels: bytes = b"") -> bytes:
    """A grey PNG file that claims this size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = png_chunk(b"IHDR", head) + png_chunk(b"IDAT", pixels) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def whole_png(width: int, height: int) -> bytes:
    """A black grey PNG of this size, compressed a thousand times."""
    stream = b"\x78\xda" + deflated_zeros((width + 1) * height)
    return png(width, height, stream)


def picture(format: str, mode: str = "RGB", **more: object) -> bytes:  # noqa: A002  # as Pillow calls it
    file = io.BytesIO()
    Image.new(mode, (8, 8)).save(file, format, **more)
    return file.getvalue()


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(CODE_RAN) (w) file closefile\nshowpage\n%%EOF\n"
)
PNG = "p.png"


def whole_folder(write: Callable[[Path], object]) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        (path / "a").mkdir(parents=True)
        write(path / "a" / PNG)

    return make


PICTURE_FOLDERS = {
    name: HostileFile("photos", whole_folder(write))
    for name, write in {
        "EPS named PNG": raw(EPS),
        "PDF named PNG": raw(b"%PDF-1.4\n"),
        "GIF named PNG": raw(picture("GIF", "P")),
        "ICO named PNG": raw(picture("ICO")),
        "a PNG bomb of 50000 x 50000": raw(whole_png(50_000, 50_000)),
        "a claimed size of 2^31": raw(png(2**31 - 1, 2**31 - 1)),
        "a claimed size of 20000 x 20000": raw(png(20_000, 20_000)),
        "9000 x 9000": raw(whole_png(9_000, 9_000)),
        "a line of 80000000 pixels": raw(whole_png(80_000_000, 1)),
        "no pixels": raw(png(0, 0)),
        "no data": raw(png(8, 8)),
        "a header alone": raw(b"\x89PNG\r\n\x1a\n"),
        "text": raw(b"hello"),
        "empty": raw(b""),
        "a PNG cut off": raw(picture("PNG")[:45]),
        "a BMP of 2^31 x 2^31": raw(
            b"BM" + bytes(12) + struct.pack("<IiiHHIIiiII", 40, 2**31 - 1, 2**31 - 1, 1, 24, *[0] * 6)
        ),
        "a PPM of 10^9 x 10^9": raw(b"P6 1000000000 1000000000 255\n"),
        "a PPM of 5000 digits": raw(b"P6 " + b"9" * 5000 + b" 1 255\n"),
        "a TIFF of garbage": raw(b"II*\x00" + bytes(range(256)) * 10),
        "a FIFO": os.mkfifo,
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a link to nothing": lambda path: path.symlink_to("gone"),
        "a folder": lambda path: path.mkdir(),
        "a link to the folder above": lambda path: path.symlink_to(".."),
        "two loops of folders": lambda path: [
            (path.parent / name).symlink_to(target) for name, target in (("b", "."), ("c", ".."), ("d", "../.."))
        ],
        "a link to the root folder": lambda path: path.symlink_to("/"),
    }.items()
}  # fmt: skip
