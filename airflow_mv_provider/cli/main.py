"""`amv`: refreshable tables from the command line.

Every command returns one `Answer`, which `answering` prints.

    exit code   0 done or nothing to do · 1 a person must act · 75 a retry may succeed · 2 wrong usage
                74 done, and the answer could not be written

Only `refresh`, `plan`, `explain`, `diff`, `approve`, `reject`, `rollback`, `audit`, `why`, `history-of`, `load`,
`export`, `ingest`, `recover`, `relocate`, `drop`, `warm-up` and `server start` start Spark; others do not import it.
"""

from __future__ import annotations

import functools
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from airflow_mv_provider import __version__, definition_file
from airflow_mv_provider.cli.answer import aside, refresh_answer
from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.audit_command import audit
from airflow_mv_provider.cli.decision_commands import approve, diff, reject, rollback
from airflow_mv_provider.cli.explain_command import explain
from airflow_mv_provider.cli.grouped import GroupedCommands
from airflow_mv_provider.cli.health_command import health
from airflow_mv_provider.cli.history_commands import history, ledger
from airflow_mv_provider.cli.ingest_command import ingest
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher, opened_store
from airflow_mv_provider.cli.options import request_options, wait_option
from airflow_mv_provider.cli.server_commands import server
from airflow_mv_provider.cli.transfer_commands import export, load
from airflow_mv_provider.cli.why_command import history_of, why
from airflow_mv_provider.core.definition.document import json_schema
from airflow_mv_provider.core.guard import NAMES as GUARD_NAMES
from airflow_mv_provider.core.outcome import EXIT_DONE, EXIT_PERSON, EXIT_RETRY, RefreshReport, error_report, exit_code
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.request import check_note, parse_request
from airflow_mv_provider.core.state import Cancelled
from airflow_mv_provider.exceptions import ArgumentError, MvError, SettingError
from airflow_mv_provider.report_text.figures import table
from airflow_mv_provider.report_text.plan_text import plan_text
from airflow_mv_provider.report_text.refresh_text import refresh_text
from airflow_mv_provider.report_text.status_text import cancelled_text, status_text, statuses_text
from airflow_mv_provider.runner.local import command_line_caller, migrate_database, open_database
from airflow_mv_provider.runner.registration import register
from airflow_mv_provider.runner.settings import Settings

if TYPE_CHECKING:
    from airflow_mv_provider.runner.relocation import Relocated


_SECTIONS = {
    "Keep tables equal to their sources": ("apply", "refresh", "plan", "explain", "ingest", "load"),
    "See what is and was": ("status", "history", "ledger", "health", "why", "history-of"),
    "Judge and undo": ("diff", "approve", "reject", "audit", "rollback", "export"),
    "Operate": ("pause", "resume", "cancel", "recover", "relocate", "drop"),
    "Set up": ("db", "server", "warm-up", "schema"),
}
_EXAMPLES = (
    ("amv apply tables.yaml", "register tables, or change their definitions"),
    ("amv refresh orders", "bring a table up to date; again whenever you like"),
    ("amv refresh orders --read-only", "see what would change, and write nothing"),
    ("amv refresh orders --from 2026-03-01 --until 2026-04-01", "only these partitions"),
    ("amv rollback orders --to 12 --note 'a bad export'", "take a publish back: version 12 again"),
    ("amv refresh orders --override max_deleted_fraction --note 'a shop was closed'", "publish what a guard refused"),
    ("amv plan orders", "what a refresh would do, and what it would cost"),
    ("amv explain tables.yaml", "whether queries can be computed incrementally, and what keeps them from it"),
    ("amv load orders --from archive.yaml", "rows of another source, once"),
    ("amv status", "all tables: phase, last refresh, what waits for approval"),
    ("amv history orders --since 2026-03-01 --csv", "refreshes, for a spreadsheet"),
    ("amv why orders order_id=5", "when and by what a row was changed"),
    ("amv history-of orders order_id=5", "the versions of a row, if its table keeps them"),
    ("amv why orders order_id=5 --column amount", "the same for one value of it"),
    ("amv diff orders", "what waits for approval"),
    ("amv approve orders --note 'checked with sales'", "publish exactly that"),
    ("amv approve orders --without-deletes --note 'the export is not complete'", "keep rows that it would delete"),
    ("amv reject orders --note 'a bad export'", "leave the table as it is"),
    ("amv rollback orders --to '2026-03-01 04:00' --note 'a bad export'", "what the table was at a time, in UTC"),
    ("amv audit orders", "whether the table still has the rows that were published"),
    ("amv recover", "end all refreshes whose process died"),
    ("amv recover orders --owner-is-dead --note 'the host is gone'", "do not wait for the lease of one"),
    ("amv recover --abandon orders", "undo it instead of completing it"),
    ("amv server start", "one Spark for all commands of this machine"),
    ("amv relocate --all --warehouse s3a://new/warehouse", "after all files were moved there"),
)


