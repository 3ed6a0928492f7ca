"""The page's messages after an action, chosen by the code `done` in its address, which can carry no other text."""

from __future__ import annotations

# pause-not and resume-not changed nothing.
MESSAGES = {
    "cancel-requested": "Cancel requested: the refresh stops within seconds.",
    "cancel-kept": "Cancel requested. No process works on the refresh now. All of it was compared: its next task ends"
    " it, unless the table has its changes already.",
    "cancel-idle": "Cancel requested. No process works on the refresh. All of it was compared, so the table may"
    " have its changes already: only the table's log shows that, and only Spark can read it. The next refresh, or"
    " `amv recover`, reads the log and ends this one.",
    "cancel-left": "Cancel requested. No process works on it any more: the next refresh, or `amv recover`, ends it.",
    "cancel-ended": "Cancelled: no process worked on the refresh, and it has ended.",
    "cancel-nothing": "Nothing to cancel: no refresh is running, or it is already published.",
    "cancel-another": "Nothing was cancelled: another refresh is running now than the one that was shown. Look at it"
    " first.",
    "decide-approved": "Approved: the next refresh, or `amv recover`, publishes exactly what was shown.",
    "decide-without-deletes": "Approved without deletes: the next refresh, or `amv recover`, publishes what was shown"
    " and deletes no row.",
    "decide-rejected": "Rejected: the table stays as it is. The next refresh, or `amv recover`, ends this one.",
    "decide-nothing-held": "Nothing was decided: no refresh of this table awaits approval.",
    "decide-another": "Nothing was decided: another difference awaits approval now than the one that was shown. Look at"
    " it first.",
    "decide-decided": "Nothing was decided: the refresh has been decided already.",
    "decide-over": "Nothing was decided: its time has expired. The next refresh compares again.",
    "decide-overwrites": "Nothing was decided: the table would be overwritten as a whole, which cannot leave out"
    " deletes.",
    "decide-not-complete": "Nothing was decided: without its deletes the table could not be refreshed again, because"
    " its topic is not declared as `complete`.",
    "decide-incomplete": "Nothing was decided: a decision needs a reason, which is kept in the history.",
    "decide-in-airflow": "Nothing was decided: a task asks in Airflow, under its run's required actions, and takes the"
    " answer of whoever may give it.",
    "bulk-nothing": "Nothing was changed: no table was picked.",
    "bulk-pause": "Paused: no new refresh of these tables begins.",
    "bulk-resume": "Resumed: refreshes of these tables can begin again.",
    "pause": "Paused: no new refresh begins.",
    "pause-not": "It was already paused.",
    "resume": "Resumed: refreshes can begin again.",
    "resume-not": "It was not paused.",
}
