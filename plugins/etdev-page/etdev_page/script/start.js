// Views, keys, and the start. The last of the files.

function openView(name) {
  for (const view of ["graph", "why", "charts"]) byId(view).hidden = view !== name;
  for (const side of ["filters", "details"]) byId(side).hidden = name !== "graph";
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
}

const ACTIONS = {
  "/": () => byId("search").select(),
  "+": () => zoom(ZOOM * 1.3), "-": () => zoom(ZOOM / 1.3), 0: () => fit(), e: () => setAll(true), c: () => setAll(false),
  1: () => openView("graph"), 2: () => openView("why"), 3: () => openView("charts"),
  Escape: () => { clearFilter(); choose(null); },
  ArrowUp: () => step((item) => LINES.find((line) => line.to === item)?.from || item.parent),
  ArrowDown: () => step((item) => LINES.find((line) => line.from === item)?.to || (item.open && METHOD.items[item.children[0]])),
};

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
  if (typing || elsewhere || !ACTIONS[event.key]) return;
  event.preventDefault();
  ACTIONS[event.key]();
}

function openMethod(index) {
  METHOD = methodOf(index);
  CHOSEN = null;
  openSome();
  render();
  fit(true);
  clearFilter();
  choose(null);
  showWhy();
  showCharts();
}

const NAMES = DATA.plan.methods.map((method) => method.method);
byId("method").replaceChildren(...NAMES.map((name, index) => el("option", { value: index }, name)));
byId("method").hidden = NAMES.length < 2;
byId("note").textContent = DATA.note;
byId("note").hidden = !DATA.note;
byId("method").addEventListener("change", (event) => openMethod(Number(event.target.value)));
byId("search").addEventListener("input", (event) => search(event.target.value));
for (const tab of document.querySelectorAll("nav button")) tab.addEventListener("click", () => openView(tab.dataset.view));
for (const tool of document.querySelectorAll("#tools button")) tool.addEventListener("click", () => ACTIONS[tool.dataset.do]());
addEventListener("keydown", key);
addEventListener("resize", place);
byId("window").addEventListener("pointermove", (event) => { if (event.buttons === 1 && event.pointerType === "mouse") byId("window").scrollBy(-event.movementX, -event.movementY); });
byId("window").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(ZOOM * Math.exp(-event.deltaY * 0.005), event.clientX - byId("window").getBoundingClientRect().left, event.clientY - byId("window").getBoundingClientRect().top);
});
openView("graph");
if (NAMES.length) openMethod(0);
// When the page can be used, in milliseconds since it was opened.
requestAnimationFrame(() => { document.documentElement.dataset.ready = performance.now().toFixed(0); });
