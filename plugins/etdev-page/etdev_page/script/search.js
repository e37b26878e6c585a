// The search: nodes, partitions and modules by name.

const MOST_HITS = 60;
let HIT = -1;

function search() {
  FILTER.query = byId("search").value.trim().toLowerCase();
  HIT = -1;
  applyFilter();
  showHits();
}

function hits(query) {
  const has = (value) => value.toLowerCase().includes(query);
  const modules = CURRENT.groups.filter((group) => group.path && has(group.path)).map((group) => ["module", group.path + group.part, "", group, null]);
  const partitions = CURRENT.vertices.filter((v) => v.partition && has(v.name)).map((v) => ["partition", v.name, v.partition.backend, v, null]);
  const nodes = CURRENT.nodes.filter((node) => [node.name, node.op, node.source, node.line].some(has))
    .map((node) => ["node", node.name, [node.op, node.module].filter(Boolean).join(" in "), CURRENT.homes.get(node.index), node]);
  return [...nodes, ...partitions, ...modules];
}

function showHits() {
  const list = byId("hits");
  list.hidden = !FILTER.query;
  if (!FILTER.query) return;
  const found = hits(FILTER.query);
  const rows = found.slice(0, MOST_HITS).map(([kind, name, more, item, node], index) =>
    el("li", { role: "option", "aria-selected": String(index === HIT), onclick: () => goTo(item, node) },
      el("small", {}, kind), el("span", {}, el("span", { class: "code" }, name), " ", el("small", {}, more))));
  const rest = found.length - rows.length;
  if (rest > 0) rows.push(el("li", {}, el("small", {}, ""), el("small", {}, `and ${rest} more`)));
  list.replaceChildren(...(rows.length ? rows : [el("li", {}, el("small", {}, ""), "Nothing is called so.")]));
  list.found = found;
}

function searchKeys(event) {
  const found = byId("hits").found || [];
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    HIT = Math.max(0, Math.min(found.length - 1, MOST_HITS - 1, HIT + (event.key === "ArrowDown" ? 1 : -1)));
    showHits();
    byId("hits").children[HIT]?.scrollIntoView({ block: "nearest" });
    event.preventDefault();
  } else if (event.key === "Enter" && found.length) {
    const [, , , item, node] = found[Math.max(0, HIT)];
    goTo(item, node);
  }
}

function goTo(item, node = null) {
  byId("hits").hidden = true;
  openView("graph");
  if (!item) return;
  reveal(item);
  choose(item, node);
  moveTo(item);
  byId("canvas").focus();
}
