// The data that page.py writes, and helpers to show it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// Everything that comes from the model is set as text, never as HTML.
function el(tag, attributes = {}, ...children) {
  const drawn = ["svg", "defs", "marker", "path", "title"].includes(tag);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "owner") element.style.setProperty("--owner", DATA.colours[value] || "var(--edge)");
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== ""));
  return element;
}

// A name, which may be broken after a dot or an underscore.
const words = (text) => text.split(/(?<=[._])/).flatMap((part, at) => (at ? [el("wbr"), part] : [part]));

const quiet = (...texts) => el("p", { class: "quiet" }, ...texts);
const code = (text) => el("span", { class: "code" }, words(text));
const faint = (text) => el("span", { class: "quiet" }, words(text));
const chip = (owner, ...more) => el("span", { class: "chip", owner }, el("i", { class: "swatch" }), owner, ...more);
const link = (name, act) => el("button", { class: "link code", onclick: act }, words(name));

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const time = (ms) => (ms >= 100 ? `${ms.toFixed(0)} ms` : ms >= 0.9995 ? `${ms.toFixed(2)} ms` : `${(ms * 1000).toFixed(ms < 0.00995 ? 1 : 0)} µs`);

function bytes(size) {
  if (size === null) return "unbounded";
  const unit = Math.min(4, Math.floor(Math.log2(size || 1) / 10));
  return `${unit ? (size / 1024 ** unit).toFixed(1) : size} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

// Each of some texts with how often it is there, most often first.
function counted(texts) {
  const counts = new Map();
  for (const one of texts) counts.set(one, (counts.get(one) || 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]);
}
