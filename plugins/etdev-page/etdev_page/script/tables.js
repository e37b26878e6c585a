// Tables and charts: why nodes are portable, times and memory.

function tableOf(heads, rows) {
  const head = el("tr", {}, heads.map(([name, kind]) => el("th", { class: kind }, name)));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, rows));
}

function showWhy() {
  const rows = CURRENT.missed.map((missed) => el("tr", { tabindex: 0, onclick: () => filterOp(missed), onkeydown: (event) => { if (event.key === "Enter") filterOp(missed); } },
    el("td", { class: "code" }, missed.op), el("td", { class: "num" }, String(missed.nodes.length)), el("td", {}, reasonLines(missed)),
    el("td", { class: "code" }, some(missed.modules)), el("td", { class: "code" }, some(missed.lines))));
  const simplified = CURRENT.simplified.map(([kind, nodes, why, where]) => el("tr", {},
    el("td", {}, kind), el("td", { class: "num" }, nodes), el("td", {}, why), el("td", { class: "code" }, where)));
  const nothing = CURRENT.nodes.length ? "Nothing: every node has a plugin that owns it." : "Nothing: the method has no nodes.";
  byId("why").replaceChildren(
    el("h2", {}, `Left to portable kernels in ${CURRENT.name}`),
    rows.length ? tableOf([["op", ""], ["nodes", "num"], ["why no plugin has it", ""], ["modules", ""], ["lines", ""]], rows) : quiet(nothing),
    ...(simplified.length ? [el("h2", {}, "Simplified before plugins were asked"), tableOf([["kind", ""], ["nodes", "num"], ["why", ""], ["lines", ""]], simplified)] : []));
}

const some = (names) => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");

function showCharts() {
  const drawn = DATA.charts.map((chart) => {
    const most = Math.max(...chart.bars.map((bar) => bar[1])) || 1;
    return el("div", { class: "chart" }, el("h2", {}, chart.title), chart.bars.map((bar) => barOf(chart, bar, most)), chart.note ? quiet(chart.note) : null);
  });
  const nothing = quiet("There is nothing to draw: no weights are inside delegates, and nothing was measured.");
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
