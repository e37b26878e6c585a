"use strict";
// Shows the document in the script tag `data`, which document.py and charts.py of etdev/page write.
// Parts: elements, model, layout, drawing, camera, filters, search, details, tables, keys.

const DATA = JSON.parse(document.getElementById("data").textContent);
const text = (number) => DATA.texts[number];
const byId = (id) => document.getElementById(id);

// ---------------------------------------------------------------- elements

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

// ---------------------------------------------------------------- model

function decodeNode(row, index) {
  const [name, op, source, module, line, owner, pin, ...said] = row;
  const verdicts = [];
  for (let at = 0; at < said.length; at += 3) {
    verdicts.push({ plugin: text(said[at]), code: text(said[at + 1]), text: text(said[at + 2]) });
  }
  return {
    index, name, op: text(op), source: text(source), module: text(module), line: text(line),
    owner: text(owner), pin: text(pin), verdicts,
  };
}

const reasonOf = (verdict) => `${verdict.plugin}: ${verdict.text || verdict.code}`;

function decodeVertex(method, [kind, what, module, ms], id) {
  const vertex = { id, kind, module: text(module), ms, members: [], device: "cpu" };
  if (kind === "p") {
    const partition = method.partitions[what];
    const members = partition.nodes.map((index) => method.nodes[index]);
    return Object.assign(vertex, {
      partition, members, name: partition.name, owner: partition.plugin, device: partition.device,
      ms: partition.ms, label: partition.name, sub: subtitle(members.length ? count(members.length, "node") : "delegate", partition),
    });
  }
  if (kind === "n") {
    const node = method.nodes[what];
    return Object.assign(vertex, {
      node, members: [node], name: node.name, owner: node.owner, label: shortOp(node.op),
      sub: ms === null ? "" : time(ms),
    });
  }
  return Object.assign(vertex, { name: what, owner: "", label: what, sub: "input" });
}

function subtitle(nodes, partition) {
  const parts = [nodes];
  if (partition.device !== "cpu") parts.push(partition.device);
  if (partition.ms !== null) parts.push(time(partition.ms));
  return parts.join(" · ");
}

function decodeMethod(raw) {
  const method = { ...raw, nodes: raw.nodes.map(decodeNode) };
  method.vertices = raw.vertices.map((row, id) => decodeVertex(method, row, id));
  const first = method.vertices.length;
  method.groups = raw.groups.map((group, index) => decodeGroup(method, group, first + index));
  method.items = [...method.vertices, ...method.groups];
  method.root = method.groups[0];
  method.root.parent = null;
  for (const group of method.groups) {
    for (const child of group.children) method.items[child].parent = group;
  }
  method.homes = new Map(method.vertices.flatMap((v) => v.members.map((node) => [node.index, v])));
  countMembers(method);
  linkEdges(method);
  method.devices = [...new Set(method.vertices.map((v) => v.device))].filter((d) => d !== "cpu").sort();
  return method;
}

function decodeGroup(method, group, id) {
  const path = text(group.path);
  const part = group.part[1] > 1 ? ` · ${group.part[0]} of ${group.part[1]}` : "";
  return { ...group, id, kind: "g", path, part, owned: new Map(), members: 0, ms: 0, open: false, hits: 0 };
}

// What is in each group; groups come before those in them.
function countMembers(method) {
  for (const vertex of method.vertices) {
    for (let group = vertex.parent; group; group = group.parent) {
      group.members += vertex.members.length;
      group.ms += vertex.ms || 0;
      if (vertex.owner) group.owned.set(vertex.owner, (group.owned.get(vertex.owner) || 0) + vertex.members.length);
    }
  }
  for (const group of method.groups) {
    const above = group.parent && group.parent.path ? group.parent.path.length + 1 : 0;
    group.label = (group.path.slice(above) || group.path || "model") + group.part;
    group.sub = subtitle(count(group.members, "node"), { device: "cpu", ms: group.ms || null });
  }
}

// Each edge belongs to the group in which it is a way between two children.
function linkEdges(method) {
  for (const item of method.items) Object.assign(item, { reads: [], readers: [] });
  for (const group of method.groups) group.between = new Map();
  method.edges = method.edges.map(([from, to, values, copies]) => {
    const edge = { from: method.vertices[from], to: method.vertices[to], values, copies };
    edge.from.readers.push(edge);
    edge.to.reads.push(edge);
    const [group, source, target] = meeting(edge.from, edge.to);
    const key = `${source.id} ${target.id}`;
    if (!group.between.has(key)) group.between.set(key, []);
    group.between.get(key).push(edge);
    return edge;
  });
}

function ancestors(item) {
  const path = [];
  for (; item; item = item.parent) path.unshift(item);
  return path;
}

function meeting(one, other) {
  const [a, b] = [ancestors(one), ancestors(other)];
  let depth = 0;
  while (a[depth] === b[depth]) depth++;
  return [a[depth - 1], a[depth], b[depth]];
}

// ---------------------------------------------------------------- layout

const GAP = { across: 18, down: 40, bend: 12, side: 16, head: 28, foot: 14 };
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(label, font) {
  const key = font + label;
  if (!widths.has(key)) {
    pen.font = `${font} system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif`;
    widths.set(key, pen.measureText(label).width);
  }
  return widths.get(key);
}

function shortened(label, font, most) {
  if (textWidth(label, font) <= most) return label;
  let end = Math.floor((label.length * most) / textWidth(label, font));
  while (end > 1 && textWidth(`${label.slice(0, end)}…`, font) > most) end--;
  return `${label.slice(0, end)}…`;
}

