// The map in the corner: all boxes, and the part of them that the window shows.

let MAP = null;

// Where the boxes are, which changes only when modules open and close.
function measureMap() {
  const scene = byId("scene");
  const [width, height] = [scene.offsetWidth, scene.offsetHeight];
  const scale = [Math.min(190 / width, 0.25), Math.min(170 / height, 0.25)];
  const zero = scene.getBoundingClientRect();
  const boxes = SHOWN.filter((item) => item.kind !== "input").map((item) => {
    const { left, top, width: w, height: h } = (item.open ? item.head.parentElement : item.head).getBoundingClientRect();
    return { item, at: [left - zero.left, top - zero.top, w, h].map((one, axis) => (one / ZOOM) * scale[axis % 2]) };
  });
  MAP = { scale, boxes, size: [width * scale[0], height * scale[1]] };
}

function drawMap() {
  if (!MAP) return;
  const [canvas, frame, scene] = [byId("map"), byId("window"), byId("scene")];
  const [width, height] = MAP.size;
  canvas.hidden = scene.offsetWidth * ZOOM <= frame.clientWidth && scene.offsetHeight * ZOOM <= frame.clientHeight;
  if (canvas.hidden) return;
  Object.assign(canvas, { width: width * devicePixelRatio, height: height * devicePixelRatio });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const style = getComputedStyle(canvas);
  const context = canvas.getContext("2d");
  context.scale(devicePixelRatio, devicePixelRatio);
  for (const { item, at: [x, y, w, h] } of MAP.boxes) {
    context.globalAlpha = item.open ? 0.1 : isDim(item) ? 0.25 : 1;
    context.fillStyle = item.open ? style.color : item.head.classList.contains("chosen") ? style.outlineColor : colourOf(item, style);
    context.fillRect(x, y, Math.max(w, 2), Math.max(h, 1.5));
  }
  const seen = [frame.scrollLeft, frame.scrollTop, frame.clientWidth, frame.clientHeight].map((one, axis) => (one / ZOOM) * MAP.scale[axis % 2]);
  context.globalAlpha = 1;
  context.strokeStyle = style.outlineColor;
  context.lineWidth = 2;
  context.strokeRect(Math.max(1, seen[0]), Math.max(1, seen[1]), Math.min(seen[2], width - 2), Math.min(seen[3], height - 2));
}

// A closed module has the colour of what one looks for, if any of it is within.
function colourOf(item, style) {
  if (MODE === "heat") return `color-mix(in srgb, ${style.accentColor} ${heatOf(item)}%, ${style.borderTopColor})`;
  if (MODE === "change") return isMoved(item) ? style.accentColor : style.borderTopColor;
  const owner = item.owner || (item.portable ? "portable" : item.members[0]?.owner);
  return DATA.colours[owner] || style.borderTopColor;
}

function goOnMap(event) {
  if (event.type === "pointermove" && event.buttons !== 1) return;
  const [box, frame] = [byId("map").getBoundingClientRect(), byId("window")];
  const [x, y] = [event.clientX - box.left, event.clientY - box.top].map((one, axis) => (one / MAP.scale[axis]) * ZOOM);
  frame.scrollTo(x - frame.clientWidth / 2, y - frame.clientHeight / 2);
}
