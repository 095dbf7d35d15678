// Strips over the steps of a trajectory: which steps earned the chosen reward, rewards, predictions, truth, shaping.

const THICKEST = 16; // of an arc that stands for a whole reward, in pixels
const LEAST_ARC = 0.01;
const FEWEST_STEPS = 8; // that fill the timeline

const shortened = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

class Timeline {
  constructor(box, { onScrub, onChoose, onZoom, isCredit, beside }) {
    this.onZoom = onZoom;
    this.from = 0; // the first step in view, and the one after the last
    this.to = 1;
    this.box = box;
    this.isCredit = isCredit;
    this.beside = beside; // names of other methods
    this.onScrub = onScrub;
    this.onChoose = onChoose;
    this.svg = svg("svg", { "aria-label": "Timeline", role: "group" });
    box.replaceChildren(this.svg);
    const scrub = (event) => {
      const bounds = this.svg.getBoundingClientRect();
      const across = event.clientX - bounds.left - this.gutter;
      if (this.panning) this.look((across / this.inner) * this.entry.steps - (this.to - this.from) / 2);
      else this.onScrub(clamp(Math.floor(across / this.pitch + this.from) + 1, 0, this.entry.steps));
    };
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.target.closest(".mark")) return;
      this.svg.setPointerCapture(event.pointerId);
      this.panning = Boolean(event.target.closest(".whole"));
      scrub(event);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (this.svg.hasPointerCapture(event.pointerId)) scrub(event);
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !(this.zoomed && event.shiftKey)) return; // the page scrolls
      event.preventDefault();
      if (!event.ctrlKey) this.look(this.from + ((event.deltaX || event.deltaY) / this.inner) * (this.to - this.from));
      else this.zoom(Math.exp(event.deltaY / 300), this.from + (event.clientX - this.svg.getBoundingClientRect().left - this.gutter) / this.pitch);
    }, { passive: false });
    new ResizeObserver(() => this.entry && this.draw()).observe(box);
  }

  show(entry, row, other, potentialName) {
    if (entry !== this.entry) [this.from, this.to] = [0, entry.steps];
    Object.assign(this, { entry, row, other, potentialName });
    this.draw();
  }

  get zoomed() {
    return this.to - this.from < this.entry.steps;
  }

  // As many times the steps in view, with one of them where it is.
  zoom(factor, around = this.count) {
    const { steps } = this.entry;
    const wide = clamp((this.to - this.from) * factor, Math.min(FEWEST_STEPS, steps), steps);
    const share = clamp((around - this.from) / (this.to - this.from), 0, 1);
    this.look(around - share * wide, wide);
  }

  // Steps from one on.
  look(from, wide = this.to - this.from) {
    this.from = clamp(from, 0, this.entry.steps - wide);
    this.to = this.from + wide;
    this.draw(false);
    this.onZoom();
  }

  moveTo(count, follow = true) {
    this.count = count;
    if (!this.cursor) return;
    if (follow && this.zoomed && (count < this.from || count > this.to)) {
      this.look(count - (this.to - this.from) / 2);
      return;
    }
    const x = count ? this.x(count - 1) : this.gutter;
    this.cursor.setAttribute("transform", `translate(${x} 0)`);
  }

  x(step) {
    return this.gutter + (step + 0.5 - this.from) * this.pitch;
  }

  seen(step) {
    return step > this.from - 2 && step < this.to + 1;
  }

  draw(follow = true) {
    const style = getComputedStyle(this.box);
    this.width = this.box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    this.narrow = this.width < 560;
    this.gutter = this.narrow ? 8 : this.beside.length ? 196 : 104; // names of methods are longer
    this.inner = this.width - this.gutter - 8;
    this.pitch = this.inner / (this.to - this.from);
    this.top = 0;
    const parts = [this.arcs(), this.otherArcs(), ...this.others(), this.rewards(), this.predictions(), ...this.truths(), ...this.shaping(), this.axis(), this.whole()];
    if (this.zoomed) parts.push(svg("clipPath", { id: "in-view" }, svg("rect", { x: this.gutter - 7, y: 0, width: this.inner + 14, height: this.top })));
    const hidden = this.count && (this.count < this.from || this.count > this.to);
    this.cursor = svg("g", { visibility: hidden ? "hidden" : null }, svg("line", { class: "cursor", x1: 0, x2: 0, y1: 4, y2: this.top - (this.zoomed ? 46 : 16) }),
      svg("circle", { class: "handle", cx: 0, cy: 4, r: 4 }));
    this.svg.replaceChildren(...parts.filter(Boolean), this.cursor);
    this.svg.setAttribute("height", this.top);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.top}`);
    this.moveTo(this.count || 0, follow);
  }

  // A strip of some height below the others, with its name.
  strip(name, height, make) {
    if (this.narrow) this.top += 15;
    const label = this.narrow
      ? svg("text", { x: 0, y: this.top - 3 }, name)
      : svg("text", { x: 0, y: this.top + height / 2 + 4 }, name);
    const part = svg("g", { "data-strip": name }, label, this.clipped(make(this.top, height)));
    this.top += height + 6;
    return part;
  }

  clipped(...drawing) {
    return this.zoomed ? svg("g", { "clip-path": "url(#in-view)" }, ...drawing) : drawing;
  }

  base(y) {
    return svg("line", { class: "base", x1: this.gutter, x2: this.width - 8, y1: y, y2: y });
  }

  arcs() {
    const earned = this.isCredit && (!this.row || this.row.kind === "right");
    return this.arcsOf(this.row, earned ? "earned by" : "looked at", earned);
  }

  // Of the method that is compared.
  otherArcs() {
    if (!this.other) return null;
    const { name, row, isCredit } = this.other;
    const strip = this.arcsOf(row && { ...row, step: this.row.step }, shortened(name, 28), isCredit);
    if (this.row && !row) strip.append(svg("text", { x: this.gutter + 4, y: this.top - 12 }, "no credit"));
    return strip;
  }

  arcsOf(row, name, earned) {
    return this.strip(name, this.narrow ? 84 : 112, (top, height) => {
      const floor = top + height;
      if (!row) return this.base(floor);
      const end = this.x(row.step);
      const farthest = Math.max(...row.to.map((step) => Math.abs(end - this.x(step))), 1);
      const drawn = row.to.map((step, i) => {
        const share = row.shares[i];
        if (share < LEAST_ARC) return null;
        const start = this.x(step);
        const peak = floor - (height - 14) * (0.25 + 0.75 * Math.sqrt(Math.abs(end - start) / farthest)) * 1.3;
        const path = `M${start} ${floor}C${start} ${peak} ${end} ${peak} ${end} ${floor}`;
        return svg("path", { class: "arc", d: path, "stroke-width": Math.max(0.5, THICKEST * share).toFixed(2),
          opacity: (0.35 + 0.55 * share).toFixed(2), "data-step": step, "data-weight": row.weights[i] },
          svg("title", {}, earned ? `step ${step + 1} earned ${percent(share)}` : `${percent(share)} looked at step ${step + 1}`));
      });
      return [drawn, this.bars(row, floor, 22), this.base(floor)];
    });
  }

  // The shares of a row as bars on the floor, the largest as high as it may be.
  bars(row, floor, height) {
    const most = Math.max(...row.shares, 1e-9);
    return row.to.map((step, i) => {
      const high = Math.max(1, (height * row.shares[i]) / most);
      return svg("rect", { class: "share", x: this.x(step) - this.bar / 2, y: floor - high, width: this.bar, height: high,
        "data-step": step }, svg("title", {}, `step ${step + 1}: ${percent(row.shares[i])}`));
    });
  }

  // What other methods credit for the chosen reward.
  others() {
    const at = this.row ? this.entry.attention.indexOf(this.row) : -1;
    return this.beside.map((name, number) =>
      this.other?.name === name ? null : this.strip(shortened(name, 28), 20, (top, height) => {
        const row = at < 0 ? null : this.entry.beside[number][at];
        const none = this.row && !row ? svg("text", { x: this.gutter + 4, y: top + height - 4 }, "no credit") : null;
        return [svg("title", {}, name), row ? this.bars(row, top + height, height - 3) : none, this.base(top + height)];
      }));
  }

  // Radius of a mark: small where marks would overlap.
  radius(count) {
    return count * 9 > this.width ? 2.5 : 5.5;
  }

  get bar() {
    return clamp(this.pitch * 0.7, 1, 10);
  }

  rewards() {
    const most = Math.max(...this.entry.rewards.map(([, value]) => Math.abs(value)), 1e-9);
    return this.strip("reward", 40, (top, height) => {
      const middle = top + height / 2;
      const marks = this.entry.rewards.filter(([step]) => this.seen(step)).map(([step, value]) => {
        const [x, kind] = [this.x(step), value > 0 ? "up" : "down"];
        const reach = (value > 0 ? -1 : 1) * (5 + 8 * Math.sqrt(Math.abs(value) / most));
        const stem = svg("line", { class: kind, x1: x, x2: x, y1: middle, y2: middle + reach, "stroke-width": 1.5 });
        const head = shape(kind, x, middle + reach, this.radius(this.entry.rewards.length));
        const row = this.entry.rowAt.get(step);
        const said = row ? (row.kind === "missed" ? "not predicted" : "predicted") : "";
        return this.mark(step, row, `Reward ${signed(value)} at step ${step + 1}, ${said}`, top, height, stem, head);
      });
      return [this.base(middle), marks];
    });
  }

  // A mark to click or press, only where there is attention to show.
  mark(step, row, label, top, height, ...drawing) {
    if (!row) return svg("g", {}, drawing);
    const choose = (event) => {
      event.stopPropagation();
      this.onChoose(step);
    };
    const press = (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(event);
      }
    };
    const wide = clamp(this.pitch, 14, 26);
    return svg("g", { class: this.row && this.row.step === step ? "mark chosen" : "mark", role: "button", tabindex: 0,
      "aria-label": label, "aria-pressed": String(Boolean(this.row && this.row.step === step)), "data-reward": step,
      on: { click: choose, keydown: press } },
      svg("rect", { class: "hit", x: this.x(step) - wide / 2, y: top + 1, width: wide, height: height - 2, rx: 5 }), drawing,
      svg("title", {}, label));
  }

  predictions() {
    return this.strip("predicted", 40, (top, height) => {
      const middle = top + height / 2;
      const [positive, negative] = [this.entry.chanceOf(1), this.entry.chanceOf(-1)];
      const area = (chances, direction) => {
        const points = chances.map((chance, t) => {
          if (!this.seen(t)) return "";
          const y = middle + direction * (height / 2 - 3) * chance;
          return `L${this.x(t) - this.pitch / 2} ${y}H${this.x(t) + this.pitch / 2}`;
        });
        return svg("path", { class: `area ${direction < 0 ? "up" : "down"}`,
          d: `M${this.gutter} ${middle}${points.join("")}L${this.x(chances.length - 0.5)} ${middle}Z` });
      };
      const signs = this.entry.predictedSigns;
      const steps = [...signs.keys()].filter((step) => this.seen(step) && (signs[step] || this.entry.wrongAt.has(step)));
      const r = this.radius(steps.length);
      const marks = steps.map((step) => {
        const sign = signs[step];
        const y = middle - 9 * sign;
        const wrong = this.entry.wrongAt.has(step);
        const drawing = sign ? [shape(sign > 0 ? "up" : "down", this.x(step), y, r, "hollow")] : [];
        if (wrong) drawing.push(shape("cross", this.x(step), sign ? middle + 9 * sign : middle, r * 0.75));
        const row = this.entry.rowAt.get(step);
        if (!row || !["missed", "false alarm"].includes(row.kind)) return svg("g", {}, drawing);
        const label = row.kind === "missed" ? `Mispredicted reward at step ${step + 1}` : `False alarm at step ${step + 1}`;
        return this.mark(step, row, label, top, height, ...drawing);
      });
      return [area(positive, -1), area(negative, 1), this.base(middle), marks];
    });
  }

  truths() {
    return Object.entries(this.entry.truth).filter(([, steps]) => steps.length).map(([name, steps]) =>
      this.strip(shortened(name, 15), 16, (top, height) => [this.base(top + height / 2),
        steps.filter((step) => this.seen(step)).map((step) => {
          const mark = shape("diamond", this.x(step), top + height / 2, 5.5);
          mark.append(svg("title", {}, `${name} at step ${step + 1}`));
          return mark;
        })]));
  }

  shaping() {
    const { potential, shaping } = this.entry;
    if (!potential) return [];
    return [
      this.strip("potential", 34, (top, height) => {
        const [low, high] = [Math.min(0, ...potential), Math.max(0, ...potential)];
        const y = (value) => (high > low ? top + 3 + ((height - 6) * (high - value)) / (high - low) : top + height / 2);
        const d = potential.map((value, t) => `${t ? "L" : "M"}${this.x(t) - this.pitch / 2} ${y(value)}H${this.x(t) + this.pitch / 2}`);
        const name = svg("title", {}, `Φ before each step: ${this.potentialName}`);
        return [this.base(y(0)), svg("path", { class: "trace", d: d.join("") }, name)];
      }),
      this.strip("shaped reward", 40, (top, height) => {
        const paid = shaping.map((value, t) => value + (this.entry.rewardAt.get(t) || 0));
        const most = Math.max(...paid.map(Math.abs), 1e-9);
        const middle = top + height / 2;
        const bars = (sign) => paid.map((value, t) => {
          const high = (height / 2 - 2) * Math.sqrt(Math.abs(value) / most);
          if (Math.sign(value) !== sign || high < 0.5 || !this.seen(t)) return "";
          return `M${this.x(t) - this.bar / 2} ${middle}v${-sign * high}h${this.bar}V${middle}Z`;
        }).join("");
        return [svg("path", { class: "up", d: bars(1), "stroke-width": 0 }), svg("path", { class: "down", d: bars(-1), "stroke-width": 0 }),
          this.base(middle)];
      }),
    ];
  }

  axis() {
    const steps = this.entry.steps;
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].find((n) => n * this.pitch >= 46) || steps;
    const ticks = [];
    for (let step = every * Math.max(1, Math.ceil(this.from / every)); step <= Math.min(steps, this.to + 1); step += every) {
      ticks.push(svg("text", { x: this.x(step - 1), y: this.top + 11, "text-anchor": "middle" }, String(step)));
    }
    this.top += 16;
    return svg("g", {}, this.narrow ? null : svg("text", { x: 0, y: this.top - 5 }, "step"), this.clipped(ticks));
  }

  // All steps, and which of them are in view: to drag.
  whole() {
    if (!this.zoomed) return null;
    const at = (step) => this.gutter + (this.inner * step) / this.entry.steps;
    const [top, height] = [this.top + 4, 22];
    this.top += height + 8;
    const ticks = this.entry.rewards.map(([step, value]) =>
      svg("line", { class: value > 0 ? "up" : "down", x1: at(step + 0.5), x2: at(step + 0.5), y1: top + 4, y2: top + height - 4 }));
    return svg("g", { class: "whole", "data-strip": "all steps" },
      this.narrow ? null : svg("text", { x: 0, y: top + height / 2 + 4 }, "all steps"),
      svg("rect", { class: "all", x: this.gutter, y: top, width: this.inner, height, rx: 4 }),
      svg("rect", { class: "window", x: at(this.from), y: top, width: Math.max(4, at(this.to) - at(this.from)), height, rx: 4 }), ticks);
  }
}
