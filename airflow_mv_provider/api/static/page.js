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

  const POLL_MS = 1500;
  const SLOW_MS = 5000;
  const WATCH_MS = 180000; // for a run that was started here and has not reached the table yet
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

  class Refused extends Error {}

  const getHtml = async (address) => {
    const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin", redirect: "error" });
    if (answer.status === 401 || answer.status === 403) throw new Refused();
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };

  // Put a new version of an element's content in place; focus, scrolling and open details stay where they are.
  const swap = (place, fresh) => {
    if (place.innerHTML === fresh.innerHTML) return;
    const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...place.querySelectorAll(".scroll[id]")].map((each) => [each.id, each.scrollTop]);
    place.replaceChildren(...fresh.childNodes);
    for (const name of ["data-live", "data-revision"]) {
      if (fresh.hasAttribute(name)) place.setAttribute(name, fresh.getAttribute(name));
      else place.removeAttribute(name);
    }
    for (const [id, top] of scrolled) {
      const each = document.getElementById(id);
      if (each) each.scrollTop = top;
    }
    enhance(place);
    if (focused) document.getElementById(focused)?.focus();
  };

  const swapAll = async () => {
    const fresh = await getHtml(location.href);
    for (const place of document.querySelectorAll("[data-swap]")) {
      const other = fresh.getElementById(place.id);
      if (other) swap(place, other);
    }
  };

  const poll = async () => {
    const place = $("[data-poll]");
    if (!place) return swapAll();
    const fresh = (await getHtml(place.dataset.poll)).getElementById("now");
    const before = $("#now");
    if (!fresh || fresh.dataset.revision !== before.dataset.revision) {
      await swapAll();
      watchUntil = 0;
    } else {
      before.replaceWith(fresh);
      const scrolled = before.querySelector(".scroll")?.scrollTop;
      if (scrolled) fresh.querySelector(".scroll").scrollTop = scrolled;
    }
    if ($("#now").dataset.announcement !== before.dataset.announcement) announce($("#now").dataset.announcement);
  };

  let failures = 0;
  let timer = 0;
  const isLive = () => $("[data-live]") !== null || Date.now() < watchUntil;
  const schedule = () => {
    clearTimeout(timer);
    if (!isLive() || document.hidden || document.querySelector("dialog[open]")) return;
    const wait = $("[data-poll]") ? POLL_MS : SLOW_MS;
    timer = setTimeout(refresh, wait * 2 ** Math.min(failures, 4));
  };
  const refresh = async () => {
    if (document.querySelector("dialog[open]")) return; // what it will act on stays as it is; its end refreshes
    const place = $("#connection");
    try {
      await poll();
      failures = 0;
      place.hidden = true;
    } catch (error) {
      failures += 1;
      if (error instanceof Refused) {
        place.textContent = "Your session has ended. Sign in to Airflow, then load this page again.";
        place.hidden = false;
        return; // asking again would not help
      }
      place.textContent = "Airflow does not respond; this page may be outdated.";
      place.hidden = failures < 2;
    }
    schedule();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : isLive() && refresh()));

  const ask = (text) => new Promise((resolve) => {
    const dialog = $("#confirm");
    dialog.querySelector("p").textContent = text;
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });

  // Airflow's own API: it checks the right to start runs of this DAG, and writes its audit log.
  const startRun = async (form) => {
    const dag = form.elements.dag.value;
    const body = { logical_date: null, conf: form.elements.read_only.checked ? { read_only: true } : {} };
    const address = `${airflow()}api/v2/dags/${encodeURIComponent(dag)}/dagRuns`;
    const headers = { "Content-Type": "application/json", Accept: "application/json" };
    note("Starting a run …", "plain");
    try {
      const answer = await fetch(address, { method: "POST", credentials: "same-origin", headers, body: JSON.stringify(body) });
      const facts = await answer.json().catch(() => ({}));
      if (!answer.ok) {
        const why = typeof facts.detail === "string" ? facts.detail : `HTTP ${answer.status}`;
        note(`Airflow did not start a run: ${why}`, "bad");
        return;
      }
      note(`Run ${facts.dag_run_id} was started. It shows here as soon as a worker has begun.`, "good");
      watchUntil = Date.now() + WATCH_MS;
    } catch {
      note("Airflow does not respond: check the DAG's runs before you try again.", "bad");
    }
    schedule();
  };

  const enhance = (place) => {
    for (const form of place.querySelectorAll("form[data-confirm]")) {
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        if (await ask(form.dataset.confirm)) form.submit();
        else schedule();
      });
    }
    for (const button of place.querySelectorAll("[data-opens]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const dialog = document.getElementById(button.dataset.opens);
        dialog.returnValue = "";
        dialog.showModal();
      });
    }
    // The frame that Airflow puts this page in may not navigate Airflow's window, so Airflow's own document does.
    for (const link of place.querySelectorAll("a.to-airflow")) {
      link.addEventListener("click", (event) => {
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
      });
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    enhance(document);
    const dialog = $("#start-run");
    dialog?.addEventListener("close", () => {
      if (dialog.returnValue === "start") startRun(dialog.querySelector("form"));
      else schedule();
    });
    const here = new URL(location.href);
    if (here.searchParams.has("done")) {
      here.searchParams.delete("done"); // a reload must not show it again
      history.replaceState(null, "", here);
    }
    if (window.parent === window) root.classList.add("alone");
    schedule();
  });
})();
