// The log lines on a refresh's page. Airflow's own API is asked for a task's log when a user opens it, so Airflow decides
// who may read it; what it answers becomes text, never markup. Read until a limit, because a log can be of any size.
"use strict";

(() => {
  const MOST_BYTES = 8 * 1024 * 1024;
  const FIRST = 100; // of more lines than both together, the first ones and the last ones are shown
  const LAST = 400;
  const MOST_CHARACTERS = 4000; // of one line
  const OURS = "airflow_mv_provider";

  // The lines of a log as they come, as parsed JSON; ends at the limit, and then returns true.
  const read = async function* (address) {
    const headers = { Accept: "application/x-ndjson" };
    const answer = await fetch(address, { headers, credentials: "same-origin", redirect: "error" });
    if (!answer.ok) throw new Error(WHY[answer.status] ?? `Airflow answers with HTTP ${answer.status}.`);
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    let [rest, bytes] = ["", 0];
    try {
      while (bytes < MOST_BYTES) {
        const { done, value } = await reader.read();
        bytes += value?.length ?? 0;
        const lines = (rest + decoder.decode(value, { stream: !done })).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const found = parsed(line);
          if (found !== null) yield found;
        }
        if (done) return false;
      }
      return true;
    } finally {
      reader.cancel().catch(() => {}); // its server need not read on
    }
  };
  const parsed = (line) => {
    try {
      const found = JSON.parse(line);
      return typeof found === "object" ? found : null;
    } catch {
      return null; // none of Airflow's
    }
  };
  const WHY = {
    401: "Your session has ended. Sign in to Airflow, then load this page again.",
    403: "Airflow does not let you read the logs of this DAG.",
    404: "Airflow has no such try any more.",
  };

  // Ours are the lines of the refresh; of all others only what went wrong.
  const isShown = (line, others) => {
    const text = String(line.event ?? "");
    if (others.some((table) => text.startsWith(`${table}: `) || text.startsWith(`${table} refresh `))) return false;
    return String(line.logger ?? "").includes(OURS) || ["error", "critical"].includes(line.level);
  };
  const TONES = { warning: "tone-warn", error: "tone-bad", critical: "tone-bad" };
  const made = (name, className, ...inside) => {
    const found = document.createElement(name);
    found.className = className;
    found.append(...inside);
    return found;
  };
  const item = (line, own) => {
    const when = new Date(line.timestamp ?? NaN);
    const time = Number.isNaN(when.getTime()) ? "" : when.toISOString();
    const event = String(line.event);
    const text = event.slice(event.startsWith(own) ? own.length : 0).slice(0, MOST_CHARACTERS);
    const words = made("span", "said", ...(TONES[line.level] ? [made("span", `badge ${TONES[line.level]}`, line.level), " "] : []), text);
    const shown = made("span", "when", time.slice(11, 19));
    shown.title = time && `${time.slice(0, 10)} ${time.slice(11, 19)} UTC`;
    return made("li", "", shown, " ", words);
  };

  // own: how lines about the page's refresh begin; it is left out, as the page has said it
  const items = (lines, own) => {
    const leftOut = lines.length - FIRST - LAST;
    const all = (some) => some.map((line) => item(line, own));
    if (leftOut <= 0) return all(lines);
    const gap = made("li", "quiet", "", made("span", "when"), ` … ${leftOut} lines are left out here; they are in Airflow.`);
    return [...all(lines.slice(0, FIRST)), gap, ...all(lines.slice(-LAST))];
  };

  const asking = new WeakSet();
  const unfinished = new WeakSet(); // the task went on when its log was read
  const tell = async (details) => {
    if (asking.has(details)) return;
    asking.add(details);
    const place = details.querySelector("[data-kept]");
    if (!place.childNodes.length) place.append(made("p", "quiet", "Asking Airflow for its log …"));
    unfinished[details.dataset.goingOn === "1" ? "add" : "delete"](details);
    try {
      const [lines, others] = [[], JSON.parse(details.dataset.others)];
      const found = read(new URL(details.dataset.log, location.href));
      let next = await found.next();
      for (; !next.done; next = await found.next()) {
        if (isShown(next.value, others)) lines.push(next.value);
      }
      show(place, items(lines, details.dataset.own), next.value ? CUT : lines.length ? "" : NOTHING, details.querySelector("summary").firstChild.textContent.trim());
    } catch (error) {
      const why = error instanceof TypeError ? "Airflow does not respond." : error.message;
      place.replaceChildren(made("p", "note tone-warn", why));
    } finally {
      asking.delete(details);
    }
  };
  const CUT = "This log is longer than what is read here. The rest is in Airflow.";
  const NOTHING = "It has logged nothing about this refresh so far.";
  // What is shown already stays as it is: where it is scrolled to, and what is selected.
  const show = (place, lines, note, name) => {
    const known = place.querySelector(".scroll");
    const region = known ?? made("div", "scroll", made("ol", "story"));
    for (const [key, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", `Log lines of ${name}`]]) region.setAttribute(key, value);
    const list = region.firstChild;
    let same = 0;
    while (same < list.children.length && list.children[same].textContent === lines[same]?.textContent) same += 1;
    while (list.children.length > same) list.lastChild.remove();
    list.append(...lines.slice(same));
    for (const each of [...place.childNodes]) if (each !== known) each.remove();
    if (lines.length && !known) place.append(region);
    if (note) place.append(made("p", "quiet", note));
  };

  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details[data-log]") && event.target.open) tell(event.target);
  }, true);
  // An open log of a task that runs grows with the page; once more after the task's end.
  document.addEventListener("shown", () => {
    for (const each of document.querySelectorAll("details[data-log][open]")) {
      if (each.dataset.goingOn === "1" || unfinished.has(each)) tell(each);
    }
  });
})();
