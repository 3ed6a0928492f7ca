"""Take the pictures of docs/images anew: `python -m tests.browser.screenshots [folder]`.

A real Airflow, real DAG files, tables in every state; what differs is drawn from a seed, so that two runs look alike.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from tests.api.filled import TABLES, fill
from tests.browser.chromium import chromium
from tests.browser.conftest import signed_in
from tests.browser.server import api_server
from tests.conftest import Clock

FORM = Path(__file__).parents[2] / "dags" / "refresh_on_demand.py"
TALL = {"width": 1280, "height": 1200}
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
DAGS = f"""
from datetime import UTC, datetime
from airflow.sdk import DAG, Asset
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_mv_provider.asset import asset_uri

for table in {sorted(TABLES)}:
    with DAG(table.replace(".", "_") + "_hourly", schedule=None if table == "payments" else "@hourly",
             start_date=datetime.now(UTC), catchup=False, is_paused_upon_creation=table == "sensors"):
        EmptyOperator(task_id="refresh", outlets=[Asset(asset_uri(table))])
"""
_PICTURES = {
    "list": "/plugin/refreshable-tables",
    "table": "/plugin/refreshable-tables/mv/tables/orders",
}


def main(folder: Path) -> None:
    """Write the pictures as small PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="amv-pictures-") as home,
        chromium() as browser,
        api_server(Path(home), {"tables.py": DAGS, FORM.name: FORM.read_text(encoding="utf-8")}) as server,
    ):
        engine = open_engine(server.our_database)
        migrations.migrate(engine)
        clock = Clock()
        fill(Store(engine, clock.now), clock)
        engine.dispose()
        session = signed_in(browser, server, "admin")

        def window(path: str, **more: Any) -> Any:
            page = browser.new_context(storage_state=session, base_url=server.url, **more).new_page()
            page.goto(path)
            return page

        for theme in ("light", "dark"):
            for name, path in _PICTURES.items():
                page = window(path, viewport=WIDE, color_scheme=theme)
                page.frame_locator("iframe").get_by_role("heading", level=1).wait_for()
                write(page, folder / f"{name}-{theme}.png")
        for name, path in (("list", "/mv/"), ("table", "/mv/tables/orders")):
            write(window(path, viewport=NARROW, color_scheme="light"), folder / f"{name}-narrow.png")
        over_time = window("/mv/tables/orders/over-time?range=all", viewport=WIDE, color_scheme="light")
        write(over_time, folder / "over-time-light.png")
        for theme in ("light", "dark"):
            write(window("/mv/lineage", viewport=WIDE, color_scheme=theme), folder / f"lineage-{theme}.png")
        page = window("/mv/", viewport=TALL, color_scheme="light")
        page.get_by_label("All on this page").check()
        page.locator("#picked-refresh").click()
        page.get_by_role("dialog").get_by_text("More").click()
        write(page.locator("#start-run"), folder / "dialog-light.png")
        page = window("/dags/refresh_on_demand", viewport=TALL, color_scheme="light")
        page.get_by_test_id("trigger-dag-button").click()
        form = page.get_by_role("dialog")
        form.get_by_role("button", name="Which partitions").click()
        form.get_by_text("One value per line").scroll_into_view_if_needed()
        write(form, folder / "form-light.png")
        for theme in ("light", "dark"):
            page = window("/mv/tables/gold.margins#decide", viewport=TALL, color_scheme=theme)
            page.evaluate("scrollTo(0, 0)")
            write(page, folder / f"held-{theme}.png")
        page = window("/mv/tables/orders", viewport=WIDE, color_scheme="light")
        write(page.locator("#past"), folder / "history-light.png")


def write(shown: Any, file: Path) -> None:
    """Write what a page or an element looks like, in 128 colours: a third of the bytes."""
    picture = Image.open(io.BytesIO(shown.screenshot()))
    picture.convert("RGB").quantize(128).save(file, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/images"))
