// Tables and charts: why nodes are portable, times and memory.

// A table whose cells say what they are on narrow screens, where each row is a card.
function tableOf(title, heads, rows) {
  if (!rows.length) return [];
  const head = el("tr", {}, heads.map((name) => el("th", {}, name)));
  const body = rows.slice(0, MOST_ROWS).map((row) => el("tr", {}, row.map((cell, at) => el("td", { "data-head": heads[at] }, cell))));
  const more = rows.length - body.length;
  return [el("h3", {}, title), el("table", {}, el("thead", {}, head), el("tbody", {}, body)), more > 0 ? quiet(`${grouped(more)} more are not shown.`) : ""];
}

const MOST_ROWS = 400;

function showWhy() {
  const rows = METHOD.missed.map((missed) => [
    link(missed.op, () => filterOp(missed)), String(missed.nodes.length), missed.share, reasonLines(missed),
    el("div", {}, code(some(missed.modules))), el("div", {}, code(some(missed.lines)))]);
  const nothing = METHOD.nodes.length ? "Nothing: every node has a plugin that owns it." : "Nothing: the method has no nodes.";
  const fixes = METHOD.plan.fixes.map(({ row, stage, found, line }) => [code(row), stage, code(some(found)), code(line)]);
  byId("why").replaceChildren(
    ...(rows.length ? tableOf(`Left to portable kernels in ${METHOD.name}`, ["op", "nodes", "cost", "why no plugin has it", "modules", "lines"], rows) : [quiet(nothing)]),
    ...tableOf(`Changed in ${METHOD.name} for faults of torch or ExecuTorch`, ["row of etdev quirks", "stage", "changed", "line"], fixes));
}

const some = (names) => names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");

function filterOp(missed) {
  openView("graph");
  search(missed.op);
}

function showCharts() {
  const drawn = SIDE.charts.map((chart) => {
    const most = Math.max(...chart.bars.map((bar) => bar[1])) || 1;
    return el("div", { class: "chart" }, el("h2", {}, chart.title), chart.bars.map((bar) => barOf(chart.unit, bar, most)), chart.note ? quiet(chart.note) : "");
  });
  drawn.unshift(...SIDE.scatters.map(scatterOf));
  byId("charts").replaceChildren(...(drawn.length ? drawn : [quiet("No weights are inside delegates, and nothing was measured.")]));
}

function barOf(unit, [name, value, owner], most) {
  const target = METHOD.vertices.find((vertex) => vertex.name === name);
  const shown = unit === "bytes" ? bytes(value) : unit === "ms" ? time(value) : `${value.toFixed(2)} s`;
  const bar = el("i", { style: `width: ${(100 * value) / most}%`, ...(owner ? { owner } : {}) });
  return el(target ? "button" : "div", { class: "bar", onclick: () => target && goTo(target) }, el("span", {}, words(name)), bar, el("b", {}, shown));
}

// Place points by the logarithms of their values, and show the text of the one in focus below.
function scatterOf({ title, axes, points }) {
  const text = el("pre", { class: "quiet" }, "Point at a candidate to see what it is.");
  const values = [points.map((point) => point.x), points.map((point) => point.y)];
  const [lefts, bottoms] = values.map(inLogarithms);
  const dots = points.map((point, at) => {
    const show = () => text.replaceChildren(point.text);
    return el("button", { class: point.marked ? "marked" : "", style: `left: ${lefts[at]}%; bottom: ${bottoms[at]}%`, title: point.text, onmouseenter: show, onfocus: show }, point.name);
  });
  const [across, up] = axes.map((axis, at) => quiet(`${axis}, ${ends(values[at])}`));
  return el("div", { class: "chart" }, el("h2", {}, title), up, el("div", { class: "scatter" }, dots), across, text);
}

// Numbers as percent of the way from the logarithm of the least to that of the largest.
function inLogarithms(numbers) {
  const least = Math.min(...numbers.filter((number) => number > 0));
  const logarithms = numbers.map((number) => Math.log(Math.max(number, least)));
  const [low, high] = [Math.min(...logarithms), Math.max(...logarithms)];
  return logarithms.map((one) => (high > low ? (100 * (one - low)) / (high - low) : 50));
}

const ends = (numbers) => `${Math.min(...numbers).toPrecision(2)} to ${Math.max(...numbers).toPrecision(2)}`;