function measure(item) {
  if (item.kind === "g" && item.open) return placeGroup(item);
  item.title = shortened(item.label, "12.5px", 210);
  const width = Math.max(textWidth(item.title, "12.5px"), textWidth(item.sub, "11px"));
  item.w = Math.ceil(Math.max(64, width + 26 + (item.kind === "g" ? 16 : 0)));
  item.h = item.sub ? 42 : 28;
}

// Rows and their order are the document's; where exactly depends on which modules are open.
function placeGroup(group) {
  const children = group.children.map((id) => CURRENT.items[id]);
  children.forEach(measure);
  const slots = group.rows.map((row) => row.map((number) => slot(children, number)));
  const known = new Map(slots.flat().map((one) => [one.number, one]));
  linkSlots(group.ways, known);
  for (const row of slots) row.forEach((one, index) => { one.offset = index && row[index - 1].offset + distance(row[index - 1], one); });
  settle(slots, "above");
  settle([...slots].reverse(), "below");
  settle(slots, "above");
  group.slots = known;
  stack(group, slots);
}

function slot(children, number) {
  const child = children[number] || null;
  return { number, child, w: child ? child.w : 0, h: child ? child.h : 0, x: 0, above: [], below: [] };
}

function linkSlots(ways, known) {
  for (const [source, target, ...bends] of ways) {
    const chain = [source, ...bends, target].map((number) => known.get(number));
    for (let at = 1; at < chain.length; at++) {
      chain[at].above.push(chain[at - 1]);
      chain[at - 1].below.push(chain[at]);
    }
  }
}

const distance = (one, other) => (one.w + other.w) / 2 + (one.child && other.child ? GAP.across : GAP.bend);

// Puts each row as near as possible to what it is connected with, in its order: neighbours that
// would overlap become a block, which goes to the middle of where they all want to be.
function settle(rows, side) {
  for (const row of rows) {
    const blocks = [];
    for (const one of row) {
      let block = { sum: wanted(one, side) - one.offset, size: 1 };
      while (blocks.length && middle(blocks.at(-1)) > middle(block)) {
        const last = blocks.pop();
        block = { sum: last.sum + block.sum, size: last.size + block.size };
      }
      blocks.push(block);
    }
    let at = 0;
    for (const block of blocks) for (let left = block.size; left; left--, at++) row[at].x = middle(block) + row[at].offset;
  }
}

const middle = (block) => block.sum / block.size;

function wanted(one, side) {
  const near = one[side];
  return near.length ? near.reduce((sum, other) => sum + other.x, 0) / near.length : one.x;
}

function stack(group, slots) {
  const every = slots.flat();
  const left = every.reduce((least, one) => Math.min(least, one.x - one.w / 2), Infinity);
  const right = every.reduce((most, one) => Math.max(most, one.x + one.w / 2), -Infinity);
  let y = group.parent ? GAP.head : 0;
  for (const row of slots) {
    const height = row.reduce((most, one) => Math.max(most, one.h), 0);
    for (const one of row) {
      one.x -= left - GAP.side;
      one.top = y;
      one.bottom = y + height;
      if (one.child) Object.assign(one.child, { dx: one.x - one.w / 2, dy: y + (height - one.h) / 2 });
    }
    y += height + GAP.down;
  }
  group.title = shortened(group.label, "12.5px", 320);
  group.h = y - (every.length ? GAP.down : 0) + GAP.foot;
  group.w = Math.max((every.length ? right - left : 0) + 2 * GAP.side, textWidth(group.title, "12.5px") + 52);
}

// Everything that is shown, with its place in the scene.
function laidOut(method) {
  measure(method.root);
  const scene = { boxes: [], lines: [], badges: [], w: method.root.w, h: method.root.h };
  method.root.x = method.root.y = 0;
  const work = [method.root];
  while (work.length) {
    const group = work.pop();
    for (const id of group.children) {
      const child = method.items[id];
      child.x = group.x + child.dx;
      child.y = group.y + child.dy;
      scene.boxes.push(child);
      if (child.kind === "g" && child.open) work.push(child);
    }
    for (const way of group.ways) scene.lines.push(line(method, group, way));
  }
  scene.badges = badgesOf(scene.lines);
  return scene;
}

// A badge is in the middle of its line's last bow, or of an earlier one, clear of other badges.
function badgesOf(lines) {
  const badges = [];
  for (const one of lines) {
    if (!one.copies.length) continue;
    const badge = badgeOf(one);
    const spots = middles(one.points, badge.w);
    const free = spots.find((spot) => !badges.some((other) => collide(spot, other, badge.w)));
    badges.push(Object.assign(badge, free || aside(spots[0], badges, badge.w)));
  }
  return badges;
}

const collide = (spot, other, w) => spot.x < other.x + other.w + 4 && other.x < spot.x + w + 4 && Math.abs(spot.y - other.y) < 20;

function middles(points, w) {
  return points.slice(1).map((to, at) => ({ x: (points[at].x + to.x - w) / 2, y: (points[at].bottom + to.top) / 2 - 9 })).reverse();
}

function aside(spot, taken, w) {
  const moved = { ...spot };
  while (taken.some((other) => collide(moved, other, w))) moved.x += 8;
  return moved;
}

function badgeOf(one) {
  const copies = one.copies.map((index) => CURRENT.copies[index]);
  const size = copies.reduce((sum, copy) => sum + (copy[2] || 0), 0);
  const targets = [...new Set(copies.map((copy) => copy[4]))].join(", ");
  const label = `${copies.length > 1 ? `${copies.length} copies, ` : ""}${bytes(size)} to ${targets}`;
  return { id: `copies ${one.id}`, line: one, label, w: textWidth(label, "600 10.5px") + 14, h: 18 };
}

