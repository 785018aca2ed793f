// Search and keyboard navigation for the resources. The page can be read without it: items are <details>.
"use strict";
(() => {
  const tree = document.getElementById("tree");
  if (!tree) return; // the program creates no resources
  const search = document.getElementById("search");
  const type = document.getElementById("type");
  const found = document.getElementById("found");
  const items = [...tree.querySelectorAll("li")].filter((li) => li.firstElementChild?.localName === "details");
  const tools = document.getElementById("tools");
  tools.hidden = false;

  // -- structure -------------------------------------------------------------------------------------------------------------

  const known = new Set(items);
  const detailsOf = (li) => li.firstElementChild;
  const summaryOf = (li) => detailsOf(li).firstElementChild;
  const itemOf = (node) => {
    for (let li = node.closest("li"); li; li = li.parentElement.closest("li")) if (known.has(li)) return li;
    return null;
  };
  const parents = new Map(items.map((li) => [li, itemOf(li.parentElement)]));
  const within = new Map(items.map((li) => [li, []]));
  for (const [li, parent] of parents) within.get(parent)?.push(li);
  const isBranch = (li) => within.get(li).length > 0;
  const isShown = (li) => !li.hidden && !li.parentElement.closest("details:not([open]), li[hidden]");
  const shown = () => items.filter(isShown);

  // -- one tab stop, then arrow keys (WAI-ARIA tree pattern) -----------------------------------------------------------------------

  let current = items[0];
  const stopAt = (li) => {
    summaryOf(current).tabIndex = -1;
    current = li;
    summaryOf(current).tabIndex = 0;
  };
  for (const li of items) summaryOf(li).tabIndex = -1;
  stopAt(current);

  const go = (li) => {
    if (!li) return;
    stopAt(li);
    summaryOf(li).focus({ preventScroll: true });
    summaryOf(li).scrollIntoView({ block: "nearest" });
  };

  tree.addEventListener("focusin", (event) => {
    stopAt(itemOf(event.target));
  });

  tree.addEventListener("keydown", (event) => {
    if (event.target.localName !== "summary" || event.ctrlKey || event.altKey || event.metaKey) return;
    const li = itemOf(event.target);
    const details = detailsOf(li);
    const all = shown();
    const at = all.indexOf(li);
    const act = {
      ArrowDown: () => go(all[at + 1]),
      ArrowUp: () => go(all[at - 1]),
      Home: () => go(all[0]),
      End: () => go(all.at(-1)),
      ArrowRight: () => (details.open ? go(within.get(li).find(isShown)) : (details.open = true)),
      ArrowLeft: () => (details.open ? (details.open = false) : go(parents.get(li))),
      "*": () => all.forEach((one) => (detailsOf(one).open ||= isBranch(one) && parents.get(one) === parents.get(li))),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });

  // -- search -------------------------------------------------------------------------------------------------------------------

  // Parents are searched in their own line, leaves also in their details, without the names of related resources. A URN contains
  // the types of all parents, so only words that begin like one are searched in it.
  const PLACES = "summary, pre, dd > code:not(.urn)";
  const texts = new Map();
  const textOf = (li) => {
    if (!texts.has(li)) {
      const places = isBranch(li) ? [summaryOf(li)] : [...li.querySelectorAll(PLACES)];
      texts.set(li, places.map((place) => place.textContent).join("\n").toLowerCase());
    }
    return texts.get(li);
  };
  const urnOf = (li) => (isBranch(li) ? "" : li.querySelector(".urn").textContent.toLowerCase());
  const has = (li, word) => (word.startsWith("urn:") ? urnOf(li) : textOf(li)).includes(word);
  let before = null; // what was open before the search
  let hits = new Set();

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const active = words.length > 0 || type.value !== "";
    if (active && !before) before = items.map((li) => detailsOf(li).open);
    for (const snippet of tree.querySelectorAll(".snippet")) snippet.remove();
    const wanted = (li) => (!type.value || li.dataset.type === type.value) && words.every((word) => has(li, word));
    hits = new Set(items.filter(wanted));
    const leading = new Set(); // ancestors of a hit
    for (const li of hits) for (let one = parents.get(li); one && !leading.has(one); one = parents.get(one)) leading.add(one);
    const free = new Set(); // descendants of a hit without further hits inside: opening it shows all of them
    for (const li of items) {
      const parent = parents.get(li);
      if (free.has(parent) || (hits.has(parent) && !leading.has(parent))) free.add(li);
    }
    items.forEach((li, number) => {
      li.hidden = active && !hits.has(li) && !leading.has(li) && !free.has(li);
      if (active && isBranch(li)) detailsOf(li).open = leading.has(li);
      else if (!active && before) detailsOf(li).open = before[number];
      if (active && hits.has(li) && !isBranch(li)) explain(li, words);
    });
    if (!active) before = null;
    const [count, total] = [[...hits], items].map((all) => all.filter((li) => li.dataset.type).length);
    found.textContent = active ? (count || hits.size ? `${count} of ${total} resources` : "Nothing found. Esc shows all again.") : "";
    mark(words);
    if (!isShown(current)) stopAt(shown()[0] ?? current);
  };

  // Shows the line with the match, unless it is the item's own.
  const explain = (li, words) => {
    const row = summaryOf(li).textContent.toLowerCase();
    const word = words.find((word) => !row.includes(word));
    const lines = [...li.querySelectorAll(PLACES)].flatMap((place) => place.textContent.split("\n"));
    const line = word && lines.find((one) => one.toLowerCase().includes(word));
    if (!line) return;
    const snippet = document.createElement("span");
    const at = line.toLowerCase().indexOf(word);
    snippet.className = "snippet";
    snippet.textContent = (at > 60 ? "…" + line.slice(at - 40) : line).trim().slice(0, 160);
    summaryOf(li).append(snippet);
  };

  const mark = (words) => {
    if (!window.CSS?.highlights) return;
    CSS.highlights.delete("search");
    if (!words.length) return;
    const ranges = [];
    const walker = document.createTreeWalker(tree, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node && ranges.length < 5000; node = walker.nextNode()) {
      const content = node.data.toLowerCase();
      if (content.length !== node.data.length) continue;
      for (const word of words)
        for (let at = content.indexOf(word); at >= 0; at = content.indexOf(word, at + word.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + word.length);
          ranges.push(range);
        }
    }
    CSS.highlights.set("search", new Highlight(...ranges));
  };

  const clear = () => {
    search.value = "";
    type.value = "";
    filter();
  };

  search.addEventListener("input", filter);
  type.addEventListener("change", filter);
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      go(shown().find((li) => before && hits.has(li)) ?? shown()[0]);
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const writing = ["input", "select", "textarea"].includes(event.target.localName);
    if (event.key === "/" && !writing) {
      event.preventDefault();
      search.focus({ preventScroll: true });
      search.select();
      tools.scrollIntoView();
    } else if (event.key === "Escape" && (search.value || type.value)) {
      event.preventDefault();
      clear();
    } else if (event.key === "Escape" && event.target === search) {
      go(current);
    }
  });

  const setAll = (open) => {
    for (const li of items) if (isBranch(li)) detailsOf(li).open = open;
    if (!isShown(current)) stopAt(shown()[0] ?? current);
  };
  document.getElementById("open").addEventListener("click", () => setAll(true));
  document.getElementById("close").addEventListener("click", () => setAll(false));

  // -- links to a resource ------------------------------------------------------------------------------------------------------

  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !tree.contains(target)) return;
    const li = itemOf(target);
    if (li.hidden || li.parentElement.closest("li[hidden]")) clear();
    for (let one = li; one; one = parents.get(one)) detailsOf(one).open = true;
    stopAt(li);
    summaryOf(li).focus({ preventScroll: true });
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  // A link to the current address causes no hashchange event.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a");
    if (link && (link.hash ?? link.href?.baseVal) === location.hash && location.hash) follow();
  });
  if (location.hash) follow();

  // -- diagram ------------------------------------------------------------------------------------------------------------------

  const drawing = document.querySelector("figure > .wide");
  if (drawing) drawing.scrollLeft = (drawing.scrollWidth - drawing.clientWidth) / 2;
  for (const box of document.querySelectorAll("svg a")) {
    const near = (on) => () => {
      for (const edge of document.querySelectorAll("svg .edge"))
        if (edge.dataset.from === box.dataset.box || edge.dataset.to === box.dataset.box) edge.classList.toggle("near", on);
    };
    for (const event of ["mouseenter", "focus"]) box.addEventListener(event, near(true));
    for (const event of ["mouseleave", "blur"]) box.addEventListener(event, near(false));
  }
})();
