// The trajectories to pick from: filtered, sorted, searched. Only rows in view are in the document, however many there are.

const OVERSCAN = 30; // rows kept above and below the view

// The step that a filter is about.
const missed = (entry) => entry.wrong.find((step) => entry.rewardAt.has(step));
const falseAlarm = (entry) => entry.wrong.find((step) => !entry.rewardAt.has(step) && entry.predictedSigns[step]);
const rewardOf = (entry, sign) => entry.rewards.find(([, value]) => Math.sign(value) === sign)?.[0];
// The first step whose reward is of one class and predicted to be of another.
const cellOf = (entry, cell) => {
  const [actual, predicted] = cell.split("-").map(Number);
  return entry.cells.get(1000 * actual + predicted);
};
// The reward whose strongest step lies so far back.
const farOf = (entry, far) => {
  const [low, high] = far.split("-").map(Number);
  return entry.attention.find((row) => row.kind === "right" && row.to.length && low <= lag(row) && lag(row) <= high)?.step;
};
const lag = (row) => row.step - row.to[row.weights.indexOf(Math.max(...row.weights))];
const farthest = (entry) => Math.max(-1, ...entry.attention.filter((row) => row.kind === "right" && row.to.length).map(lag));

const SORTS = {
  return: (entry) => -entry.return,
  steps: (entry) => -entry.steps,
  mispredicted: (entry) => -entry.wrong.length,
  "credit farthest back": (entry) => -farthest(entry),
};

// Whether an entry has every word that is searched for: its number, "steps>40", "return<0", or a word such as "missed".
function matches(entry, search) {
  return search.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const compared = word.match(/^(steps|return|mispredicted)([<>=])([-−]?[\d.]+)$/);
    if (compared) {
      const [, name, sign, number] = compared;
      const value = { steps: entry.steps, return: entry.return, mispredicted: entry.wrong.length }[name];
      const bound = Number(number.replace("−", "-"));
      return sign === ">" ? value > bound : sign === "<" ? value < bound : value === bound;
    }
    if (/^\d+$/.test(word)) return String(entry.episode).startsWith(word);
    return entry.words.includes(word);
  });
}

class TrajectoryList {
  constructor(entries, { onPick, onChange }) {
    Object.assign(this, { entries, onPick, onChange });
    this.state = { filter: "all", cell: "", far: "", sort: "", search: "" };
    this.box = byId("list");
    const lengths = entries.map((entry) => entry.steps).sort((a, b) => b - a);
    const long = lengths[Math.max(0, Math.ceil(lengths.length / 4) - 1)];
    this.filters = {
      all: ["All", () => true],
      successful: ["Successful", (entry) => entry.successful],
      positive: ["Positive", (entry) => rewardOf(entry, 1) !== undefined, (entry) => rewardOf(entry, 1)],
      negative: ["Negative", (entry) => rewardOf(entry, -1) !== undefined, (entry) => rewardOf(entry, -1)],
      mispredicted: ["Mispredicted", (entry) => entry.wrong.length > 0, (entry) => entry.wrong[0]],
      missed: ["Missed", (entry) => missed(entry) !== undefined, missed],
      "false-alarm": ["False alarm", (entry) => falseAlarm(entry) !== undefined, falseAlarm],
      longest: ["Longest", (entry) => entry.steps >= long],
    };
    byId("filters").replaceChildren(...Object.entries(this.filters).map(([name, [label, keep]]) =>
      el("button", { type: "button", "data-filter": name, on: { click: () => this.set({ filter: name, cell: "", far: "" }) } },
        label, el("span", {}, entries.filter(keep).length.toLocaleString("en")))));
    byId("sort").append(...Object.keys(SORTS).map((name) => el("option", { value: name }, name)));
    byId("sort").addEventListener("change", (event) => this.set({ sort: event.target.value }));
    byId("search").addEventListener("input", (event) => this.set({ search: event.target.value }));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("mousedown", (event) => {
      event.preventDefault(); // keys stay with the timeline
      byId("search").blur();
    });
    this.box.addEventListener("scroll", () => this.render());
    new ResizeObserver(() => this.render()).observe(this.box);
    const telling = (entry) => entry.successful && entry.attention.some((row) => row.kind === "right");
    this.picked = entries.find(telling) || entries.find((entry) => entry.attention.length) || entries[0];
  }

