"""An HTML page that needs nothing else: no network, no script."""
import html

STYLE = """
:root { color-scheme: light; --ink: #1d232b; --soft: #5b6570; --line: #d8dde3; --back: #f4f6f8; --card: #fff; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 1240px; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { max-width: 46rem; margin: .3rem 0 .8rem; color: var(--soft); }
p.verdict { font-size: 1.15rem; color: var(--ink); background: var(--card); border-left: 4px solid #2b5fa8; padding: .7rem 1rem; max-width: 60rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .6rem 0; }
nav a { color: #1f4e8c; padding: .35rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: .9rem; align-items: start; }
.plots.wide { grid-template-columns: minmax(0, 1fr); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .6rem; min-width: 0; }
figcaption { font-size: .9rem; margin-bottom: .3rem; }
figcaption b { display: block; }
figcaption span { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .85rem; margin: .2rem 0; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border: 1px solid #9aa3ad55; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
.wide svg { min-width: 54rem; }
table { border-collapse: collapse; font-size: .85rem; background: var(--card); font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
th { background: var(--back); }
footer { margin: 2rem 0 1rem; color: var(--soft); font-size: .85rem; }
"""


class Page:
    """Collects sections and figures."""

    def __init__(self, title):
        self.title, self.parts, self.links, self.count = title, [], [], 0

    def verdict(self, text):
        self.parts.append(f'<p class="verdict">{html.escape(text)}</p>\n')

    def section(self, name, title, text):
        self.links.append((name, title))
        self.parts.append(f'<h2 id="{name}">{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n')

    def heading(self, title, text):
        self.parts.append(f"<h3>{html.escape(title)}</h3>\n<p>{html.escape(text)}</p>\n")

    def missing(self, text):
        self.parts.append(f'<p class="missing">{html.escape(text)}</p>\n')

    def figures(self, drawn, wide=False):
        """@param drawn  Each a title, a detail, SVG, and what the colours mean: pairs of a colour and a name."""
        section = self.links[-1][0]
        self.parts.append(f'<div class="plots{" wide" if wide else ""}">\n')
        for title, detail, svg, legend in drawn:
            self.count += 1
            named = "".join(f'<span><i style="background:{fill}"></i>{html.escape(name)}</span>' for fill, name in legend)
            self.parts.append(f'<figure data-plot="{section}"><figcaption><b>{html.escape(title)}</b><span>{html.escape(detail)}</span></figcaption>'
                              + (f'<div class="legend">{named}</div>' if named else "") + f'<div class="scroll" tabindex="0">{svg}</div></figure>\n')
        self.parts.append("</div>\n")

    def table(self, head, rows):
        def line(tag, cells):
            return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

        self.parts.append('<div class="scroll" tabindex="0"><table>' + line("th", head) + "".join(line("td", r) for r in rows) + "</table></div>\n")

    def text(self, files):
        """@param files  Pairs of a name, and what it was taken for."""
        links = "".join(f'<a href="#{name}">{html.escape(t)}</a>' for name, t in self.links)
        named = "".join(f"<li>{html.escape(name)}: {html.escape(kind)}</li>" for name, kind in files)
        return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                f'<link rel="icon" href="data:,">\n<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n'
                f"<h1>{html.escape(self.title)}</h1>\n<nav>{links}</nav>\n" + "".join(self.parts) +
                f"<footer>Drawn from:<ul>{named}</ul></footer>\n</main>\n</body>\n</html>\n")
