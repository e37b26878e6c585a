// The model: the boxes of a method, which are inputs, nodes, partitions and modules.

// The plan that is shown: the page's own, or the earlier one that it is compared with.
let SIDE = DATA;
const SIDES = DATA.before ? [DATA.before, DATA] : [DATA];
const IS_TIMED = SIDES.some((side) => side.hot.length);

// The reason of a portable node about which no plugin said anything.
const unasked = () => (SIDE.plan.plugins.length ? "no plugin was asked" : "not known");
const reasonOf = (verdict) => `${verdict.plugin}: ${verdict.text || verdict.code}`;
const movedOf = ({ forms, target, tensor }) => `${bytes(tensor.size_bytes)} ${forms ? forms.join(" to ") : `copied to ${target}`}`;
const shortOp = (op) => op.replace(/^(aten|dim_order_ops)\./, "").replace(/\.(default|Tensor|out)$/, "");

function methodOf(index) {
  const plan = SIDE.plan.methods[index];
  const { boxes, edges, modules, shares, costs } = SIDE.graphs[index];
  const times = SIDE.run && SIDE.run.method === plan.method ? SIDE.times : {};
  const nodes = new Map(plan.ledger.entries.map((entry) => [entry.node, { ...entry, owner: ownerOf(entry) }]));
  const partitions = new Map(plan.partitions.map((partition) => [partition.name, partition]));
  const vertices = boxes.map((box) => vertexOf({ ...box, ms: times[box.name] ?? null }, nodes, partitions.get(box.name)));
  const groups = modules.map((group) => ({ ...group, kind: "module", owner: "", device: "" }));
  const items = [...vertices, ...groups];
  items.forEach((item, id) => Object.assign(item, { id, reads: [], readers: [] }));
  for (const group of groups.toReversed()) fillGroup(group, group.children.map((id) => items[id]));
  const links = edges.map(({ source, target, values }) => {
    const [from, to] = [items[source], items[target]];
    const targets = [from.device === to.device ? "" : to.device, to.partition ? to.name : "portable"];
    const moved = [...plan.copies, ...plan.conversions].filter((one) => targets.includes(one.target) && values.includes(one.tensor.name));
    const edge = { from, to, values, moved: moved.map(movedOf) };
    from.readers.push(edge);
    to.reads.push(edge);
    return edge;
  });
  items.forEach(label);
  const { missed, owned } = SIDE.explanation;
  return {
    name: plan.method, plan, shares, costs, nodes: [...nodes.values()], vertices, groups, items, edges: links, root: groups[0], isTimed: Object.keys(times).length > 0,
    missed: missed.filter((one) => one.method === plan.method), owned: owned[plan.method] || {},
    // A .pte without a ledger has the calls of kernels, but not the nodes of its delegates.
    inKernels: plan.partitions.some((partition) => !partition.nodes.length),
  };
}

// Documents of earlier versions name no owner of portable nodes.
const ownerOf = (entry) => entry.owner || (entry.op === "call_delegate" ? "foreign" : "portable");

function vertexOf({ kind, name, module, ms }, nodes, partition) {
  const vertex = { kind, name, module, ms, owner: "", device: "cpu", members: [] };
  if (kind === "node") Object.assign(vertex, { members: [nodes.get(name)], owner: nodes.get(name).owner });
  if (kind !== "partition") return vertex;
  const members = partition.nodes.map((node) => nodes.get(node)).filter(Boolean);
  return { ...vertex, partition, members, owner: partition.plugin, device: partition.device };
}

function fillGroup(group, children) {
  for (const child of children) child.parent = group;
  group.members = children.flatMap((child) => child.members);
  group.ms = children.reduce((sum, child) => sum + (child.ms || 0), 0) || null;
}

function label(item) {
  const { kind, name, members, device, ms, parent } = item;
  item.label = kind === "node" ? shortOp(members[0].op) : name;
  if (kind === "module") {
    const above = parent && parent.name ? parent.name.length + 1 : 0;
    const part = item.part[1] > 1 ? ` · ${item.part[0]} of ${item.part[1]}` : "";
    item.label = (name.slice(above) || "model") + part;
  }
  item.portable = members.filter((node) => node.owner === "portable").length;
  const size = kind === "input" ? "input" : kind === "node" ? "" : members.length ? count(members.length, "node") : "delegate";
  const portable = kind === "module" && item.portable ? `${item.portable} portable` : "";
  item.sub = [size, portable, device === "cpu" ? "" : device, ms === null ? "" : time(ms)].filter(Boolean).join(" · ");
}