@click.group(
    cls=GroupedCommands,
    sections=_SECTIONS,
    examples=_EXAMPLES,
    num_shown=5,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="amv")
def main() -> None:
    """Keep Delta tables equal to their sources.

    Every command takes --json, --database and --warehouse. Exit codes: 0 done or nothing to do, 1 a person must act,
    75 a retry may succeed, or an approval is awaited, 2 wrong usage, 74 done but the output could not be written.
    """


@main.command()
@click.argument("files", metavar="FILE.yaml...", nargs=-1, required=True, type=click.Path())
@answering
def apply(settings: Settings, files: tuple[str, ...]) -> Answer:
    """Register the tables in definition files. A table that is registered already gets the new definition."""
    definitions = definition_file.load_all(files)
    store = opened_store(settings)
    applied: list[dict[str, Any]] = []
    error = None
    for definition in definitions:
        try:
            record = register(store, settings, definition)
        except MvError as problem:
            error = problem
            break
        pending = store.status(record).pending_definition  # fields that changed after the running refresh began
        applied.append({"table": record.name, "uuid": record.uuid, "location": record.location, "pending": pending})
    rows = [(each["table"], each["location"]) for each in applied]
    lines = table(("table", "location"), rows, numbers_from=2)
    lines += [
        f"{each['table']}: the running refresh keeps its {', '.join(each['pending'])}; the next one uses the new."
        for each in applied
        if each["pending"]
    ]
    text = "\n".join(lines)
    if error is None:
        return Answer({"tables": applied}, text)
    report = error_report(error)
    return Answer({"tables": applied, "error": asdict(report)}, text if applied else "", report, _code(error))


@main.command()
@click.argument("name")
@click.option("--read-only", is_flag=True, help="Compute and report the differences; write nothing to the table.")
@click.option(
    "--override", "overrides", metavar="GUARD", multiple=True, type=click.Choice(GUARD_NAMES),
    help=f"Override a guard for this refresh: {', '.join(GUARD_NAMES)}. May be repeated.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Compare even if the source is unchanged.")
@click.option("--reload", is_flag=True, help="Read a topic from its start, and compare the table with all of it.")
@click.option("--hold", is_flag=True, help="Wait for `amv approve` before the table is changed.")
@click.option("--note", metavar="TEXT", help="The reason, for the history; required with --override.")
@request_options
@wait_option
@functools.partial(answering, is_refresh=True)
def refresh(settings: Settings, name: str, wait_s: float, **asked: Any) -> Answer:
    """Bring a table up to date with its source, or only some of its partitions."""
    request = parse_request(asked)
    check_note(request)
    with opened_refresher(settings) as refresher:
        report = refresh_answer(refresher, name, command_line_caller(), request, wait_s=wait_s)
    return Answer(report.to_json(), refresh_text(report), report.error, exit_code(report))


@main.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Plan a refresh with --force.")
@click.option("--reload", is_flag=True, help="Plan a refresh with --reload.")
@click.option("--sql", "with_sql", is_flag=True, help="Show the queries that find what has to be computed again.")
@request_options
@answering
def plan(settings: Settings, name: str, with_sql: bool, **asked: Any) -> Answer:
    """Show what a refresh would do now: the possible strategies and the cost of each. Reads no row."""
    request = parse_request(asked)
    with opened_refresher(settings) as refresher:
        found = interruptibly(refresher, lambda: refresher.plan(name, request))
    return Answer(asdict(found), plan_text(found, with_sql=with_sql))


@main.command()
@click.argument("name", required=False)
@answering
def status(settings: Settings, name: str | None) -> Answer:
    """Show the state of a table, or of all tables."""
    store = opened_store(settings)
    if name is not None:
        one = store.status(store.table(name))
        return Answer(asdict(one), status_text(one))
    statuses = [store.status(each) for each in store.tables()]
    return Answer({"tables": [asdict(each) for each in statuses]}, statuses_text(statuses))


@main.command()
@click.argument("name")
@answering
def cancel(settings: Settings, name: str) -> Answer:
    """Cancel the running refresh. It stops within one batch; what it has not published stays out of the table."""
    store = opened_store(settings)
    record, caller = store.table(name), command_line_caller()
    result = store.cancel(record, caller)
    state = store.state(record.id)
    document = {
        "table": name,
        "requested": result is not Cancelled.NOTHING,
        "phase": state.phase,
        "refresh_id": state.refresh_id,
    }
    text = cancelled_text(result, state.phase)
    return Answer(document, f"{name}: {text}")


