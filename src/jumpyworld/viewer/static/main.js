// The page: what is known, what the user wants, and the loop that asks the server for it.

import { ask, play as openPlay, status } from "./api.js";
import { drawHistogram, drawRounds, drawSegments, drawWhy, digits, makeSegments } from "./charts.js";
import { rangeOf, scale } from "./colours.js";
import { bindControls } from "./controls.js";
import { Scene } from "./scene.js";

const at = (id) => document.getElementById(id);
const view = {
  world: null, state: null, plan: null, samples: [], trail: [], painted: new Map(), cursor: null, focus: null,
  layers: { samples: true, candidates: true, chain: true, ghosts: true, trail: true },
};
const wish = { model: null, tool: "goal", proposal: "paper", horizons: [], discount: 0.99, seed: 0, source: "goal", horizon: 50 };
const scene = new Scene(at("scene"));
const times = {};
let programs = new Set();
let rows = [], pointedBin = null, player = null, start = null;

// ---- asking: what is out of date is asked for again, the newest wish alone, one at a time

const stale = new Set();
let asking = false, waited = false;

function want(...what) {
  what.forEach((name) => stale.add(name));
  if (!asking) work();
}

async function work() {
  asking = true;
  document.body.dataset.busy = "1";
  while (stale.size && !player) {
    const name = [...["edit", "plan", "samples"], ...stale].find((n) => stale.has(n));
    stale.delete(name);
    try {
      await ASK[name]();
      if (waited) { say(""); waited = false; }
    } catch (error) {
      if (error.retry) { waited = true; stale.add(name); say(error.message); await new Promise((go) => setTimeout(go, 400)); } else say(error.message);
    }
    render();
  }
  asking = false;
  document.body.dataset.busy = "0";
}

let edits = [];  // clicks, in order; of drags only the newest of a kind
export function edit(name, body) {
  // The first may be on its way already.
  if (edits.length > 1 && edits.at(-1).name === name) edits.pop();
  edits.push({ name, body });
  want("edit", "plan", "samples");
}

const ASK = {
  async edit() {
    while (edits.length) {
      const { name, body } = edits[0];
      say("");
      let answer;
      try {
        answer = await ask(name, { model: wish.model, ...body });
      } catch (error) {
        if (!error.retry) edits.shift();
        throw error;
      }
      edits.shift();
      if (name === "reset" || name === "place") {
        view.trail = [answer.state.effector || answer.state.objects[0]];
        start = { name, body };
      }
      if (!edits.length) take(answer.state);
    }
  },
  async plan() {
    await compiled(view.painted.size ? "painting" : proposal.name);
    const answer = await ask("plan", { ...aim(), seed: wish.seed });
    times.total = answer.total_ms;
    adopt(answer.plan);
    document.body.dataset.plans = String(Number(document.body.dataset.plans || 0) + 1);
  },
  async samples() {
    const source = wish.source === "plan" && !view.plan ? "goal" : wish.source;
    await compiled(source === "behaviour" ? "behaviour" : "samples");
    const answer = await ask("samples", { model: wish.model, source, horizon: wish.horizon, seed: wish.seed });
    times.samples = answer.ms;
    view.samples = answer.samples;
    document.body.dataset.samples = String(answer.samples.length);
  },
};

// A plan may answer a question that is no longer asked: its segments would not fit the sliders.
function adopt(plan) {
  if (plan.proposal === proposal.name) { view.plan = plan; times.plan = plan.ms; }
}

function take(state) {
  view.state = state;
  view.painted = new Map((state.painted || []).map(([i, j, value]) => [`${i},${j}`, value]));
  propose();
}
const say = (text) => { at("notice").textContent = text; };

// ---- drawing: at most once a frame

let asked = false;
export function render() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (!view.world || !view.state) return;
    scene.draw(view);
    const { step, reached, reward } = view.state;
    at("step-count").textContent = reached ? `reached in ${step} steps` : `step ${step}${view.painted.size ? ` · reward ${reward.toFixed(0)}` : ""}`;
    at("step-count").className = reached ? "reached" : "";
    document.body.dataset.reached = reached ? "1" : "0";
    if (!view.plan) return;
    drawWhy(view.plan);
    histogram = drawHistogram(at("histogram"), view.plan, pointedBin);
    drawRounds(view.plan);
    drawSegments(rows, view.plan);
    drawScale();
    const parts = [["plan", times.plan], ["samples", times.samples]].filter(([, ms]) => ms !== undefined);
    at("status-text").textContent = ["ready", ...parts.map(([name, ms]) => `${name} ${ms.toFixed(0)} ms`)].join(" · ");
  });
}
let histogram = null;

