// Views, theme and keys.

const VIEWS = ["graph", "why", "charts"];

function openView(name) {
  for (const view of VIEWS) byId(view).hidden = view !== name;
  for (const side of ["filters", "details"]) byId(side).hidden = name !== "graph";
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.documentElement.style.colorScheme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

const KEYS = [
  ["/", "search"], ["↑ ↓", "along the edges of what is chosen"], ["← →", "to its neighbours"],
  ["Enter", "open or close a module"], ["+ − 0", "zoom in, out, show all"], ["e c", "open or close every module"],
  ["1 2 3", "graph, reasons, charts"], ["t", "light or dark"], ["Esc", "show everything"],
];

function showKeys() {
  const rows = KEYS.map(([keys, what]) => el("tr", {}, el("td", {}, keys.split(" ").map((key) => [el("kbd", {}, key), " "])), el("td", {}, what)));
  const close = el("button", { onclick: () => byId("keys").close() }, "Close");
  byId("keys").replaceChildren(el("h2", {}, "Keys"), el("table", {}, rows), el("p", {}, el("br"), close));
  byId("keys").showModal();
}

const ACTIONS = {
  zoomIn: () => zoom(1.3), zoomOut: () => zoom(1 / 1.3), fit: () => fit(),
  expandAll: () => setAll(true), collapseAll: () => setAll(false),
};

const SHORTCUTS = {
  "/": () => { byId("search").focus(); byId("search").select(); },
  "+": ACTIONS.zoomIn, "=": ACTIONS.zoomIn, "-": ACTIONS.zoomOut, 0: ACTIONS.fit,
  e: ACTIONS.expandAll, c: ACTIONS.collapseAll, t: switchTheme, "?": showKeys,
  1: () => openView("graph"), 2: () => openView("why"), 3: () => openView("charts"),
  Escape: () => { clearFilter(); choose(null); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  if (typing && event.key === "Escape") { clearFilter(); event.target.blur(); return; }
  if (typing) return;
  const act = SHORTCUTS[event.key] || (event.target === byId("canvas") && canvasKey(event.key));
  if (!act) return;
  event.preventDefault();
  act();
}

function canvasKey(name) {
  if (name === "Enter" || name === " ") return CHOSEN && CHOSEN.kind === "g" && (() => toggle(CHOSEN));
  return name.startsWith("Arrow") && (() => step(name.slice(5)));
}

// Moves the choice along an edge, or along its row.
function step(way) {
  const next = CHOSEN ? neighbour(CHOSEN, way) : SCENE.boxes[0];
  if (!next) return;
  choose(next);
  nudge(next);
}

function neighbour(item, way) {
  const lines = SCENE.lines;
  if (way === "Up") return lines.find((one) => one.to === item)?.from || item.parent?.parent && item.parent;
  if (way === "Down") return lines.find((one) => one.from === item)?.to || (item.open && CURRENT.items[item.children[0]]);
  const row = item.parent.children.map((id) => CURRENT.items[id]).filter((one) => Math.abs(one.y + one.h / 2 - item.y - item.h / 2) < 1);
  row.sort((one, other) => one.x - other.x);
  return row[row.indexOf(item) + (way === "Left" ? -1 : 1)];
}
