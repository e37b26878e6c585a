// The drawing: what is in the window, as SVG.

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
  for (const one of [...SCENE.lines, ...SCENE.boxes]) if (inWindow(one)) wanted.set(one.id, one);
  for (const [id, element] of DRAWN) {
    if (wanted.has(id)) continue;
    element.remove();
    DRAWN.delete(id);
  }
  const fresh = [[], [], []];
  for (const [id, one] of wanted) {
    if (DRAWN.has(id)) continue;
    const [element, depth] = drawn(one, far);
    DRAWN.set(id, element);
    fresh[depth].push(element);
  }
  if (!scene.children.length) scene.append(...fresh.map(() => svg("g")));
  fresh.forEach((elements, depth) => scene.children[depth].append(...elements));
}

// From the back to the front: open modules, lines, boxes.
function drawn(one, far) {
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
  if (item.device && item.device !== "cpu") classes.push("elsewhere");
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
  const values = one.edges.flatMap((edge) => edge.values).join(", ");
  path.append(svg("title", {}, [values, ...one.copies.map(copied)].join("\n")));
  return path;
}

function copied(index) {
  const [, , size, , target] = CURRENT.copies[index];
  return `${bytes(size)} copied to ${target}`;
}

const isNear = (one) => CHOSEN !== null && (one.from === CHOSEN || one.to === CHOSEN);

// After a choice or a filter everything has another class, and nothing another place.
function repaint() {
  clearDrawing();
  drawVisible();
}