function drawScale() {
  const [low, high] = rangeOf(view.plan.candidates.values);
  const c = at("scale").getContext("2d");
  for (let x = 0; x < 120; x += 1) { c.fillStyle = scale(x / 119); c.fillRect(x, 0, 1, 10); }
  at("scale-low").textContent = digits(low);
  at("scale-high").textContent = digits(high);
}

// ---- where candidates come from: each choice has segments of its own, and keeps what the sliders made of them

const CHOICES = { paper: "the paper's: from the model", bridge: "bridges: ways that the data know", trace: "traces: ways of cubes in the data" };
let proposal = null;  // the one in force

function propose() {
  const offered = view.world.proposals, chosen = offered.find((p) => p.name === wish.proposal);
  const painted = view.painted.size > 0;
  const next = painted && chosen.needs_goal ? offered.find((p) => !p.needs_goal) : chosen;
  for (const { name, needs_goal } of offered) at("proposal").querySelector(`[value=${name}]`).disabled = painted && needs_goal;
  at("proposal-note").textContent = painted && chosen.needs_goal
    ? `A ${chosen.name} leads to a goal, and a painted reward has none: the paper's candidates, until it is erased.` : "";
  at("proposal").value = next.name;
  if (next === proposal) return;
  proposal = next;
  document.body.dataset.proposal = next.name;
  view.plan = null;
  rows = makeSegments(next.horizons.length, (share) => span(share, view.world.longest), () => { readHorizons(); want("plan"); });
  next.horizons.forEach((steps, k) => { rows[k].input.value = unspan(steps, view.world.longest); });
  at("overall").value = unspan(1 / (1 - next.discount), OVERALL);
  readHorizons();
}

// ---- horizons: sliders run over the logarithm

const span = (share, longest) => Math.exp(share * Math.log(longest));
const unspan = (steps, longest) => Math.log(steps) / Math.log(longest);
const OVERALL = 2000;

function readHorizons() {
  const overall = span(Number(at("overall").value), OVERALL);
  wish.discount = 1 - 1 / overall;
  at("overall-out").textContent = `${overall.toFixed(0)} steps · discount ${wish.discount.toFixed(4)}`;
  const most = Math.min(view.world.longest, overall);
  wish.horizons = rows.map(({ input, out }) => {
    const steps = Math.min(most, span(Number(input.value), view.world.longest));
    out.textContent = `${steps.toFixed(0)} steps`;
    return steps;
  });
  Object.assign(proposal, { horizons: wish.horizons, discount: wish.discount });
}

function readSample() {
  wish.horizon = span(Number(at("horizon").value), view.world.longest);
  at("horizon-out").textContent = `${wish.horizon.toFixed(0)} steps · γ = ${(1 - 1 / wish.horizon).toFixed(4)}`;
}

// ---- opening a model

async function open(id) {
  wish.model = id;
  const world = await ask("scene", { model: id });
  Object.assign(view, { world, plan: null, samples: [], trail: world.trail });
  at("proposal").replaceChildren(...world.proposals.map(({ name }) => new Option(CHOICES[name], name)));
  if (world.proposals.length < 2) {
    const missing = new Option("of data: start with --precedents DATA", "none");
    missing.disabled = true;
    at("proposal").add(missing);
  }
  proposal = null;
  wish.proposal = world.proposals[0].name;
  take(world.state);
  start = { name: "reset", body: { task: world.state.task, seed: 0 } };
  at("horizon").value = unspan(Math.min(world.longest, 50), world.longest);
  at("source").querySelector("[value=behaviour]").disabled = !world.has_behaviour;
  document.querySelector("[data-tool=start]").disabled = world.kind === "cubes";
  readSample();
  markTask(world.state.task);
  render();
}

export function markTask(task) {
  document.querySelectorAll("[data-task]").forEach((b) => b.setAttribute("aria-pressed", String(Number(b.dataset.task) === task)));
}

