// The sidebar: what the colours mean, the slowest boxes, and the tree of modules.

// What colours the boxes: owner, heat or change.
let MODE = IS_TIMED ? "heat" : DATA.changes ? "change" : "owner";
const FIRST = 8;

function setMode(mode) {
  MODE = mode;
  byId("scene").dataset.mode = mode;
  const modes = { owner: "Owner", ...(IS_TIMED ? { heat: "Time" } : {}), ...(DATA.changes ? { change: "Changes" } : {}) };
  const buttons = Object.entries(modes).map(([key, name]) => el("button", { "aria-pressed": String(key === mode), "data-mode": key, onclick: () => { setMode(key); drawMap(); } }, name));
  const legends = {
    owner: "", heat: [el("div", { class: "scale" }), el("div", { class: "ends" }, el("span", {}, "0"), el("span", {}, time(HOTTEST)))],
    change: quiet("Marked: another owner or device."),
  };
  byId("modes").replaceChildren(...(buttons.length > 1 ? [el("h3", {}, "Colours"), el("div", { class: "pick" }, buttons), ...[legends[mode]].flat()] : []));
}

function showHot(all = false) {
  const rows = METHOD.isTimed || SIDE.run?.method === METHOD.name ? SIDE.hot : [];
  const shown = all ? rows : rows.slice(0, FIRST);
  const more = rows.length - shown.length;
  byId("hot").replaceChildren(
    ...(rows.length ? [el("h3", {}, "Slowest")] : []), ...shown.map(hotRow),
    more > 0 ? el("button", { class: "link", onclick: () => showHot(true) }, `${more} more`) : "");
}

function hotRow({ name, ms, share, owner, reason }) {
  const target = METHOD.vertices.find((vertex) => vertex.name === name);
  const module = target && target.module;
  return el(target ? "button" : "div", { class: "hot", owner, "data-key": name, onclick: () => target && goTo(target) },
    el("span", { class: "names" }, el("i", { class: "swatch" }), el("b", { class: "code" }, words(target?.kind === "node" ? target.label : name)), el("b", {}, time(ms)), el("span", {}, `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`)),
    el("span", { class: "meter" }, el("i", { style: `width: ${100 * share}%` })),
    module ? el("small", { class: "code" }, words(module)) : "", reason ? el("small", {}, words(reason)) : "");
}

// The modules, each of which makes its children when it is opened.
function showTree() {
  const children = branchesOf(METHOD.root);
  byId("tree").replaceChildren(...(children.length ? [el("h3", {}, "Modules"), ...children] : []));
}

function branchesOf(group) {
  return group.children.map((id) => METHOD.items[id]).filter((item) => item.kind === "module").map((item) => {
    const row = [link(item.label, () => goTo(item)), " ", el("small", { class: "quiet" }, item.ms ? `${time(item.ms)} ` : ""), item.portable ? el("small", { class: "chip mark" }, `${item.portable} portable`) : ""];
    if (!item.children.some((id) => METHOD.items[id].kind === "module")) return el("div", { class: "leaf" }, row);
    const branch = el("details", { ontoggle: () => { if (branch.childElementCount === 1) branch.append(el("div", { class: "within" }, branchesOf(item))); } }, el("summary", {}, row));
    return branch;
  });
}
