"""Creates a sample clip with a test picture and a tone: python clip.py [PATH [SECONDS]]"""

from __future__ import annotations

import subprocess
import sys

import imageio_ffmpeg

path = sys.argv[1] if len(sys.argv) > 1 else "clip.mp4"
seconds = sys.argv[2] if len(sys.argv) > 2 else "2"
picture = ["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=30"]
tone = ["-f", "lavfi", "-i", "sine=frequency=440"]
form = ["-t", seconds, "-pix_fmt", "yuv420p", "-preset", "ultrafast"]
subprocess.run(
    [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *picture, *tone, *form, path], check=True
)
