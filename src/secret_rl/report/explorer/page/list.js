// The trajectories to pick from.

// The step that a filter is about.
const missed = (entry) => entry.wrong.find((step) => entry.rewardAt.has(step));
const falseAlarm = (entry) => entry.wrong.find((step) => !entry.rewardAt.has(step) && entry.predictedSigns[step]);
const rewardOf = (entry, sign) => entry.rewards.find(([, value]) => Math.sign(value) === sign)?.[0];

class TrajectoryList {
  constructor(entries, onPick) {
    this.entries = entries;
    this.onPick = onPick;
    this.box = byId("list");
    const lengths = entries.map((entry) => entry.steps).sort((a, b) => b - a);
    const long = lengths[Math.max(0, Math.ceil(lengths.length / 4) - 1)];
    this.filters = [
      ["All", () => true],
      ["Successful", (entry) => entry.successful],
      ["Positive", (entry) => entry.rewards.some(([, value]) => value > 0), (entry) => rewardOf(entry, 1)],
      ["Negative", (entry) => entry.rewards.some(([, value]) => value < 0), (entry) => rewardOf(entry, -1)],
      ["Mispredicted", (entry) => entry.wrong.length > 0, (entry) => entry.wrong[0]],
      ["Missed", (entry) => missed(entry) !== undefined, missed],
      ["False alarm", (entry) => falseAlarm(entry) !== undefined, falseAlarm],
      ["Longest", (entry) => entry.steps >= long],
    ];
    byId("filters").replaceChildren(...this.filters.map(([name, keep], i) =>
      el("button", { type: "button", "aria-pressed": String(i === 0), "data-filter": name.toLowerCase().replace(" ", "-"),
        on: { click: () => this.filter(i) } }, name, el("span", {}, String(entries.filter(keep).length)))));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("mousedown", (event) => event.preventDefault()); // keys stay with the timeline
    const telling = (entry) => entry.successful && entry.attention.some((row) => row.kind === "right");
    this.picked = entries.find(telling) || entries.find((entry) => entry.attention.length) || entries[0];
    this.filter(0);
    this.pick(this.picked);
  }

  filter(number) {
    [...byId("filters").children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === number)));
    const [name, keep] = this.filters[number];
    this.shown = this.entries.filter(keep);
    if (name === "Longest") this.shown.sort((a, b) => b.steps - a.steps);
    if (name === "Mispredicted") this.shown.sort((a, b) => b.wrong.length - a.wrong.length);
    this.items = this.shown.map((entry) => this.item(entry));
    this.box.replaceChildren(...(this.items.length ? this.items : [el("li", { class: "none" }, "none of these")]));
    this.step = this.filters[number][2];
    this.mark(this.picked);
    if (this.shown.length && (this.step || !this.shown.includes(this.picked))) {
      this.pick(this.shown.includes(this.picked) ? this.picked : this.shown[0]);
    }
  }

  item(entry) {
    const wrong = entry.wrong.length;
    const marks = entry.rewards.slice(0, 200).map(([step, value]) =>
      shape(value > 0 ? "up" : "down", 4 + (232 * (step + 0.5)) / entry.steps, 7, 4));
    return el("li", { role: "option", id: `episode-${entry.episode}`, "aria-selected": "false", "data-episode": entry.episode,
      on: { click: () => this.pick(entry) } },
      el("span", { class: "number" }, `Episode ${entry.episode.toLocaleString("en")}`),
      el("span", { class: entry.return > 0 ? "gain" : entry.return < 0 ? "loss" : "nothing" }, brief(entry.return)),
      svg("svg", { viewBox: "0 0 240 14", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("line", { x1: 4, x2: 236, y1: 7, y2: 7, stroke: "currentColor", opacity: 0.25 }), marks),
      el("span", { class: "small" }, plural(entry.steps, "step")),
      el("span", { class: wrong ? "small bad" : "small" }, wrong ? `✕ ${wrong} mispredicted` : ""));
  }

  pick(entry) {
    this.picked = entry;
    this.mark(entry);
    this.onPick(entry, this.step && this.step(entry));
  }

  mark(entry) {
    this.items.forEach((item, i) => {
      item.setAttribute("aria-selected", String(this.shown[i] === entry));
      if (this.shown[i] !== entry) return;
      this.box.setAttribute("aria-activedescendant", item.id);
      // Within the list alone: the page itself stays where it is.
      const [top, bottom] = [item.offsetTop - this.box.offsetTop, item.offsetTop - this.box.offsetTop + item.offsetHeight];
      if (top < this.box.scrollTop) this.box.scrollTop = top - 4;
      else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight + 4;
    });
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
