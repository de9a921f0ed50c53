// The map from above: walls or table, samples, candidates, the chosen chain, the way taken.

import { CUBES, rangeOf, scale, shareOf, theme } from "./colours.js";

export class Scene {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.hits = [];
  }

  // Pixels of places in metres. Mazes have y upwards; a table is seen by its robot, x away from it.
  fit(world) {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.turned = world.kind === "cubes";
    const [x0, x1, y0, y1] = world.bounds;
    const [left, right, low, high] = this.turned ? [-y1, -y0, x0, x1] : world.bounds;
    const margin = 10;
    this.zoom = Math.min((width - 2 * margin) / (right - left), (height - 2 * margin) / (high - low));
    this.left = (width - this.zoom * (right - left)) / 2 - this.zoom * left;
    this.top = (height + this.zoom * (high - low)) / 2 + this.zoom * low;
    this.width = width;
    this.height = height;
  }
  pixel([x, y]) {
    const [across, up] = this.turned ? [-y, x] : [x, y];
    return [this.left + this.zoom * across, this.top - this.zoom * up];
  }
  // The change of a place that looks like this on the screen.
  unturned([across, up]) { return this.turned ? [up, -across] : [across, up]; }
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.unturned([(event.clientX - box.left - this.left) / this.zoom, (this.top - event.clientY + box.top) / this.zoom]);
  }

  draw(view) {
    const { world, layers } = view;
    if (!world) return;
    this.fit(world);
    this.context.clearRect(0, 0, this.width, this.height);
    this.hits = [];
    this.ground(world);
    if (view.painted.size) this.paint(world, view.painted);
    if (layers.samples) this.samples(view.samples, world);
    if (view.plan && layers.candidates) this.candidates(view);
    if (view.plan && layers.ghosts) this.ghosts(view.plan);
    if (layers.trail) this.way(view.trail);
    this.actors(view);
    if (view.plan && layers.chain) this.chain(view);
    if (view.cursor && document.activeElement === this.canvas) this.cross(view.cursor);
  }

  ground(world) {
    const c = this.context;
    const side = this.zoom * world.unit;
    world.free.forEach((row, i) => row.forEach((free, j) => {
      const [x, y] = this.pixel([world.origin[0] + j * world.unit, world.origin[1] + i * world.unit]);
      c.fillStyle = free ? theme.floor : theme.wall;
      c.fillRect(x - side / 2 - 0.3, y - side / 2 - 0.3, side + 0.6, side + 0.6);
      if (!free) return;
      c.strokeStyle = theme.grid;
      c.lineWidth = 1;
      c.strokeRect(x - side / 2, y - side / 2, side, side);
    }));
  }

  paint(world, painted) {
    const c = this.context;
    const side = this.zoom * world.unit;
    for (const [key, value] of painted) {
      const [i, j] = key.split(",").map(Number);
      const [x, y] = this.pixel([world.origin[0] + j * world.unit, world.origin[1] + i * world.unit]);
      c.globalAlpha = 0.28;
      c.fillStyle = value > 0 ? theme.plus : theme.minus;
      c.fillRect(x - side / 2 + 1, y - side / 2 + 1, side - 2, side - 2);
      c.globalAlpha = 0.9;
      c.font = `600 ${Math.max(10, Math.min(15, side / 3))}px system-ui, sans-serif`;
      c.textAlign = "center";
      c.textBaseline = "middle";
      c.fillText(value > 0 ? "+1" : "−1", x, y);
      c.globalAlpha = 1;
    }
  }

  samples(samples, world) {
    const c = this.context;
    c.globalAlpha = 0.5;
    for (const objects of samples) {
      objects.forEach((place, k) => {
        c.fillStyle = world.kind === "cubes" ? CUBES[k % 4] : theme.sample;
        this.disc(place, 2.2);
      });
    }
    c.globalAlpha = 1;
  }

  candidates({ plan, focus }) {
    const { places, values, rounds } = plan.candidates;
    const range = rangeOf(values);
    // The better, the later: good ones lie on top.
    const order = values.map((_, i) => i).sort((a, b) => (values[a] ?? -1e9) - (values[b] ?? -1e9));
    const most = Math.max(...rounds);
    for (const i of order) {
      const share = shareOf(values[i], range);
      const lit = focus === null || focus(i);
      const alpha = (lit ? 1 : 0.12) * (0.35 + 0.6 * (rounds[i] / most));
      for (let k = 0; k < places[i][0].length; k += 1) {
        const line = places[i].map((objects) => objects[k]);
        this.line(line, scale(share, 0.35 * alpha), 1, 1);
        line.forEach((place, segment) => {
          this.context.fillStyle = scale(share, alpha);
          this.disc(place, segment === 0 ? 4.5 : 2.6);
          const [x, y] = this.pixel(place);
          this.hits.push({ x, y, candidate: i, segment });
        });
      }
    }
  }

  ghosts(plan) {
    const c = this.context;
    const last = plan.ghosts.length;
    plan.ghosts.forEach((chains, segment) => {
      c.globalAlpha = 0.28 + 0.22 * (segment / last);
      c.fillStyle = theme.plan;
      for (const objects of chains) for (const place of objects) this.disc(place, 3);
    });
    c.globalAlpha = 1;
  }

  chain({ plan, state, world }) {
    const c = this.context;
    for (let k = 0; k < state.objects.length; k += 1) {
      const way = [state.objects[k], ...plan.chain.map((objects) => objects[k])];
      if (plan.all_zero) {  // nothing was found: the base policy goes for the goal, or a candidate is followed unseen
        c.setLineDash([3, 7]);
        if (plan.chosen < 0) this.line(way.slice(0, 2), theme.base, 2, 0.9);
        else this.line(way, theme.plan, 2, 0.9);
        c.setLineDash([]);
        continue;
      }
      this.line(way, theme.floor, 6, 0.8);
      this.line(way, theme.plan, 3, 1);
      for (const badge of this.badges(way.slice(1), state)) {
        c.fillStyle = world.kind === "cubes" ? CUBES[k % 4] : theme.plan;
        c.strokeStyle = theme.floor;
        c.lineWidth = 2;
        c.beginPath();
        c.roundRect(badge.x - badge.wide / 2, badge.y - 9, badge.wide, 18, 9);
        c.fill();
        c.stroke();
        c.fillStyle = "#fff";
        c.font = "700 11px system-ui, sans-serif";
        c.textAlign = "center";
        c.textBaseline = "middle";
        c.fillText(badge.text, badge.x, badge.y + 0.5);
      }
    }
  }

  // Numbers of subgoals; those at one place share a badge, and none hides a goal or the body.
  badges(places, state) {
    const found = [];
    const near = (x, y, other, gap) => (other.x - x) ** 2 + (other.y - y) ** 2 < gap ** 2;
    places.forEach((place, segment) => {
      const [x, y] = this.pixel(place);
      const same = found.find((badge) => near(x, y, badge.at, 14));
      if (same) same.numbers.push(segment + 1); else found.push({ at: { x, y }, numbers: [segment + 1] });
    });
    const marks = [...(state.goal || []), ...state.objects].map((place) => this.pixel(place)).map(([x, y]) => ({ x, y }));
    return found.map(({ at, numbers }) => {
      const aside = marks.some((mark) => near(at.x, at.y, mark, 18)) ? 17 : 0;
      const text = numbers.join(" ");
      return { x: at.x + aside, y: at.y - aside, text, wide: Math.max(18, 8 + 7 * text.length) };
    });
  }

  actors({ state, world }) {
    const c = this.context;
    if (world.kind === "cubes") {
      state.objects.forEach((place, k) => this.square(place, CUBES[k % 4], true));
      (state.goal || []).forEach((place, k) => this.square(place, CUBES[k % 4], false));
      if (state.effector) this.cross(state.effector, theme.ink);
      return;
    }
    for (const place of state.goal || []) {
      const [x, y] = this.pixel(place);
      c.strokeStyle = theme.goal;
      c.setLineDash([4, 3]);
      c.lineWidth = 1.5;
      c.beginPath();
      c.arc(x, y, world.tolerance * this.zoom, 0, 2 * Math.PI);
      c.stroke();
      c.setLineDash([]);
      this.star(x, y, 11);
    }
    const [x, y] = this.pixel(state.objects[0]);
    c.fillStyle = theme.start;
    c.strokeStyle = theme.floor;
    c.lineWidth = 2.5;
    c.beginPath();
    c.arc(x, y, 9, 0, 2 * Math.PI);
    c.fill();
    c.stroke();
  }

  way(trail) {
    if (trail.length < 2) return;
    this.line(trail, theme.trail, 2.5, 0.9);
    this.context.fillStyle = theme.trail;
    this.disc(trail[0], 4);
  }

  square(place, colour, full) {
    const c = this.context;
    const [x, y] = this.pixel(place);
    const side = 0.04 * this.zoom;
    c.lineWidth = full ? 1.5 : 2.5;
    c.fillStyle = colour;
    c.strokeStyle = full ? theme.floor : colour;
    c.setLineDash(full ? [] : [5, 3]);
    if (full) c.fillRect(x - side / 2, y - side / 2, side, side);
    c.strokeRect(x - side / 2, y - side / 2, side, side);
    c.setLineDash([]);
  }

  star(x, y, size) {
    const c = this.context;
    c.beginPath();
    for (let i = 0; i < 10; i += 1) {
      const angle = -Math.PI / 2 + (i * Math.PI) / 5;
      const r = i % 2 ? size * 0.45 : size;
      c.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
    }
    c.closePath();
    c.fillStyle = theme.goal;
    c.strokeStyle = theme.floor;
    c.lineWidth = 1.5;
    c.fill();
    c.stroke();
  }

  cross(place, colour = theme.accent) {
    const c = this.context;
    const [x, y] = this.pixel(place);
    c.strokeStyle = colour;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(x - 9, y);
    c.lineTo(x + 9, y);
    c.moveTo(x, y - 9);
    c.lineTo(x, y + 9);
    c.stroke();
  }

  disc(place, radius) {
    const [x, y] = this.pixel(place);
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.fill();
  }

  line(places, colour, width, alpha) {
    if (places.length < 2) return;
    const c = this.context;
    c.globalAlpha = alpha;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.lineJoin = c.lineCap = "round";
    c.beginPath();
    for (const place of places) c.lineTo(...this.pixel(place));
    c.stroke();
    c.globalAlpha = 1;
  }

  // The candidate under a pointer, if any.
  candidateAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 81;
    for (const hit of this.hits) {
      const gap = (hit.x - x) ** 2 + (hit.y - y) ** 2;
      if (gap <= least) [best, least] = [hit, gap];
    }
    return best;
  }
}
