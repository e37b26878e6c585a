// Tables and charts: why what is portable is portable, times and memory.

function showWhy() {
  const rows = CURRENT.missed.map((missed) => el("tr", { tabindex: 0, onclick: () => filterOp(missed), onkeydown: pressed(() => filterOp(missed)) },
    el("td", { class: "code" }, missed.op), el("td", { class: "num" }, String(missed.nodes.length)),
    el("td", {}, reasonLines(missed)),
    el("td", { class: "code" }, some(missed.modules)), el("td", { class: "code" }, some(missed.lines))));
  const heads = [["op", ""], ["nodes", "num"], ["why no plugin has it", ""], ["modules", ""], ["lines", ""]];
  const table = el("table", {}, el("thead", {}, el("tr", {}, heads.map(([head, kind]) => el("th", { class: kind }, head)))), el("tbody", {}, rows));
  const nothing = el("p", { class: "quiet" }, CURRENT.nodes.length ? "Nothing: every node has a plugin that owns it." : "Nothing: the method has no nodes.");
  byId("why").replaceChildren(el("h2", {}, `Left to portable kernels in ${CURRENT.name}`), rows.length ? table : nothing, ...simplifiedTable());
}

function simplifiedTable() {
  const rows = CURRENT.simplified.map(([kind, nodes, why, where]) => el("tr", {},
    el("td", {}, kind), el("td", { class: "num" }, nodes), el("td", {}, why), el("td", { class: "code" }, where)));
  const heads = [["kind", ""], ["nodes", "num"], ["why", ""], ["lines", ""]];
  const table = el("table", {}, el("thead", {}, el("tr", {}, heads.map(([head, kind]) => el("th", { class: kind }, head)))), el("tbody", {}, rows));
  return rows.length ? [el("h2", {}, "Simplified before plugins were asked"), table] : [];
}

const some = (names) => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
const pressed = (act) => (event) => { if (event.key === "Enter") act(); };

function showCharts() {
  const drawn = DATA.charts.map((chart) => {
    const most = Math.max(...chart.bars.map((bar) => bar[1])) || 1;
    return el("div", { class: "chart" }, el("h2", {}, chart.title), chart.bars.map((bar) => barOf(chart, bar, most)), chart.note ? el("p", { class: "quiet" }, chart.note) : null);
  });
  const nothing = el("p", { class: "quiet" }, "There is nothing to draw: no weights are inside delegates, and nothing was measured.");
  byId("charts").replaceChildren(...(drawn.length ? drawn : [nothing]));
}

function barOf(chart, [label, value, owner, name], most) {
  const length = el("i", owner ? { owner } : {});
  length.style.width = `${(100 * value) / most}%`;
  const target = name && CURRENT.vertices.find((vertex) => vertex.name === name);
  const shown = chart.unit === "bytes" ? bytes(value) : chart.unit === "ms" ? time(value) : `${value.toFixed(2)} s`;
  const act = target ? { onclick: () => goTo(target) } : {};
  return el(target ? "button" : "div", { class: "bar", title: label, ...act }, el("span", {}, label), length, el("b", {}, shown));
}