function line(method, group, [source, target, ...bends]) {
  const [from, to] = [source, target].map((number) => method.items[group.children[number]]);
  const edges = group.between.get(`${from.id} ${to.id}`) || [];
  const [above, below] = [source, target].map((number) => group.slots.get(number));
  const points = [{ x: from.x + from.w / 2, top: from.y + from.h, bottom: group.y + above.bottom }];
  for (const bend of bends) {
    const { x, top, bottom } = group.slots.get(bend);
    points.push({ x: group.x + x, top: group.y + top, bottom: group.y + bottom });
  }
  points.push({ x: to.x + to.w / 2, top: group.y + below.top, bottom: to.y });
  const copies = [...new Set(edges.flatMap((edge) => edge.copies))];
  const long = !bends.length && below.top - above.bottom > GAP.down + 1;
  return { id: `${from.id}-${to.id}`, from, to, edges, points, copies, long, ...extent(points) };
}

function extent(points) {
  const xs = points.map((point) => point.x);
  return { x: Math.min(...xs), y: points[0].top, w: Math.max(...xs) - Math.min(...xs), h: points.at(-1).bottom - points[0].top };
}

function curve(points) {
  let path = `M${points[0].x} ${points[0].top}V${points[0].bottom}`;
  for (let at = 1; at < points.length; at++) {
    const [from, to] = [points[at - 1], points[at]];
    const half = (from.bottom + to.top) / 2;
    path += `C${from.x} ${half} ${to.x} ${half} ${to.x} ${to.top}`;
    if (to.bottom > to.top) path += `V${to.bottom}`;
  }
  return path;
}

// ---------------------------------------------------------------- drawing

let CURRENT = null;
let SCENE = null;
let CHOSEN = null;
const DRAWN = new Map();
// Below this scale a label can't be read.
const FAR = 0.42;

function rebuild() {
  SCENE = laidOut(CURRENT);
  byId("empty").hidden = CURRENT.vertices.length > 0;
  byId("empty").textContent = "This method computes nothing: it has no nodes.";
  clearDrawing();
  drawVisible();
}

function clearDrawing() {
  for (const element of DRAWN.values()) element.remove();
  DRAWN.clear();
}

// Only what is in the window is in the document, so that large models stay quick.
function drawVisible() {
  const far = CAMERA.scale < FAR;
  const scene = byId("scene");
  if (scene.classList.toggle("far", far) !== DRAWN.far) clearDrawing();
  DRAWN.far = far;
  scene.setAttribute("transform", `translate(${CAMERA.x} ${CAMERA.y}) scale(${CAMERA.scale})`);
  const wanted = new Map();
  for (const one of [...SCENE.lines, ...SCENE.boxes, ...(far ? [] : SCENE.badges)]) if (inWindow(one)) wanted.set(one.id, one);
  for (const [id, element] of DRAWN) {
    if (wanted.has(id)) continue;
    element.remove();
    DRAWN.delete(id);
  }
  const fresh = [[], [], [], []];
  for (const [id, one] of wanted) {
    if (DRAWN.has(id)) continue;
    const [element, depth] = drawn(one, far);
    DRAWN.set(id, element);
    fresh[depth].push(element);
  }
  if (!scene.children.length) scene.append(...fresh.map(() => svg("g")));
  fresh.forEach((elements, depth) => scene.children[depth].append(...elements));
}

// From the back to the front: open modules, lines, boxes, badges.
function drawn(one, far) {
  if (one.line) return [drawBadge(one), 3];
  if (one.points) return [drawLine(one), 1];
  return [drawBox(one, far), one.open ? 0 : 2];
}

function inWindow({ x, y, w, h }) {
  const { scale } = CAMERA;
  const [left, top] = [x * scale + CAMERA.x, y * scale + CAMERA.y];
  return left < CAMERA.w + 60 && top < CAMERA.h + 60 && left + w * scale > -60 && top + h * scale > -60;
}

function drawBox(item, far) {
  const group = svg("g", {
    class: boxClass(item), transform: `translate(${item.x} ${item.y})`, owner: item.owner || "",
    "data-id": item.id, "data-kind": item.kind, "data-name": item.kind === "g" ? item.path : item.name,
  });
  group.append(svg("rect", { width: item.w, height: item.h, rx: item.kind === "i" ? item.h / 2 : 6 }));
  if (item.owner) group.append(svg("rect", { class: "stripe", x: 4, y: 5, width: 4, height: item.h - 10, rx: 2 }));
  if (item.kind === "g" && !item.open) group.append(ownersStrip(item));
  if (far && !(item.open && item.w * CAMERA.scale > 160)) return group;
  const left = item.kind === "g" ? 26 : 14;
  if (item.kind === "g") group.append(svg("text", { x: 11, y: 18 }, item.open ? "−" : "+"));
  group.append(svg("text", { x: left, y: item.open || item.sub ? 18 : 18.5 }, item.title));
  if (item.sub && !item.open) group.append(svg("text", { class: "sub", x: left, y: 33 }, item.sub));
  return group;
}

function boxClass(item) {
  const classes = ["box", item.kind === "g" ? "group" : item.kind];
  if (item.open) classes.push("open");
  const device = CURRENT.devices.indexOf(item.device);
  if (device >= 0) classes.push("elsewhere", `d${device % 4}`);
  if (item === CHOSEN) classes.push("chosen");
  if (isDim(item)) classes.push("dim");
  else if (FILTER.query && !item.open) classes.push("hit");
  return classes.join(" ");
}

