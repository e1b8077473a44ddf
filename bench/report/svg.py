"""Small drawings as SVG text: bars over time, lines, a picture of colours."""
import base64
import html
import math
import struct
import zlib

GRID, AXIS = "#e6e9ed", "#9aa3ad"


def short(value):
    """A number as people read it: three digits at least, no more than needed."""
    if value == 0:
        return "0"
    digits = max(0, 2 - int(math.floor(math.log10(abs(value)))))
    return f"{value:,.{min(digits, 6)}f}".replace(",", " ")


def ticks(most, about=6):
    """Round numbers from 0 up to `most`, each with its text."""
    if most <= 0:
        return [(0.0, "0")]
    raw = most / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * 0.999)
    digits = next(d for d in range(12) if abs(step * 10**d - round(step * 10**d)) < 1e-6 * step * 10**d)
    return [(i * step, f"{i * step:,.{digits if i else 0}f}".replace(",", " ")) for i in range(int(most / step * 1.0001) + 1)]


class Drawing:
    """A picture of `width` by `height` units with room for labels around the area `x0..x1`, `y0..y1`."""

    def __init__(self, width, height, left, right=12, top=8, bottom=34):
        self.width, self.height = width, height
        self.x0, self.x1, self.y0, self.y1 = left, width - right, top, height - bottom
        self.parts = []

    def rect(self, x, y, w, h, fill):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0.3):.1f}" height="{h:.1f}" fill="{fill}"/>')

    def line(self, x1, y1, x2, y2, colour, width=1.0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def path(self, points, colour, fill="none"):
        text = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="{text}" fill="{fill}" stroke="{colour}" stroke-width="1.3"/>')

    def text(self, x, y, what, anchor="start", more=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(str(what))}</text>')

    def x_axis(self, most, label, down=None):
        """Ticks below the area from 0 to `most`. @returns  Pixels of a unit."""
        down = self.y1 if down is None else down
        scale = (self.x1 - self.x0) / most if most else 1
        for t, text in ticks(most):
            x = self.x0 + t * scale
            self.line(x, self.y0, x, down, GRID)
            self.text(x, down + 14, text, "middle")
        self.text((self.x0 + self.x1) / 2, down + 29, label, "middle")
        return scale

    def y_axis(self, most, label, top=None, bottom=None):
        """Ticks on the left. @returns  Pixels of a unit."""
        top, bottom = self.y0 if top is None else top, self.y1 if bottom is None else bottom
        scale = (bottom - top) / most if most else 1
        for t, text in ticks(most, 3):
            y = bottom - t * scale
            self.line(self.x0, y, self.x1, y, GRID)
            self.text(self.x0 - 5, y + 4, text, "end")
        self.text(12, (top + bottom) / 2, label, "middle", f' transform="rotate(-90 12 {(top + bottom) / 2:.1f})"')
        return scale

    def spans(self, y, height, pieces, scale):
        """Pieces (begin, end, colour) in one row. Those that are too thin to be told apart are drawn as one."""
        last = None
        for begin, end, fill in sorted(pieces):
            x, w = self.x0 + begin * scale, (end - begin) * scale
            if last and fill == last[2] and x <= last[0] + last[1] + 0.4:
                last[1] = max(last[1], x + w - last[0])
                continue
            if last and w < 0.3 and x < last[0] + last[1] + 0.3:
                continue
            if last:
                self.rect(last[0], y, last[1], height, last[2])
            last = [x, w, fill]
        if last:
            self.rect(last[0], y, last[1], height, last[2])

    def marks(self, y, height, times, colour, scale):
        """Moments in one row."""
        for x in sorted({round((self.x0 + t * scale) * 2) / 2 for t in times}):
            self.line(x, y, x, y + height, colour, 0.7)

    def picture(self, rows, colours):
        """A picture of the area's size: rows from the top, each as bytes that are numbers of colours."""
        self.parts.append(f'<image x="{self.x0}" y="{self.y0}" width="{self.x1 - self.x0}" height="{self.y1 - self.y0}" preserveAspectRatio="none" '
                          f'style="image-rendering:pixelated" href="data:image/png;base64,{base64.b64encode(png(rows, colours)).decode()}"/>')

    def svg(self):
        return f'<svg viewBox="0 0 {self.width} {self.height}" role="img" preserveAspectRatio="xMidYMid meet">' + "".join(self.parts) + "</svg>"


def png(rows, colours):
    """A PNG whose pixels are numbers of colours, "#rrggbb" each."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    palette = b"".join(bytes.fromhex(c[1:]) for c in colours)
    pixels = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)) +
            chunk(b"PLTE", palette) + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b""))
