// The whole data set at a glance: how far back credit lies, what is mispredicted, where the credited steps led.

class Overview {
  constructor(data, onFilter) {
    Object.assign(this, { data, onFilter });
    const { overview } = data;
    const words = data.doubt ? "the model looked" : "credit lies";
    byId("overview").hidden = !overview;
    if (!overview) return;
    const all = overview.counted === data.episodes;
    byId("counted").textContent = all ? `all ${trajectories(data.episodes)}`
      : `${trajectories(overview.counted)}, spread evenly over ${data.episodes.toLocaleString("en")}`;
    byId("distance-name").textContent = `How far back ${words}`;
    this.distances(overview);
    this.confusion(overview, data.classes.names);
    this.heat();
    byId("overview").open = window.innerWidth > 860 && window.self === window.top;  // in a frame, arcs come first
  }

  // Which bar or cell filters the list.
  mark({ cell, far }) {
    for (const node of byId("overview").querySelectorAll("[data-cell], [data-far]")) {
      const chosen = node.dataset.cell ? node.dataset.cell === cell : node.dataset.far === far;
      node.setAttribute("aria-pressed", String(chosen));
    }
  }

  toggle(name, value) {
    const chosen = this.marked()[name] === value;
    this.onFilter({ filter: "all", cell: "", far: "", [name]: chosen ? "" : value });
  }

  marked() {
    const pressed = (name) => byId("overview").querySelector(`[data-${name}][aria-pressed="true"]`)?.dataset[name] || "";
    return { cell: pressed("cell"), far: pressed("far") };
  }

  distances({ distances, rows, seen }) {
    const [height, floor] = [96, 112];
    const most = Math.max(...distances.map((bin) => bin.positive + bin.negative), 1e-9);
    const wide = 300 / distances.length;
    const bars = distances.map((bin, i) => {
      const [far, share] = [`${bin.from}-${bin.to}`, bin.positive + bin.negative];
      const [up, down] = [(height * bin.positive) / most, (height * bin.negative) / most];
      const here = this.data.trajectories.filter((entry) => farOf(entry, far) !== undefined).length;
      const name = bin.from === bin.to ? String(bin.from) : `${bin.from}–${bin.to}`;
      const label = `${name} steps back: ${percent(share)}; strongest there in ${trajectories(here)} of this page`;
      const [x, width] = [i * wide + 1, wide - 2];
      const filter = () => this.toggle("far", far);
      const press = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        filter();
      };
      const button = here ? { class: "bin", role: "button", tabindex: 0, "data-far": far, "aria-pressed": "false", on: { click: filter, keydown: press } } : { role: "img" };
      return svg("g", { ...button, "aria-label": label }, svg("title", {}, label),
        svg("rect", { class: "hit", x: i * wide, width: wide, y: 4, height: floor + 12 }),
        svg("rect", { class: "up", x, width, y: floor - up, height: up, "stroke-width": 0 }),
        svg("rect", { class: "down", x, width, y: floor - up - down, height: down, "stroke-width": 0 }),
        svg("text", { x: x + width / 2, y: floor + 13, "text-anchor": "middle" }, distances.length > 9 ? String(bin.from) : name));
    });
    byId("distances").replaceChildren(
      svg("svg", { viewBox: "0 0 300 130", role: "group", "aria-label": "Credit by distance" }, bars,
        svg("line", { class: "base", x1: 0, x2: 300, y1: floor, y2: floor })),
      el("p", { class: "nothing" }, `Steps before the reward, green for positive rewards, orange for negative ones. ` +
        `${rows.toLocaleString("en")} of ${plural(seen, "open reward")} are counted.`));
  }

  confusion({ confusion }, names) {
    const header = el("tr", {}, el("th", { scope: "col" }, "reward"), names.map((name) => el("th", { scope: "col" }, `as ${name}`)));
    const rows = confusion.map((counts, actual) => el("tr", {}, el("th", { scope: "row" }, names[actual]), counts.map((count, predicted) => {
      const cell = `${actual}-${predicted}`;
      const here = this.data.trajectories.filter((entry) => cellOf(entry, cell) !== undefined).length;
      const kind = actual === predicted ? "right" : count || here ? "off" : "none";
      const label = `${plural(count, "step")} with reward ${names[actual]} predicted as ${names[predicted]}; in ${trajectories(here)} of this page`;
      if (!here) return el("td", { class: kind, title: label }, count.toLocaleString("en"));
      return el("td", { class: kind }, el("button", { type: "button", title: label, "aria-label": label, "data-cell": cell, "aria-pressed": "false",
        on: { click: () => this.toggle("cell", cell) } }, count.toLocaleString("en"), el("span", {}, ` ${here}`)));
    })));
    byId("confusion").replaceChildren(el("table", { "aria-label": "Rewards and what they were predicted as" },
      el("thead", {}, header), el("tbody", {}, rows)));
  }

  // Attention to positive and negative rewards, by where the agent was after the step.
  heat() {
    const entries = this.data.trajectories.filter((entry) => entry.places);
    byId("where").hidden = !entries.length;
    if (!entries.length) return;
    const [columns, rows] = entries[0].places.cells;
    const alike = entries.filter((entry) => String(entry.places.cells) === String([columns, rows]));
    const cells = new Map();
    for (const entry of alike) addHeat(cells, entry, null);
    byId("where-name").textContent = this.data.doubt ? "Where the steps looked at led" : "Where the credited steps led";
    byId("where-note").textContent = `${trajectories(alike.length)} of this page, one over the other.`;
    const pixels = Math.max(3, Math.floor(Math.min(220 / columns, 150 / rows)));
    this.paint = () => {
      const c = sized(byId("over-all"), columns * pixels, rows * pixels);
      c.fillStyle = MAZE.floor;
      c.fillRect(0, 0, columns * pixels, rows * pixels);
      paintHeat(c, cells, columns, rows, columns * pixels, rows * pixels);
    };
    this.paint();
    const [hottest] = [...cells].reduce((best, each) => (each[1] > best[1] ? each : best), [0, -1]);
    byId("over-all").setAttribute("aria-label",
      `Heat over ${columns} by ${rows} cells; most in row ${Math.floor(hottest / columns) + 1}, column ${(hottest % columns) + 1}`);
  }
}
