"""Texts that become something else where a page, a terminal or a table does not escape them."""

from __future__ import annotations

HOSTILE_TEXTS = {
    "script": "<script>alert(1)</script>",
    "end of a script": "</script><script>alert(1)</script>",
    "event attribute": '" onmouseover="alert(1)',
    "event attribute, single quotes": "' onfocus='alert(1)' autofocus='",
    "style": "</style><style>body{display:none}",
    "style that loads": "</style><style>@import url(http://127.0.0.1:9/x.css)",
    "svg": "<svg onload=alert(1)>",
    "svg with a script": "<svg><script>alert(1)</script></svg>",
    "image": "<img src=x onerror=alert(1)>",
    "link": "<a href=javascript:alert(1)>x</a>",
    "url": "javascript:alert(1)",
    "frame": "<iframe src=http://127.0.0.1:9/></iframe>",
    "base": "<base href=http://127.0.0.1:9/>",
    "refresh": '<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/">',
    "template": "{{ 7 * 7 }}{% raw %}",
    "template element": "<template><img src=x onerror=alert(1)></template>",
    "comment": "<!-- ",
    "end of quoted text": "</pre></details></main></body></html>",
    "markup of a chart": "$\\frac{1}{2}$",
    "half of a surrogate pair": "\ud800",
    "terminal escapes": "\x1b[2J\x1b]0;title\x07\x1b]8;;http://127.0.0.1:9/\x07",
    "bidirectional override": "\u202egnp.exe\u2066",
    "formula": '=HYPERLINK("http://127.0.0.1:9/","x")',
}
