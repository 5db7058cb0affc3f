"""The console's page in Chromium, and the console that a broker starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from console_kit import CHROMIUM, PATIENCE_S, Asked, Browser, browser_at

from replog import Admin, LocalCluster, Producer, embedded
from replog.controller.requests import NewTopic

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC = "orders"
TOPICS_COUNT = 250

BEGINS_OF_LONG_VALUES = """(() => {
  const text = document.createRange(), begins = new Set();
  for (const cell of document.querySelectorAll('td:not(:first-child)')) {
    if (cell.firstChild?.nodeType !== Node.TEXT_NODE) continue;
    text.selectNodeContents(cell);
    const lines = [...text.getClientRects()];
    if (lines.length > 1) lines.forEach(line => begins.add(Math.round(line.left - cell.getBoundingClientRect().left)));
  }
  return [...begins];
})()"""
"""How far to the right of its cell each line of a value begins that has several, in pixels, each number once."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page() -> AsyncIterator[str]:
    """The address of the console that a broker has started; it has many topics, and one of them has records."""
    config = {"console.listener": "127.0.0.1:0", "console.allow.changes": True}
    async with embedded(config=config) as broker, Admin(broker.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, num_partitions=2, replication_factor=1)
        await admin.create_topics(
            [NewTopic(f"team-{number:03}", 1, 1) for number in range(TOPICS_COUNT - 1)], timeout_ms=60_000
        )
        async with Producer(broker.bootstrap_servers) as producer:
            for number in range(150):
                value = json.dumps({"id": number, "to": {"city": "<b>Köln</b>"}}, ensure_ascii=False).encode()
                await producer.send(TOPIC, value, b"key-%d" % number, partition=number % 2)
        await admin.alter_group_offsets("billing", {(TOPIC, 0): 10})
        assert broker.nodes[0].console is not None
        async with asyncio.timeout(PATIENCE_S):
            yield await broker.nodes[0].console.first_line()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(page: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    async with browser_at(page, tmp_path_factory.mktemp("chromium")) as found:
        await found.size(1280, 800)
        yield found
        assert found.complaints == []


async def go(browser: Browser, place: str) -> None:
    await browser.run(f"location.hash = {json.dumps('#/' + place)}")
    await browser.until("document.querySelector('.page').dataset.at === location.hash")


async def test_a_broker_starts_it_with_its_own_metadata_log(page: str) -> None:
    async with aiohttp.ClientSession() as session:
        asked = Asked(session, page)
        assert (await asked.get("about"))["allow_changes"]
        found = await asked.get("timeline", topic=TOPIC, partition=1)
        assert [moment["what"] for moment in found["moments"]] == [["created on broker 1, led by broker 1"]]
        assert (await asked.get("quorum"))["snapshots"] == []
        assert "knows no orders-7" in (await asked.get("timeline", status=400, topic=TOPIC, partition=7))["error"]


async def test_it_ends_by_itself_when_its_broker_is_killed(tmp_path: Path) -> None:
    config = {"console.listener": "127.0.0.1:0"}
    async with await LocalCluster.start(tmp_path / "cluster", nodes=1, config=config) as cluster:
        log = cluster.nodes[1].log_file
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            while "console: http" not in log.read_text():
                await asyncio.sleep(0.05)
            address = log.read_text().rpartition("console: ")[2].split()[0]
            assert not (await Asked(session, address).get("about"))["allow_changes"]
            await cluster.kill(1)
            while await answers(session, address):
                await asyncio.sleep(0.05)


async def answers(session: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with session.get(f"{address}api/about"):
            return True
    except aiohttp.ClientError:
        return False


@in_browser
async def test_health_is_one_sentence(browser: Browser) -> None:
    await browser.until("document.querySelector('.sentence.good')")
    assert "in sync" in await browser.run("document.querySelector('.sentence').textContent")


@in_browser
async def test_many_topics_come_a_hundred_at_a_time_and_are_searched_by_keyboard(browser: Browser) -> None:
    await go(browser, "topics")
    await browser.until("document.querySelectorAll('tbody tr').length === 100")
    assert "251 topics" in await browser.run("document.querySelector('main').innerText")  # the groups' own, too
    await browser.key("/", text="/")
    assert await browser.run("document.activeElement.type") == "search"
    await browser.type("ord")
    await browser.until("document.querySelectorAll('tbody tr').length === 1")
    assert await browser.run("document.activeElement.value") == "ord"
    await browser.key("Escape")
    assert await browser.run("document.activeElement === document.body")


@in_browser
async def test_a_record_unfolds_and_its_texts_are_no_markup(browser: Browser) -> None:
    await go(browser, f"messages/{TOPIC}")
    await browser.until("document.querySelectorAll('.record').length === 100")
    await browser.run("document.querySelector('.record-line').focus()")
    await browser.key("Enter", text="\r")
    await browser.until("document.querySelector('.record-body .tree')")
    assert '"<b>Köln</b>"' in await browser.run("document.querySelector('.record-body').innerText")
    assert await browser.run("document.querySelector('.record b') === null")
    await browser.run("[...document.querySelectorAll('button')].find(each => each.textContent === 'Older').click()")
    await browser.until("document.querySelectorAll('.record').length === 150")


@in_browser
async def test_a_search_shows_matches_and_its_end(browser: Browser) -> None:
    await go(browser, f"messages/{TOPIC}?word=%22id%22%3A%2014")
    await browser.until("document.querySelector('[data-search]')?.value && document.querySelector('.record')")
    await browser.run("document.querySelector('form.controls').requestSubmit()")
    await browser.until("document.querySelector('main').innerText.includes('11 matches in 150 records')")
    assert await browser.run("document.querySelectorAll('.record').length") == 11


@in_browser
async def test_a_group_is_moved_after_a_preview(browser: Browser) -> None:
    await go(browser, "group/billing")
    press = "[...document.querySelectorAll('button')].find(each => each.textContent.startsWith({!r}))?.click()"
    await browser.until("document.querySelector('form.controls')")
    await browser.run(press.format("Preview"))
    await browser.until("document.querySelector('button.danger')")
    assert "Nothing is changed yet" in await browser.run("document.querySelector('main').innerText")
    await browser.run(press.format("Commit"))
    await browser.until("document.querySelector('main').innerText.includes('goes on from there in 1 partition')")


@in_browser
@pytest.mark.parametrize(
    "place", ["", "topics", f"topic/{TOPIC}", f"messages/{TOPIC}", "group/billing", f"timeline/{TOPIC}"]
)
async def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, place: str) -> None:
    await browser.size(390, 800, dark=True)
    try:
        await go(browser, place)
        await browser.until("document.querySelector('main td, main .record')")
        assert await browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert await browser.run(BEGINS_OF_LONG_VALUES) in ([], [0]), "each begins below its name"
    finally:
        await browser.size(1280, 800)