// Who owns what is in a closed module.
function ownersStrip(group) {
  const strip = svg("g");
  let x = 8;
  const width = group.w - 16;
  for (const [owner, nodes] of group.owned) {
    const part = (width * nodes) / Math.max(1, group.members);
    strip.append(svg("rect", { x, y: group.h - 5, width: part, height: 3, owner, fill: colour(owner) }));
    x += part;
  }
  return strip;
}

function drawLine(one) {
  const classes = ["way", one.long && "long", one.copies.length && "copied", isNear(one) && "near"];
  if (isDim(one.from) || isDim(one.to)) classes.push("dim");
  const path = svg("path", { class: classes.filter(Boolean).join(" "), d: curve(one.points) });
  path.append(svg("title", {}, one.edges.flatMap((edge) => edge.values).join(", ")));
  return path;
}

function drawBadge({ line: { from, to }, x, y, w, h, label }) {
  return svg("g", { class: isDim(from) || isDim(to) ? "badge dim" : "badge", transform: `translate(${x} ${y})` },
    svg("rect", { width: w, height: h, rx: h / 2 }), svg("text", { x: w / 2, y: 12.8 }, label));
}

const isNear = (one) => CHOSEN !== null && (one.from === CHOSEN || one.to === CHOSEN);

// After a choice or a filter everything has another class, and nothing another place.
function repaint() {
  clearDrawing();
  drawVisible();
}

// ---------------------------------------------------------------- camera

const CAMERA = { x: 0, y: 0, scale: 1, w: 0, h: 0, pending: false };

function redraw() {
  if (CAMERA.pending) return;
  CAMERA.pending = true;
  requestAnimationFrame(() => { CAMERA.pending = false; drawVisible(); });
}

function resize() {
  const { width, height } = byId("canvas").getBoundingClientRect();
  Object.assign(CAMERA, { w: width, h: height });
}

function zoom(factor, x = CAMERA.w / 2, y = CAMERA.h / 2) {
  const scale = Math.min(3, Math.max(0.008, CAMERA.scale * factor));
  CAMERA.x = x - ((x - CAMERA.x) * scale) / CAMERA.scale;
  CAMERA.y = y - ((y - CAMERA.y) * scale) / CAMERA.scale;
  CAMERA.scale = scale;
  redraw();
}

// Shows all of it, or its beginning where all of it could not be read.
function fit(readable = false) {
  resize();
  const room = { w: CAMERA.w - 60, h: CAMERA.h - 60 };
  let scale = Math.min(1.1, room.w / SCENE.w, room.h / SCENE.h);
  const whole = scale;
  if (readable) scale = Math.max(scale, Math.min(0.7, room.w / SCENE.w));
  CAMERA.scale = Math.max(0.008, scale);
  CAMERA.x = (CAMERA.w - SCENE.w * CAMERA.scale) / 2;
  CAMERA.y = scale > whole ? 20 : Math.max(20, (CAMERA.h - SCENE.h * CAMERA.scale) / 2);
  redraw();
}

// On paper the whole graph is as large as the sheet lets it be.
function showAll() {
  byId("canvas").setAttribute("viewBox", `-10 -10 ${SCENE.w + 20} ${SCENE.h + 20}`);
  Object.assign(CAMERA, { x: 0, y: 0, scale: 1, w: Infinity, h: Infinity });
  drawVisible();
}

function moveTo(item) {
  if (CAMERA.scale < 0.7) CAMERA.scale = 0.9;
  CAMERA.x = CAMERA.w / 2 - (item.x + item.w / 2) * CAMERA.scale;
  CAMERA.y = CAMERA.h / 2 - (item.y + Math.min(item.h, 200) / 2) * CAMERA.scale;
  redraw();
}

function nudge(item) {
  const left = item.x * CAMERA.scale + CAMERA.x, top = item.y * CAMERA.scale + CAMERA.y;
  const inside = left > 10 && top > 10 && left + item.w * CAMERA.scale < CAMERA.w - 10 && top + 40 < CAMERA.h;
  if (!inside) moveTo(item);
}

function listenToPointer() {
  const canvas = byId("canvas");
  const held = new Map();
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = held.get(event.pointerId);
    if (!last) return;
    const next = { x: event.clientX, y: event.clientY };
    if (!moved && Math.hypot(next.x - last.x, next.y - last.y) < 4) return;
    if (!moved) { moved = true; canvas.setPointerCapture(event.pointerId); canvas.classList.add("dragging"); }
    drag(held, event.pointerId, last, next);
    held.set(event.pointerId, next);
  });
  const release = (event) => { held.delete(event.pointerId); canvas.classList.remove("dragging"); };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("click", (event) => { if (!moved) clicked(event); });
  canvas.addEventListener("dblclick", (event) => { const item = itemAt(event); if (item && item.kind === "g") toggle(item); });
  canvas.addEventListener("wheel", wheeled, { passive: false });
}

// One finger or the mouse pans, two fingers zoom.
function drag(held, id, last, next) {
  const other = [...held].find(([pointer]) => pointer !== id);
  if (other) {
    const span = (point) => Math.hypot(point.x - other[1].x, point.y - other[1].y) || 1;
    const frame = byId("canvas").getBoundingClientRect();
    zoom(span(next) / span(last), (next.x + other[1].x) / 2 - frame.left, (next.y + other[1].y) / 2 - frame.top);
    return;
  }
  CAMERA.x += next.x - last.x;
  CAMERA.y += next.y - last.y;
  redraw();
}

