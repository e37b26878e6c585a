// The graph: boxes in rows, which the browser lays out, and lines between them.

let METHOD = null;
let CHOSEN = null;
// What is drawn: boxes, open modules, and lines.
let SHOWN = [];
let OPENED = [];
let LINES = [];
let HOTTEST = 0;

const heatOf = (item) => (item.ms && HOTTEST ? Math.min(100, (100 * item.ms) / HOTTEST) : 0);

function render() {
  [SHOWN, OPENED] = [[], []];
  for (const item of METHOD.items) item.head = null;
  const tip = el("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 90 }, el("path", { d: "M0 1 7 4 0 7z" }));
  const lines = el("svg", {}, el("defs", {}, tip));
  METHOD.root.open = true;
  byId("scene").replaceChildren(...rowsOf(METHOD.root), lines);
  if (!METHOD.vertices.length) byId("scene").append(quiet("This method computes nothing: it has no nodes."));
  // The scale ends with the slowest box that is shown, which may be a closed module.
  HOTTEST = Math.max(0, ...SHOWN.map((item) => (item.open ? 0 : item.ms)));
  for (const item of SHOWN) item.head.style.setProperty("--heat", `${heatOf(item)}%`);
  place();
  OPENED.forEach(align);
  LINES = OPENED.flatMap((group) => group.lines.map((line) => lineOf(group, line)));
  lines.append(...LINES.map((line) => line.path));
  measureMap();
  setMode(MODE);
  repaint();
}

// The document has the rows and their order; a number beyond the children is a bend of a line.
function rowsOf(group) {
  OPENED.push(group);
  group.slots = new Map();
  const stubs = group.lines.filter((line) => !line.bends);
  for (const child of group.children) METHOD.items[child].stubs = [[], []];
  for (const { source, target } of stubs) {
    const [from, to] = [source, target].map((number) => METHOD.items[group.children[number]]);
    from.stubs[1].push(to);
    to.stubs[0].push(from);
  }
  for (const [from, readers] of Object.entries(group.outside)) {
    for (const number of readers) METHOD.items[group.children[number]].stubs[0].push(METHOD.items[from]);
  }
  return group.rows.map((row) => el("div", { class: "row" }, row.map((number) => {
    const slot = number < group.children.length ? frameOf(METHOD.items[group.children[number]]) : el("i");
    group.slots.set(number, slot);
    return slot;
  })));
}

function frameOf(item) {
  const { kind, name, owner, device, open, sub, ms, stubs } = item;
  const sign = kind === "module" ? (open ? "− " : "+ ") : "";
  const [read, readers] = stubs || [[], []];
  item.head = el("button", { class: `box ${kind}`, owner, "data-name": name, tabindex: -1, onclick: () => press(item), "aria-expanded": kind === "module" ? String(open) : null },
    read.length ? el("small", { class: "stub" }, `reads ${some(read.map((from) => from.label))} ↰`) : "",
    el("span", {}, words(sign + item.label)), open || !sub ? "" : el("small", {}, sub), kind === "module" && !open ? stackOf(item) : "",
    readers.length ? el("small", { class: "stub" }, `↳ read by ${readers.length} below`) : "");
  if (device && device !== "cpu") item.head.classList.add("elsewhere");
  if (owner === "portable") item.head.classList.add("portable");
  if (isMoved(item)) item.head.classList.add("moved");
  SHOWN.push(item);
  return open ? el("div", { class: "open" }, item.head, rowsOf(item)) : item.head;
}

// Who owns what is in a module, by predicted time.
function stackOf({ members }) {
  const parts = new Map();
  for (const node of members) parts.set(node.owner, (parts.get(node.owner) || 0) + (METHOD.costs[node.node] || 0));
  const owners = counted(members.map((node) => node.owner)).map(([owner]) => owner);
  return el("div", { class: "stack" }, owners.map((owner) => el("i", { style: `flex: ${parts.get(owner) || 1}`, owner, title: owner })));
}

function placeOf(element) {
  const [zero, { left, width, top, bottom }] = [byId("scene").getBoundingClientRect(), element.getBoundingClientRect()];
  return { x: (left + width / 2 - zero.left) / ZOOM, top: (top - zero.top) / ZOOM, bottom: (bottom - zero.top) / ZOOM };
}

function lineOf(group, { source, target, edges, bends }) {
  const [from, to] = [source, target].map((number) => METHOD.items[group.children[number]]);
  const slots = [source, ...(bends || []), target].map((number) => group.slots.get(number));
  const places = slots.map((slot) => ({ ...placeOf(slot), row: placeOf(slot.parentElement) }));
  const [first, last] = [places[0], places.at(-1)];
  let path = `M${first.x} ${first.bottom}V${first.row.bottom}`;
  for (let at = 1; at < places.length; at++) {
    const [above, below] = [places[at - 1], places[at]];
    const half = (above.row.bottom + below.row.top) / 2;
    path += `C${above.x} ${half} ${below.x} ${half} ${below.x} ${below.row.top}`;
    path += `V${below === last ? below.top : below.row.bottom}`;
  }
  const covered = edges.map((number) => METHOD.edges[number]);
  const told = covered.flatMap((edge) => edge.moved);
  const values = covered.flatMap((edge) => edge.values).join(", ");
  const kinds = ["way", told.length ? "copied" : "", bends ? "" : "stub"].join(" ");
  return { from, to, path: el("path", { class: kinds, d: path }, el("title", {}, [values, ...told].join("\n"))) };
}

// Moves each row, as far as there is room, so that its boxes are below those that they read from.
function align(group) {
  const above = new Map();
  for (const { source, target, bends } of group.lines) {
    if (!bends) continue;
    const chain = [source, ...bends, target];
    chain.slice(1).forEach((number, at) => above.set(number, [...(above.get(number) || []), chain[at]]));
  }
  const x = new Map([...group.slots].map(([number, slot]) => [number, placeOf(slot).x]));
  for (const row of group.rows) {
    const moves = row.filter((number) => number < group.children.length && above.has(number)).map((number) => {
      const near = above.get(number);
      return near.reduce((sum, other) => sum + x.get(other), 0) / near.length - x.get(number);
    });
    const element = group.slots.get(row[0]).parentElement;
    const room = (element.parentElement.clientWidth - 24 - element.scrollWidth) / 2;
    const wanted = moves.length ? moves.reduce((sum, move) => sum + move, 0) / moves.length : 0;
    const move = Math.max(-room, Math.min(room, wanted));
    element.style.left = `${move}px`;
    for (const number of row) x.set(number, x.get(number) + move);
  }
}

// After a choice or a filter everything has another class, and nothing another place.
function repaint() {
  for (const item of SHOWN) {
    const dim = isDim(item);
    for (const [name, on] of Object.entries({ dim, chosen: item === CHOSEN, hit: FILTER.query && !dim && !item.open })) item.head.classList.toggle(name, Boolean(on));
  }
  for (const { path, from, to } of LINES) {
    path.classList.toggle("near", from === CHOSEN || to === CHOSEN);
    path.classList.toggle("dim", isDim(from) || isDim(to));
  }
  // One box is reached by Tab, and the others from there by the arrow keys.
  for (const item of SHOWN) item.head.tabIndex = -1;
  const entry = CHOSEN && CHOSEN.head ? CHOSEN : SHOWN[0];
  if (entry) entry.head.tabIndex = 0;
  drawMap();
}
