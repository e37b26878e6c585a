// The layout: where everything is, for the modules that are open.

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
  const scene = { boxes: [], lines: [], w: method.root.w, h: method.root.h };
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
  return scene;
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
