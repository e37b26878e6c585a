// The camera: which part of the scene is in the window, and the pointer that moves it.

const CAMERA = { x: 0, y: 0, scale: 1, w: 0, h: 0, pending: false };

function redraw() {
  if (CAMERA.pending) return;
  CAMERA.pending = true;
  requestAnimationFrame(() => { CAMERA.pending = false; drawVisible(); });
}

function resize() {
  const { width, height } = byId("canvas").getBoundingClientRect();
  Object.assign(CAMERA, { w: width, h: height });
}

function zoom(factor, x = CAMERA.w / 2, y = CAMERA.h / 2) {
  const scale = Math.min(3, Math.max(0.008, CAMERA.scale * factor));
  CAMERA.x = x - ((x - CAMERA.x) * scale) / CAMERA.scale;
  CAMERA.y = y - ((y - CAMERA.y) * scale) / CAMERA.scale;
  CAMERA.scale = scale;
  redraw();
}

// Shows all of it, or its beginning where all of it could not be read.
function fit(readable = false) {
  resize();
  const room = { w: CAMERA.w - 60, h: CAMERA.h - 60 };
  let scale = Math.min(1.1, room.w / SCENE.w, room.h / SCENE.h);
  const whole = scale;
  if (readable) scale = Math.max(scale, Math.min(0.7, room.w / SCENE.w));
  CAMERA.scale = Math.max(0.008, scale);
  CAMERA.x = (CAMERA.w - SCENE.w * CAMERA.scale) / 2;
  CAMERA.y = scale > whole ? 20 : Math.max(20, (CAMERA.h - SCENE.h * CAMERA.scale) / 2);
  redraw();
}

function moveTo(item) {
  if (CAMERA.scale < 0.7) CAMERA.scale = 0.9;
  CAMERA.x = CAMERA.w / 2 - (item.x + item.w / 2) * CAMERA.scale;
  CAMERA.y = CAMERA.h / 2 - (item.y + Math.min(item.h, 200) / 2) * CAMERA.scale;
  redraw();
}

function listenToPointer() {
  const canvas = byId("canvas");
  let held = null;
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => { held = { x: event.clientX, y: event.clientY }; moved = false; });
  canvas.addEventListener("pointermove", (event) => {
    if (!held || (!moved && Math.hypot(event.clientX - held.x, event.clientY - held.y) < 4)) return;
    if (!moved) canvas.setPointerCapture(event.pointerId);
    moved = true;
    CAMERA.x += event.clientX - held.x;
    CAMERA.y += event.clientY - held.y;
    held = { x: event.clientX, y: event.clientY };
    redraw();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = null; });
  canvas.addEventListener("click", (event) => { if (!moved) clicked(event); });
  canvas.addEventListener("dblclick", (event) => { const item = itemAt(event); if (item && item.kind === "g") toggle(item); });
  canvas.addEventListener("wheel", wheeled, { passive: false });
}

function wheeled(event) {
  event.preventDefault();
  const frame = byId("canvas").getBoundingClientRect();
  const lines = event.deltaMode === 1 ? 16 : 1;
  if (event.shiftKey) { CAMERA.x -= (event.deltaX || event.deltaY) * lines; redraw(); return; }
  zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), event.clientX - frame.left, event.clientY - frame.top);
}

function itemAt(event) {
  const box = event.target.closest(".box");
  return box ? CURRENT.items[Number(box.dataset.id)] : null;
}

function clicked(event) {
  const item = itemAt(event);
  const onSign = item && item.kind === "g" && event.clientX - event.target.closest(".box").getBoundingClientRect().left < 26 * CAMERA.scale;
  if (onSign) toggle(item);
  else choose(item);
}
