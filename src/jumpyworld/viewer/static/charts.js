// The panel beside the map: the verdict, the histogram, the rounds and the segments.

import { rangeOf, scale, shareOf, theme } from "./colours.js";

const BINS = 22;
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};
export const digits = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

export function drawWhy(plan) {
  const bars = [["chosen", "chosen chain", plan.why.fresh.value]];
  if (plan.why.runner_up) bars.push(["runner", "runner-up", plan.why.runner_up.value]);
  bars.push(["", "base policy", plan.why.base.value]);
  const most = Math.max(1e-9, ...bars.map(([, , value]) => Math.abs(value ?? 0)));
  document.getElementById("versus").replaceChildren(...bars.map(([kind, label, value]) => {
    const row = make("div", `bar ${kind}`);
    const track = make("div", "track"), fill = make("div", "fill");
    fill.style.width = `${(100 * Math.abs(value ?? 0)) / most}%`;
    track.append(fill);
    row.append(make("span", "", label), track, make("b", "", digits(value)));
    return row;
  }));
  document.querySelector(".why").classList.toggle("nothing", plan.all_zero);
  document.getElementById("why").replaceChildren(...plan.why.words.map((line) => make("p", "", line)));
}

// Returns which bin each candidate is in, for pointing.
export function drawHistogram(canvas, plan, pointed) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  const values = plan.candidates.values;
  const among = plan.candidates.kinds.indexOf("base");
  const base = among >= 0 ? values[among] : plan.why.base.value;
  const range = rangeOf([...values, base]);
  const binOf = (value) => (value === null ? -1 : Math.min(BINS - 1, Math.floor(shareOf(value, range) * BINS)));
  const bins = values.map(binOf);
  const counts = Array(BINS).fill(0);
  bins.forEach((bin) => bin >= 0 && (counts[bin] += 1));
  const most = Math.max(1, ...counts), floor = height - 18, step = width / BINS;
  counts.forEach((count, bin) => {
    const tall = count ? Math.max(3, ((floor - 14) * count) / most) : 0;
    c.fillStyle = scale((bin + 0.5) / BINS, pointed === null || pointed === bin ? 1 : 0.3);
    c.fillRect(bin * step + 1, floor - tall, step - 2, tall);
    if (count && tall > 0) {
      c.fillStyle = theme.soft;
      c.font = "10px system-ui, sans-serif";
      c.textAlign = "center";
      c.fillText(String(count), (bin + 0.5) * step, floor - tall - 3);
    }
  });
  const mark = (value, colour) => {
    if (value === null || value === undefined) return;
    const x = Math.min(width - 2, Math.max(1, shareOf(value, range) * width));
    c.fillStyle = colour;
    c.fillRect(x - 1.5, 2, 3, floor - 2);
  };
  mark(base, theme.base);
  if (plan.why.runner_up) mark(values[plan.why.runner_up.index], theme.accent);
  if (plan.chosen >= 0) mark(values[plan.chosen], theme.plan);
  c.fillStyle = theme.line;
  c.fillRect(0, floor, width, 1);
  c.fillStyle = theme.soft;
  c.font = "11px system-ui, sans-serif";
  c.textAlign = "left";
  c.fillText(digits(range[0]), 0, height - 4);
  c.textAlign = "right";
  c.fillText(digits(range[1]), width, height - 4);
  canvas.setAttribute("aria-label", `Values of ${values.length} candidates from ${digits(range[0])} to ${digits(range[1])}`);
  return { bins, binAt: (x) => Math.min(BINS - 1, Math.max(0, Math.floor(x / step))) };
}

export function drawRounds(plan) {
  const total = plan.rounds.reduce((sum, round) => sum + round.evaluations, 0);
  const rows = plan.rounds.map((round, i) => {
    const row = make("div", "round");
    const share = total ? (100 * round.evaluations) / total : 0;
    const text = `${round.candidates} candidates × ${round.chains} chains = ${round.total} (${share.toFixed(0)} %)`;
    const track = make("div", "track"), fill = make("div", "fill");
    fill.style.width = `${share}%`;
    track.append(fill);
    row.append(make("b", "", String(i + 1)), make("span", "", text), track);
    return row;
  });
  const all = `${plan.evaluations.toLocaleString("en")} evaluations of the network in ${plan.ms.toFixed(0)} ms, proposals included.`;
  document.getElementById("rounds").replaceChildren(...rows, make("p", "foot", all));
}

// Builds the sliders once; fills in what a plan found afterwards.
export function makeSegments(count, toSteps, onInput) {
  const head = make("div", "segment head");
  for (const text of ["", "horizon", "α · β", "weight w", "earns"]) head.append(make("span", "", text));
  const tips = ["", "", "Switching probability per step and effective discount β = discount × (1 − α).",
    "The segment's share in the value of a sequence.",
    "Weight × mean reward where this segment's jumps land: the chosen chain, and the base policy below it."];
  [...head.children].forEach((node, i) => { if (tips[i]) { node.dataset.tip = tips[i]; node.tabIndex = 0; } });
  const rows = Array.from({ length: count }, (_, k) => {
    const row = make("div", "segment");
    const box = make("label", ""), out = make("output", ""), input = make("input", "");
    Object.assign(input, { type: "range", min: 0, max: 1, step: "any" });
    input.setAttribute("aria-label", `horizon of segment ${k + 1}`);
    input.addEventListener("input", () => { out.textContent = `${toSteps(Number(input.value)).toFixed(0)} steps`; onInput(); });
    box.append(out, input);
    const cells = [make("span"), make("span"), make("span")];
    row.append(make("span", "k", String(k + 1)), box, ...cells);
    return { row, input, out, cells };
  });
  document.getElementById("segments").replaceChildren(head, ...rows.map(({ row }) => row));
  return rows;
}

export function drawSegments(rows, plan) {
  plan.segments.forEach((part, k) => {
    const [switching, weight, earns] = rows[k].cells;
    switching.replaceChildren(make("span", "", part.alpha.toFixed(4)), make("small", "", part.beta.toFixed(4)));
    weight.replaceChildren(make("span", "", digits(part.weight)));
    earns.replaceChildren(make("span", "", digits(part.earns)), make("small", "", `base ${digits(part.base_earns)}`));
  });
  const seen = 100 * plan.weight_sum;
  document.getElementById("weight-sum").textContent =
    `These segments look at ${seen.toFixed(0)} % of the discounted future; what comes after them does not count.`;
}
