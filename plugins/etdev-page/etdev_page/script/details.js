// The details of the chosen box.

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
  panel.replaceChildren(...detailsOf(CHOSEN, node));
}

function detailsOf(item, node) {
  if (!item) return overview();
  if (item.kind === "g") return groupDetails(item);
  if (item.kind === "p") return node ? nodeDetails(node, item) : partitionDetails(item);
  if (item.kind === "n") return nodeDetails(item.node, item);
  return [el("h2", {}, item.name), quiet("An input of the method."), ...readers(item)];
}

const quiet = (...words) => el("p", { class: "quiet" }, ...words);
const code = (words) => el("span", { class: "code" }, words);
const faint = (words) => el("span", { class: "quiet" }, words);
const chip = (owner, ...more) => el("span", { class: "chip", owner }, el("i", { class: "swatch" }), owner, ...more);
const link = (name, act) => el("button", { class: "link code", onclick: act }, name);

function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return el("dl", {}, shown.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// A list that can be folded; a function makes the contents of each row.
function list(title, items, row, { open = false, kind = null } = {}) {
  if (!items.length) return [];
  const rows = items.slice(0, MOST_ROWS).map((item) => el("li", {}, row(item)));
  if (items.length > MOST_ROWS) rows.push(el("li", { class: "quiet" }, `and ${items.length - MOST_ROWS} more`));
  return [el("details", { open: open ? "" : null }, el("summary", {}, el("b", {}, title)), el("ul", { class: kind }, rows))];
}

function stackOf(owned) {
  return el("div", { class: "stack" }, [...owned].map(([owner, number]) => {
    const part = el("i", { owner, title: `${owner}: ${number}` });
    part.style.flex = number;
    return part;
  }));
}

function overview() {
  const { owned, partitions, copies, storedAgain, missed } = CURRENT;
  const total = CURRENT.nodes.length;
  const portable = owned.portable || 0;
  const share = inKernels(CURRENT) ? "" : ` (${Math.round((100 * portable) / total)} %)`;
  const moved = copies.reduce((sum, copy) => sum + (copy[2] || 0), 0);
  const worst = missed.slice(0, 6).map((one) => el("li", { class: "said" }, link(one.op, () => filterOp(one)), ` × ${one.nodes.length}`, reasonLines(one)));
  return [
    el("h2", {}, CURRENT.name), ...(inKernels(CURRENT) ? [] : [stackOf(Object.entries(owned))]),
    facts([
      ["nodes", inKernels(CURRENT) ? "" : total.toLocaleString("en")], ["delegates", String(partitions.length)],
      ["portable", total ? portable.toLocaleString("en") + share : ""],
      ["copies", copies.length ? `${copies.length}, ${bytes(moved)} per run` : ""],
      ["stored again", storedAgain ? bytes(storedAgain) : ""],
      ["time of a run", DATA.run && DATA.run[0] === CURRENT.name ? time(DATA.run[1]) : ""],
      ["plugins", DATA.plugins.map(([name, version]) => `${name} ${version}`).join(", ")],
    ]),
    ...(worst.length ? [el("h3", {}, "Most often left to portable kernels"), el("ul", {}, worst)] : []),
    quiet(el("br"), "Click a box for its nodes and reasons. Arrow keys go along its edges, Enter opens or closes a module."),
  ];
}

// A .pte without a ledger has the calls of kernels, but not the nodes of its delegates.
const inKernels = (method) => method.partitions.some((partition) => !partition.nodes.length);

const reasonLines = (missed) => (missed.reasons.length ? missed.reasons : [UNASKED]).map((reason) => el("p", {}, reason));

function filterOp(missed) {
  byId("search").value = missed.op;
  openView("graph");
  search();
}

function partitionDetails(vertex) {
  const { partition, members } = vertex;
  const { inputs, outputs, constants } = partition;
  const inside = constants.filter((constant) => constant[1] !== "outside");
  const size = inside.reduce((sum, constant) => sum + constant[2], 0);
  const modules = counted(members.map((node) => node.module || "model"));
  const said = counted(members.flatMap((node) => node.verdicts).filter((verdict) => verdict.plugin !== vertex.owner).map(reasonOf));
  const tensor = ([name, type, bytesOf]) => [code(name), " ", faint(`${type}, ${bytes(bytesOf)}`)];
  return [
    el("h2", {}, partition.name), chip(partition.plugin), el("span", { class: "chip" }, partition.device),
    facts([
      ["backend", partition.backend], ["device from", partition.source], ["", partition.note],
      ["time", vertex.ms === null ? "" : time(vertex.ms)], ["nodes", members.length ? String(members.length) : ""],
      ["weights inside", inside.length ? `${inside.length}, ${bytes(size)}` : ""],
      ["apart because of", partition.splitBy],
    ]),
    ...list(count(modules.length, "module"), modules, ([module, number]) => [code(module), ` × ${number}`], { open: modules.length <= 6 }),
    ...list(count(members.length, "node"), members, (node) => [link(node.name, () => choose(vertex, node)), " ", faint(shortOp(node.op))], { open: members.length <= 12 }),
    ...list(`Reads ${count(inputs.length, "value")}`, inputs, tensor), ...list(`Gives ${count(outputs.length, "value")}`, outputs, tensor),
    ...list(count(constants.length, "constant"), constants, ([name, storage, bytesOf, copies]) => [code(name), " ", faint(`${bytes(bytesOf)}, ${storage}${copies > 1 ? ` × ${copies}` : ""}`)]),
    ...list("What other plugins said", said.sort((one, other) => other[1] - one[1]), ([reason, number]) => `${reason} × ${number}`, { open: true, kind: "reasons" }),
    ...readers(vertex),
  ];
}

// Each of some texts once, with how often it is there.
function counted(texts) {
  const counts = new Map();
  for (const one of texts) counts.set(one, (counts.get(one) || 0) + 1);
  return [...counts];
}

function nodeDetails(node, vertex) {
  const within = vertex.partition ? [el("p", {}, "in ", el("button", { class: "link", onclick: () => choose(vertex) }, vertex.name))] : [];
  const said = node.verdicts.map((verdict) => el("li", { class: "said" }, chip(verdict.plugin), el("span", { class: "quiet code" }, verdict.code), el("p", {}, spoken(verdict))));
  return [
    el("h2", { class: "code" }, node.name), chip(node.owner), ...within,
    facts([
      ["op", code(node.op)], ["once", node.source], ["module", node.module], ["line", node.line],
      ["pinned by", node.pin], ["time", vertex.node && vertex.ms !== null ? time(vertex.ms) : ""],
    ]),
    el("h3", {}, "What each plugin said"),
    said.length ? el("ul", { class: "reasons" }, said) : quiet(sentence(UNASKED)),
    ...(vertex.node ? readers(vertex) : []),
  ];
}

function spoken(verdict) {
  if (verdict.code === "claimed") return "It owns the node.";
  if (verdict.code === "silent") return "It neither wanted nor refused it.";
  return verdict.text;
}

const readers = (vertex) => [...neighbours("Reads from", vertex.reads, "from"), ...neighbours("Read by", vertex.readers, "to")];

function neighbours(title, edges, end) {
  return list(`${title} ${count(edges.length, "other")}`, edges, (edge) => {
    const copies = edge.copies.map((index) => CURRENT.copies[index]).map((copy) => `, copied to ${copy[4]} (${bytes(copy[2])})`);
    return [link(edge[end].name, () => goTo(edge[end])), faint(` ${edge.values.join(", ")}${copies.join("")}`)];
  });
}

function groupDetails(group) {
  const inside = CURRENT.vertices.filter((vertex) => ancestors(vertex).includes(group));
  return [
    el("h2", { class: "code" }, group.path + group.part), stackOf(group.owned),
    el("p", {}, [...group.owned].map(([owner, number]) => chip(owner, ` ${number}`))),
    facts([["nodes", String(group.members)], ["time", group.ms ? time(group.ms) : ""]]),
    el("p", {}, el("br"), el("button", { onclick: () => toggle(group) }, group.open ? "Close this module" : "Open this module")),
    ...list(count(inside.length, "box").replace("boxs", "boxes"), inside, (vertex) => [link(vertex.name, () => goTo(vertex)), " ", faint(vertex.partition ? vertex.sub : vertex.owner)], { open: true }),
  ];
}