function wheeled(event) {
  event.preventDefault();
  const frame = byId("canvas").getBoundingClientRect();
  const lines = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey) { CAMERA.x -= (event.deltaX || event.deltaY) * lines; redraw(); return; }
  zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - frame.left, event.clientY - frame.top);
}

function itemAt(event) {
  const box = event.target.closest(".box");
  return box ? CURRENT.items[Number(box.dataset.id)] : null;
}

function clicked(event) {
  const item = itemAt(event);
  const onSign = item && item.kind === "g" && event.clientX - event.target.closest(".box").getBoundingClientRect().left < 26 * CAMERA.scale;
  if (onSign) toggle(item);
  else choose(item);
}

// ---------------------------------------------------------------- modules

function toggle(group) {
  const before = { x: group.x, y: group.y };
  group.open = !group.open;
  rebuild();
  // What was clicked stays under the pointer.
  CAMERA.x += (before.x - group.x) * CAMERA.scale;
  CAMERA.y += (before.y - group.y) * CAMERA.scale;
  repaint();
  if (CHOSEN === group) showDetails();
}

function setAll(open) {
  for (const group of CURRENT.groups) group.open = open || group === CURRENT.root;
  rebuild();
  fit(true);
}

// As many modules as a person can look at, the outermost first.
function openSome(method) {
  const most = method.vertices.length <= 90 ? Infinity : 60;
  let shown = method.root.children.length;
  for (const group of method.groups) {
    const fits = shown + group.children.length <= most;
    group.open = group === method.root || (group.parent.open && fits);
    if (group.open && group !== method.root) shown += group.children.length;
  }
}

function reveal(item) {
  let changed = false;
  for (let group = item.parent; group; group = group.parent) {
    changed = changed || !group.open;
    group.open = true;
  }
  if (changed) rebuild();
}

// ---------------------------------------------------------------- filters

const FILTER = { owners: new Set(), devices: new Set(), reason: "", query: "", active: false };
let PASSES = null;

function isDim(item) {
  if (!FILTER.active || item === CHOSEN) return false;
  return item.kind === "g" ? item.hits === 0 : !PASSES[item.id];
}

function applyFilter() {
  FILTER.active = Boolean(FILTER.owners.size || FILTER.devices.size || FILTER.reason || FILTER.query);
  for (const group of CURRENT.groups) group.hits = 0;
  PASSES = CURRENT.vertices.map(passes);
  CURRENT.vertices.forEach((vertex, id) => {
    if (PASSES[id]) for (let group = vertex.parent; group; group = group.parent) group.hits++;
  });
  showFilters();
  repaint();
}

function passes(vertex) {
  if (FILTER.owners.has(vertex.owner) || FILTER.devices.has(vertex.device)) return false;
  if (FILTER.reason && !vertex.members.some((node) => node.owner === "portable" && node.verdicts.some((v) => reasonOf(v) === FILTER.reason))) return false;
  return !FILTER.query || matches(vertex, FILTER.query);
}

function matches(vertex, query) {
  const has = (value) => value.toLowerCase().includes(query);
  return has(vertex.name) || vertex.members.some((node) => [node.name, node.op, node.source, node.module, node.line].some(has));
}

function switchOf(kind, key, mark, label, number) {
  const off = FILTER[kind].has(key);
  const press = () => { if (off) FILTER[kind].delete(key); else FILTER[kind].add(key); applyFilter(); };
  return el("button", { class: "switch", "aria-pressed": String(!off), "data-key": key, onclick: press, owner: key }, mark, el("span", {}, label), el("b", {}, number));
}

function showFilters() {
  const nodes = (number) => (number ? number.toLocaleString("en") : "");
  const owners = Object.entries(CURRENT.owned).map(([owner, number]) => switchOf("owners", owner, el("i", { class: "swatch" }), owner, nodes(number)));
  const devices = devicesOf(CURRENT).map((device) => switchOf("devices", device, outline(device), device, ""));
  byId("filters").replaceChildren(
    el("h3", {}, "Owner"), ...(owners.length ? owners : [el("p", { class: "quiet" }, "no nodes")]),
    ...(devices.length ? [el("h3", {}, "Device"), ...devices] : []),
    ...(CURRENT.copies.length ? [el("p", { class: "legend" }, copyMark(), count(CURRENT.copies.length, "copy").replace("copys", "copies"))] : []),
    el("h3", {}, "Why portable"), ...reasonSwitches(),
    ...(FILTER.active ? [el("h3", {}, ""), el("button", { id: "clear", onclick: clearFilter }, "Show everything")] : []));
}

function reasonSwitches() {
  const counts = new Map();
  for (const missed of CURRENT.missed) for (const reason of missed.reasons) counts.set(reason, (counts.get(reason) || 0) + missed.nodes.length);
  if (!counts.size) return [el("p", { class: "quiet" }, CURRENT.owned.portable ? sentence(UNASKED) : "Nothing is left to portable kernels.")];
  const ordered = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 40);
  return ordered.map(([reason, number]) => {
    const only = FILTER.reason === reason;
    const press = () => { FILTER.reason = only ? "" : reason; applyFilter(); };
    return el("button", { class: `switch${only ? " only" : ""}`, title: reason, "data-reason": reason, onclick: press }, el("span", { class: "reason" }, reason), el("b", {}, String(number)));
  });
}

const devicesOf = (method) => (method.devices.length ? [...(method.vertices.some((v) => v.device === "cpu" && v.kind !== "i") ? ["cpu"] : []), ...method.devices] : []);

