// The window on the graph: its scale and place, and which modules are open.

let ZOOM = 1;

function place() {
  const [frame, scene] = [byId("window"), byId("scene")];
  const left = Math.max(0, (frame.clientWidth - scene.offsetWidth * ZOOM) / 2);
  scene.style.transform = `translate(${left}px) scale(${ZOOM})`;
  return left;
}

// Sets the scale; what is at a point of the window stays there.
function zoom(scale, x = byId("window").clientWidth / 2, y = byId("window").clientHeight / 2) {
  const frame = byId("window");
  const [left, before] = [place(), ZOOM];
  ZOOM = Math.min(3, Math.max(0.02, scale));
  const ratio = ZOOM / before;
  frame.scrollTo((frame.scrollLeft + x - left) * ratio + place() - x, (frame.scrollTop + y) * ratio - y);
  drawMap();
}

// Names can be read at this scale.
const READABLE = 0.72;
const MOST_TRIES = 40;

function scaleOfAll() {
  const [frame, scene] = [byId("window"), byId("scene")];
  return Math.min(1, frame.clientWidth / scene.offsetWidth, frame.clientHeight / scene.offsetHeight);
}

// Shows all of it, or its beginning where all of it could not be read.
function showStart() {
  const [frame, scene] = [byId("window"), byId("scene")];
  zoom(Math.max(scaleOfAll(), READABLE));
  frame.scrollTo((scene.offsetWidth * ZOOM - frame.clientWidth) / 2, 0);
}

const depthOf = (item) => (item.parent ? 1 + depthOf(item.parent) : 0);

// Opens as many modules as can be read on one screen: the outer ones first, the larger ones before
// the smaller ones, and those that are repeated, such as layers, all or none.
function fit() {
  const sets = new Map();
  for (const group of METHOD.groups.toSorted((one, other) => depthOf(one) - depthOf(other) || other.members.length - one.members.length)) {
    group.open = group === METHOD.root;
    const kind = `${group.parent?.id} ${group.children.length}`;
    sets.set(kind, [...(sets.get(kind) || []), group]);
  }
  let tries = MOST_TRIES;
  for (const set of sets.values()) {
    if (!set[0].parent?.open || !tries--) continue;
    for (const group of set) group.open = true;
    render();
    if (scaleOfAll() < READABLE) for (const group of set) group.open = false;
  }
  render();
  showStart();
}

function setAll(open) {
  for (const group of METHOD.groups) group.open = open;
  render();
  showStart();
}

// Chooses a box; a module is opened or closed, and stays under the pointer.
function press(item) {
  if (item.kind === "module") {
    const [before, frame] = [item.head.getBoundingClientRect(), byId("window")];
    item.open = !item.open;
    render();
    const after = item.head.getBoundingClientRect();
    frame.scrollBy(after.left - before.left, after.top - before.top);
    item.head.focus({ preventScroll: true });
  }
  choose(item);
}

function goTo(item, node = null) {
  openView("graph");
  for (let group = item.parent; group; group = group.parent) group.open = true;
  if (!item.head) render();
  if (ZOOM < 0.6) zoom(0.9);
  choose(item, node);
  item.head.scrollIntoView({ block: "center", inline: "center" });
  item.head.focus({ preventScroll: true });
}
