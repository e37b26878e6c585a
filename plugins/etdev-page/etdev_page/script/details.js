// The details of the chosen box.

function choose(item, node = null) {
  CHOSEN = item;
  repaint();
  byId("details").scrollTop = 0;
  byId("details").replaceChildren(...detailsOf(item, node));
}

function detailsOf(item, node) {
  if (!item) return overview();
  if (item.kind === "module") return moduleDetails(item);
  if (item.kind === "input") return [el("h2", {}, item.name), quiet("An input of the method."), ...neighbours(item)];
  return node || item.kind === "node" ? nodeDetails(node || item.members[0], item) : partitionDetails(item);
}

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null);
  return el("dl", {}, shown.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// A list that can be folded; a function makes the contents of each row.
function list(title, items, row, open = false) {
  if (!items.length) return [];
  const rows = items.map((item) => el("li", {}, row(item)));
  return [el("details", { open: open ? "" : null }, el("summary", {}, title), el("ul", {}, rows))];
}

function overview() {
  const { name, plan, nodes, owned, missed, shares, inKernels } = METHOD;
  const portable = owned.portable || 0;
  const moved = (list) => (list.length ? `${list.length}, ${bytes(list.reduce((sum, one) => sum + (one.tensor.size_bytes || 0), 0))} per run` : "");
  const share = inKernels || !shares.portable ? "" : ` (${shares.portable})`;
  const worst = missed.slice(0, 6).map((one) => el("li", { class: "said" }, link(one.op, () => filterOp(one)), ` × ${one.nodes.length}`, one.share ? `, ${one.share}` : "", reasonLines(one)));
  return [
    el("h2", {}, name), inKernels ? "" : stackOf({ members: nodes }),
    facts([
      ["nodes", inKernels ? "" : nodes.length.toLocaleString("en")], ["delegates", String(plan.partitions.length)],
      ["portable", nodes.length ? portable.toLocaleString("en") + share : ""],
      ["copies", moved(plan.copies)], ["conversions", moved(plan.conversions)], ["precision", counted(nodes.filter((node) => node.precision).map((node) => `${node.precision} on ${node.owner}`)).map((pair) => pair.join(" ")).join(", ")],
      ["time of a run", SIDE.run && SIDE.run.method === name ? time(SIDE.run.ms) : ""],
      ["plugins", SIDE.plan.plugins.map(([plugin, version]) => `${plugin} ${version}`).join(", ")],
    ]),
    ...(worst.length ? [el("h3", {}, "Left to portable kernels, what takes longest first"), el("ul", {}, worst)] : []),
    el("br"), quiet("Click a box for its nodes and reasons, a module to open or close it. ", link("Keys", () => byId("help").showModal()), " do all of this, too."),
  ];
}

const reasonLines = (missed) => (missed.reasons.length ? missed.reasons.map(reasonOf) : [unasked()]).map((reason) => el("p", {}, words(reason)));

function partitionDetails(vertex) {
  const { partition, members } = vertex;
  const inside = partition.constants.filter((constant) => constant.storage !== "outside");
  const size = inside.reduce((sum, constant) => sum + constant.size_bytes, 0);
  const modules = counted(members.map((node) => node.module || "model"));
  const said = counted(members.flatMap((node) => node.verdicts).filter((verdict) => verdict.plugin !== vertex.owner).map(reasonOf));
  return [
    el("h2", {}, partition.name), chip(partition.plugin), el("span", { class: "chip" }, partition.device),
    facts([
      ["backend", partition.backend_id], ["device from", partition.device_source], ["", partition.device_note],
      ["time", vertex.ms === null ? "" : time(vertex.ms)], ["nodes", members.length ? String(members.length) : ""],
      ["weights inside", inside.length ? `${inside.length}, ${bytes(size)}` : ""],
      ["apart because of", partition.split_by],
    ]),
    ...list(count(modules.length, "module"), modules, ([module, number]) => [code(module), ` × ${number}`], modules.length <= 6),
    ...list(count(members.length, "node"), members, (node) => [link(node.node, () => choose(vertex, node)), " ", faint(shortOp(node.op))], members.length <= 12),
    ...list(`Reads ${count(partition.inputs.length, "value")}`, partition.inputs, tensorOf),
    ...list(`Gives ${count(partition.outputs.length, "value")}`, partition.outputs, tensorOf),
    ...list(count(partition.constants.length, "constant"), partition.constants, (constant) => [code(constant.target), " ", faint(`${bytes(constant.size_bytes)}, ${constant.storage}`)]),
    ...list("What other plugins said", said, ([reason, number]) => `${reason} × ${number}`, true),
    ...neighbours(vertex),
  ];
}

function tensorOf({ name, dtype, shape, size_bytes }) {
  return [code(name), " ", faint(`${[dtype, shape.join(" x ")].filter(Boolean).join(" ")}, ${bytes(size_bytes)}`)];
}

function nodeDetails(node, vertex) {
  const within = vertex.partition ? el("p", {}, "in ", link(vertex.name, () => choose(vertex))) : "";
  const said = node.verdicts.map((verdict) => el("li", { class: "said" }, chip(verdict.plugin), el("span", { class: "quiet code" }, verdict.code), el("p", {}, verdict.text)));
  const pin = node.pin ? `${node.pin.plugin}${node.pin.plugin === node.owner ? "" : " (not kept)"}` : "";
  return [
    el("h2", { class: "code" }, node.node), chip(node.owner), within,
    facts([
      ["op", code(node.op)], ["once", node.source_op === node.op ? "" : node.source_op], ["module", node.module], ["line", node.line],
      ["precision", node.precision], ["pinned to", pin], ["changed by", METHOD.plan.fixes.filter((fix) => fix.found.includes(node.node)).map((fix) => fix.row).join(", ")], ["time", vertex.kind === "node" && vertex.ms !== null ? time(vertex.ms) : ""],
    ]),
    el("h3", {}, "What each plugin said"),
    said.length ? el("ul", {}, said) : quiet(sentence(unasked())),
    ...(vertex.kind === "node" ? neighbours(vertex) : []),
  ];
}

function neighbours(vertex) {
  const row = (other) => (edge) => {
    return [link(edge[other].name, () => goTo(edge[other])), faint(` ${[edge.values.join(", "), ...edge.moved].join(", ")}`)];
  };
  return [
    ...list(`Reads from ${count(vertex.reads.length, "other")}`, vertex.reads, row("from")),
    ...list(`Read by ${count(vertex.readers.length, "other")}`, vertex.readers, row("to")),
  ];
}

function moduleDetails(group) {
  const inside = group.children.map((id) => METHOD.items[id]);
  return [
    el("h2", { class: "code" }, group.name || "model"), stackOf(group),
    el("p", {}, counted(group.members.map((node) => node.owner)).map(([owner, number]) => chip(owner, ` ${number}`))),
    facts([["nodes", String(group.members.length)], ["time", group.ms ? time(group.ms) : ""]]),
    ...list("Contents", inside, (item) => [link(item.label, () => goTo(item)), " ", faint(item.sub || item.owner)], true),
  ];
}
