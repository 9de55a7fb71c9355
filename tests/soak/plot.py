#!/usr/bin/env python3
"""Draws what soak.py has noted: plot.py soak.csv soak.svg"""

import csv
import sys

PANELS = [
    ("memory_mib", "memory, MiB"),
    ("descriptors", "descriptors"),
    ("standing", "descriptors that are no attempt's"),
    ("threads", "threads"),
    ("in_flight", "attempts that run"),
    ("lag_p99_ms", "attempts begin late, p99 of 5 s, ms (upper bound)"),
    ("cpu", "processors in use"),
]
WIDTH, HEIGHT, LEFT, GAP = 900, 110, 60, 34


def main(source, target):
    with open(source) as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    for before, row in zip(rows, rows[1:]):
        row["cpu"] = (row["cpu_s"] - before["cpu_s"]) / (row["seconds"] - before["seconds"])
    rows[0]["cpu"] = rows[1]["cpu"] if len(rows) > 1 else 0.0
    end = rows[-1]["seconds"]
    whole = GAP + len(PANELS) * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + LEFT + 20} {whole}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/>',
    ]
    for at, (name, title) in enumerate(PANELS):
        top = GAP + at * (HEIGHT + GAP)
        most = max(row[name] for row in rows) or 1
        x = lambda row: LEFT + row["seconds"] / end * WIDTH
        y = lambda value: top + HEIGHT - min(value, most) / most * HEIGHT
        out.append(f'<text x="{LEFT}" y="{top - 6}">{title}</text>')
        out.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>')
        for value in (0, most):
            out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.0f}" text-anchor="end">{value:.4g}</text>')
        points = " ".join(f"{x(row):.1f},{y(row[name]):.1f}" for row in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="#1565c0" stroke-width="1.2"/>')
    for minute in range(0, int(end // 60) + 1, max(1, int(end // 600))):
        out.append(
            f'<text x="{LEFT + minute * 60 / end * WIDTH:.0f}" y="{whole - 14}" text-anchor="middle">{minute} min</text>'
        )
    out.append("</svg>")
    with open(target, "w") as file:
        file.write("\n".join(out) + "\n")


main(*sys.argv[1:3])
