// Filters and the search: which boxes are dim.

const FILTER = { owner: "", device: "", reason: "", query: "" };
let HITS = [];
let HIT = -1;
// The hits with the modules that contain them; null without a filter.
let BRIGHT = null;

const isDim = (item) => BRIGHT !== null && item !== CHOSEN && !BRIGHT.has(item);

function applyFilter() {
  HIT = -1;
  HITS = METHOD.vertices.filter(passes);
  BRIGHT = Object.values(FILTER).some(Boolean) ? new Set(HITS) : null;
  if (BRIGHT) for (const hit of HITS) for (let item = hit.parent; item; item = item.parent) BRIGHT.add(item);
  const { owner, device, reason, query } = FILTER;
  byId("hits").textContent = !query ? "" : HITS.length ? count(HITS.length, "hit") : "Nothing is called so.";
  const devices = counted(METHOD.vertices.map((vertex) => vertex.device));
  byId("filters").replaceChildren(
    ...switches("owner", "Owner", Object.entries(METHOD.owned), "no nodes"),
    ...(devices.length > 1 ? switches("device", "Device", devices) : []),
    ...switches("reason", "Why portable", counted(METHOD.nodes.flatMap(reasonsOf)), METHOD.owned.portable ? sentence(unasked()) : "Nothing is left to portable kernels."),
    owner || device || reason || query ? el("button", { id: "clear", onclick: clearFilter }, "Show everything") : "");
  repaint();
}

const reasonsOf = (node) => (node.owner === "portable" ? node.verdicts.filter((verdict) => verdict.code !== "claimed").map(reasonOf) : []);

function passes(vertex) {
  const { owner, device, reason, query } = FILTER;
  if ((owner && vertex.owner !== owner) || (device && vertex.device !== device)) return false;
  if (reason && !vertex.members.some((node) => reasonsOf(node).includes(reason))) return false;
  return !query || vertex.name.toLowerCase().includes(query) || vertex.members.some(isCalled);
}

const isCalled = (node) => [node.node, node.op, node.source_op, node.module, node.line].some((value) => value.toLowerCase().includes(FILTER.query));

// Buttons each of which leaves one owner, device or reason, or all of them again.
function switches(kind, title, entries, nothing) {
  const buttons = entries.slice(0, 40).map(([key, number]) => {
    const only = FILTER[kind] === key;
    const press = () => { FILTER[kind] = only ? "" : key; applyFilter(); };
    return el("button", { class: "switch", "aria-pressed": String(only), "data-key": key, title: key, onclick: press, owner: key },
      kind === "owner" ? el("i", { class: "swatch" }) : "", el("span", { class: "reason" }, words(key)), el("b", {}, number.toLocaleString("en")));
  });
  return [el("h3", {}, title), ...(buttons.length ? buttons : [quiet(nothing)])];
}

function clearFilter() {
  Object.assign(FILTER, { owner: "", device: "", reason: "" });
  search("");
}

function search(query) {
  byId("search").value = query;
  FILTER.query = query.trim().toLowerCase();
  applyFilter();
}

// Goes to the next box with a hit, and in a delegate to the node.
function nextHit() {
  if (!FILTER.query || !HITS.length) return;
  HIT = (HIT + 1) % HITS.length;
  goTo(HITS[HIT], HITS[HIT].members.find(isCalled));
  byId("search").focus();
}
