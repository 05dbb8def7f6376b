// Everything on a page works without this script. It adds copy buttons, folders that open in
// place, keyboard shortcuts, warnings about unsaved and too long texts, and live updates.
"use strict";
(() => {
  const announce = (button, text) => {
    const before = button.textContent;
    button.textContent = text;
    setTimeout(() => { button.textContent = before; }, 1500);
  };

  for (const button of document.querySelectorAll("button.copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(button.dataset.copy).then(
        () => announce(button, "Copied"),
        () => announce(button, "Failed"),
      );
    });
  }

  // A menu or a form that opened below its button closes by a click elsewhere, or by Escape.
  const closeAll = (but) => {
    for (const opened of document.querySelectorAll(".menu[open], .pop[open]")) {
      if (!but || !opened.contains(but)) opened.open = false;
    }
  };
  document.addEventListener("click", (event) => closeAll(event.target));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const focused = document.activeElement.closest(".menu[open], .pop[open]");
    closeAll();
    if (focused) focused.querySelector("summary").focus();
  });
  for (const opened of document.querySelectorAll(".pop")) {
    opened.addEventListener("toggle", () => {
      const field = opened.querySelector("input:not([type=hidden]), textarea");
      if (opened.open && field) field.focus();
    });
  }

  // The current section is in view, also where the sections scroll.
  for (const current of document.querySelectorAll(".tabs [aria-current]")) {
    const bar = current.closest("nav");
    bar.scrollLeft = current.offsetLeft - bar.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;
  }

  // A folder of the tree opens in place; without this script, its page opens.
  document.addEventListener("click", async (event) => {
    const twist = event.target.closest("[data-branch]");
    if (!twist || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const item = twist.closest("li");
    const branch = item.querySelector(":scope > ul");
    if (branch) {
      branch.hidden = !branch.hidden;
      twist.classList.toggle("open", !branch.hidden);
      return;
    }
    const answer = await fetch(twist.dataset.branch).catch(() => null);
    if (!answer || !answer.ok || answer.redirected) { location.assign(twist.href); return; }
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    if (item.querySelector(":scope > ul")) return;
    item.append(holder.content);
    twist.classList.add("open");
  });

  const isTyping = (element) =>
    element instanceof HTMLElement &&
    (element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName));

  // `g`, then the key of a section; `/` searches; a letter uses a control.
  let awaitsSection = 0;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      const save = document.querySelector("[data-save]");
      if (save) { event.preventDefault(); save.click(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (awaitsSection > Date.now()) {
      awaitsSection = 0;
      for (const link of document.querySelectorAll("[data-key]")) {
        if (link.dataset.key === event.key) { event.preventDefault(); link.click(); return; }
      }
      return;
    }
    if (event.key === "g") { awaitsSection = Date.now() + 1500; return; }
    for (const target of document.querySelectorAll("[data-shortcut]")) {
      if (target.dataset.shortcut !== event.key) continue;
      event.preventDefault();
      if (target.tagName !== "INPUT") target.click();
      else if (target.offsetParent) target.focus();
      else location.assign(target.form.action);
      return;
    }
  });

  // A text that was changed and not saved is not left without a question.
  for (const area of document.querySelectorAll("[data-unsaved]")) {
    // A preview shows a text that is not saved either.
    const before = area.dataset.unsaved ? null : area.value;
    let isSent = false;
    if (area.form) area.form.addEventListener("submit", () => { isSent = true; });
    addEventListener("beforeunload", (event) => {
      if (!isSent && area.value !== before) event.preventDefault();
    });
  }

  // A text over the limit stays in its form: the server may not read one that is far over it.
  for (const area of document.querySelectorAll("[data-max-bytes]")) {
    const max = Number(area.dataset.maxBytes);
    const check = () => {
      const bytes = 3 * area.value.length > max ? new TextEncoder().encode(area.value).length : 0;
      const problem = `This text has ${bytes} bytes, and the limit is ${max}: shorten it.`;
      area.setCustomValidity(bytes > max ? problem : "");
    };
    area.addEventListener("input", check);
    check();
  }

  // `data-live` names a stream of lines of the page's table; the element says
  // whether it works. Each event is a line, and has the line's id.
  const HIDDEN_MS = 60_000;
  for (const status of document.querySelectorAll("[data-live]")) {
    const body = document.querySelector("tbody[data-order]");
    if (!window.EventSource || !body) continue;
    const newestFirst = body.dataset.order === "newest";
    let source = null;
    let after = status.dataset.after;
    let hiding = 0;
    const say = (text) => { if (status.textContent !== text) status.textContent = text; };

    // Lines may come late: each goes to its place in the order of time.
    const precedes = (a, b) => {
      const [left, right] = [Number(a.dataset.at), Number(b.dataset.at)];
      return left === right ? a.id < b.id : left < right;
    };
    const insert = (html) => {
      const holder = document.createElement("template");
      holder.innerHTML = html;
      const row = holder.content.querySelector("tr");
      if (!row || document.getElementById(row.id)) return;
      const rows = [...body.rows];
      const next = newestFirst
        ? rows.find((other) => precedes(other, row))
        : rows.find((other) => precedes(row, other));
      body.insertBefore(row, next || null);
      for (const count of document.querySelectorAll("[data-count]")) {
        count.textContent = body.querySelectorAll(`[data-kind="${count.dataset.count}"]`).length;
      }
      document.getElementById("no-calls").hidden = true;
      document.getElementById("calls").hidden = false;
    };

    const stop = () => {
      if (source) source.close();
      source = null;
    };
    const follow = () => {
      source = new EventSource(`${status.dataset.live}?after=${encodeURIComponent(after)}`);
      source.addEventListener("open", () => say("Live"));
      source.addEventListener("message", (event) => {
        after = event.lastEventId;
        insert(JSON.parse(event.data));
      });
      // The server names the event in which it says why the stream ends `error`.
      source.addEventListener("error", (event) => {
        if (event.data) {
          stop();
          say(`No longer live: ${JSON.parse(event.data).error.message}`);
        } else if (source.readyState === EventSource.CLOSED) {
          stop();
          say("Not live: load the page again to see new calls.");
        } else {
          say("Reconnecting…");
        }
      });
    };
    follow();

    document.addEventListener("visibilitychange", () => {
      clearTimeout(hiding);
      if (document.hidden && source) {
        hiding = setTimeout(() => { stop(); say("Paused while the page is hidden"); hiding = -1; }, HIDDEN_MS);
      } else if (!document.hidden && hiding === -1) {
        hiding = 0;
        follow();
      }
    });
    addEventListener("pagehide", stop);
  }
})();
