"""Creates a sample document with one page per text: python scan.py PATH [TEXT …]"""

from __future__ import annotations

import sys

from PIL import Image, ImageDraw, ImageFont

TEXTS = ("To be or not to be", "that is the question")


def scan(path: str, *texts: str) -> None:
    images = []
    for words in texts:
        image = Image.new("L", (900, 200), "white")
        ImageDraw.Draw(image).text((40, 70), words, "black", ImageFont.load_default(size=48))
        images.append(image)
    images[0].save(path, save_all=True, append_images=images[1:])


if __name__ == "__main__":
    scan(sys.argv[1], *(sys.argv[2:] or TEXTS))
