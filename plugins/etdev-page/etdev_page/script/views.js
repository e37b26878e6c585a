// Views and keys.

const VIEWS = ["graph", "why", "charts"];

function openView(name) {
  for (const view of VIEWS) byId(view).hidden = view !== name;
  for (const side of ["filters", "details"]) byId(side).hidden = name !== "graph";
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
}

const ACTIONS = {
  zoomIn: () => zoom(1.3), zoomOut: () => zoom(1 / 1.3), fit: () => fit(),
  expandAll: () => setAll(true), collapseAll: () => setAll(false),
};

const SHORTCUTS = {
  "/": () => { byId("search").focus(); byId("search").select(); },
  "+": ACTIONS.zoomIn, "=": ACTIONS.zoomIn, "-": ACTIONS.zoomOut, 0: ACTIONS.fit,
  e: ACTIONS.expandAll, c: ACTIONS.collapseAll,
  1: () => openView("graph"), 2: () => openView("why"), 3: () => openView("charts"),
  Escape: () => { clearFilter(); choose(null); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  if (typing && event.key === "Escape") { clearFilter(); event.target.blur(); }
  if (event.target === byId("search") && event.key === "Enter") nextHit();
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
  moveTo(next);
}

function neighbour(item, way) {
  const lines = SCENE.lines;
  if (way === "Up") return lines.find((one) => one.to === item)?.from || item.parent?.parent && item.parent;
  if (way === "Down") return lines.find((one) => one.from === item)?.to || (item.open && CURRENT.items[item.children[0]]);
  const row = item.parent.children.map((id) => CURRENT.items[id]).filter((one) => Math.abs(one.y + one.h / 2 - item.y - item.h / 2) < 1);
  row.sort((one, other) => one.x - other.x);
  return row[row.indexOf(item) + (way === "Left" ? -1 : 1)];
}