  // Change what is listed. The picked trajectory stays if it is listed, at the step that the filter is about.
  set(change, pick = true) {
    Object.assign(this.state, change);
    const { filter, cell, far, sort, search } = this.state;
    for (const button of byId("filters").children) button.setAttribute("aria-pressed", String(button.dataset.filter === filter && !cell && !far));
    byId("sort").value = sort;
    if (byId("search").value !== search) byId("search").value = search;
    const [, keep, about] = this.filters[filter];
    this.step = cell ? (entry) => cellOf(entry, cell) : far ? (entry) => farOf(entry, far) : about;
    this.shown = this.entries.filter((entry) => keep(entry) && (!cell || cellOf(entry, cell) !== undefined) &&
      (!far || farOf(entry, far) !== undefined) && matches(entry, search));
    const order = SORTS[sort || { longest: "steps", mispredicted: "mispredicted" }[filter]];
    if (order) {
      const keys = new Map(this.shown.map((entry) => [entry, order(entry)]));
      this.shown.sort((a, b) => keys.get(a) - keys.get(b));
    }
    byId("listed").textContent = this.shown.length === this.entries.length ? "" : `${trajectories(this.shown.length)} listed`;
    this.range = null;
    this.render();
    if (!pick) return;
    const narrowed = "filter" in change || "cell" in change || "far" in change;
    if (!this.shown.includes(this.picked)) this.shown.length && this.pick(this.shown[0]);
    else if (narrowed && this.step) this.pick(this.picked);
    else this.mark();
    this.onChange();
  }

  get height() {
    return parseFloat(getComputedStyle(this.box).getPropertyValue("--row")) || 64;
  }

  render() {
    if (!this.shown) return;
    const { height } = this;
    const first = Math.max(0, Math.floor(this.box.scrollTop / height));
    const seen = Math.ceil((this.box.clientHeight || 800) / height);
    const count = this.shown.length;
    if (this.range && this.range.height === height && first - this.range.from >= Math.min(first, 5) &&
      this.range.to >= Math.min(count, first + seen + 5)) return;
    const [from, to] = [Math.max(0, first - OVERSCAN), Math.min(count, first + seen + OVERSCAN)];
    this.range = { from, to, height };
    const rows = this.shown.slice(from, to).map((entry, i) => this.item(entry, from + i));
    const space = (left) => {
      const item = el("li", { class: "space", role: "presentation" });
      item.style.height = `${left * height}px`;
      return item;
    };
    const none = el("li", { class: "none", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "none of these");
    this.box.replaceChildren(space(from), ...(count ? rows : [none]), space(count - to));
  }

  item(entry, place) {
    const wrong = entry.wrong.length;
    const marks = entry.rewards.slice(0, 200).map(([step, value]) =>
      shape(value > 0 ? "up" : "down", 4 + (232 * (step + 0.5)) / entry.steps, 7, 4));
    return el("li", { role: "option", id: `episode-${entry.episode}`, "aria-selected": String(entry === this.picked),
      "aria-setsize": this.shown.length, "aria-posinset": place + 1, "data-episode": entry.episode, on: { click: () => this.pick(entry) } },
      el("span", { class: "number" }, `Episode ${entry.episode.toLocaleString("en")}`),
      el("span", { class: entry.return > 0 ? "gain" : entry.return < 0 ? "loss" : "nothing" }, brief(entry.return)),
      svg("svg", { viewBox: "0 0 240 14", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("line", { x1: 4, x2: 236, y1: 7, y2: 7, stroke: "currentColor", opacity: 0.25 }), marks),
      el("span", { class: "small" }, plural(entry.steps, "step")),
      el("span", { class: wrong ? "small bad" : "small" }, wrong ? `✕ ${wrong} mispredicted` : ""));
  }

  pick(entry) {
    this.picked = entry;
    this.mark();
    this.onPick(entry, this.step && this.step(entry));
  }

  // Show which one is picked. Within the list alone: the page itself stays where it is.
  mark() {
    const place = this.shown.indexOf(this.picked);
    if (place >= 0) {
      const [top, bottom] = [4 + place * this.height, 4 + (place + 1) * this.height];
      if (top < this.box.scrollTop) this.box.scrollTop = top - 4;
      else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight + 4;
    }
    this.render();
    for (const item of this.box.querySelectorAll("[data-episode]")) item.setAttribute("aria-selected", String(item.id === `episode-${this.picked.episode}`));
    if (place >= 0) this.box.setAttribute("aria-activedescendant", `episode-${this.picked.episode}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  move(by) {
    if (!this.shown.length) return;
    this.pick(this.shown[clamp(this.shown.indexOf(this.picked) + by, 0, this.shown.length - 1)]);
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -1e9, End: 1e9 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(moves[event.key]);
  }
}