async function begin() {
  let shown = null;
  for (;;) {
    let now;
    try { now = await status(); } catch (error) { at("veil-text").textContent = error.message; await pause(1500); continue; }
    const choice = now.models.find((m) => m.id === at("model").value) || now.models[0];
    if (!at("model").options.length) {
      for (const model of now.models) at("model").add(new Option(model.title, model.id));
      at("model").value = choice.id;
    }
    if (choice.failed) { at("veil-title").textContent = "This model cannot be shown"; at("veil-text").textContent = choice.failed; return; }
    // Once more when it is ready: by then the server has chosen the task to begin with.
    if (choice.drawable && (choice.ready || shown !== choice.id)) {
      shown = null;
      await open(choice.id).then(() => { shown = choice.id; }).catch(() => {});
    }
    programs = new Set(choice.compiled);
    if (choice.ready && shown === choice.id) break;
    at("veil-text").textContent = `Compiling, once: ${now.doing} (${now.done} of ${now.of})`;
    at("status-text").textContent = `warming up ${now.done}/${now.of}`;
    at("veil-bar").max = now.of;
    at("veil-bar").value = now.done;
    await pause(500);
  }
  at("veil").hidden = true;
  document.body.dataset.ready = "1";
  want("plan", "samples");
}
// Painting and the behaviour's samples compile after the page has opened; wait for them quietly.
async function compiled(program) {
  let told = false;
  while (!programs.has(program)) {
    const model = (await status()).models.find((m) => m.id === wish.model);
    programs = new Set(model.compiled);
    const why = model.failed_programs[program];
    if (why) throw new Error(`${program}: cannot be compiled (${why})`);  // it never will be
    if (programs.has(program)) break;
    say(`Compiling, once: ${program}`);
    told = true;
    await pause(600);
  }
  if (told) say("");
}
const pause = (ms) => new Promise((go) => setTimeout(go, ms));

// ---- what the controls do

const actions = {
  edit, render,
  tool: (tool) => { wish.tool = tool; },
  task: (task) => { markTask(task); edit("reset", { task, seed: 0 }); },
  restart: () => start && edit(start.name, start.body),
  redraw: () => { wish.seed = (wish.seed + 1) % 2 ** 31; want("plan", "samples"); },
  sample: () => { say(""); wish.source = at("source").value; readSample(); want("samples"); },
  overall: () => { readHorizons(); want("plan"); },
  propose(name) { actions.pause(); say(""); wish.proposal = name; propose(); want("plan", "samples"); },
  async model(id) {
    actions.pause();
    document.body.dataset.ready = "0";
    at("veil").hidden = false;
    at("model").value = id;
    await begin();
  },
  async step() {
    if (player || !view.state) return;
    try {
      frame(await ask("step", { ...steering(), count: 1 }));
      want("samples");
    } catch (error) { say(error.message); }
  },
  play() {
    if (player) { actions.pause(); return; }
    if (view.state.reached) actions.restart();
    if (asking || stale.size) { setTimeout(actions.play, 60); return; }  // after what is on its way
    player = openPlay({ ...steering(), speed: Number(at("speed").value) }, {
      frame,
      done(why) {
        player = null;
        at("play").textContent = "Play";
        document.body.dataset.playing = "0";
        if (why && why !== "the goal is reached") say(why);
        want("samples");
      },
    });
    at("play").textContent = "Pause";
    document.body.dataset.playing = "1";
  },
  pause() { if (player) player.stop(); },
  pace(speed) { if (player) player.pace(speed); },
  async render3d() {
    try {
      const image = at("frame");
      URL.revokeObjectURL(image.src);
      image.src = URL.createObjectURL(await ask("frame", { model: wish.model }));
      image.hidden = false;
      at("frame-note").textContent = "";
    } catch (error) { at("frame-note").textContent = error.message; at("live").checked = false; }
  },
  pointBin(x) {
    if (!histogram) return;
    pointedBin = x === null ? null : histogram.binAt(x);
    const { bins } = histogram;
    view.focus = pointedBin === null ? null : (i) => bins[i] === pointedBin;
    render();
  },
  describe(hit) {
    const { values, kinds, rounds } = view.plan.candidates;
    const i = hit.candidate;
    const verdict = i === view.plan.chosen ? "chosen" : `in the running for ${rounds[i]} of ${view.plan.rounds.length} rounds`;
    const from = { base: "the base policy's own sequence", remembered: "kept from the last plan", goal: "proposed on the base policy's way",
      behaviour: "proposed where the data went", "high level": "proposed by the high level",
      bridge: "a way that the data know", trace: "the way of some cube in the data" }[kinds[i]];
    return `value ${digits(values[i])} · subgoal ${hit.segment + 1} · ${verdict} · ${from}`;
  },
};
const aim = () => ({ model: wish.model, proposal: proposal.name, horizons: wish.horizons, discount: wish.discount });
const steering = () => ({ ...aim(), replan_every: Number(at("every").value), seed: wish.seed });

let drawing3d = false;
function frame(answer) {
  take(answer.state);
  view.trail.push(...answer.moved);
  if (answer.plan) adopt(answer.plan);
  document.body.dataset.step = String(answer.state.step);
  render();
  if (player && at("live").checked && !drawing3d) {
    drawing3d = true;
    actions.render3d().finally(() => { drawing3d = false; });
  }
}

bindControls(view, wish, scene, actions);
new ResizeObserver(render).observe(at("scene"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
begin();
