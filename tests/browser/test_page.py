"""Goal: the page shows what ``Table`` tells, by keyboard, in the dark, on a narrow screen; live, for
long timelines, hostile names, and tables that are damaged or go away.

Method: Chromium shows the page of a real server, which is compared with the public methods of ``Table``.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

import mainstem
from tests.browser.conftest import Opened
from tests.ui.asking import Asking, served
from tests.ui.long_timeline import WRITERS, long_timeline

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
SECTIONS = ("overview", "timeline", "files", "key", "query", "indexes", "streams", "properties", "doctor")
HOSTILE = "<script>hacked=1</script><img src=x onerror=hacked=1>"
TURNED = "\u202egnp.evil"
LONG = "k" * 10_000


def rows(n: int) -> dict[str, list[object]]:
    return {"id": [f"k{i}" for i in range(8)], "city": ["oslo", "rome"] * 4, "n": [n] * 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = mainstem.create_table(
        tmp_path_factory.mktemp("page") / "shop" / "trips", SCHEMA, record_key="id", ordering="n",
        partition_by=["city"], buckets=2, properties={"hoodie.mainstem.fsync": False},
    ).path  # fmt: skip
    off = {"hoodie.mainstem.services": "off"}
    one, two = (
        mainstem.open_table(path, {"hoodie.mainstem.writer.name": name, **off}) for name in ("one", "two")
    )
    with two.begin("upsert") as slow:  # open while others commit
        slow.write(pa.table(rows(1), SCHEMA))
        for n in range(3):
            with one.begin("upsert", guard=mainstem.StreamGuard("orders", n)) as write:
                write.write(pa.table(rows(2 + n), SCHEMA))
                write.commit()
        slow.commit()
    one.services.compact()
    one.upsert(rows(9))
    one.create_index("column_stats", ["n"])
    with two.begin("upsert") as gone:
        gone.write(pa.table(rows(99), SCHEMA))
        gone.abort()
    return Path(path)


@pytest.fixture(scope="module")
def ask(made: Path) -> Iterator[Asking]:
    with served(made.parent.parent) as asking:
        yield asking


def address(ask: Asking, name: str, *parts: str) -> str:
    return f"{ask.url}#/t/{ask.table(name).partition('/')[2]}/" + "/".join(quote(p, safe="") for p in parts)


def until(page: Page, true: str, *, seconds: float = 15) -> None:
    """Waits until the expression is true. The page's policy lets nobody evaluate texts but the debugger."""
    for _ in range(int(seconds / 0.05)):
        if page.evaluate(true):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"still not true after {seconds} s: {true}")


def show(page: Page, ask: Asking, section: str, *, name: str = "trips", more: tuple[str, ...] = ()) -> None:
    """Goes to a section and waits until it is there."""
    page.goto(address(ask, name, section, *more) if section != "tables" else f"{ask.url}#/")
    expect(page.locator(f"#main > [data-shown={section}]")).to_be_attached()


CHART = "document.querySelector('#main > div')?.chart"


def chart(page: Page, what: str) -> Any:
    """A property of what the timeline ``c`` draws, once it is there."""
    until(page, f"{CHART}?.items.length > 0")
    return page.evaluate(f"(() => {{ const c = {CHART}; return {what}; }})()")


# -- what it shows --------------------------------------------------------------------------------------


def test_bars_are_those_of_the_history_in_lanes_of_writers_and_services(
    opened: Opened, ask: Asking, made: Path
) -> None:
    page = opened(address(ask, "trips", "timeline"))
    history = mainstem.open_table(made).history().to_pylist()
    shown = chart(page, "c.items.map((i) => [i.requested, i.completion])")
    assert sorted(shown) == sorted([one["requested"], one["completion"]] for one in history)
    lanes = dict(chart(page, "c.lanes.map((l) => [l.name, l.items.length])"))
    writers = Counter(one["writer"] for one in history if one["writer"])
    assert {name: lanes[name] for name in ("two",)} == {"two": writers["two"]}
    assert lanes["compaction"] == 1 and lanes["rollback"] == 1 and lanes["indexing"] >= 1
    # Where a bar is, the canvas has its lane's colour.
    drawn = page.evaluate("""() => {
        const c = document.querySelector('#main > div').chart, scale = devicePixelRatio;
        const at = (v) => Math.round(v * scale);
        const colour = (x, y) => [...c.context.getImageData(at(x), at(y), 1, 1).data].join();
        const x = (time) => c.gutter + (time - c.from) / (c.to - c.from) * (c.width - c.gutter);
        return c.lanes.filter((l) => !l.service).map((lane) => {
            const one = lane.items[0];
            const bar = colour(x(one.start) + 1.2, lane.top + one.row * 13 + 4);
            return [bar, colour(c.width - 3, lane.top + 4)];
        });
    }""")
    assert len(drawn) == 2 and all(bar != beside for bar, beside in drawn)
    assert drawn[0][0] != drawn[1][0]


