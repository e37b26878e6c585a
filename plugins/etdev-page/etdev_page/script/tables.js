// Tables and charts: why nodes are portable, times and memory.

function showWhy() {
  const rows = METHOD.missed.map((missed) => el("tr", {},
    el("td", {}, link(missed.op, () => filterOp(missed))), el("td", {}, String(missed.nodes.length)), el("td", {}, reasonLines(missed)),
    el("td", { class: "code" }, some(missed.modules)), el("td", { class: "code" }, some(missed.lines))));
  const heads = ["op", "nodes", "why no plugin has it", "modules", "lines"].map((name) => el("th", {}, name));
  const nothing = METHOD.nodes.length ? "Nothing: every node has a plugin that owns it." : "Nothing: the method has no nodes.";
  byId("why").replaceChildren(
    el("h2", {}, `Left to portable kernels in ${METHOD.name}`),
    rows.length ? el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)) : quiet(nothing));
}

const some = (names) => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");

function filterOp(missed) {
  openView("graph");
  search(missed.op);
}

function showCharts() {
  const drawn = DATA.charts.map((chart) => {
    const most = Math.max(...chart.bars.map((bar) => bar[1])) || 1;
    return el("div", { class: "chart" }, el("h2", {}, chart.title), chart.bars.map((bar) => barOf(chart.unit, bar, most)), chart.note ? quiet(chart.note) : "");
  });
  byId("charts").replaceChildren(...(drawn.length ? drawn : [quiet("No weights are inside delegates, and nothing was measured.")]));
}

function barOf(unit, [name, value, owner], most) {
  const target = METHOD.vertices.find((vertex) => vertex.name === name);
  const shown = unit === "bytes" ? bytes(value) : unit === "ms" ? time(value) : `${value.toFixed(2)} s`;
  const bar = el("i", { style: `width: ${(100 * value) / most}%`, ...(owner ? { owner } : {}) });
  return el(target ? "button" : "div", { class: "bar", title: name, onclick: () => target && goTo(target) }, el("span", {}, name), bar, el("b", {}, shown));
}
