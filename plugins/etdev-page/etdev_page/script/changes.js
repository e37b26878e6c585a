// The comparison with an earlier plan: what `etdev diff` says, module by module.

// The names of the nodes of each side that have another owner or device.
const MOVED = [0, 1].map((side) => new Set((DATA.changes?.nodes || []).map((move) => `${move.method}/${move.nodes[side]}`)));
const isMoved = (item) => item.members.some((node) => MOVED[SIDE === DATA ? 1 : 0].has(`${METHOD.name}/${node.node}`));

function openSide(side) {
  SIDE = side;
  const name = METHOD?.name;
  const names = side.plan.methods.map((method) => method.method);
  byId("method").replaceChildren(...names.map((each, index) => el("option", { value: index }, each)));
  byId("method").hidden = names.length < 2;
  byId("side").value = SIDES.indexOf(side);
  byId("note").textContent = side.note;
  byId("note").hidden = !side.note;
  const index = Math.max(0, names.indexOf(name));
  byId("method").value = index;
  if (names.length) openMethod(index);
}

function showChanges() {
  const { parts, figures, nodes } = DATA.changes;
  const [before, after] = SIDES;
  byId("changes").replaceChildren(
    el("h2", {}, `From ${before.title} to ${after.title}`),
    parts.length + figures.length + nodes.length ? "" : quiet("The plans are the same."),
    ...tableOf("Numbers", ["", "before", "after", "change"], figures.map(({ what, before: was, after: now }) => [what, grouped(was), grouped(now), signed(now - was, grouped)])),
    ...tableOf("Modules", ["module", "before", "after", ...(IS_TIMED ? ["time"] : [])], modulesOf(before, after)),
    ...tableOf("Nodes with another owner or device", ["op", "module", "before", "after"], nodes.map((move) => [link(move.op, () => goToMove(move)), code(move.module || "model"), move.before || "–", move.after || "–"])),
    ...tableOf("Partitions, methods, plugins", ["", "before", "after"], parts.map(({ kind, before: was, after: now }) => [kind, was || "–", now || "–"])));
}

const grouped = (number) => number.toLocaleString("en");
const signed = (change, write) => (change ? `${change > 0 ? "+" : "−"}${write(Math.abs(change))}` : "0");

function goToMove({ method, nodes }) {
  const side = nodes[1] ? 1 : 0;
  if (SIDE !== SIDES[side]) openSide(SIDES[side]);
  if (METHOD.name !== method) openMethod(SIDE.plan.methods.findIndex((each) => each.method === method));
  setMode("change");
  const vertex = METHOD.vertices.find(({ members }) => members.some((node) => node.node === nodes[side]));
  if (vertex) goTo(vertex, vertex.members.find((node) => node.node === nodes[side]));
}

// A row for each module that has times or whose owners differ, but none that repeats the one around it.
function modulesOf(before, after) {
  const sums = [before, after].map(sumsOf);
  const paths = [...new Set(sums.flatMap((sum) => [...sum.keys()]))];
  const most = Math.max(...sums.flatMap((sum) => [...sum.values()].map((one) => one.ms)));
  const said = new Map(paths.map((path) => [path, JSON.stringify(sums.map((sum) => sum.get(path)))]));
  return paths.filter((path) => path === "" || said.get(path) !== said.get(path.slice(0, Math.max(0, path.lastIndexOf(".")))))
    .map((path) => [path, ...sums.map((sum) => sum.get(path) || { owners: [], ms: 0 })])
    .filter(([, was, now]) => was.ms || now.ms || JSON.stringify(was.owners) !== JSON.stringify(now.owners))
    .map(([path, was, now]) => [path ? code(path) : "all", ownersOf(was), ownersOf(now), ...(IS_TIMED ? [timesOf(was.ms, now.ms, most)] : [])]);
}

function sumsOf(side) {
  const sums = new Map();
  const add = (module, owner, ms) => {
    const steps = module.split(".").filter(Boolean);
    for (let depth = 0; depth <= steps.length; depth++) {
      const path = steps.slice(0, depth).join(".");
      if (!sums.has(path)) sums.set(path, { counts: new Map(), ms: 0 });
      const sum = sums.get(path);
      if (owner) sum.counts.set(owner, (sum.counts.get(owner) || 0) + 1);
      sum.ms += ms;
    }
  };
  side.plan.methods.forEach((plan, index) => {
    for (const entry of plan.ledger.entries) add(entry.module, ownerOf(entry), 0);
    if (side.run?.method === plan.method) for (const box of side.graphs[index].boxes) add(box.module, "", side.times[box.name] || 0);
  });
  return new Map([...sums].map(([path, { counts, ms }]) => [path, { owners: [...counts].sort(), ms }]));
}

function ownersOf({ owners }) {
  const stack = el("div", { class: "stack" }, owners.map(([owner, number]) => el("i", { style: `flex: ${number}`, owner })));
  return [owners.length ? stack : "", el("small", {}, owners.map(([owner, number]) => `${number} ${owner}`).join(", ") || "–")];
}

function timesOf(was, now, most) {
  const bars = [was, now].map((ms, at) => el("span", { class: "meter" }, el("i", { class: at ? "" : "old", style: `width: ${(100 * ms) / most}%` }), el("small", {}, time(ms))));
  return [...bars, el("small", {}, `${signed(now - was, time)}${was ? ` (${signed(Math.round((100 * (now - was)) / was), (percent) => `${percent} %`)})` : ""}`)];
}
