"""`_headers` and `_redirects`: which lines are rules, and what they do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.releases.rule_matching import RuleMatcher
from pages.releases.rules import (
    LinesRefused,
    Rules,
    parse_headers,
    parse_redirects,
)


def redirects(text: str) -> Rules:
    refused = LinesRefused()
    rules = Rules(redirects=parse_redirects(text, refused))
    assert refused.lines == []
    return rules


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        ("/a /b", "/a", ("/b", 302)),
        ("/a /b 301 # a comment", "/a", ("/b", 301)),
        ("/a /b", "/a/", None),
        ("/a /b", "/A", None),
        ("/a https://example.org/b?c=d#e 308", "/a", ("https://example.org/b?c=d#e", 308)),
        ("/a https://example.org", "/a", ("https://example.org", 302)),
        ("/old/* /new/:splat", "/old/x/y", ("/new/x/y", 302)),
        ("/old/* /new/:splat", "/old", ("/new/", 302)),
        ("/old/* /new/:splat", "/older", None),
        ("/* /index.html 200", "/x", ("/index.html", 200)),
        ("/:year/:post /blog/:post?year=:year", "/2024/a b", ("/blog/a%20b?year=2024", 302)),
        ("/:year/:post /x", "/2024/a/b", None),
        ("/go/* https://example.org/:splat", "/go//evil.example/x", ("https://example.org//evil.example/x", 302)),
        # Nothing that a visitor sends leads off the site or ends a header line.
        ("/* /:splat", "//evil.example/x", ("/evil.example/x", 302)),
        ("/* /:splat", "/\\evil.example", ("/%5Cevil.example", 302)),
        ("/* /:splat", "/a\r\nSet-Cookie: x", ("/a%0D%0ASet-Cookie%3A%20x", 302)),
        ("/* /x:splat", "/../../y", ("/x../../y", 302)),
        ("/a/b /one\n/a/* /two\n/a/c /three", "/a/c", ("/two", 302)),
        ("/a/b /one\n/a/b /two", "/a/b", ("/one", 302)),
    ],
)
def test_redirects(line: str, path: str, expected: tuple[str, int] | None) -> None:
    assert RuleMatcher(redirects(line)).redirect_of(path) == expected


def test_the_first_rule_that_fits_counts() -> None:
    rules = redirects("# first\n\n/a/b /one\n/a/* /two\n")
    assert [RuleMatcher(rules).redirect_of(path) for path in ("/a/b", "/a/c")] == [("/one", 302), ("/two", 302)]


@pytest.mark.parametrize(
    "line",
    [
        "/a", "a /b", "/a b", "/a /b 418", "/a /b 404", "/a /b 301!", "/a /b 301 Country=de",
        "/a q=:q /b 301", "/a//b /c /d /e",
        "/* https://example.org/:splat 200", "/a https://example.org/ 200", "/a //example.org",
        "/a /\\example.org", "//a /b",
        "/a javascript:alert(1)", "/a ftp://example.org/", "/a https://", "/a https:example.org", "/* https://:splat/",
        "/* https://:splat.example.org/", "/a https://user@example.org/", "/a/*/b /c", "/a* /b",
        "/a:b /c", "/a /b/:c", "/a /:splat",
        "/a?b /c", "/a\\b /c", "https://example.org/a /b", "/a /b 3000000000000", "/a https://example.org:99999/",
        "/:a/:a /b", "/:a/:splat/* /b",
    ],
)  # fmt: skip
def test_other_lines_are_listed(line: str) -> None:
    refused = LinesRefused()
    assert parse_redirects(f"/ok /fine\n{line}\n", refused) == parse_redirects("/ok /fine", LinesRefused())
    assert [number for number, _ in refused.lines] == [2]


HEADERS = """
# comment
/*
  X-Frame-Options: DENY
  Cache-Control: no-cache
/assets/*.js
  cache-control: immutable
\tAccess-Control-Allow-Origin: *
/users/:id
  X-User: yes
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", {"X-Frame-Options": "DENY", "Cache-Control": "no-cache"}),
        ("/assets/a/b.js", {"X-Frame-Options": "DENY", "Cache-Control": "no-cache, immutable",
        "Access-Control-Allow-Origin": "*"}),
        ("/users/7", {"X-Frame-Options": "DENY", "Cache-Control": "no-cache", "X-User": "yes"}),
        ("/users/7/8", {"X-Frame-Options": "DENY", "Cache-Control": "no-cache"}),
    ],
)  # fmt: skip
def test_headers(path: str, expected: dict[str, str]) -> None:
    refused = LinesRefused()
    assert RuleMatcher(Rules(headers=parse_headers(HEADERS, refused))).headers_of(path) == expected
    assert refused.lines == []


@pytest.mark.parametrize(
    "line",
    [
        "  Content-Length: 5", "  Set-Cookie: a=b", "  X-Edge: x",
        "  Location: https://example.org", "  no colon", "  : empty",
        "  Name:", "  Na me: x", "  A: \x01", "  A: \u00fc", "  ! A", "/a*b*", "/:a/:a", "/:splat/*", "nowhere", "https://example.org/*",
    ],
)  # fmt: skip
def test_other_lines_of_headers_are_listed(line: str) -> None:
    refused = LinesRefused()
    assert parse_headers(f"/a\n  B: c\n{line}\n", refused) == parse_headers("/a\n  B: c", LinesRefused())
    assert [number for number, _ in refused.lines] == [3]


def test_headers_below_a_path_that_is_refused_are_listed_too() -> None:
    refused = LinesRefused()
    assert parse_headers("/a\n  B: c\nwrong\n  D: e\n", refused) == parse_headers("/a\n  B: c", LinesRefused())
    assert [number for number, _ in refused.lines] == [3, 4]


def test_rules_are_limited() -> None:
    refused = LinesRefused()
    assert len(parse_redirects("".join(f"/{n} /x\n" for n in range(3000)), refused)) == 2000
    assert len(parse_redirects("".join(f"/{n}/* /x\n" for n in range(300)), refused)) == 100
    assert len(parse_headers("".join(f"/{n}\n  A: b\n" for n in range(200)), refused)) == 100
    assert len(refused.lines) == 1000 + 200 + 200


def test_headers_of_all_rules_together_are_limited() -> None:
    refused = LinesRefused()
    rules = Rules(headers=parse_headers("/*\n" + f"  X-A: {'v' * 1000}\n" * 100, refused))
    sent = RuleMatcher(rules).headers_of("/")
    assert 15_000 < sum(map(len, sent.values())) < 17_000
    assert {reason for _, reason in refused.lines} == {"too many headers"}


def test_rules_cost_little_for_a_path_of_any_length() -> None:
    text = "".join(f"/a*b{'c' * 100}{number}\n  A: b\n" for number in range(100))
    matcher = RuleMatcher(Rules(headers=parse_headers(text, LinesRefused())))
    begun = time.process_time()
    assert matcher.headers_of("/" + "ab" * 200_000) == {}
    assert time.process_time() - begun < 1
    assert matcher.headers_of(f"/axb{'c' * 100}7") == {"A": "b"}


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_many_placeholders_cost_less_than_patterns_do() -> None:
    """To make the rules of a release ready, as for each of many releases that visitors ask for in turn, and to use
    them for a path of many segments.
    """
    before, after = ("/".join(f":{letter}{number}" for number in range(150)) for letter in "ab")
    text = "".join(f"/*/{before}/q/{after}{number:02}\n  A: b\n" for number in range(100))
    rules = Rules(
        parse_headers(text, LinesRefused()),
        parse_redirects("".join(f"/{number}/{before}/q/{after}/* /x\n" for number in range(100)), LinesRefused()),
    )
    assert (len(rules.headers), len(rules.redirects)) == (100, 100)
    names = re.compile(r":([a-z]\d+)")
    sources = [names.sub(r"(?P<\1>[^/]+)", rule.path).replace("*", "(.*)") for rule in rules.headers]
    re.purge()
    assert seconds_of(lambda: RuleMatcher(rules)) * 5 < seconds_of(lambda: list(map(re.compile, sources)))
    matcher, patterns = RuleMatcher(rules), list(map(re.compile, sources))
    one_pattern_each = seconds_of(lambda: [pattern.fullmatch("/a" * 1500) for pattern in patterns])
    assert seconds_of(lambda: matcher.headers_of("/a" * 1500)) * 5 < one_pattern_each
    assert matcher.headers_of("/a" * 1500) == {}
    assert matcher.headers_of("/x/y" + "/a" * 150 + "/q" + "/b" * 150) == {"A": ", ".join("b" * 100)}
    assert matcher.redirect_of("/7" + "/a" * 150 + "/q" + "/b" * 150) == ("/x", 302)


