// The model: the document's rows as objects, each with what can be worked out about it.

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
  method.devices = [...new Set(method.vertices.map((v) => v.device))].sort();
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