function outline(device) {
  const index = CURRENT.devices.indexOf(device);
  const classes = index < 0 ? "box n" : `box n elsewhere d${index % 4}`;
  return svg("svg", { class: "outline", viewBox: "0 0 20 12" }, svg("g", { class: classes }, svg("rect", { x: 1.5, y: 1.5, width: 17, height: 9, rx: 2 })));
}

const copyMark = () => svg("svg", { class: "outline", viewBox: "0 0 20 12" }, svg("path", { class: "way copied", d: "M1 6H19", "marker-end": "none" }));

function clearFilter() {
  FILTER.owners.clear();
  FILTER.devices.clear();
  FILTER.reason = FILTER.query = "";
  byId("search").value = "";
  byId("hits").hidden = true;
  applyFilter();
}

// ---------------------------------------------------------------- search

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

// ---------------------------------------------------------------- details

const MOST_ROWS = 150;

function choose(item, node = null) {
  CHOSEN = item && item !== CURRENT.root ? item : null;
  repaint();
  showDetails(node);
  byId("live").textContent = CHOSEN ? `${CHOSEN.label}, ${CHOSEN.sub || CHOSEN.owner}` : "";
}

function showDetails(node = null) {
  const panel = byId("details");
  panel.scrollTop = 0;
  if (!CHOSEN) panel.replaceChildren(...overview());
  else if (CHOSEN.kind === "g") panel.replaceChildren(...groupDetails(CHOSEN));
  else if (CHOSEN.kind === "p") panel.replaceChildren(...(node ? nodeDetails(node, CHOSEN) : partitionDetails(CHOSEN)));
  else if (CHOSEN.kind === "n") panel.replaceChildren(...nodeDetails(CHOSEN.node, CHOSEN));
  else panel.replaceChildren(el("h2", {}, CHOSEN.name), el("p", { class: "quiet" }, "An input of the method."), ...neighbours("Read by", CHOSEN.readers, "to"));
}

