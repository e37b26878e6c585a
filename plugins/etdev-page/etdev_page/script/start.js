// Views, keys, and the start. The last of the files.

function openView(name) {
  for (const view of ["graph", "why", "charts", "changes"]) byId(view).hidden = view !== name;
  for (const side of ["sidebar", "details"]) byId(side).hidden = name !== "graph";
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
}

// The keys, what they do in words, and the functions that do it.
const KEYS = [
  ["/", "search; Enter goes to the next hit", () => byId("search").select()],
  ["Escape", "show everything", () => { clearFilter(); choose(null); }],
  ["ArrowUp", "along a line to what the box reads", () => step((item) => LINES.find((line) => line.to === item)?.from || item.parent)],
  ["ArrowDown", "along a line to what reads the box", () => step((item) => LINES.find((line) => line.from === item)?.to || (item.open && METHOD.items[item.children[0]]))],
  ["ArrowLeft", "to the box before", () => step((item) => SHOWN[SHOWN.indexOf(item) - 1])],
  ["ArrowRight", "to the next box", () => step((item) => SHOWN[SHOWN.indexOf(item) + 1])],
  ["Enter", "open or close a module", null],
  ["p", "to the next portable node", () => nextPortable()],
  ["+", "zoom in", () => zoom(ZOOM * 1.3)],
  ["-", "zoom out", () => zoom(ZOOM / 1.3)],
  ["0", "fit: close modules until all of it can be read", () => fit()],
  ["e", "open every module", () => setAll(true)],
  ["c", "close every module", () => setAll(false)],
  ["1", "graph", () => openView("graph")],
  ["2", "why nodes are not delegated", () => openView("why")],
  ["3", "charts", () => openView("charts")],
  ["4", "changes, where two plans are compared", () => DATA.changes && openView("changes")],
  ["t", "colour by owner, time or changes", () => nextMode()],
  ["?", "this list", () => byId("help").showModal()],
];
const ACTIONS = Object.fromEntries(KEYS.map(([name, , act]) => [name, act]));

function nextPortable() {
  const all = METHOD.vertices.filter((vertex) => vertex.owner === "portable");
  if (all.length) goTo(all[(all.indexOf(CHOSEN) + 1) % all.length]);
}

function nextMode() {
  const modes = [...document.querySelectorAll("#modes [data-mode]")].map((button) => button.dataset.mode);
  if (modes.length) setMode(modes[(modes.indexOf(MODE) + 1) % modes.length]);
  drawMap();
}

// Moves the choice along a line.
function step(next) {
  const item = CHOSEN && CHOSEN.head ? next(CHOSEN) : SHOWN[0];
  if (!item || !item.head) return;
  choose(item);
  item.head.focus();
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  if (typing && event.key === "Escape") { clearFilter(); event.target.blur(); }
  if (event.target === byId("search") && event.key === "Enter") nextHit();
  // Other elements scroll by the arrow keys.
  const elsewhere = event.key.startsWith("Arrow") && event.target !== document.body && !byId("window").contains(event.target);
  if (typing || elsewhere || !ACTIONS[event.key] || byId("help").open) return;
  event.preventDefault();
  ACTIONS[event.key]();
}

function openMethod(index) {
  METHOD = methodOf(index);
  CHOSEN = null;
  fit();
  clearFilter();
  choose(null);
  showHot();
  showTree();
  showWhy();
  showCharts();
}

byId("keys").replaceChildren(...KEYS.flatMap(([name, words]) => [el("dt", {}, el("kbd", {}, name)), el("dd", {}, words)]));
byId("side").hidden = byId("changed").hidden = !DATA.changes;
byId("side").replaceChildren(...SIDES.map((side, index) => el("option", { value: index }, `${index || SIDES.length < 2 ? "after" : "before"}: ${side.title}`)));
byId("side").addEventListener("change", (event) => openSide(SIDES[Number(event.target.value)]));
byId("method").addEventListener("change", (event) => openMethod(Number(event.target.value)));
byId("search").addEventListener("input", (event) => search(event.target.value));
for (const tab of document.querySelectorAll("nav button")) tab.addEventListener("click", () => openView(tab.dataset.view));
for (const tool of document.querySelectorAll("#tools button")) tool.addEventListener("click", () => ACTIONS[tool.dataset.do]());
addEventListener("keydown", key);
addEventListener("resize", () => { place(); drawMap(); });
byId("window").addEventListener("scroll", () => requestAnimationFrame(drawMap));
for (const kind of ["pointerdown", "pointermove"]) byId("map").addEventListener(kind, goOnMap);
byId("window").addEventListener("pointermove", (event) => { if (event.buttons === 1 && event.pointerType === "mouse") byId("window").scrollBy(-event.movementX, -event.movementY); });
byId("window").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(ZOOM * Math.exp(-event.deltaY * 0.005), event.clientX - byId("window").getBoundingClientRect().left, event.clientY - byId("window").getBoundingClientRect().top);
});
openView("graph");
openSide(DATA);
if (DATA.changes) showChanges();
if (DATA.changes) openView("changes");
else if (DATA.scatters.length) openView("charts");
// When the page can be used, in milliseconds since it was opened.
requestAnimationFrame(() => { document.documentElement.dataset.ready = performance.now().toFixed(0); });
