// The document in the script tag `data`, which document.py and charts.py write, and elements to show it with.

const DATA = JSON.parse(document.getElementById("data").textContent);
const text = (number) => DATA.texts[number];
const byId = (id) => document.getElementById(id);

// Everything that comes from the model is set as text, never as HTML.
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "owner") element.style.setProperty("--owner", colour(value));
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== ""));
  return element;
}

const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}.`;
const colour = (owner) => DATA.colours[owner] || "var(--edge)";
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const time = (ms) => (ms >= 100 ? `${ms.toFixed(0)} ms` : ms >= 1 ? `${ms.toFixed(2)} ms` : `${(ms * 1000).toFixed(0)} µs`);

function bytes(size) {
  if (size === null) return "unbounded";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit++; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

// Why a node is portable that nobody gave a reason for.
const UNASKED = DATA.plugins.length ? "no plugin was asked" : "not known";
const shortOp = (op) => op.replace(/^aten\./, "").replace(/\.(default|Tensor|out)$/, "");
