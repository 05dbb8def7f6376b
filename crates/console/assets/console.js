// Everything on a page works without this script. It adds copy buttons, folders that open in
// place, keyboard shortcuts, a command palette, warnings about unsaved and too long texts, and live
// updates.
"use strict";
(() => {
  // A screen reader reads a button's label and not its text, so the text is also here.
  const spoken = document.createElement("p");
  spoken.className = "hidden";
  spoken.setAttribute("aria-live", "polite");
  document.body.append(spoken);
  const announce = (button, text) => {
    button.textContent = text;
    spoken.textContent = text;
    setTimeout(() => { button.textContent = "Copy"; spoken.textContent = ""; }, 1500);
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

  // `data-once` names the field of the address that asks for a message: a page that is loaded again is without it.
  for (const message of document.querySelectorAll("[data-once]")) {
    const address = new URL(location.href);
    address.searchParams.delete(message.dataset.once);
    history.replaceState(null, "", address);
  }

  // The current section is in view, also where the sections scroll.
  for (const current of document.querySelectorAll(".tabs [aria-current]")) {
    const bar = current.closest("nav");
    bar.scrollLeft = current.offsetLeft - bar.offsetLeft - (bar.clientWidth - current.offsetWidth) / 2;
  }

  // So is the current entry of a tree that is longer than the window.
  for (const current of document.querySelectorAll(".tree [aria-current]")) {
    const tree = current.closest(".tree");
    const isBelow = current.offsetTop + current.offsetHeight > tree.clientHeight;
    if (isBelow) tree.scrollTop = current.offsetTop - (tree.clientHeight - current.offsetHeight) / 2;
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
      twist.setAttribute("aria-expanded", String(!branch.hidden));
      return;
    }
    const answer = await fetch(twist.dataset.branch).catch(() => null);
    if (!answer || !answer.ok || answer.redirected) { location.assign(twist.href); return; }
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    if (item.querySelector(":scope > ul")) return;
    item.append(holder.content);
    twist.setAttribute("aria-expanded", "true");
  });

  const isTyping = (element) =>
    element instanceof HTMLElement &&
    (element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName));

  // Keys without Ctrl can be switched off: speech input and chance press them. A browser that forbids
  // storage has them on every page.
  const SINGLE_KEYS = "keepsake.single-keys";
  const readSingleKeys = () => {
    try {
      return localStorage.getItem(SINGLE_KEYS) !== "off";
    } catch {
      return true;
    }
  };
  let hasSingleKeys = readSingleKeys();
  const nameShortcuts = () => {
    for (const target of document.querySelectorAll("[data-shortcut]")) {
      if (hasSingleKeys) target.setAttribute("aria-keyshortcuts", target.dataset.shortcut);
      else target.removeAttribute("aria-keyshortcuts");
    }
  };
  nameShortcuts();

  // `j` and `k` move over the rows of the page's lists, by the first link of each.
  const move = (steps) => {
    const rows = [...document.querySelectorAll("main :is(.list tbody tr, .hits > li, .recent > li)")];
    const links = rows.map((row) => row.offsetParent && row.querySelector("a[href]")).filter(Boolean);
    const current = links.findIndex((link) => link.closest("tr, li").contains(document.activeElement));
    const next = current < 0 ? links[0] : links[current + steps];
    if (next) next.focus();
  };

  // `g`, then the key of a section; `/` searches; a letter uses a control.
  let awaitsSection = 0;
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      const save = document.querySelector("[data-save]");
      if (save) { event.preventDefault(); save.click(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (!hasSingleKeys) return;
    if (awaitsSection > Date.now()) {
      awaitsSection = 0;
      for (const link of document.querySelectorAll("[data-key]")) {
        if (link.dataset.key === event.key) { event.preventDefault(); link.click(); return; }
      }
      return;
    }
    if (event.key === "g") { awaitsSection = Date.now() + 1500; return; }
    if (event.key === "j" || event.key === "k") { move(event.key === "j" ? 1 : -1); return; }
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
    // The text of a preview and of a refused form is not saved either.
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

  // A block of a memory that scrolls sideways is a stop of the keyboard.
  const reach = () => {
    for (const block of document.querySelectorAll(".markdown :is(pre, table)")) {
      if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
      else block.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", reach);
  reach();

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
    const say = (text) => {
      if (status.textContent !== text) status.textContent = text;
      status.classList.toggle("live", text === "Live");
    };

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

  // Two dialogs, which only this script makes: the list of keys, and the palette that goes to a
  // page, a store, a memory or a session, or acts on the page.
  const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const keysOf = (text) => text.split(" ").flatMap((key) => [make("kbd", {}, key), " "]);
  const textOf = (element) => element.textContent.trim().replace(/\s+/g, " ");

  /** Adds a dialog that `key` opens, and the page's button for it. */
  const addDialog = (dialog, button, isKey, prepare) => {
    document.body.append(dialog);
    const open = () => {
      if (document.querySelector("dialog[open]")) return;
      closeAll();
      prepare();
      dialog.showModal();
    };
    button.hidden = false;
    button.addEventListener("click", (event) => { event.stopPropagation(); open(); });
    document.addEventListener("keydown", (event) => {
      if (isKey(event)) { event.preventDefault(); open(); }
    });
    // The backdrop belongs to the dialog itself, and all else to what it contains.
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  };

  const keysButton = document.querySelector("[data-opens=keys]");
  if (keysButton) {
    const list = make("dl", {});
    const close = make("button", { type: "button", autofocus: "" }, "Close");
    const title = make("h2", { id: "keys-title" }, "Keyboard shortcuts");
    const box = make("input", { type: "checkbox", id: "single-keys" });
    const label = make("label", { for: "single-keys" }, "Single keys act on the page");
    const choice = make("div", { class: "check" }, box, label);
    const content = make("div", {}, title, list, choice, close);
    const dialog = make("dialog", { id: "keys", "aria-labelledby": "keys-title" }, content);
    close.addEventListener("click", () => dialog.close());
    const prepare = () => {
      const sections = [...document.querySelectorAll("[data-key]")];
      const shortcuts = [...document.querySelectorAll("[data-shortcut]:not(input)")];
      const search = document.querySelector("[data-shortcut='/']");
      const finds = document.querySelector("[data-find]") ? "Go to a page, a store, a memory or a session" : "Go to a page";
      const single = [
        ...(search ? [["/", search.placeholder]] : []),
        ["j k", "Next and previous row of a list; Enter opens it"],
        ...shortcuts.map((target) => [target.dataset.shortcut, textOf(target)]),
        ...sections.map((link) => [`g ${link.dataset.key}`, textOf(link)]),
        ["?", "This list"],
      ];
      const lines = [
        [isMac ? "⌘ K" : "Ctrl K", finds],
        ...(document.querySelector("[data-save]") ? [[isMac ? "⌘ Enter" : "Ctrl Enter", "Save"]] : []),
        ...(hasSingleKeys ? single : []),
      ];
      box.checked = hasSingleKeys;
      keysButton.querySelector("kbd").hidden = !hasSingleKeys;
      const shown = lines.map(([keys, does]) =>
        make("div", {}, make("dt", {}, ...keysOf(keys)), make("dd", {}, does)));
      list.replaceChildren(...shown);
    };
    box.addEventListener("change", () => {
      hasSingleKeys = box.checked;
      try {
        localStorage.setItem(SINGLE_KEYS, hasSingleKeys ? "on" : "off");
      } catch {
        // The choice is for this page only.
      }
      nameShortcuts();
      prepare();
    });
    prepare();
    const isKey = (event) =>
      hasSingleKeys && event.key === "?"
      && !event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event.target);
    addDialog(dialog, keysButton, isKey, prepare);
  }

  const paletteButton = document.querySelector("[data-opens=palette]");
  if (paletteButton) {
    const { find, store } = paletteButton.dataset;
    const list = make("div", { id: "palette-list", role: "listbox", "aria-label": "Where to go" });
    const input = make("input", {
      type: "text",
      role: "combobox",
      "aria-label": "Go to",
      "aria-autocomplete": "list",
      "aria-controls": "palette-list",
      "aria-expanded": "false",
      autocomplete: "off",
      spellcheck: "false",
      placeholder: find ? "Go to a page, a store, a path or a session" : "Go to a page",
    });
    const count = make("p", { class: "quiet", "aria-live": "polite" });
    const dialog = make("dialog", { id: "palette", "aria-label": "Go to" }, make("div", {}, input, list, count));
    /** What an option without an address clicks. */
    const clicks = new WeakMap();
    let selected = null;
    let hasMoved = false;
    let waiting = 0;
    let turn = 0;
    /** Ends the request for an earlier text. */
    let asking = new AbortController();

    const select = (option) => {
      if (selected) selected.setAttribute("aria-selected", "false");
      selected = option;
      if (!option) { input.removeAttribute("aria-activedescendant"); return; }
      option.setAttribute("aria-selected", "true");
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    };
    const show = () => {
      const options = [...list.querySelectorAll("[role=option]")];
      for (const [number, option] of options.entries()) option.id = `palette-${number}`;
      list.hidden = options.length === 0;
      input.setAttribute("aria-expanded", String(options.length > 0));
      count.textContent = options.length === 0 ? "Nothing was found." : `${options.length} found`;
      select(hasMoved && options.includes(selected) ? selected : options[0]);
    };

    const group = (label, options) =>
      options.length > 0 ? [make("div", { role: "group", "aria-label": label }, ...options)] : [];
    const option = (text, href) =>
      make("div", { role: "option", "aria-selected": "false", ...(href ? { "data-href": href } : {}) }, text);
    /** The links and buttons of the page whose texts have all the words. */
    const ofPage = (label, selector, words) => {
      const found = [...document.querySelectorAll(selector)].filter((element) => {
        const text = textOf(element).toLowerCase();
        return !element.hidden && words.every((word) => text.includes(word));
      });
      return group(label, found.map((element) => {
        const made = option(textOf(element), element.href && element.getAttribute("href"));
        clicks.set(made, element);
        return made;
      }));
    };
    const update = () => {
      const text = input.value.trim();
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      const search = document.querySelector("form.quick");
      const href = text && search && `${search.getAttribute("action")}?q=${encodeURIComponent(text)}`;
      hasMoved = false;
      turn += 1;
      list.replaceChildren(
        ...ofPage("This page", "main :is(a, summary).button", words),
        ...ofPage("This store", ".storetabs a", words),
        ...ofPage("Pages", ".sections a", words),
        ...(href ? group("Search", [option(`Search memories for “${text}”`, href)]) : []),
        ...ofPage("Account", ".menubox > a, .menubox form button", words),
      );
      show();
      clearTimeout(waiting);
      asking.abort();
      if (text && find) waiting = setTimeout(look, 150, text, turn);
    };
    /** Adds what the server finds, unless another text was typed meanwhile. */
    const look = async (text, asked) => {
      const query = new URLSearchParams({ q: text, store });
      asking = new AbortController();
      const answer = await fetch(`${find}?${query}`, { signal: asking.signal }).catch(() => null);
      if (!answer || !answer.ok || answer.redirected) return;
      const holder = document.createElement("template");
      holder.innerHTML = await answer.text().catch(() => "");
      if (turn !== asked || !dialog.open) return;
      list.insertBefore(holder.content, list.querySelector("[aria-label=Search]"));
      show();
    };
    const use = (chosen, inNewTab) => {
      if (!chosen) return;
      const { href } = chosen.dataset;
      dialog.close();
      if (href && inNewTab) open(href, "_blank", "noopener");
      else if (clicks.has(chosen)) clicks.get(chosen).click();
      else location.assign(href);
    };

    input.addEventListener("input", update);
    input.addEventListener("keydown", (event) => {
      // The keys that end a composition are of the input method.
      if (event.isComposing) return;
      const steps = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (steps) {
        event.preventDefault();
        const options = [...list.querySelectorAll("[role=option]")];
        hasMoved = true;
        select(options[(options.indexOf(selected) + steps + options.length) % options.length]);
      } else if (event.key === "Enter") {
        event.preventDefault();
        use(selected, event.ctrlKey || event.metaKey);
      }
    });
    list.addEventListener("click", (event) => {
      use(event.target.closest("[role=option]"), event.ctrlKey || event.metaKey);
    });
    if (isMac) paletteButton.querySelector("kbd").textContent = "⌘ K";
    const isKey = (event) =>
      (isMac ? event.metaKey : event.ctrlKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k";
    addDialog(dialog, paletteButton, isKey, () => { input.value = ""; update(); });
  }
})();
