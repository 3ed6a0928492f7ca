"""Airflow finds the plugin by its entry point, and takes all of it."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def plugin(application):
    from airflow_mv_provider.plugins.mv import MvPlugin

    return MvPlugin


def test_the_entry_point_gives_the_plugin(plugin):
    ours = [e for e in entry_points(group="airflow.plugins") if e.value.startswith("airflow_mv_provider.")]

    assert [e.load() for e in ours] == [plugin]


def test_airflow_takes_the_application_and_both_views(plugin):
    from airflow import plugins_manager

    apps, _ = plugins_manager.get_fastapi_plugins()
    listed = [each for each in plugins_manager.get_plugin_info(["external_views"]) if each["name"] == plugin.name]

    assert [app["url_prefix"] for app in apps if app["name"] == "Refreshable tables"] == ["/mv"]
    assert [[view["destination"] for view in each["external_views"]] for each in listed] == [["nav", "dag"]]
    assert plugins_manager.get_import_errors() == {}


def test_airflows_own_list_of_plugins_shows_it(as_role, plugin):
    shown = as_role("admin").get("/api/v2/plugins").json()

    [ours] = [each for each in shown["plugins"] if each["name"] == plugin.name]
    assert [view["href"] for view in ours["external_views"]] == ["/mv/", "/mv/dags/{DAG_ID}"]


@pytest.mark.parametrize(
    ("base_url", "prefix"),
    [("", ""), ("http://localhost:8080", ""), ("https://host.example/team/airflow/", "/team/airflow")],
)
def test_links_know_the_path_that_airflow_is_served_under(plugin, monkeypatch, base_url, prefix):
    from airflow_mv_provider.plugins.mv import views

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)

    assert [view["href"] for view in views()] == [f"{prefix}/mv/", f"{prefix}/mv/dags/{{DAG_ID}}"]
