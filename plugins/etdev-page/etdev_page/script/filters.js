// Filters: what is dim.

const FILTER = { owners: new Set(), devices: new Set(), reason: "", query: "", active: false };
let PASSES = null;

function isDim(item) {
  if (!FILTER.active || item === CHOSEN) return false;
  return item.kind === "g" ? item.hits === 0 : !PASSES[item.id];
}

function applyFilter() {
  FILTER.active = Boolean(FILTER.owners.size || FILTER.devices.size || FILTER.reason || FILTER.query);
  for (const group of CURRENT.groups) group.hits = 0;
  PASSES = CURRENT.vertices.map(passes);
  CURRENT.vertices.forEach((vertex, id) => {
    if (PASSES[id]) for (let group = vertex.parent; group; group = group.parent) group.hits++;
  });
  showFilters();
  repaint();
}

function passes(vertex) {
  if (FILTER.owners.has(vertex.owner) || FILTER.devices.has(vertex.device)) return false;
  if (FILTER.reason && !vertex.members.some((node) => node.owner === "portable" && node.verdicts.some((v) => reasonOf(v) === FILTER.reason))) return false;
  return !FILTER.query || matches(vertex, FILTER.query);
}

function matches(vertex, query) {
  const has = (value) => value.toLowerCase().includes(query);
  return has(vertex.name) || vertex.members.some((node) => [node.name, node.op, node.source, node.module, node.line].some(has));
}

function switchOf(kind, key, mark, label, number) {
  const off = FILTER[kind].has(key);
  const press = () => { if (off) FILTER[kind].delete(key); else FILTER[kind].add(key); applyFilter(); };
  return el("button", { class: "switch", "aria-pressed": String(!off), "data-key": key, onclick: press, owner: key }, mark, el("span", {}, label), el("b", {}, number));
}

function showFilters() {
  const nodes = (number) => (number ? number.toLocaleString("en") : "");
  const owners = Object.entries(CURRENT.owned).map(([owner, number]) => switchOf("owners", owner, el("i", { class: "swatch" }), owner, nodes(number)));
  const devices = devicesOf(CURRENT).map((device) => switchOf("devices", device, outline(device), device, ""));
  byId("filters").replaceChildren(
    el("h3", {}, "Owner"), ...(owners.length ? owners : [el("p", { class: "quiet" }, "no nodes")]),
    ...(devices.length ? [el("h3", {}, "Device"), ...devices] : []),
    ...(CURRENT.copies.length ? [el("p", { class: "legend" }, copyMark(), count(CURRENT.copies.length, "copy").replace("copys", "copies"))] : []),
    el("h3", {}, "Why portable"), ...reasonSwitches(),
    ...(FILTER.active ? [el("h3", {}, ""), el("button", { id: "clear", onclick: clearFilter }, "Show everything")] : []));
}

function reasonSwitches() {
  const counts = new Map();
  for (const missed of CURRENT.missed) for (const reason of missed.reasons) counts.set(reason, (counts.get(reason) || 0) + missed.nodes.length);
  if (!counts.size) return [el("p", { class: "quiet" }, CURRENT.owned.portable ? sentence(UNASKED) : "Nothing is left to portable kernels.")];
  const ordered = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 40);
  return ordered.map(([reason, number]) => {
    const only = FILTER.reason === reason;
    const press = () => { FILTER.reason = only ? "" : reason; applyFilter(); };
    return el("button", { class: `switch${only ? " only" : ""}`, title: reason, "data-reason": reason, onclick: press }, el("span", { class: "reason" }, reason), el("b", {}, String(number)));
  });
}

const devicesOf = (method) => (method.devices.length ? [...(method.vertices.some((v) => v.device === "cpu" && v.kind !== "i") ? ["cpu"] : []), ...method.devices] : []);

function outline(device) {
  const index = CURRENT.devices.indexOf(device);
  const classes = index < 0 ? "box n" : `box n elsewhere d${index % 4}`;
  return svg("svg", { class: "outline", viewBox: "0 0 20 12" }, svg("g", { class: classes }, svg("rect", { x: 1.5, y: 1.5, width: 17, height: 9, rx: 2 })));
}

const copyMark = () => svg("svg", { class: "outline", viewBox: "0 0 20 12" }, svg("path", { class: "way copied", d: "M1 6H19", "marker-end": "none" }));

function clearFilter() {
  FILTER.owners.clear();
  FILTER.devices.clear();
  FILTER.reason = FILTER.query = "";
  byId("search").value = "";
  byId("hits").hidden = true;
  applyFilter();
}
