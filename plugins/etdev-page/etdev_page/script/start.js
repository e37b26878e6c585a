// The start: the first method is opened, and everything listens. The last of the files.

const METHODS = new Map();

function openMethod(name) {
  if (!METHODS.has(name)) {
    METHODS.set(name, decodeMethod(DATA.methods.find((method) => method.name === name)));
    openSome(METHODS.get(name));
  }
  CURRENT = METHODS.get(name);
  CHOSEN = null;
  PASSES = CURRENT.vertices.map(() => true);
  FILTER.active = false;
  resize();
  rebuild();
  fit(true);
  clearFilter();
  showDetails();
  showWhy();
  showCharts();
  const { partitions, nodes } = CURRENT;
  byId("summary").textContent = `${count(partitions.length, "delegate")}, ${count(nodes.length, inKernels(CURRENT) ? "portable kernel" : "node")}`;
}

function listen() {
  for (const tab of document.querySelectorAll("nav button")) tab.addEventListener("click", () => openView(tab.dataset.view));
  for (const tool of document.querySelectorAll("#tools button")) tool.addEventListener("click", () => ACTIONS[tool.dataset.do]());
  byId("search").addEventListener("input", search);
  byId("method").addEventListener("change", (event) => openMethod(event.target.value));
  addEventListener("keydown", key);
  addEventListener("resize", () => { resize(); redraw(); });
  listenToPointer();
}

function start() {
  const names = DATA.methods.map((method) => method.name);
  byId("method").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  byId("method").hidden = names.length < 2;
  byId("note").textContent = DATA.note;
  byId("note").hidden = !DATA.note;
  openView("graph");
  listen();
  if (names.length) openMethod(names[0]);
  // When the page can be used, in milliseconds since it was opened.
  requestAnimationFrame(() => { document.documentElement.dataset.ready = performance.now().toFixed(0); });
}

start();
