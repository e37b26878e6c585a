// Filters and the search: what is dim.

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

const matches = (vertex, query) => vertex.name.toLowerCase().includes(query) || vertex.members.some((node) => isCalled(node, query));
const isCalled = (node, query) => [node.name, node.op, node.source, node.module, node.line].some((value) => value.toLowerCase().includes(query));

function switchOf(kind, key, mark, label, number) {
  const off = FILTER[kind].has(key);
  const press = () => { if (off) FILTER[kind].delete(key); else FILTER[kind].add(key); applyFilter(); };
  return el("button", { class: "switch", "aria-pressed": String(!off), "data-key": key, onclick: press, owner: key }, mark, el("span", {}, label), el("b", {}, number));
}

function showFilters() {
  const nodes = (number) => (number ? number.toLocaleString("en") : "");
  const owners = Object.entries(CURRENT.owned).map(([owner, number]) => switchOf("owners", owner, el("i", { class: "swatch" }), owner, nodes(number)));
  const devices = CURRENT.devices.map((device) => switchOf("devices", device, null, device, ""));
  byId("filters").replaceChildren(
    el("h3", {}, "Owner"), ...(owners.length ? owners : [el("p", { class: "quiet" }, "no nodes")]),
    ...(devices.length > 1 ? [el("h3", {}, "Device"), ...devices] : []),
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

function clearFilter() {
  FILTER.owners.clear();
  FILTER.devices.clear();
  FILTER.reason = FILTER.query = "";
  byId("search").value = "";
  search();
}

let HIT = -1;

function search() {
  FILTER.query = byId("search").value.trim().toLowerCase();
  HIT = -1;
  applyFilter();
  const found = hits().length;
  byId("hits").textContent = !FILTER.query ? "" : found ? count(found, "hit") : "Nothing is called so.";
}

const hits = () => CURRENT.vertices.filter((vertex, id) => FILTER.query && PASSES[id]);

// Goes to the next box with a hit, and in a delegate to the node.
function nextHit() {
  const found = hits();
  if (!found.length) return;
  HIT = (HIT + 1) % found.length;
  goTo(found[HIT], found[HIT].members.find((node) => isCalled(node, FILTER.query)));
  byId("search").focus();
}

function goTo(item, node = null) {
  openView("graph");
  reveal(item);
  choose(item, node);
  moveTo(item);
  byId("canvas").focus();
}
