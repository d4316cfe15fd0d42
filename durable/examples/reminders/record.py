#!/usr/bin/env python3
"""Records the example `reminders` as an animated picture, in real time:

    cargo build --release -p tickwheel-durable --example reminders
    durable/examples/reminders/record.py target/release/examples/reminders --timers 20000

Writes durable/reminders.svg, which plays in a browser and in a README. Python 3 is all it needs.
"""

import html
import pathlib
import subprocess
import sys
import tempfile
import time

ROWS = 28
LINE = 19
WIDTH = 860
# The last screen stays for so many seconds before the picture plays again.
END = 8.0

STYLE = """.t{--page:#fff;--ink:#24292f;--soft:#57606a;--line:#d0d7de;--hot:#b35900}
@media (prefers-color-scheme:dark){.t{--page:#0d1117;--ink:#e6edf3;--soft:#9da7b3;--line:#30363d;--hot:#ff9a4d}}
.t text{fill:var(--ink);font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}
.t .s{fill:var(--soft)}.t .h{fill:var(--hot)}.page,.cover{fill:var(--page)}.frame{fill:none;stroke:var(--line)}
@media (prefers-reduced-motion:no-preference){.lines{animation:lines %(length)ss steps(1) infinite}.cover{animation:cover %(length)ss steps(1) infinite}}"""


def record(command):
    """The lines that the program prints, each with the seconds since it started."""
    command = [str(pathlib.Path(command[0]).resolve()), *command[1:], "--store", "reminders.db"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
        lines = [(time.monotonic() - began, line.rstrip()) for line in program.stdout]
        code = program.wait()
    if code != 0:
        print(*(line for _, line in lines), sep="\n")
        sys.exit(f"{command[0]} ended with {code}")
    return lines


def draw(title, lines):
    """An SVG in which the lines scroll up as they were printed."""
    lines = [(0.0, f"$ {title}"), *lines]
    length = lines[-1][0] + END

    rows = min(ROWS, len(lines))
    height = (rows + 1) * LINE

    def up(shown):
        """How far the lines are moved when so many are shown."""
        return min(0, rows - shown) * LINE

    scroll, cover = [], []
    for number, (at, _) in enumerate(lines, 1):
        # Lines that come together are one step.
        if number < len(lines) and lines[number][0] - at < 0.02:
            continue
        part = f"{at / length * 100:.2f}%"
        scroll.append(f"{part}{{transform:translateY({up(number)}px)}}")
        cover.append(f"{part}{{transform:translateY({min(rows, number) * LINE + 9}px)}}")
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" class="t" role="img">',
        f"<style>{STYLE % {'length': round(length, 1)}}",
        f"@keyframes lines{{{''.join(scroll)}}}@keyframes cover{{{''.join(cover)}}}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        f'<clipPath id="screen"><rect y="6" width="{WIDTH}" height="{height - 8}"/></clipPath>',
        f'<g clip-path="url(#screen)"><g class="lines" style="transform:translateY({up(len(lines))}px)">',
    ]
    for number, (_, line) in enumerate(lines):
        if number == 0:
            kind = ' class="s"'
        elif line.endswith(" killed"):
            kind = ' class="h"'
        else:
            kind = ""
        svg.append(f'<text x="16" y="{(number + 1) * LINE + 4}"{kind}>{html.escape(line)}</text>')
    svg.append(f'</g><rect class="cover" style="transform:translateY({height}px)" width="{WIDTH}" height="{height}"/></g>')
    svg.append(f'<rect class="frame" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>\n</svg>\n')
    return "\n".join(svg)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    title = "cargo run --release -p tickwheel-durable --example reminders"
    svg = draw(title, record(sys.argv[1:]))
    path = pathlib.Path(__file__).resolve().parents[2] / "reminders.svg"
    path.write_text(svg)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