const chip = (owner, ...more) => el("span", { class: "chip", owner }, el("i", { class: "swatch" }), owner, ...more);

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return el("dl", {}, shown.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function stackOf(owned) {
  return el("div", { class: "stack" }, [...owned].map(([owner, number]) => {
    const part = el("i", { owner, title: `${owner}: ${number}` });
    part.style.flex = number;
    return part;
  }));
}

function overview() {
  const { owned, partitions, copies, storedAgain } = CURRENT;
  const total = CURRENT.nodes.length;
  const portable = owned.portable || 0;
  const share = inKernels(CURRENT) ? "" : ` (${Math.round((100 * portable) / total)} %)`;
  const moved = copies.reduce((sum, copy) => sum + (copy[2] || 0), 0);
  const ran = DATA.run && DATA.run[0] === CURRENT.name ? time(DATA.run[1]) : "";
  const parts = [el("h2", {}, CURRENT.name), inKernels(CURRENT) ? "" : stackOf(Object.entries(owned)),
    facts([
      ["nodes", inKernels(CURRENT) ? "" : total.toLocaleString("en")], ["delegates", String(partitions.length)],
      ["portable", total ? portable.toLocaleString("en") + share : ""],
      ["copies", copies.length ? `${copies.length}, ${bytes(moved)} per run` : ""],
      ["stored again", storedAgain ? bytes(storedAgain) : ""], ["time of a run", ran],
      ["plugins", DATA.plugins.map(([name, version]) => `${name} ${version}`).join(", ")],
    ])];
  const worst = CURRENT.missed.slice(0, 6).map((missed) => el("li", { class: "said" },
    el("button", { class: "link code", onclick: () => filterOp(missed) }, missed.op), ` × ${missed.nodes.length}`,
    reasonLines(missed)));
  if (worst.length) parts.push(el("h3", {}, "Most often left to portable kernels"), el("ul", {}, worst));
  parts.push(el("p", { class: "quiet" }, el("br"), "Click a box for its nodes and reasons."));
  return parts.filter(Boolean);
}

// A .pte without a ledger tells the calls of kernels, and not what is in a delegate.
const inKernels = (method) => method.partitions.some((partition) => !partition.nodes.length);

const reasonLines = (missed) => (missed.reasons.length ? missed.reasons : [UNASKED]).map((reason) => el("p", {}, reason));

function filterOp(missed) {
  byId("search").value = missed.op;
  openView("graph");
  search();
  byId("hits").hidden = true;
}

function partitionDetails(vertex) {
  const { partition, members } = vertex;
  const inside = partition.constants.filter((constant) => constant[1] !== "outside");
  const size = inside.reduce((sum, constant) => sum + constant[2], 0);
  return [
    el("h2", {}, partition.name), chip(partition.plugin), el("span", { class: "chip" }, outline(partition.device), partition.device),
    facts([
      ["backend", partition.backend], ["device from", partition.source], ["", partition.note],
      ["time", vertex.ms === null ? "" : time(vertex.ms)], ["nodes", members.length ? String(members.length) : ""],
      ["weights inside", inside.length ? `${inside.length}, ${bytes(size)}` : ""],
      ["apart because of", partition.splitBy],
    ]),
    ...modulesOf(members), ...nodeTable(vertex),
    ...tensorTable("Reads", partition.inputs), ...tensorTable("Gives", partition.outputs),
    ...constantTable(partition.constants), ...othersSaid(vertex),
    ...neighbours("Reads from", vertex.reads, "from"), ...neighbours("Read by", vertex.readers, "to"),
  ];
}

function fold(title, content, open = false) {
  return [el("details", { open: open ? "" : null }, el("summary", {}, el("b", {}, title)), content)];
}

function modulesOf(members) {
  const counts = new Map();
  for (const node of members) counts.set(node.module || "model", (counts.get(node.module || "model") || 0) + 1);
  if (!counts.size) return [];
  const items = [...counts].slice(0, MOST_ROWS).map(([module, number]) => el("li", {}, el("span", { class: "code" }, module), ` × ${number}`));
  return fold(count(counts.size, "module"), el("ul", {}, items, more(counts.size)), counts.size <= 6);
}

const more = (size) => (size > MOST_ROWS ? [el("li", { class: "quiet" }, `and ${size - MOST_ROWS} more`)] : []);

function nodeTable(vertex) {
  const { members } = vertex;
  if (!members.length) return [];
  const rows = members.slice(0, MOST_ROWS).map((node) => el("li", {},
    el("button", { class: "link code", onclick: () => choose(vertex, node) }, node.name), " ", el("span", { class: "quiet" }, shortOp(node.op))));
  return fold(count(members.length, "node"), el("ul", {}, rows, more(members.length)), members.length <= 12);
}

function tensorTable(title, tensors) {
  if (!tensors.length) return [];
  const rows = tensors.slice(0, MOST_ROWS).map(([name, type, size]) => el("li", {}, el("span", { class: "code" }, name), " ", el("span", { class: "quiet" }, `${type}, ${bytes(size)}`)));
  return fold(`${title} ${count(tensors.length, "value")}`, el("ul", {}, rows, more(tensors.length)));
}

function constantTable(constants) {
  if (!constants.length) return [];
  const rows = constants.slice(0, MOST_ROWS).map(([name, storage, size, copies]) => el("li", {}, el("span", { class: "code" }, name), " ", el("span", { class: "quiet" }, `${bytes(size)}, ${storage}${copies > 1 ? ` × ${copies}` : ""}`)));
  return fold(count(constants.length, "constant"), el("ul", {}, rows, more(constants.length)));
}

// Why other plugins have none of a partition's nodes, most often first.
function othersSaid(vertex) {
  const counts = new Map();
  for (const node of vertex.members) for (const verdict of node.verdicts) {
    if (verdict.plugin !== vertex.owner) counts.set(reasonOf(verdict), (counts.get(reasonOf(verdict)) || 0) + 1);
  }
  if (!counts.size) return [];
  const rows = [...counts].sort((one, other) => other[1] - one[1]).slice(0, MOST_ROWS);
  return fold("What other plugins said", el("ul", { class: "reasons" }, rows.map(([reason, number]) => el("li", {}, `${reason} × ${number}`))), true);
}

function nodeDetails(node, vertex) {
  const within = vertex.partition ? [el("p", {}, "in ", el("button", { class: "link", onclick: () => choose(vertex) }, vertex.name))] : [];
  const said = node.verdicts.map((verdict) => el("li", { class: "said" }, chip(verdict.plugin), el("span", { class: "quiet code" }, verdict.code), el("p", {}, spoken(verdict))));
  return [
    el("h2", { class: "code" }, node.name), chip(node.owner), ...within,
    facts([
      ["op", el("span", { class: "code" }, node.op)], ["once", node.source], ["module", node.module], ["line", node.line],
      ["pinned by", node.pin], ["time", vertex.node && vertex.ms !== null ? time(vertex.ms) : ""],
    ]),
    el("h3", {}, "What each plugin said"),
    said.length ? el("ul", { class: "reasons" }, said) : el("p", { class: "quiet" }, sentence(UNASKED)),
    ...(vertex.node ? [...neighbours("Reads from", vertex.reads, "from"), ...neighbours("Read by", vertex.readers, "to")] : []),
  ];
}

function spoken(verdict) {
  if (verdict.code === "claimed") return "It owns the node.";
  if (verdict.code === "silent") return "It neither wanted nor refused it.";
  return verdict.text;
}

function neighbours(title, edges, end) {
  if (!edges.length) return [];
  const rows = edges.slice(0, MOST_ROWS).map((edge) => {
    const copies = edge.copies.map((index) => CURRENT.copies[index]).map((copy) => `, copied to ${copy[4]} (${bytes(copy[2])})`);
    return el("li", {}, el("button", { class: "link code", onclick: () => goTo(edge[end]) }, edge[end].name), el("span", { class: "quiet" }, ` ${edge.values.join(", ")}${copies.join("")}`));
  });
  return fold(`${title} ${count(edges.length, "other")}`, el("ul", {}, rows, more(edges.length)));
}

function groupDetails(group) {
  const inside = CURRENT.vertices.filter((vertex) => ancestors(vertex).includes(group));
  const rows = inside.slice(0, MOST_ROWS).map((vertex) => el("li", {},
    el("button", { class: "link code", onclick: () => goTo(vertex) }, vertex.name), " ", el("span", { class: "quiet" }, vertex.partition ? vertex.sub : vertex.owner)));
  return [
    el("h2", { class: "code" }, group.path + group.part), stackOf(group.owned),
    el("p", {}, [...group.owned].map(([owner, number]) => chip(owner, ` ${number}`))),
    facts([["nodes", String(group.members)], ["time", group.ms ? time(group.ms) : ""]]),
    el("p", {}, el("br"), el("button", { onclick: () => toggle(group) }, group.open ? "Close this module" : "Open this module")),
    ...fold(count(inside.length, "box").replace("boxs", "boxes"), el("ul", {}, rows, more(inside.length)), true),
  ];
}

// ---------------------------------------------------------------- tables and charts

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
  const heads = [["kind", ""], ["nodes", "num"], ["each of which", ""], ["lines", ""]];
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

// ---------------------------------------------------------------- views, theme and keys

const VIEWS = ["graph", "why", "charts"];

function openView(name) {
  for (const view of VIEWS) byId(view).hidden = view !== name;
  for (const side of ["filters", "details"]) byId(side).hidden = name !== "graph";
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.documentElement.style.colorScheme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

const KEYS = [
  ["/", "search"], ["↑ ↓", "along the edges of what is chosen"], ["← →", "to its neighbours"],
  ["Enter", "open or close a module"], ["+ − 0", "zoom in, out, show all"], ["e c", "open or close every module"],
  ["1 2 3", "graph, reasons, charts"], ["t", "light or dark"], ["Esc", "show everything"],
];

function showKeys() {
  const rows = KEYS.map(([keys, what]) => el("tr", {}, el("td", {}, keys.split(" ").map((key) => [el("kbd", {}, key), " "])), el("td", {}, what)));
  const close = el("button", { onclick: () => byId("keys").close() }, "Close");
  byId("keys").replaceChildren(el("h2", {}, "Keys"), el("table", {}, rows), el("p", {}, el("br"), close));
  byId("keys").showModal();
}

const ACTIONS = {
  zoomIn: () => zoom(1.3), zoomOut: () => zoom(1 / 1.3), fit: () => fit(),
  expandAll: () => setAll(true), collapseAll: () => setAll(false),
};

const SHORTCUTS = {
  "/": () => { byId("search").focus(); byId("search").select(); },
  "+": ACTIONS.zoomIn, "=": ACTIONS.zoomIn, "-": ACTIONS.zoomOut, 0: ACTIONS.fit,
  e: ACTIONS.expandAll, c: ACTIONS.collapseAll, t: switchTheme, "?": showKeys,
  1: () => openView("graph"), 2: () => openView("why"), 3: () => openView("charts"),
  Escape: () => { clearFilter(); choose(null); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
  if (typing && event.key === "Escape") { clearFilter(); event.target.blur(); return; }
  if (typing) return;
  const act = SHORTCUTS[event.key] || (event.target === byId("canvas") && canvasKey(event.key));
  if (!act) return;
  event.preventDefault();
  act();
}

function canvasKey(name) {
  if (name === "Enter" || name === " ") return CHOSEN && CHOSEN.kind === "g" && (() => toggle(CHOSEN));
  return name.startsWith("Arrow") && (() => step(name.slice(5)));
}

// Moves the choice along an edge, or along its row.
function step(way) {
  const next = CHOSEN ? neighbour(CHOSEN, way) : SCENE.boxes[0];
  if (!next) return;
  choose(next);
  nudge(next);
}

function neighbour(item, way) {
  const lines = SCENE.lines;
  if (way === "Up") return lines.find((one) => one.to === item)?.from || item.parent?.parent && item.parent;
  if (way === "Down") return lines.find((one) => one.from === item)?.to || (item.open && CURRENT.items[item.children[0]]);
  const row = item.parent.children.map((id) => CURRENT.items[id]).filter((one) => Math.abs(one.y + one.h / 2 - item.y - item.h / 2) < 1);
  row.sort((one, other) => one.x - other.x);
  return row[row.indexOf(item) + (way === "Left" ? -1 : 1)];
}

// ---------------------------------------------------------------- start

const METHODS = new Map();

function openMethod(name) {
  if (!METHODS.has(name)) {
    METHODS.set(name, decodeMethod(DATA.methods.find((method) => method.name === name)));
    openSome(METHODS.get(name));
  }
  CURRENT = METHODS.get(name);
  CHOSEN = null;
  PASSES = CURRENT.vertices.map(() => true);
  FILTER.active = false;
  resize();
  rebuild();
  fit(true);
  clearFilter();
  showDetails();
  showWhy();
  showCharts();
  const { partitions, nodes } = CURRENT;
  byId("summary").textContent = `${count(partitions.length, "delegate")}, ${count(nodes.length, inKernels(CURRENT) ? "portable kernel" : "node")}`;
}

function listen() {
  for (const tab of document.querySelectorAll("nav button")) tab.addEventListener("click", () => openView(tab.dataset.view));
  for (const tool of document.querySelectorAll("#tools button")) tool.addEventListener("click", () => ACTIONS[tool.dataset.do]());
  byId("theme").addEventListener("click", switchTheme);
  byId("help").addEventListener("click", showKeys);
  byId("search").addEventListener("input", search);
  byId("search").addEventListener("keydown", searchKeys);
  byId("search").addEventListener("focus", showHits);
  byId("method").addEventListener("change", (event) => openMethod(event.target.value));
  addEventListener("keydown", key);
  addEventListener("resize", () => { resize(); redraw(); });
  addEventListener("click", (event) => { if (!event.target.closest("#finder")) byId("hits").hidden = true; });
  addEventListener("beforeprint", showAll);
  addEventListener("afterprint", () => { byId("canvas").removeAttribute("viewBox"); fit(true); });
  listenToPointer();
}

function start() {
  const names = DATA.methods.map((method) => method.name);
  byId("method").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  byId("method").hidden = names.length < 2;
  byId("note").textContent = DATA.note;
  byId("note").hidden = !DATA.note;
  byId("theme").textContent = matchMedia("(prefers-color-scheme: dark)").matches ? "Light" : "Dark";
  openView("graph");
  listen();
  if (names.length) openMethod(names[0]);
  // When the page can be used, in milliseconds since it was opened.
  requestAnimationFrame(() => { document.documentElement.dataset.ready = performance.now().toFixed(0); });
}

start();
