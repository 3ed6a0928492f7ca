"""Authorisation by Airflow's auth manager. Airflow itself authenticates no request to a mounted application.

    every route       requires access to Airflow's pages (401 without a session, 403 otherwise)
    a table           is visible to users who may read a DAG that declares it; without a DAG, to every signed-in user
    a task's log      is read from Airflow's API by the browser; offered to users who may read logs of the task's DAG
    going on          after a failed task is a request to Airflow's API, shown to users who may clear tasks of the DAG
    an action         requires the right to start runs of every DAG that declares it; without one, of DAGs in general
    a write by cookie is accepted only from Airflow's own origin

A browser never sends an `Authorization: Bearer` header by itself, so the origin of such a request is not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.batch_apis import IsAuthorizedDagRequest
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, HTTPException, Request, status

from airflow_mv_provider.api.airflow_database import Declared, DeclaringDag
from airflow_mv_provider.compat import conf

EVERY_ROUTE = Depends(requires_access_view(AccessView.WEBSITE))


def readable(user: BaseUser, found: Declared) -> Declared:
    """Return the declared tables with only the DAGs that a user may read; a table without one has an empty tuple."""
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for dags in found.values():
        for dag in dags:
            by_team[dag.team].add(dag.dag_id)
    manager = get_auth_manager()
    may_read: set[str] = set()
    for team, dag_ids in by_team.items():
        of_team = {} if team is None else {"team_name": team}  # an argument that Airflow 3.1 does not know
        may_read |= manager.filter_authorized_dag_ids(dag_ids=dag_ids, user=user, method="GET", **of_team)
    return {table: tuple(dag for dag in dags if dag.dag_id in may_read) for table, dags in found.items()}


def may_see(table: str, everything: Declared, seen: Declared) -> bool:
    """True if a table may be shown.

    seen : the result of `readable` for `everything`
    """
    return bool(seen.get(table)) or not everything.get(table)


def may_act(user: BaseUser, dags: Iterable[DeclaringDag]) -> bool:
    """True if a user may start runs of all given DAGs; without any, of DAGs in general."""
    asked: list[IsAuthorizedDagRequest] = [
        {
            "method": "POST",
            "access_entity": DagAccessEntity.RUN,
            "details": DagDetails(id=dag.dag_id, team_name=dag.team),
        }
        for dag in dags
    ]
    anything: IsAuthorizedDagRequest = {"method": "POST", "access_entity": DagAccessEntity.RUN, "details": None}
    return get_auth_manager().batch_is_authorized_dag(asked or [anything], user=user)


def may_clear(user: BaseUser, dag: DeclaringDag) -> bool:
    """True if a user may let Airflow repeat tasks of a DAG's runs; Airflow's API asks again."""
    details = DagDetails(id=dag.dag_id, team_name=dag.team)
    entity = DagAccessEntity.TASK_INSTANCE
    return get_auth_manager().is_authorized_dag(method="PUT", access_entity=entity, details=details, user=user)


def may_read_logs(user: BaseUser, dag: DeclaringDag) -> bool:
    """True if a user may read the logs of a DAG's tasks; Airflow's API asks again."""
    details = DagDetails(id=dag.dag_id, team_name=dag.team)
    entity = DagAccessEntity.TASK_LOGS
    return get_auth_manager().is_authorized_dag(method="GET", access_entity=entity, details=details, user=user)


def from_our_own_page(request: Request) -> None:
    """Refuse a write that a browser sends for a page of another site.

    raises : HTTPException 403
    """
    if request.headers.get("authorization", "").lower().startswith("bearer "):
        return
    # Browsers send Sec-Fetch-Site on HTTPS and localhost only, Origin with every POST.
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_ours = site == "same-origin" if site else origin is not None and _place(origin) in _own_places(request)
    if not is_ours:
        raise HTTPException(status.HTTP_403_FORBIDDEN, "This request does not come from Airflow's own pages.")


def _own_places(request: Request) -> set[str]:
    # A proxy may have changed the Host header; the public address is in the configuration.
    return {request.headers.get("host", "").lower(), _place(conf.get("api", "base_url", fallback="") or "")} - {""}


def _place(url: str) -> str:
    return urlsplit(url).netloc.lower()