def test_a_chosen_instant_tells_its_counts_and_what_was_open_beside_it(
    opened: Opened, ask: Asking, made: Path
) -> None:
    (slow,) = mainstem.open_table(made).history(writer="two").to_pylist()
    page = opened(address(ask, "trips", "timeline", f"{slow['requested']}.deltacommit"))
    details = page.locator("#instant")
    expect(details).to_contain_text(slow["completion"])
    expect(details).to_contain_text("3 other instants")
    expect(details.locator("dd", has_text="8").first).to_be_visible()


def test_file_groups_and_slices_are_those_of_table_files(opened: Opened, ask: Asking, made: Path) -> None:
    files = mainstem.open_table(made).files().to_pylist()
    page = opened(address(ask, "trips", "files"))
    groups = page.locator(".list-groups .body .row")
    expect(groups).to_have_count(len({(one["partition"], one["file_id"]) for one in files}))
    expect(page.locator("main")).to_contain_text(f"{len(files)} files")
    groups.first.click()
    group = files[0]["partition"], files[0]["file_id"]
    first = [one for one in files if (one["partition"], one["file_id"]) == group]
    table = page.locator("#group table tbody tr")
    expect(table).to_have_count(len(first))
    told = {row.split()[-1] for row in table.all_inner_texts()}
    assert told == {one["file"] for one in first}
    drawn = page.locator("#group svg circle, #group svg rect:not(.row)")
    expect(drawn).to_have_count(len(first))
    page.locator(".list-partitions .body .row", has_text="rome").click()
    expect(groups).to_have_count(len({one["file_id"] for one in files if one["partition"] == "rome"}))


def test_a_key_is_explained_in_the_words_of_explain_row(opened: Opened, ask: Asking, made: Path) -> None:
    found = mainstem.open_table(made).explain_row("k3")
    page = opened(address(ask, "trips", "key"))
    page.get_by_label("Record key").fill("k3")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="As text").click()
    assert page.locator("pre").inner_text() == str(found)
    expect(page.locator(".version")).to_have_count(len(found.versions))
    expect(page.locator(".version.wins")).to_have_count(len(found.winners))
    page.get_by_label("Record key").fill("nobody")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("No version of this key is there")


def test_a_query_shows_rows_and_what_was_skipped(opened: Opened, ask: Asking) -> None:
    page = opened(address(ask, "trips", "query"), allowed=("400 (Bad Request)",))
    box = page.get_by_label("One SELECT")
    box.fill("select id, n from t where city = 'rome' order by id")
    box.press("Control+Enter")
    expect(page.locator("table").first.locator("tbody tr")).to_have_count(4)
    assert page.locator("table").first.locator("tbody tr").first.inner_text().split() == ["k1", "9"]
    expect(page.locator("main")).to_contain_text("in 1 of 2 partitions")
    box.fill("drop table t")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("DROP is no SELECT")


def test_properties_indexes_streams_and_findings_agree(opened: Opened, ask: Asking, made: Path) -> None:
    table = mainstem.open_table(made)
    page = opened(address(ask, "trips", "properties"))
    page.get_by_label("Name or value contains").fill("hoodie.table.name")
    expect(page.locator(".list-properties .body .row")).to_have_count(1)
    expect(page.locator(".list-properties .body .row")).to_contain_text("trips")
    for section, words in {
        "indexes": [i.name for i in table.indexes()], "streams": ["orders", "2"],
        "doctor": [f.check for f in table.doctor()], "overview": ["one", "two", *table.schema.names],
    }.items():  # fmt: skip
        show(page, ask, section)
        for word in words:
            expect(page.locator("main")).to_contain_text(word)


def test_work_that_is_under_way_is_shown_while_it_is(opened: Opened, made: Path, tmp_path: Path) -> None:
    path = shutil.copytree(made, tmp_path / "live")
    table = mainstem.open_table(path)
    with served(path) as ask:
        page = opened(address(ask, "live", "timeline"))
        chart(page, "1")
        with table.begin("upsert") as write:
            write.write(pa.table(rows(50), SCHEMA))
            expect(page.locator(".title .muted").first).to_contain_text("1 under way")
            write.commit()
        expect(page.locator(".title .muted").first).not_to_contain_text("under way")
        done = f"{CHART}.items.some((i) => i.requested === '{write.instant}' && i.completion)"
        until(page, done)


