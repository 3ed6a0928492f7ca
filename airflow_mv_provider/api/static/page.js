// The page's only script: the theme, what changes by itself, and the runs that people start.
// Everything can be read, cancelled, paused and resumed without it.
"use strict";

(() => {
  const root = document.documentElement;

  // Airflow keeps its theme in this origin's storage; without a choice there, the browser's is used.
  const followTheme = () => {
    let theme = null;
    try {
      theme = localStorage.getItem("theme");
    } catch {
      // storage is barred: the browser's theme
    }
    if (theme === "dark" || theme === "light") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  followTheme();
  window.addEventListener("storage", followTheme);

  // How often an open page asks for news; it asks nothing while it is hidden.
  const RUNNING_MS = 1500;
  const LIST_MS = 5000; // a list with a running refresh
  const REST_MS = 10000;
  const MOST_MS = 60000; // while Airflow does not answer
  const WATCH_MS = 180000; // a run that was started here, until it reaches the table
  let watchUntil = 0;

  const $ = (selector) => document.querySelector(selector);
  const airflow = () => new URL(document.body.dataset.airflow, location.href).href;
  const announce = (text) => { $("#live-region").textContent = text; };

  const note = (text, tone) => {
    const place = $("#message");
    place.textContent = text;
    place.className = `note tone-${tone}`;
    place.hidden = false;
  };

  // Times are relative to the server's clock. The words are those of `words.ago`.
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let skew = 0;
  const setClock = () => {
    const place = $("[data-now]");
    if (place) skew = Number(place.dataset.now) - Date.now();
  };
  const ago = (seconds) => {
    if (Math.abs(seconds) < 5) return seconds >= 0 ? "just now" : "now";
    const [size, name] = UNITS.find(([least]) => Math.abs(seconds) >= least);
    const count = `${Math.floor(Math.abs(seconds) / size)} ${name}`;
    return seconds > 0 ? `${count} ago` : `in ${count}`;
  };
  const tellTimes = () => {
    if (document.hidden) return;
    for (const each of document.querySelectorAll("time")) {
      const seconds = (Date.now() + skew - Date.parse(each.dateTime)) / 1000;
      const text = "due" in each.dataset && seconds >= 0 ? "due" : ago(seconds);
      if (each.textContent !== text) each.textContent = text;
    }
  };

  class Refused extends Error {}
  class Gone extends Error {}

  // Ask for a page; null if it would show what the answer with this tag has shown.
  const getHtml = async (address, known = "") => {
    const headers = { Accept: "text/html", ...(known && { "If-None-Match": known }) };
    const answer = await fetch(address, { headers, credentials: "same-origin", redirect: "error" });
    if (answer.status === 304) return null;
    if (answer.status === 401 || answer.status === 403) throw new Refused();
    if (answer.status === 404) throw new Gone();
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    return { page, tag: answer.headers.get("ETag") ?? "" };
  };

  // Make an element like a new version of it. What is alike stays the same node: focus, selection and scrolling with it.
  const morph = (old, fresh) => {
    if (old.dataset && "kept" in old.dataset && old.id === fresh.id) return; // its own script fills it
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
      old.replaceWith(fresh);
    } else if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else if (!old.isEqualNode(fresh)) {
      for (const { name } of [...old.attributes]) {
        if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name); // people open and close
      }
      for (const { name, value } of fresh.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      morphChildren(old, fresh);
    }
  };

  // A child with an id stays that of its new version, wherever that is now; the others are matched in their order.
  const morphChildren = (old, fresh) => {
    const [before, after] = [old, fresh].map((each) => new Map([...each.children].filter(({ id }) => id).map((child) => [child.id, child])));
    let place = old.firstChild;
    for (const each of [...fresh.childNodes]) {
      const same = before.get(each.id);
      if (same && same !== place) {
        old.insertBefore(same, place);
        morph(same, each);
      } else if (!place || (!same && after.has(place.id))) {
        old.insertBefore(each, place);
      } else {
        const next = place.nextSibling;
        morph(place, each);
        place = next;
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  };

  const show = (places, fresh) => {
    const focused = document.activeElement?.id;
    for (const place of places) {
      const other = fresh.getElementById(place.id);
      if (other) morph(place, other);
    }
    setClock();
    tellTimes();
    tellPicked();
    document.dispatchEvent(new Event("shown"));
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  };
  // While a dialog is open only its own text changes: what its buttons were meant for stays as it was.
  const places = () => ($("dialog[open]") ?? document).querySelectorAll("[data-swap]");

  let tag = ""; // of the last answer that is wholly shown
  const poll = async () => {
    const own = $("[data-poll]");
    const news = await getHtml(own ? own.dataset.poll : location.href, tag);
    if (!news) return;
    tag = $("dialog[open]") ? "" : news.tag;
    if (!own) return show(places(), news.page);
    const before = $("#now").dataset.announcement;
    if (news.page.getElementById("now")?.dataset.revision !== $("#now").dataset.revision) {
      show(places(), (await getHtml(location.href)).page);
      tag = "";
      watchUntil = 0;
    } else if (!$("dialog[open]")) {
      show([$("#now")], news.page);
    }
    if ($("#now").dataset.announcement !== before) announce($("#now").dataset.announcement);
  };

  let failures = 0;
  let timer = 0;
  let isAsking = false;
  const isLive = () => $("[data-live]") !== null || Date.now() < watchUntil;
  const schedule = () => {
    clearTimeout(timer);
    if (document.hidden || !$("[data-now]")) return;
    const running = $("[data-poll]") ? RUNNING_MS : LIST_MS;
    const usual = isLive() && !$("dialog[open]") ? running : REST_MS;
    timer = setTimeout(refresh, Math.min(usual * 2 ** Math.min(failures, 4), MOST_MS));
  };
  const refresh = async () => {
    if (isAsking) return;
    isAsking = true;
    const place = $("#connection");
    try {
      await poll();
      failures = 0;
      place.hidden = true;
    } catch (error) {
      failures += 1;
      place.textContent = "Airflow does not respond; this page may be outdated.";
      place.hidden = failures < 2;
      if (error instanceof Refused || error instanceof Gone) {
        place.textContent = error instanceof Gone
          ? "This table is no longer there."
          : "Your session has ended. Sign in to Airflow, then load this page again.";
        place.hidden = false;
        return; // asking again would not help
      }
    } finally {
      isAsking = false;
    }
    schedule();
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden || !$("[data-now]")) return;
    tellTimes();
    refresh();
  });

  const ask = (text) => new Promise((resolve) => {
    const dialog = $("#confirm");
    dialog.querySelector("p").textContent = text;
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });

  // Airflow's own API: it checks the right to start runs of this DAG, and writes its audit log.
  const newRun = async (dag, conf) => {
    const address = `${airflow()}api/v2/dags/${encodeURIComponent(dag)}/dagRuns`;
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    const body = JSON.stringify({ logical_date: null, conf });
    let answer;
    try {
      answer = await fetch(address, { method: "POST", credentials: "same-origin", headers, body });
    } catch {
      throw new Error("Airflow does not respond: check the DAG's runs before you try again.");
    }
    const facts = await answer.json().catch(() => ({}));
    if (answer.ok) return facts.dag_run_id;
    const why = typeof facts.detail === "string" ? facts.detail : `HTTP ${answer.status}`;
    throw new Error(`Airflow did not start a run: ${why}`);
  };
  // What was chosen, as the run params of a refresh; the task checks them again.
  const asked = (form) => {
    const given = {};
    const { scope } = form.elements;
    for (const name of ["read_only", "hold", "force"]) if (form.elements[name]?.checked) given[name] = true;
    for (const name of ["strategy", "note"]) if (form.elements[name]?.value.trim()) given[name] = form.elements[name].value.trim();
    if (!scope || scope.value === "as usual") return given;
    given.scope = scope.value;
    if (scope.value === "range") {
      for (const name of ["from", "until"]) if (form.elements[name].value.trim()) given[name] = form.elements[name].value.trim();
    }
    const { picked, partitions } = form.elements;
    if (scope.value === "partitions") given.partitions = picked ? JSON.parse(picked.value) : lines(partitions.value);
    return given;
  };
  const lines = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line);
  const checkScope = (form) => {
    const { scope, from, until, partitions } = form.elements;
    if (!scope || scope.type === "hidden") return;
    form.querySelector(".range").hidden = scope.value !== "range";
    form.querySelector(".single").hidden = scope.value !== "partitions";
    const lacks = {
      range: from.value.trim() || until.value.trim() ? "" : "Fill in from, until or both.",
      partitions: lines(partitions.value).length ? "" : "Name at least one partition.",
    }[scope.value];
    scope.setCustomValidity(lacks || "");
  };
  const startRun = async (form) => {
    note("Starting a run …", "plain");
    try {
      const run = await newRun(form.elements.dag.value, asked(form));
      note(`Run ${run} was started. It shows here as soon as a worker has begun.`, "good");
      watchUntil = Date.now() + WATCH_MS;
    } catch (error) {
      note(error.message, "bad");
    }
    schedule();
  };

  // What has happened to a row: a run of a DAG tells, and the page shows its answer.
  const askWhy = async (form) => {
    const columns = [...form.querySelectorAll("[data-column]")];
    const key = Object.fromEntries(columns.map((each) => [each.dataset.column, each.value]));
    const column = form.elements.column.value.trim() || null;
    note("Asking …", "plain");
    try {
      const run = await newRun(form.dataset.asks, { table: form.dataset.table, key, column });
      note(`Run ${run} looks for it. Its answer shows under the form.`, "good");
      watchUntil = Date.now() + WATCH_MS;
    } catch (error) {
      note(error.message, "bad");
    }
    schedule();
  };

  // Airflow's own API takes the answer that a task waits for: it knows who may give it, and wakes the task.
  const answer = async (form, decision) => {
    const [shown, reason] = [form.elements.hold.value, form.elements.note.value.trim()];
    const option = { approved: "Approve", "without deletes": "Approve without deletes", rejected: "Reject" }[decision];
    note("Sending the decision …", "plain");
    try {
      const news = await getHtml($("[data-poll]").dataset.poll);
      if (news.page.querySelector("[data-hold]")?.dataset.hold !== shown) {
        note("Nothing was decided: another difference awaits approval now than the one that was shown, or none.", "warn");
      } else {
        const headers = { "Content-Type": "application/json", Accept: "application/json" };
        const body = JSON.stringify({ chosen_options: [option], params_input: { note: reason } });
        const response = await fetch(form.dataset.answers, { method: "PATCH", credentials: "same-origin", headers, body });
        const facts = await response.json().catch(() => ({}));
        if (response.ok) note(`${decision === "rejected" ? "Rejected" : "Approved"}: the waiting task goes on with it.`, "good");
        else note(`Airflow did not take the answer: ${typeof facts.detail === "string" ? facts.detail : `HTTP ${response.status}`}`, "bad");
      }
    } catch {
      note("Airflow does not respond: look at the run's required actions before you try again.", "bad");
    }
    refresh();
  };

  const picked = () => [...document.querySelectorAll("input[data-pick]:checked")];
  const tellPicked = () => {
    const place = $("#num-picked");
    if (!place) return;
    const text = picked().length ? `${picked().length} picked` : "";
    if (place.textContent !== text) place.textContent = text;
  };
  // Runs for the tables that are picked: one may refresh several of them, so each DAG is started once.
  const startable = () => picked().filter((each) => each.dataset.dag);
  const dagsOf = (tables) => [...new Set(tables.map((each) => each.dataset.dag))];
  const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;
  const leftOut = () => {
    const others = picked().length - startable().length;
    return others ? `${counted(others, "of the picked tables has", "of the picked tables have")} no DAG whose runs people can start.` : "";
  };
  const openRuns = () => {
    const [dialog, tables] = [$("#start-run"), startable()];
    if (!picked().length) return note("Pick at least one table first.", "warn");
    if (!tables.length) return note("No run was started: none of the picked tables has a DAG whose runs people can start.", "warn");
    const dags = dagsOf(tables);
    const having = (mark) => tables.filter((each) => mark in each.dataset);
    const waiting = dagsOf(having("paused")).length;
    const texts = [
      dags.length === 1
        ? `A run of ${dags[0]} is started with these options. It refreshes all tables of the DAG.`
        : `Runs of ${dags.length} DAGs are started with these options. Each refreshes all tables of its DAG.`,
      leftOut(),
      waiting && dags.length === 1 ? "Its DAG is paused: the run waits until it is unpaused." : "",
      waiting && dags.length > 1 ? counted(waiting, "DAG is paused: its run waits until it is unpaused.", "DAGs are paused: their runs wait until they are unpaused.") : "",
      having("tablePaused").length ? `${counted(having("tablePaused").length, "table is", "tables are")} paused: a run fails there unless you resume it first.` : "",
      having("busy").length ? `${counted(having("busy").length, "table has", "tables have")} a refresh in progress: a run waits there, or tries again later.` : "",
    ];
    const lines = texts.filter((text) => text).map((text) => Object.assign(document.createElement("p"), { textContent: text }));
    dialog.querySelector("#runs-said").replaceChildren(...lines);
    dialog.querySelector("form").reset(); // what was asked of other tables is not asked of these
    checkScope(dialog.querySelector("form"));
    open(dialog);
  };
  const startRuns = async (form) => {
    note("Starting runs …", "plain");
    const [dags, conf, left, refused] = [dagsOf(startable()), asked(form), leftOut(), []];
    for (const dag of dags) {
      const why = await newRun(dag, conf).then(() => null, (error) => error.message);
      if (why) refused.push(`${dag}: ${why}`);
    }
    const started = `${dags.length - refused.length} of ${dags.length} runs were started.`;
    note([started, left, ...refused].filter((text) => text).join(" "), refused.length ? "bad" : "good");
    refresh();
  };
  document.addEventListener("change", (event) => {
    if ("all" in event.target.dataset) {
      for (const each of document.querySelectorAll("input[data-pick]")) each.checked = event.target.checked;
    }
    tellPicked();
  });

  // The runs' own checks, before they are started: their tasks would say the same minutes later.
  const checked = async (form, conf) => {
    const body = new URLSearchParams({ conf, dag: form.elements.dag?.value ?? "" });
    if ("many" in form.dataset) for (const each of startable()) body.append("table", each.value);
    try {
      const answer = await fetch(form.dataset.checks, { method: "POST", credentials: "same-origin", headers: { Accept: "application/json" }, body });
      const facts = await answer.json().catch(() => ({}));
      return answer.ok ? facts : { problems: [facts.detail ?? `Airflow answers with HTTP ${answer.status}.`], of_others: [] };
    } catch {
      return { problems: ["Airflow does not respond."], of_others: [] };
    }
  };
  // What does not fit one of the tables keeps runs from being started; what does not fit others is shown once.
  const checkAndClose = async (form) => {
    const [place, dialog, conf] = [form.querySelector("#run-problem"), form.closest("dialog"), JSON.stringify(asked(form))];
    const { problems, of_others: others } = await checked(form, conf);
    const isNew = others.length && form.dataset.shown !== conf;
    const texts = problems.length ? problems : isNew ? [...others, "Those tasks would fail. Press Start again to start the run all the same."] : [];
    form.dataset.shown = problems.length ? "" : conf;
    place.className = `note tone-${problems.length ? "bad" : "warn"}`;
    place.replaceChildren(...texts.map((text) => Object.assign(document.createElement("p"), { textContent: text })));
    place.hidden = !texts.length;
    if (!texts.length && dialog.open) dialog.close("start");
  };
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.dataset.checks && event.submitter?.value === "start") {
      event.preventDefault();
      checkAndClose(form);
      return;
    }
    if (form.dataset.answers) {
      event.preventDefault();
      answer(form, event.submitter.value);
      return;
    }
    if (form.dataset.asks) {
      event.preventDefault();
      askWhy(form);
      return;
    }
    if (!form.dataset.confirm) return;
    event.preventDefault();
    if (await ask(form.dataset.confirm)) form.submit();
    else refresh();
  });

  const open = (dialog) => {
    dialog.returnValue = "";
    dialog.querySelector("#run-problem").hidden = true;
    dialog.querySelector("form").dataset.shown = "";
    dialog.showModal();
  };
  // A run for the interval of a button, or for the partitions that are picked.
  const confine = (button, dialog) => {
    const { scope, from, until, picked: names } = dialog.querySelector("form").elements;
    let { said } = button.dataset;
    if (said) {
      from.value = button.dataset.from ?? "";
      until.value = button.dataset.until ?? "";
      scope.value = from.value || until.value ? "range" : "everything";
    } else {
      const found = picked();
      if (!found.length) return note("Pick at least one partition first.", "warn");
      scope.value = "partitions";
      names.value = JSON.stringify(found.map((each) => JSON.parse(each.value)));
      said = found.slice(0, 5).map((each) => each.dataset.said).join(", ") + (found.length > 5 ? ` and ${found.length - 5} more` : "");
    }
    dialog.querySelector("#run-scope-said").textContent = said;
    open(dialog);
  };
  // The frame that Airflow puts this page in may not navigate Airflow's window, so Airflow's own document does.
  const follow = (event, link) => {
    if (window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
    try {
      const outside = window.parent.document.createElement("a");
      outside.href = link.href;
      window.parent.document.body.append(outside);
      outside.click();
      outside.remove();
      event.preventDefault();
    } catch {
      // another origin's frame: the link is followed in here
    }
  };
  // Airflow's own API clears the failed task: it checks the right to do so, and starts the task again.
  const goOn = async (button) => {
    const { goesOn, body, asks } = button.dataset;
    if (!(await ask(asks))) return refresh();
    note("Asking Airflow …", "plain");
    try {
      const headers = { "Content-Type": "application/json", Accept: "application/json" };
      const answer = await fetch(goesOn, { method: "POST", credentials: "same-origin", headers, body });
      const facts = await answer.json().catch(() => ({}));
      if (answer.ok) {
        note("Airflow starts it again. It shows here as soon as a worker has begun.", "good");
        watchUntil = Date.now() + WATCH_MS;
      } else note(`Airflow did not clear it: ${typeof facts.detail === "string" ? facts.detail : `HTTP ${answer.status}`}`, "bad");
    } catch {
      note("Airflow does not respond: look at the run before you try again.", "bad");
    }
    refresh();
  };
  document.addEventListener("click", (event) => {
    const goes = event.target.closest("[data-goes-on]");
    if (goes) goOn(goes);
    if (event.target.closest("[data-runs]")) openRuns();
    if (event.target.closest("[data-closes]")) event.target.closest("dialog").close("");
    const opens = event.target.closest("[data-opens]");
    if (opens) open(document.getElementById(opens.dataset.opens));
    const confines = event.target.closest("[data-confines]");
    if (confines) confine(confines, document.getElementById(confines.dataset.confines));
    const link = event.target.closest("a.to-airflow");
    if (link) follow(event, link);
  });

  root.classList.add("scripted");
  document.addEventListener("DOMContentLoaded", () => {
    const dialog = $("#start-run");
    dialog?.addEventListener("input", () => checkScope(dialog.querySelector("form")));
    dialog?.addEventListener("close", () => {
      const form = dialog.querySelector("form");
      if (dialog.returnValue !== "start") refresh();
      else if ("many" in form.dataset) startRuns(form);
      else startRun(form);
    });
    const here = new URL(location.href);
    if (here.searchParams.has("done")) {
      here.searchParams.delete("done"); // a reload must not show it again
      history.replaceState(null, "", here);
    }
    if (window.parent === window) root.classList.add("alone");
    setClock();
    setInterval(tellTimes, 1000);
    schedule();
  });
})();
