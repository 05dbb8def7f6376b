// Everything on a page works without this script. It adds copy buttons,
// keyboard shortcuts, a warning about unsaved text, and live updates.
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
      if (target.tagName === "INPUT") target.focus(); else target.click();
      return;
    }
  });

  // A text that was changed and not saved is not left without a question.
  for (const area of document.querySelectorAll("[data-unsaved]")) {
    const before = area.value;
    let isSent = false;
    if (area.form) area.form.addEventListener("submit", () => { isSent = true; });
    addEventListener("beforeunload", (event) => {
      if (!isSent && area.value !== before) event.preventDefault();
    });
  }

  // An element with `data-live` names a stream of server-sent events below
  // /console. When something happens there, the page offers to be loaded anew.
  for (const element of document.querySelectorAll("[data-live]")) {
    if (!window.EventSource) continue;
    const source = new EventSource(element.dataset.live);
    source.onmessage = () => {
      source.close();
      const offer = document.createElement("p");
      offer.className = "note";
      offer.setAttribute("role", "status");
      const link = document.createElement("a");
      link.href = location.href;
      link.textContent = "There is something new: load the page again";
      offer.append(link);
      element.before(offer);
    };
    addEventListener("pagehide", () => source.close());
  }
})();