@pytest.mark.parametrize(
    ("rule", "path", "fits"),
    [
        ("/a*b/:c", "/axb/1", True),
        ("/a*b/:c", "/ab/1", True),
        ("/ab*b/:c", "/ab/1", False),
        ("/a*b/:c", "/a/b/2/b/1", True),
        ("/a*b/:c", "/axb/", False),
        ("/:x/*/:y", "/1/2", False),
        ("/:x/*/:y", "/1//2", True),
        ("/:x/*/:y", "/1/2/3/4", True),
        ("/*.js", "/a/b.js", True),
        ("/*.js", "/.js", True),
        ("/a/*/", "/a/", False),
        ("/a/*/", "/a//", True),
        ("/a*/", "/a", False),
    ],
)
def test_a_star_in_the_middle_of_a_path(rule: str, path: str, fits: bool) -> None:
    matcher = RuleMatcher(Rules(headers=parse_headers(f"{rule}\n  A: b\n", LinesRefused())))
    assert matcher.headers_of(path) == ({"A": "b"} if fits else {})


@given(st.text(alphabet=st.sampled_from("/:*ab #.!?\\\n\t =0123%@é"), max_size=80), st.text(max_size=20))
def test_no_text_raises_and_no_local_target_leaves_the_site(text: str, path: str) -> None:
    rules = Rules(parse_headers(text, LinesRefused()), parse_redirects(text, LinesRefused()))
    RuleMatcher(rules).headers_of(f"/{path}")
    found = RuleMatcher(rules).redirect_of(f"/{path}")
    if found and not found[0].startswith("http"):
        assert found[0].startswith("/")
        assert not found[0].startswith(("//", "/\\"))
