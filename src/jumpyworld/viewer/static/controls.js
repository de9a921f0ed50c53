// Pointer, keyboard, buttons and hints; what they mean is in main.js.

const at = (id) => document.getElementById(id);
const PAINT = { paint: 1, avoid: -1, erase: 0 };

export function bindControls(view, wish, scene, actions) {
  bindMap(view, wish, scene, actions);
  bindPanel(actions);
  bindHints();
  bindKeys(wish, actions);
}

function use(view, wish, actions, place, held) {
  const { world } = view;
  const cell = [Math.floor((place[1] - world.origin[1]) / world.unit + 0.5), Math.floor((place[0] - world.origin[0]) / world.unit + 0.5)];
  const inside = world.free[cell[0]]?.[cell[1]];
  if (wish.tool in PAINT) {
    if (!inside) return;
    const key = cell.join(",");
    if ((view.painted.get(key) || 0) === PAINT[wish.tool]) return;
    if (PAINT[wish.tool]) view.painted.set(key, PAINT[wish.tool]); else view.painted.delete(key);
    actions.edit("paint", { cells: [...view.painted].map(([k, value]) => [...k.split(",").map(Number), value]) });
  } else if (wish.tool === "start") {
    if (inside || !held.moved) actions.edit("place", { start: place });
  } else {
    if (!inside && held.moved) return;
    const places = (view.state.goal || view.state.objects).map((p) => [...p]);
    if (held.object === null) {
      const gaps = places.map((p) => (p[0] - place[0]) ** 2 + (p[1] - place[1]) ** 2);
      held.object = gaps.indexOf(Math.min(...gaps));
    }
    places[held.object] = place;
    if (held.moved) view.state.goal = places;  // drawn at once; the server has the last word
    actions.edit("goal", { places });
  }
  actions.render();
}

function bindMap(view, wish, scene, actions) {
  const canvas = scene.canvas;
  let held = null;
  const ready = () => document.body.dataset.ready === "1" && document.body.dataset.playing !== "1";
  canvas.addEventListener("pointerdown", (event) => {
    view.cursor = null;  // the cursor is the keyboard's
    if (!ready() || event.button) return;
    held = { object: null, moved: false };
    canvas.setPointerCapture(event.pointerId);
    use(view, wish, actions, scene.place(event), held);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) { held.moved = true; use(view, wish, actions, scene.place(event), held); return; }
    const hit = view.plan && view.layers.candidates ? scene.candidateAt(event) : null;
    const focused = hit ? (i) => i === hit.candidate : null;
    if ((focused === null) !== (view.focus === null) || hit) { view.focus = focused; actions.render(); }
    hint(hit ? actions.describe(hit) : "", event.clientX, event.clientY);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { held = null; });
  canvas.addEventListener("pointerleave", () => { view.focus = null; hint(""); actions.render(); });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!view.world || !(move || event.key === "Enter")) return;
    event.preventDefault();
    view.cursor ||= [...(view.state.goal || view.state.objects)[0]];
    const step = view.world.unit / (event.shiftKey ? 8 : 2);
    if (move) view.cursor = scene.unturned(move).map((by, axis) => view.cursor[axis] + by * step);
    else if (ready()) use(view, wish, actions, [...view.cursor], { object: null, moved: false });
    actions.render();
  });
  canvas.addEventListener("blur", actions.render);
  for (const box of document.querySelectorAll("[data-layer]")) {
    box.addEventListener("change", () => { view.layers[box.dataset.layer] = box.checked; actions.render(); });
  }
}

function choose(wish, actions, tool) {
  const button = document.querySelector(`[data-tool=${tool}]`);
  if (button.disabled) return;
  document.querySelectorAll("[data-tool]").forEach((b) => b.setAttribute("aria-checked", String(b === button)));
  actions.tool(tool);
}

function bindPanel(actions) {
  at("model").addEventListener("change", (event) => actions.model(event.target.value));
  at("proposal").addEventListener("change", (event) => actions.propose(event.target.value));
  at("step").addEventListener("click", actions.step);
  at("play").addEventListener("click", actions.play);
  at("restart").addEventListener("click", actions.restart);
  at("redraw").addEventListener("click", actions.redraw);
  at("render").addEventListener("click", actions.render3d);
  at("source").addEventListener("change", actions.sample);
  at("horizon").addEventListener("input", actions.sample);
  at("overall").addEventListener("input", actions.overall);
  const show = () => { at("every-out").textContent = at("every").value; at("speed-out").textContent = `${at("speed").value}/s`; };
  at("every").addEventListener("input", show);
  at("speed").addEventListener("input", () => { show(); actions.pace(Number(at("speed").value)); });
  show();
  const bars = at("histogram");
  bars.addEventListener("pointermove", (event) => actions.pointBin(event.offsetX));
  bars.addEventListener("pointerleave", () => actions.pointBin(null));
  document.querySelectorAll("[data-task]").forEach((b) => b.addEventListener("click", () => actions.task(Number(b.dataset.task))));
}

function bindKeys(wish, actions) {
  document.querySelectorAll("[data-tool]").forEach((b) => b.addEventListener("click", () => choose(wish, actions, b.dataset.tool)));
  const keys = { g: "goal", s: "start", p: "paint", a: "avoid", e: "erase" };
  document.addEventListener("keydown", (event) => {
    const typing = /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey || typing || document.body.dataset.ready !== "1") return;
    if (keys[event.key]) choose(wish, actions, keys[event.key]);
    else if (event.key >= "1" && event.key <= "5") actions.task(Number(event.key));
    else if (event.key === "n") actions.step();
    else if (event.key === "r") actions.restart();
    else if (event.key === "d") actions.redraw();
    else if (event.key === " " && event.target.tagName !== "BUTTON") { event.preventDefault(); actions.play(); }
  });
}

function hint(text, x = 0, y = 0) {
  const tip = at("tooltip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? y - height - 12 : y + 18}px`;
}

// Hints open on pointing and on focus; Escape closes them.
function bindHints() {
  const open = (event) => {
    const owner = event.target.closest?.("[data-tip]");
    if (!owner) return;
    const box = owner.getBoundingClientRect();
    hint(owner.dataset.tip, box.left, box.bottom - 12);
  };
  const close = (event) => { if (event.target.closest?.("[data-tip]")) hint(""); };
  document.addEventListener("pointerover", open);
  document.addEventListener("focusin", open);
  document.addEventListener("pointerout", close);
  document.addEventListener("focusout", close);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hint(""); });
  document.querySelectorAll(".hint").forEach((b) => b.setAttribute("aria-label", `What is this? ${b.dataset.tip}`));
}
