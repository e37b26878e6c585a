// Folding: which modules are open.

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