@main.command()
@click.argument("name")
@answering
def pause(settings: Settings, name: str) -> Answer:
    """Pause a table: no new refresh of it begins. A running one continues."""
    store = opened_store(settings)
    record = store.table(name)
    paused = store.pause(record.id, command_line_caller().user)
    state = store.state(record.id)
    rest = "" if state.phase is Phase.NORMAL else f" {state.holder} continues its refresh."
    text = f"{name}: {'paused' if paused else 'already paused'}.{rest}"
    return Answer({"table": name, "paused": paused, "phase": state.phase, "refresh_id": state.refresh_id}, text)


@main.command()
@click.argument("name")
@answering
def resume(settings: Settings, name: str) -> Answer:
    """Resume a paused table: refreshes of it can begin again."""
    store = opened_store(settings)
    resumed = store.resume(store.table(name).id)
    return Answer({"table": name, "resumed": resumed}, f"{name}: {'resumed' if resumed else 'was not paused'}.")


@main.command()
@click.argument("name", required=False)
@click.option("--abandon", metavar="TABLE", help="Abandon this table's unfinished refresh instead of completing it.")
@click.option(
    "--owner-is-dead",
    is_flag=True,
    help="State that the owner of this table's refresh is dead, also while its lease is live.",
)
@click.option("--note", metavar="TEXT", help="How you know that the owner is dead, for the history.")
@answering
def recover(settings: Settings, name: str | None, abandon: str | None, owner_is_dead: bool, note: str | None) -> Answer:
    """Complete or abandon each refresh whose process died, of all tables or of one.

    Also removes the files that ended refreshes have left.
    """
    if name is not None and abandon not in (None, name):
        raise ArgumentError("amv recover", f"{name} and --abandon {abandon} name two tables.", hint="Leave one out.")
    if note is not None and not owner_is_dead:
        raise ArgumentError("amv recover", "--note is for --owner-is-dead.", hint="Leave it out.")
    name, word = _declared_dead(name or abandon, note) if owner_is_dead else (name or abandon, None)
    caller, notes = command_line_caller(), list[str]()

    def report_note(note: str) -> None:
        notes.append(note)
        aside(f"amv: {note}")  # at once, because the next table may fail

    with opened_refresher(settings) as refresher:
        if name is not None and word is not None:
            refresher.declare_dead(name, caller, word)
        if abandon is not None:
            report = interruptibly(refresher, lambda: refresher.abandon(abandon, caller))
            text = refresh_text(report) if report else f"{abandon}: no refresh is running."
            return Answer({"recovered": [report.to_json()] if report else []}, text)
        reports = interruptibly(refresher, lambda: refresher.recover(caller, report_note, name))
        is_left = name is not None and refresher.store.state(refresher.store.table(name).id).phase is not Phase.NORMAL
    # A report's error is that of the ended refresh; recovery itself has failed only if a refresh has not ended.
    code = EXIT_DONE if not is_left and all(report.finished_at for report in reports) else EXIT_RETRY
    text = "\n".join(map(refresh_text, reports)) or ("" if notes else "Nothing to recover.")
    return Answer({"recovered": [report.to_json() for report in reports], "notes": notes}, text, code=code)


def _declared_dead(name: str | None, note: str | None) -> tuple[str, str]:
    """Return the table whose owner a person states to be dead, and the reason.

    raises : ArgumentError, if either is missing
    """
    if name is None or not (note or "").strip():
        problem = "expected one table, and how you know that its owner is dead."
        raise ArgumentError("recover --owner-is-dead", problem, hint='Add the table and --note "...".')
    return name, (note or "").strip()


