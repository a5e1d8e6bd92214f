"""The explorer's page in a real browser: asking, going on, reviewing, and all that may go wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_plus, urlencode

import numpy as np
import pytest
from browsing import HOSTILE, RELATIONS, SCRIPT, TOWNS, Served, small_run, watched

from kgem.answer.features import Known, nearest_facts
from kgem.data.dataset import SPLITS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
expect = api.expect
expect.set_options(timeout=20_000)  # many machines are slower than ours

STATIC = Path(__file__).parents[2] / "src" / "kgem" / "serve" / "static"
CHROMIUM = shutil.which("chromium")
NODE = shutil.which("node", path=Path(api.__file__).parents[1] / "driver") or shutil.which("node")
MISSING = "Failed to load resource"  # what the browser notes when the server says no, or nothing
TRAVELLERS = (SCRIPT, HOSTILE[2], HOSTILE[3], "many words " * 40, "a?b=c&d#e%20f/g", "__proto__")  # through addresses
ASK = f"/#/ask?head={quote_plus(TOWNS[0])}&relation=near"
EVERYWHERE = (
    "/",
    ASK,
    "/#/ask?head=Town+01&tail=Town+02",
    "/#/ask?head=Town+01&relation=near&tail=" + "many+words+" * 40,
    "/#/entity",
    f"/#/entity?label={quote_plus('W' * 300)}",
    "/#/entity?label=many+words+" + "many+words+" * 39,
    "/#/graph/strengths",
    "/#/graph/learning",
    "/#/graph/accuracy",
    "/#/graph/calibration",
    "/#/review",
    "/#/review?kind=doubtful",
)

# Smaller than 24 pixels, unless it is a link within a line or has as much room around it.
NARROW = """() => [...document.querySelectorAll('button, select, label:has(input), input:not(label input)')]
    .filter((each) => each.checkVisibility() && !each.closest('.sr'))
    .filter((each) => Math.min(each.getBoundingClientRect().width, each.getBoundingClientRect().height) < 24)
    .map((each) => each.outerHTML)"""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with api.sync_playwright() as started:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        launched = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("run")
    started = Served(small_run(folder), folder)
    yield started
    started.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Served]:
    """For tests that decide, or stop it."""
    started = Served(small_run(tmp_path), tmp_path)
    yield started
    started.stop()


def visit(page: Page, address: str) -> None:
    """Go there and wait until nothing is on its way."""
    page.goto(address)
    expect(page.locator("main h1")).to_have_count(1)
    expect(page.locator("[aria-busy=true], .working")).to_have_count(0)


def test_page_never_makes_html_of_text() -> None:
    """What labels can do they could do only through one of these."""
    risky = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc")
    scripts = list(STATIC.rglob("*.js"))
    assert scripts
    for path in scripts:
        text = path.read_text(encoding="utf-8")
        assert not risky.search(text), path.name
        elsewhere = set(re.findall(r"https?://[^\"'` )]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not elsewhere, path.name


def test_every_file_that_the_page_names_is_there() -> None:
    index = (STATIC / "index.html").read_text(encoding="utf-8")
    named = re.findall(r"(?:src|href)=\"/static/([^\"]+)\"", index)
    assert len(named) >= 6
    assert all((STATIC / name).is_file() for name in named)
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", index), "the content policy would not let it pass"


@pytest.mark.skipif(NODE is None, reason="needs node, which playwright brings along")
def test_every_module_parses_and_has_what_others_import_from_it(tmp_path: Path) -> None:
    def checked(folder: Path) -> str:
        check = Path(__file__).with_name("modules.mjs")
        call = [str(NODE), "--no-warnings", "--experimental-vm-modules", str(check), str(folder)]
        return subprocess.run(call, stderr=subprocess.PIPE, text=True, timeout=60, check=False).stderr

    assert checked(STATIC / "js") == ""
    (tmp_path / "a.js").write_text('import { here, gone } from "./b.js";\nhere(gone);\n')
    (tmp_path / "b.js").write_text("export function here() {}\nexport const other = 1;\n")
    (tmp_path / "c.js").write_text('import { there } from "./d.js";\n')
    (tmp_path / "e.js").write_text("const = 1;\n")
    said = checked(tmp_path)
    for part in ("named 'gone'", "d.js, which is not there", "e.js: Unexpected token", "other is exported for nobody"):
        assert part in said


@needs_chromium
def test_ask_follow_an_answer_and_go_back(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, ASK)
        answers = page.get_by_role("list", name="Answers").get_by_role("listitem")
        expect(answers).to_have_count(10)
        expect(page.get_by_role("heading", name="Town 00 near ?")).to_be_visible()
        expect(page.get_by_text("which tail it is, given that there is one")).to_be_visible()
        expect(page.locator(".certainty")).to_contain_text("answers are plausible")
        expect(page).to_have_title(re.compile("Town 00 near"))

        first = answers.first.locator(".go")
        label = first.inner_text()
        first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(label)
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        page.go_back()
        expect(page.get_by_role("heading", name="Town 00 near ?")).to_be_visible()

        answers.first.get_by_role("link", name=f"Ask further about {label}").click()
        questions = page.get_by_role("heading", name=f"Questions about {label}")
        expect(questions).to_be_focused()
        page.locator(".ask-body .chip").first.click()
        expect(answers).to_have_count(10)
        page.go_back()
        expect(questions).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Town 00 near ?")).to_be_visible()


def without_middle(label: str) -> str:
    """Long labels of lists: addresses of one graph begin alike, and what tells them apart is at their ends."""
    return label if len(label) <= 80 else f"{label[:24]}…{label[-48:]}"


@needs_chromium
def test_answers_are_those_of_the_model(browser: Browser, served: Served) -> None:
    said = served.model.predict(head=TOWNS[3], relation="near", top=100)
    with watched(browser, served) as page:
        visit(page, "/#/ask?head=Town+03&relation=near&top=100")
        rows = page.locator(".answer").all()
        assert [row.locator(".go").get_attribute("title") for row in rows] == [answer.label for answer in said]
        assert [row.locator(".go").text_content() for row in rows] == [without_middle(answer.label) for answer in said]
        badges = {"train": "known", "valid": "held out: valid", "test": "held out: test", None: ""}
        assert [" ".join(row.locator(".badge").all_inner_texts()) for row in rows] == [badges[a.known] for a in said]
        assert {answer.known for answer in said} == {None, "train", "test"}
        shown = rows[0].locator(".figures b").inner_text()
        assert float(shown.removesuffix("\u00a0%")) == pytest.approx(100 * said[0].probability, rel=0.05)
        assert f"rank {said[0].rank_low}" in rows[0].inner_text()


@needs_chromium
def test_a_fact_with_all_three_parts_is_judged(browser: Browser, served: Served) -> None:
    (wanted,) = served.model.judge([(TOWNS[3], "near", TOWNS[7])], uncertainty=True)
    assert wanted.chance is not None
    with watched(browser, served) as page:
        visit(page, "/#/ask?head=Town+03&relation=near")
        truth = page.get_by_role("switch", name="Is it true?")
        truth.click()
        expect(page.get_by_role("combobox", name="Tail")).to_be_enabled()
        visit(page, "/#/ask?head=Town+03&relation=near&tail=Town+07")
        expect(truth).to_be_checked()
        expect(page.get_by_role("heading", name="Town 03 near Town 07")).to_be_visible()
        shown = page.locator(".judged .big").inner_text()
        assert float(shown.removesuffix("\u00a0%")) == pytest.approx(100 * wanted.chance, rel=0.06)
        assert page.locator(".against li").all_inner_texts() == list(wanted.against)
        expect(page.get_by_role("link", name=f"Rank of the head: {wanted.rank_head}")).to_be_visible()
        truth.click()
        expect(page.get_by_role("heading", name="Town 03 near ?")).to_be_visible()


@needs_chromium
def test_start_has_examples_and_options_have_addresses(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, "/")
        page.locator(".example").first.click()
        expect(page.locator(".answer").first).to_be_visible()

        visit(page, ASK)
        page.get_by_role("switch", name="New answers only").check()
        expect(page).to_have_url(re.compile("new=1"))
        expect(page.locator(".answer .badge")).to_have_count(0)
        page.get_by_role("combobox", name="Mode").select_option("bayes")
        expect(page.get_by_text("Mode bayes, temperature 0.8")).to_be_visible()
        page.get_by_role("combobox", name="Answers").select_option("25")
        expect(page.locator(".answer")).to_have_count(25)
        page.reload()
        expect(page.locator(".answer")).to_have_count(25)
        expect(page.get_by_role("switch", name="New answers only")).to_be_checked()
        expect(page.get_by_role("combobox", name="Mode")).to_have_value("bayes")

        page.get_by_role("radio", name="Ask for the head").check()  # the question turns round
        expect(page.get_by_role("heading", name="? near Town 00")).to_be_visible()
        expect(page.get_by_text("which head it is")).to_be_visible()
        visit(page, "/#/ask?head=Town+00&tail=Town+01")
        expect(page.locator(".answer")).to_have_count(4)


@needs_chromium
def test_typeahead_by_keyboard(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, "/")
        head = page.get_by_role("combobox", name="Head")
        head.focus()
        page.keyboard.type("town 1")
        options = page.get_by_role("listbox", name="Head").get_by_role("option")
        expect(options).to_have_count(10)
        expect(head).to_have_attribute("aria-expanded", "true")
        marked = page.locator("#" + (head.get_attribute("aria-activedescendant") or "nothing"))
        expect(marked).to_have_attribute("aria-selected", "true")
        first = marked.locator(".label").inner_text()
        page.keyboard.press("ArrowDown")
        marked = page.locator("#" + (head.get_attribute("aria-activedescendant") or "nothing"))
        second = marked.locator(".label").inner_text()
        assert first != second
        page.keyboard.press("Enter")
        expect(head).to_have_value(second)

        relation = page.get_by_role("combobox", name="Relation")
        expect(relation).to_be_focused()
        page.keyboard.type("twin")
        page.keyboard.press("Enter")  # at once: before the options can have come
        expect(page.get_by_role("heading", name=f"{second} twin of ?")).to_be_visible()
        expect(page.locator(".answer")).to_have_count(10)
        expect(page.locator("#live")).to_contain_text("10 answers, first")

        head.click()
        page.keyboard.type("nowhere at all")
        expect(page.get_by_role("listbox", name="Head")).to_contain_text("No entity has “nowhere at all” in its name")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        expect(head).to_have_value(second)


@needs_chromium
def test_unknown_label_and_what_may_be_meant(browser: Browser, served: Served) -> None:
    with watched(browser, served, may_fail=(MISSING,)) as page:
        visit(page, "/#/ask?head=Twon+05&relation=near")
        expect(page.get_by_role("alert").filter(has_text="The graph does not have that")).to_be_visible()
        expect(page.get_by_text("No entity is called 'Twon 05'")).to_be_visible()
        page.locator(".suggestions .chip").first.click()
        expect(page.locator(".answer")).to_have_count(10)
        visit(page, "/#/entity?label=Twon+05")
        page.locator(".suggestions .chip").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Town")


@needs_chromium
def test_enter_takes_the_most_frequent_match_and_an_unknown_entry_is_told_in_sight(
    browser: Browser, served: Served
) -> None:
    data = served.model.data
    most = max(TOWNS, key=lambda town: (data.entity_counts[data.entities.id(town)], -data.entities.id(town)))
    with watched(browser, served, may_fail=(MISSING,)) as page:
        page.set_viewport_size({"width": 390, "height": 640})
        visit(page, "/")
        head = page.get_by_role("combobox", name="Head")
        head.focus()
        page.keyboard.type("own ")
        page.keyboard.press("Enter")
        expect(head).to_have_value(most)
        head.click()
        page.keyboard.type("nowhere at all")
        page.keyboard.press("Enter")
        alert = page.get_by_role("alert").filter(has_text="The graph does not have that")
        expect(alert).to_be_in_viewport(ratio=0.9)
        expect(page.get_by_role("listbox")).to_have_count(0)  # nothing lies over it


@needs_chromium
def test_every_fact_leads_to_why(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, ASK)
        label = page.locator(".answer .go").first.inner_text()
        page.get_by_role("link", name=f"Why Town 00 near {label}", exact=True).click()
        expect(page.get_by_role("heading", name=f"Town 00 near {label}")).to_be_visible()
        expect(page.locator(".judged .big")).to_be_visible()

        data, scorer = served.model.data, served.model.mode_scorer()
        likes = ((fact, nearest_facts(scorer, Known.everything(data), fact)) for fact in data.train.astype(np.int64))
        (h, r, t), like = next((fact, like) for fact, like in likes if like)
        asked = {"head": data.entities[h], "relation": data.relations[r], "tail": data.entities[t]}
        visit(page, f"/#/ask?{urlencode(asked)}")
        page.get_by_role("link", name=f"Why {' '.join(data.label(like[0]))}", exact=True).click()
        expect(page.get_by_role("heading", name=" ".join(data.label(like[0])), level=2)).to_be_visible()

        visit(page, "/#/entity?label=Town+00")
        facts = page.locator(".facts li")
        expect(facts.locator(".why")).to_have_count(facts.count())
        shown = page.locator(".expected")
        expect(shown.locator(".why")).to_have_count(shown.count())


@needs_chromium
def test_entity_has_facts_expectations_and_neighbours(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, "/#/entity?label=Town+02")
        facts = page.get_by_role("region", name="Facts", exact=True)
        expect(facts.get_by_text("held out: test")).to_be_visible()
        expect(page.get_by_role("region", name="Expected of it").get_by_role("listitem").first).to_be_visible()
        expect(page.get_by_role("region", name="Strength", exact=True)).to_contain_text("of all entities")
        page.get_by_role("region", name="Similar").get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("Town 02")
        page.get_by_role("combobox", name="Find an entity").fill("Town 09")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Town 09")


@needs_chromium
def test_graph_in_pictures_and_tables(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, "/#/graph/strengths?find=Town+03")
        expect(page.locator(".told")).to_contain_text("Town 03")
        picture = page.locator(".picture.scatter")
        expect(picture.locator("canvas")).to_have_count(1)
        picture.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator(".told")).not_to_contain_text("Town 03")
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".told")).to_contain_text("Town 03")
        ring = picture.locator(".ring").bounding_box()
        assert ring is not None
        page.mouse.move(5, 5)
        page.mouse.move(ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2)
        expect(picture.locator(".caption.here")).to_have_text("Town 03")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Town 03")

        visit(page, "/#/graph/strengths?kind=relations")
        expect(page.get_by_role("region", name="Most regularised").get_by_role("row")).to_have_count(5)

        visit(page, "/#/graph/learning")
        expect(page.get_by_role("img")).to_have_count(3)
        expect(page.get_by_text("Best: 0.360, re-train, epoch 3")).to_be_visible()

        visit(page, "/#/graph/accuracy")
        table = page.get_by_role("region", name="By relation")
        table.get_by_role("button", name="MRR").click()
        expect(table.get_by_role("columnheader", name="MRR")).to_have_attribute("aria-sort", "descending")
        page.get_by_role("navigation", name="Split").get_by_role("link", name="valid").click()
        expect(page.get_by_role("heading", name="Accuracy on valid")).to_be_visible()

        page.get_by_role("link", name="Calibration").click()
        expect(page.get_by_role("img", name="Reliability curve")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Accuracy on valid")).to_be_visible()


@needs_chromium
def test_review_with_keys_undo_and_reload(browser: Browser, own_server: Served) -> None:
    with watched(browser, own_server) as page:
        visit(page, "/#/review")
        fact, recent = page.locator(".fact"), page.get_by_role("list", name="Recent decisions").get_by_role("listitem")
        expect(page.get_by_role("button", name="Undo")).to_be_disabled()
        seen = []
        for key, said in (("a", "accepted"), ("r", "rejected"), ("s", "skipped")):
            seen.append(fact.inner_text())
            page.keyboard.press(key)
            expect(fact).not_to_have_text(seen[-1])
            expect(recent.first).to_contain_text(said)
        expect(page.get_by_text("3 of")).to_be_visible()
        fourth = fact.inner_text()
        page.get_by_role("button", name="Accept").click()
        expect(fact).not_to_have_text(fourth)
        page.keyboard.press("u")
        expect(fact).to_have_text(fourth)
        expect(recent).to_have_count(3)

        keys = page.get_by_role("switch", name="Decide by keys")
        keys.uncheck()
        page.keyboard.press("a")
        keys.check()

        page.reload()
        expect(page.get_by_text("3 of")).to_be_visible()
        expect(fact).to_have_text(fourth)
        expect(page.locator("#decided")).to_have_text("2")
        page.get_by_role("button", name="Undo").click()  # of what was decided before the reload
        expect(fact).to_have_text(seen[2])

        own_server.stop()
        own_server.start()
        page.reload()
        expect(page.get_by_text("2 of")).to_be_visible()
        with page.expect_download() as export:
            page.get_by_role("link", name="Export TSV").click()
        lines = Path(export.value.path()).read_text(encoding="utf-8").splitlines()
        assert [line.split("\t")[3] for line in lines[1:]] == ["accept", "reject"]
        path = os.path.relpath(own_server.folder)
        expect(page.get_by_text(f"kgem update {path} {path}/review.tsv")).to_be_visible()


@needs_chromium
def test_review_of_doubtful_facts_and_of_one_relation(browser: Browser, own_server: Served) -> None:
    with watched(browser, own_server) as page:
        visit(page, "/#/review?kind=doubtful&relation=near")
        fact = page.locator(".fact")
        expect(fact).to_contain_text("near")
        total = int(page.locator(".progress-row p").inner_text().split()[2])
        data = own_server.model.data
        near = data.relations.id("near")
        assert total == len({(h, t) for split in SPLITS for h, r, t in data.split(split).tolist() if r == near})
        beside = page.get_by_role("list", name="Answers to the same question").locator("li.mine")
        expect(beside).to_have_count(1)
        assert beside.locator(".go").inner_text() in fact.inner_text()
        for _ in range(total):
            before = fact.inner_text()
            expect(beside).to_have_count(1)  # also if it is not among the first
            assert not {"false", "null"} & set(page.locator(".card.desk").inner_text().split("\n"))
            page.get_by_role("button", name="Keep").click()
            expect(fact.filter(visible=True, has_text=before)).to_have_count(0)
        expect(page.get_by_role("heading", name=f"All {total} facts are decided")).to_be_visible()
        page.keyboard.press("u")
        expect(fact).to_be_visible()
        page.get_by_role("link", name="Missing facts").click()
        expect(page.get_by_text("0 of")).to_be_visible()


@needs_chromium
def test_review_by_relation_with_counts(browser: Browser, own_server: Served) -> None:
    with watched(browser, own_server) as page:
        visit(page, "/#/review")
        relations = page.get_by_role("region", name="By relation").get_by_role("listitem")
        proposed = own_server.model.missing_facts(1000)
        expect(relations).to_have_count(1 + len({fact.relation for fact in proposed}))
        first = proposed[0].relation
        mine = relations.filter(has=page.get_by_text(first, exact=True)).locator("small")
        before = sum(fact.relation == first for fact in proposed)
        expect(mine).to_have_text(str(before))
        page.keyboard.press("a")
        expect(mine).to_have_text(str(before - 1))
        page.keyboard.press("u")
        expect(mine).to_have_text(str(before))
        mine.click()
        expect(page.locator(".fact .how")).to_have_text(first)
        expect(mine).to_have_text(str(before))


@needs_chromium
def test_hostile_labels_are_text(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        heading = page.get_by_role("heading", level=1)
        for label in HOSTILE:
            visit(page, f"/#/entity?label={quote_plus(label)}")
            expect(heading).to_have_text(label.strip())
            assert heading.text_content() == label
            assert page.locator("main script, main img").count() == 0
            if label not in TRAVELLERS:
                continue
            page.get_by_role("link", name="Ask about it").click()
            expect(page.get_by_role("combobox", name="Head")).to_have_value(label)
            page.locator(".ask-body .chip").first.click()
            expect(page.locator(".answer")).to_have_count(10)
            page.locator(".aside .chip:has(> .label)").filter(has_text=label.strip()[:40]).first.click()
            expect(heading).to_have_text(label.strip())
            assert heading.text_content() == label  # through three addresses
            assert page.locator("main script, main img").count() == 0


@needs_chromium
def test_hostile_labels_in_lists(browser: Browser, served: Served) -> None:
    with watched(browser, served) as page:
        visit(page, "/")
        head = page.get_by_role("combobox", name="Head")
        head.fill("script>al")
        option = page.get_by_role("option").first
        expect(option.locator(".label")).to_have_text(SCRIPT)
        option.click()
        expect(head).to_have_value(SCRIPT)
        for address in ("/#/graph/strengths?find=%3Cscript%3Ealert(1)%3C/script%3E", "/#/graph/accuracy", "/#/review"):
            visit(page, address)
            assert page.locator("main script, main img").count() == 0
        visit(page, "/#/graph/strengths?kind=relations")
        for label in RELATIONS:
            expect(page.get_by_role("region", name="Most regularised").get_by_role("link", name=label)).to_be_visible()


@needs_chromium
def test_server_that_stops_and_comes_back(browser: Browser, own_server: Served) -> None:
    with watched(browser, own_server, may_fail=(MISSING,)) as page:
        visit(page, "/#/review")
        fact = page.locator(".fact").inner_text()
        own_server.stop()
        page.keyboard.press("a")
        banner = page.locator("#banner")
        expect(banner).to_contain_text("The server has stopped.")
        expect(banner).to_contain_text(f"kgem serve {os.path.relpath(own_server.folder)}")
        expect(page.locator(".fact")).to_have_text(fact)
        expect(page.get_by_text("This decision was not confirmed")).to_be_visible()
        page.get_by_role("link", name="Graph", exact=True).click()
        expect(page.get_by_role("heading", name="the server has stopped")).to_be_visible()
        page.go_back()
        own_server.start()
        expect(banner).to_be_empty()
        expect(page.get_by_text("0 of")).to_be_visible()
        page.keyboard.press("a")
        expect(page.get_by_text("1 of")).to_be_visible()


@needs_chromium
def test_a_list_waits_for_the_decision_that_is_under_way(browser: Browser, own_server: Served) -> None:
    with watched(browser, own_server) as page:
        visit(page, "/#/review")
        expect(page.get_by_text("0 of")).to_be_visible()
        held: list[Route] = []
        page.route("**/api/review", lambda route: held.append(route))  # decisions only: the list has parameters
        with page.expect_request("**/api/review"):
            page.keyboard.press("a")
        page.evaluate("dispatchEvent(new Event('hashchange'))")  # the same list once more
        page.wait_for_timeout(500)
        held[0].continue_()
        expect(page.get_by_text("1 of")).to_be_visible()


@needs_chromium
def test_work_in_the_background_shows_how_far_it_is(browser: Browser, served: Served) -> None:
    calls = 0

    def slowly(route: Route) -> None:
        nonlocal calls
        calls += 1
        if calls < 4:
            route.fulfill(status=202, json={"state": "working", "done": 10 * calls, "of": 40})
        else:
            route.continue_()

    with watched(browser, served) as page:
        page.route("**/api/metrics*", slowly)
        page.goto("/#/graph/accuracy")
        expect(page.get_by_role("progressbar", name="Ranking held-out facts")).to_be_visible()
        expect(page.get_by_text("of 40")).to_be_visible()
        expect(page.get_by_role("heading", name="Accuracy on test")).to_be_visible()


@needs_chromium
def test_phone_has_no_sideways_scrolling(browser: Browser, served: Served) -> None:
    with watched(browser, served, is_mobile=True, has_touch=True) as page:
        page.set_viewport_size({"width": 360, "height": 740})
        for address in EVERYWHERE:
            visit(page, address)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, address
            assert page.evaluate(NARROW) == [], f"too small for a finger at {address}"
        visit(page, "/")
        page.get_by_role("combobox", name="Head").tap()
        page.keyboard.type("Town 07")
        page.get_by_role("option", name="Town 07").tap()
        expect(page.get_by_role("heading", name="Questions about Town 07")).to_be_visible()
        visit(page, "/#/graph/strengths?find=Town+07")
        dot = page.locator(".ring").bounding_box()
        assert dot is not None
        visit(page, "/#/graph/strengths")
        page.touchscreen.tap(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
        expect(page.locator(".told")).to_contain_text("Town 07")
        visit(page, ASK)
        bar = page.get_by_role("navigation", name="Views").bounding_box()
        assert bar is not None and bar["y"] > 600, "the views are at the thumb"


@needs_chromium
def test_dark_and_light(browser: Browser, served: Served) -> None:
    def brightness(page: Page) -> float:
        red, green, blue = re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
        return (int(red) + int(green) + int(blue)) / 3

    faint = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8").partition("\n")[2]
    with watched(browser, served, color_scheme="dark") as page:
        visit(page, "/")
        assert brightness(page) < 60
        for theme in ("dark", "light"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            for address in ("/", ASK, "/#/graph/strengths", "/#/review"):
                visit(page, address)
                assert page.evaluate(faint) == {}, f"{address} in {theme}"
        page.emulate_media(color_scheme="dark")
        button = page.get_by_role("button", name="Colours")
        button.click()
        expect(button).to_have_accessible_name("Colours: light")
        assert brightness(page) > 200
        page.reload()
        expect(button).to_have_accessible_name("Colours: light")
        assert brightness(page) > 200
    with watched(browser, served, color_scheme="light") as page:
        visit(page, "/")
        assert brightness(page) > 200


@needs_chromium
def test_every_view_can_be_heard(browser: Browser, served: Served) -> None:
    """One heading of the first level, a name for everything that can be used, no id twice."""
    nameless = """() => [...document.querySelectorAll('a[href], button, input, select, [tabindex="0"]')]
        .filter((each) => each.checkVisibility() && !(each.getAttribute('aria-label') || each.title
            || each.labels?.length || each.textContent.trim()))
        .map((each) => each.outerHTML)"""
    twice = """() => { const ids = [...document.querySelectorAll('[id]')].map((each) => each.id);
        return ids.filter((id, place) => ids.indexOf(id) !== place); }"""
    with watched(browser, served, reduced_motion="reduce") as page:
        for address in EVERYWHERE:
            visit(page, address)
            assert page.evaluate(nameless) == [], address
            assert page.evaluate(twice) == [], address
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_be_visible()
        page.get_by_role("link", name="Entities").click()
        expect(page.get_by_role("heading", level=1)).to_be_focused()