# -- for everybody --------------------------------------------------------------------------------------


def test_all_of_it_can_be_reached_by_keyboard(opened: Opened, ask: Asking) -> None:
    page = opened(address(ask, "trips", "overview"))
    expect(page.locator("h1")).to_have_text("trips")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("#sections a[aria-current]").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "Timeline"
    assert page.locator("#sections a[tabindex='0']").count() == 1
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    chart(page, "1")
    page.locator("canvas").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    first = chart(page, "c.selected.id")
    page.keyboard.press("ArrowDown")
    assert chart(page, "c.selected.id") != first
    wide = chart(page, "c.to - c.from")
    page.keyboard.press("+")
    assert chart(page, "c.to - c.from") < wide
    expect(page.locator("#said")).not_to_be_empty()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "instant"
    page.locator(".list-instants .body .row[tabindex='0']").focus()
    page.keyboard.press("End")
    last = page.evaluate("document.activeElement.getAttribute('aria-rowindex')")
    assert int(last) == int(page.locator(".list-instants").get_attribute("aria-rowcount"))
    page.keyboard.press("Enter")
    assert chart(page, "c.items.every((i) => i.start >= c.selected.start)")


_CONTRASTS = """() => {
    const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    const read = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
    const light = (c) => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
    const over = (a, b) => a.slice(0, 3).map((v, n) => v * a[3] + b[n] * (1 - a[3]));
    const behind = (e) => {
        const all = [];
        for (; e; e = e.parentElement) all.push(read(getComputedStyle(e).backgroundColor));
        return all.reverse().reduce((below, c) => over(c, below), [255, 255, 255]);
    };
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || !e.checkVisibility()) continue;
        if (e.closest(".unseen, .skip, svg, option, :disabled")) continue;
        const back = behind(e), ink = over(read(getComputedStyle(e).color), back);
        const [a, b] = [light(ink), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) found.push([walk.currentNode.data.slice(0, 40), Math.round(ratio * 100) / 100]);
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_readable_in_the_light_and_in_the_dark(opened: Opened, ask: Asking, scheme: str) -> None:
    page = opened(address(ask, "trips", "overview"), color_scheme=scheme)
    for section in SECTIONS:
        show(page, ask, section)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate(_CONTRASTS) == [], section
    switch = page.locator("#theme")
    switch.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    switch.click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_nothing_is_wider_than_a_narrow_screen_and_motion_is_reduced(opened: Opened, ask: Asking) -> None:
    page = opened(address(ask, "trips", "overview"), width=360, reduced_motion="reduce", has_touch=True)
    for section in ("tables", *SECTIONS):
        show(page, ask, section)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, section
    moving = "[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).animationName !== 'none')"
    assert page.evaluate(f"{moving}.length") == 0


def test_names_are_announced_and_controls_are_labelled(opened: Opened, ask: Asking) -> None:
    page = opened(address(ask, "trips", "overview"))
    for section in SECTIONS:
        show(page, ask, section)
        bare = page.evaluate("""() => [
            ...document.querySelectorAll('button, input, select, textarea, canvas, [role=grid], [role=img]')
        ].filter((e) => e.checkVisibility() && !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
            .map((e) => e.outerHTML)""")
        assert bare == [], section
        assert page.title().startswith("shop/trips")


# -- many, hostile, damaged, gone --------------------------------------------------------------------------


def test_ten_thousand_instants_stay_smooth(opened: Opened, tmp_path: Path) -> None:
    path = long_timeline(tmp_path / "long", 10_000)
    with served(path) as ask:
        page = opened(address(ask, "long", "timeline"))
        until(page, f"{CHART}?.items.filter((i) => i.known).length === 10000", seconds=90)
        assert chart(page, "c.lanes.length") == WRITERS
        paints = page.evaluate("""async () => {
            const c = document.querySelector('#main > div').chart, took = [];
            const frame = () => new Promise((done) => requestAnimationFrame(done));
            const next = async () => { await frame(); await frame(); };
            for (let n = 0; n < 40; n += 1) {
                n < 20 ? c.zoom(0.8) : c.pan((c.to - c.from) / 10);
                await next(); took.push(c.lastPaint);
            }
            c.fit(); await next(); took.push(c.lastPaint);
            return took.sort((a, b) => a - b);
        }""")
        assert paints[20] < 12 and paints[36] < 50, paints  # of 41: others use the machine, too
        assert page.evaluate("document.querySelectorAll('*').length") < 2_000
        scrolled = page.evaluate("""async () => {
            const port = document.querySelector('.list-instants .port'), took = [];
            for (let n = 1; n <= 30; n += 1) {
                const began = performance.now();
                port.scrollTop = n * 11000;
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                took.push(performance.now() - began);
            }
            return [took.sort((a, b) => a - b)[15], document.querySelectorAll('.list-instants .row').length];
        }""")
        assert scrolled[0] < 80 and scrolled[1] < 60, scrolled


def test_hostile_names_are_shown_as_text(opened: Opened, tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=hacked=1>"
    path = mainstem.create_table(
        folder, SCHEMA, record_key="id", ordering="n", partition_by=["city"], buckets=1,
        properties={"hoodie.mainstem.fsync": False},
    ).path  # fmt: skip
    writer = mainstem.open_table(path, {"hoodie.mainstem.writer.name": HOSTILE})
    city = f"<b>{TURNED}<b>"
    with writer.begin("upsert", extra_metadata={"<i>note": HOSTILE}) as write:
        write.write(pa.table({"id": [HOSTILE, LONG], "city": [city, "x"], "n": [1, 2]}, SCHEMA))
        write.commit()
    file = Path(path, ".hoodie/hoodie.properties")
    file.write_text(file.read_text() + "<script>alert(1)</script>=<img src\\=x onerror\\=hacked\\=1>\n")
    with served(tmp_path) as ask:
        page = opened(ask.url)
        expect(page.locator("h2").first).to_have_text(folder.name)
        name = folder.name
        for parts, words in {
            ("timeline", f"{write.instant}.deltacommit"): HOSTILE, ("files",): "<b>‹202e›gnp.evil<b>",
            ("properties",): "<script>alert(1)</script>", ("overview",): HOSTILE[:40],
            ("key", HOSTILE): HOSTILE, ("key", LONG): "k" * 1_000, ("doctor",): "Doctor",
        }.items():  # fmt: skip
            show(page, ask, parts[0], name=name, more=parts[1:])
            expect(page.locator("main")).to_contain_text(words)
            made = "document.querySelectorAll('main script, main img, main b, main i:not([class])')"
            assert page.evaluate(f"{made}.length") == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.evaluate("typeof hacked") == "undefined"
        page.goto(address(ask, name, "query"))
        page.get_by_label("One SELECT").fill("select id, city from t order by n")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("table").first).to_contain_text(HOSTILE)
        assert page.evaluate("typeof hacked") == "undefined"


def test_a_damaged_commit_is_marked_among_the_others(opened: Opened, made: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(made, tmp_path / "torn"))
    torn = sorted(p for p in (path / ".hoodie/timeline").iterdir() if p.name.endswith(".deltacommit"))[2]
    torn.write_bytes(torn.read_bytes()[:30])
    with served(path) as ask:
        page = opened(address(ask, "torn", "timeline"))
        requested = torn.name.partition("_")[0]
        assert chart(page, "c.items.filter((i) => i.damage).map((i) => i.requested)") == [requested]
        row = page.locator(".list-instants .body .row", has_text="damaged")
        expect(row).to_have_count(1)
        row.click()
        expect(page.locator("#instant").get_by_role("alert")).to_contain_text("Damaged")


def test_a_table_that_goes_away_and_comes_back_is_told(opened: Opened, made: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(made, tmp_path / "away"))
    with served(path) as ask:
        page = opened(address(ask, "away", "timeline"), allowed=("400 (Bad Request)",))
        before = chart(page, "c.items.length")
        shutil.rmtree(path)
        expect(page.locator("#live")).to_have_text("not live")
        expect(page.get_by_role("alert").first).to_contain_text("what was known before")
        assert chart(page, "c.items.length") == before > 1
        mainstem.create_table(path, SCHEMA, record_key="id", buckets=1).upsert(rows(1))
        expect(page.locator("#live")).to_have_text("live")
        until(page, f"{CHART}.items.length === 1")


def test_the_token_is_asked_for_and_kept_in_the_tab_alone(opened: Opened, made: Path) -> None:
    token = "a-token-of-many-characters"
    with served(made, token=token) as ask:
        page = opened(ask.url, allowed=("401 (Unauthorized)",))
        page.get_by_label("Token", exact=True).last.fill("wrong-token-of-many-characters")
        page.keyboard.press("Enter")
        field = page.locator("dialog input")
        expect(field).to_have_value("")
        field.fill(token)
        page.keyboard.press("Enter")
        expect(page.locator(".card h2")).to_have_text("trips")
        page.reload()
        expect(page.locator(".card h2")).to_have_text("trips")
        assert page.context.cookies() == [] and token not in json.dumps(page.context.storage_state())
        by_link = opened(f"{ask.url}#token={token}")
        expect(by_link.locator(".card h2")).to_have_text("trips")
        assert token not in by_link.url
