// The details of what is chosen.

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