@main.command()
@click.argument("name")
@click.option("--delete-main", is_flag=True, help="Delete the table itself, too.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@answering
def drop(settings: Settings, name: str, delete_main: bool, yes: bool) -> Answer:
    """Unregister a table: delete its definition, history and files. The table itself stays, unless --delete-main."""
    record = opened_store(settings).table(name)
    main = f"{record.location} is deleted with all its rows" if delete_main else f"{record.location} stays"
    if not yes and not _is_confirmed(f"Drop {name} and its history? {main}."):
        return Answer({"table": name, "dropped": False}, f"{name}: not dropped.", code=EXIT_PERSON)
    with opened_refresher(settings) as refresher:
        done = interruptibly(refresher, lambda: refresher.drop(name, command_line_caller(), delete_main=delete_main))
    rest = "deleted" if done.is_main_deleted else "unchanged"
    document = {"table": name, "dropped": True, "main": done.location, "is_main_deleted": done.is_main_deleted}
    if (named := record.definition.catalog_name) is not None:
        document["is_name_dropped"] = done.unnamed is not None
        rest += f", its name {named} " + ("dropped" if done.unnamed else "left, since it leads elsewhere")
    return Answer(document, f"{name}: dropped. {done.location} is {rest}.")


@main.command()
@click.argument("name", required=False)
@click.option("--all", "is_all", is_flag=True, help="All tables, one after the other.")
@click.option("--old-is-gone", is_flag=True, help="Do not check the old location: its files are gone.")
@answering
def relocate(settings: Settings, name: str | None, is_all: bool, old_is_gone: bool) -> Answer:
    """Register a table at the --warehouse to which its files were moved. Its history is kept.

    With --all, a table that cannot be relocated is reported, and the others are relocated.
    """
    if (name is None) is not is_all:
        raise ArgumentError("relocate", "the command takes one table, or --all.", hint="Name a table, or give --all.")
    caller = command_line_caller()

    def work() -> tuple[tuple[Relocated, ...], dict[str, MvError]]:
        if name is None:
            return runner.relocate_all(caller, is_old_gone=old_is_gone)
        return (runner.relocate(name, caller, is_old_gone=old_is_gone),), {}

    with opened_refresher(settings) as runner:
        moved, problems = interruptibly(runner, work)
    for failed, error in problems.items():
        aside(f"amv: {failed}: not relocated. {error}")
    text = [f"{each.table}: {each.location}{'' if each.location != each.before else ', as before'}" for each in moved]
    document: dict[str, Any] = {"tables": [asdict(each) for each in moved]}
    if problems:
        document["failed"] = [{"table": each, "error": asdict(error_report(problems[each]))} for each in problems]
    codes = {_code(error) for error in problems.values()}
    code = EXIT_PERSON if EXIT_PERSON in codes else max(codes, default=EXIT_DONE)
    return Answer(document, "\n".join(text), code=code)


@main.group()
def db() -> None:
    """Manage the metadata database."""


@db.command("migrate")
@answering
def migrate(settings: Settings) -> Answer:
    """Create the database's tables, or bring them to this version."""
    return _version(migrate_database(settings))


@db.command("check")
@answering
def check(settings: Settings) -> Answer:
    """Check that the database matches this version; exit code 1 if it does not."""
    from airflow_mv_provider.metadata import migrations

    engine = open_database(settings)
    click.get_current_context().call_on_close(engine.dispose)
    return _version(migrations.check(engine))


@main.command("warm-up")
@click.option("--again", is_flag=True, help="Repeat it, even if it was done before.")
@answering
def warm_up(settings: Settings, *, again: bool) -> Answer:
    """Make Spark start faster on this machine: fetch its jars and archive its classes.

    Takes half a minute, and 200 MB in XDG_CACHE_HOME or ~/.cache. A cold `amv refresh` is then about a third faster.
    """
    if settings.spark_remote:
        problem = "commands use a Spark Connect server, so this machine starts no Spark of its own."
        hint = "To start Spark here, unset AMV_SPARK_REMOTE or run `amv server stop`."
        raise SettingError("amv warm-up", problem, hint=hint)
    from airflow_mv_provider.runner import warm_up as steps

    found = steps.warm_up(is_repeated=again)
    size = f"{found.num_bytes / 1e6:,.0f} MB"
    text = f"Archived the classes that Spark loads: {found.archive} ({size})."
    kept = f"Nothing to do: the classes that Spark loads are archived in {found.archive} ({size})."
    return Answer(
        {"archive": str(found.archive), "bytes": found.num_bytes, "new": found.is_new}, text if found.is_new else kept
    )


main.add_command(server)
for each in (
    explain,
    health,
    history,
    ledger,
    diff,
    approve,
    reject,
    rollback,
    audit,
    why,
    history_of,
    load,
    export,
    ingest,
):
    main.add_command(each)


@main.command()
@answering
def schema(settings: Settings) -> Answer:
    """Print the JSON Schema of definition files, for editors."""
    document = json_schema()
    return Answer(document, json.dumps(document, indent=2))


# -- shared by several commands ---------------------------------------------------------------------------------


def _is_confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False  # stdin is closed, or the question was interrupted


def _version(version: str) -> Answer:
    return Answer({"version": version}, f"The metadata database is at version {version}.")


def _code(error: MvError) -> int:
    return exit_code(RefreshReport("", error=error_report(error)))
