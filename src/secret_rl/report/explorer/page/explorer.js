// The page: the selected trajectory, step and reward, and the controls.

// How far a method can be trusted: in words, one fact each.
function standing({ method, verdict, gain, quality, overview }) {
  const judged = quality || (overview && overview.quality);
  const facts = method ? [`method: ${method}`] : [];
  if (verdict) facts.push(gain === null || gain === undefined ? verdict : `${verdict} (history gain ${percent(gain)})`);
  if (judged) {
    facts.push(`credit quality: average precision ${judged.average_precision.toFixed(3)}, precision ${judged.precision.toFixed(3)}, ` +
      `recall ${judged.recall.toFixed(3)}, by “${judged.truth}” for ${plural(judged.rows, "reward")}`);
  } else facts.push("credit quality: not known, as the data does not say what earned the rewards");
  return facts;
}

// Which rewards of a trajectory have no attention on the page.
function leftOut(entry) {
  const { rewards = 0, alarms = 0 } = entry.left_out || {};
  const parts = [rewards && plural(rewards, "reward"), alarms && plural(alarms, "false alarm")].filter(Boolean);
  return parts.length ? el("p", { class: "nothing", id: "left-out" }, `Left out: the steps of ${parts.join(" and ")} of this episode.`) : "";
}

class Explorer {
  constructor(data) {
    this.data = data;
    this.count = 0; // steps taken: the picture is that after this many
    this.row = null; // attention of the chosen reward
    this.timer = null;
    this.image = null;
    data.trajectories.forEach((entry, i) => prepare(Object.assign(entry, { frames: data.frames[i] }), data.classes.signs));
    this.timeline = new Timeline(byId("timeline"), {
      isCredit: !data.doubt,
      beside: data.beside,
      onScrub: (count) => this.goTo(count),
      onZoom: () => this.address?.save(),
      onChoose: (step) => this.choose(this.row && this.row.step === step ? null : step),
    });
    this.about();
    this.controls();
    exportButtons(this);
    this.list = new TrajectoryList(data.trajectories, {
      onPick: (entry, step) => this.show(entry, step),
      onChange: () => this.changed(),
    });
    this.overview = new Overview(data, (change) => this.list.set(change));
    this.address = new Address(() => this.state(), (state) => this.restore(state));
    this.restore(readAddress());
  }

  about() {
    const { data } = this;
    const shown = data.trajectories.length;
    const left = data.episodes - shown;
    const count = `${trajectories(shown)} of ${data.episodes.toLocaleString("en")}${left ? `; ${left.toLocaleString("en")} are left out` : ""}`;
    const parts = [data.env, data.options, count];
    byId("title").textContent = data.title;
    byId("about").textContent = parts.filter(Boolean).join(" · ");
    byId("verdict").textContent = [`model: ${data.model}`, ...standing(data)].join(" · ");
    byId("report").hidden = !data.report;
    if (data.report) byId("report").setAttribute("href", data.report);
    byId("doubt").textContent = data.doubt || "";
    byId("doubt").hidden = !data.doubt;
    byId("notes").replaceChildren(...data.notes.map((note) => el("li", {}, note)));
    const symbol = (kind, more) => svg("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, shape(kind, 7, 7, 5, more));
    const symbols = [["up", "", "positive reward"], ["down", "", "negative reward"], ["up", "hollow", "predicted"],
      ["cross", "", "mispredicted"], ["diamond", "", "true event"]];
    byId("legend").replaceChildren(...symbols.map(([kind, more, name]) => el("li", {}, symbol(kind, more), name)));
  }

  controls() {
    const click = (id, action) => byId(id).addEventListener("click", action);
    click("first", () => this.goTo(0));
    click("back", () => this.goTo(this.count - 1));
    click("on", () => this.goTo(this.count + 1));
    click("last", () => this.goTo(this.entry.steps));
    click("play", () => this.play(!this.timer));
    click("theme", () => this.theme());
    click("zoom-in", () => this.timeline.zoom(0.5));
    click("zoom-out", () => this.timeline.zoom(2));
    byId("with-choice").hidden = !this.data.beside.length;
    byId("with").append(...this.data.beside.map((name) => el("option", { value: name }, name)));
    byId("with").addEventListener("change", (event) => this.compare(event.target.value));
    byId("scrub").addEventListener("input", (event) => this.goTo(Number(event.target.value)));
    byId("speed").addEventListener("change", () => this.timer && this.play(true));
    byId("heat").addEventListener("change", () => this.picture());
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("resize", () => this.entry && this.picture());
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.picture());
  }

  theme() {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const now = document.documentElement.dataset.theme || system;
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    this.picture();
    this.changed();
  }

  // What the address holds; what is as usual is left out.
  state() {
    const { filter, ...list } = this.list.state;
    return { episode: this.entry.episode, step: this.count, reward: this.row ? this.row.step + 1 : "none",
      theme: document.documentElement.dataset.theme, filter: filter === "all" ? "" : filter, ...list, with: this.compared,
      zoom: this.timeline.zoomed ? [this.timeline.from, this.timeline.to].map(Math.round).join("-") : "" };
  }

  restore(state) {
    if (["dark", "light"].includes(state.theme)) document.documentElement.dataset.theme = state.theme;
    const { filter = "all", cell = "", far = "", sort = "", search = "" } = state;
    const pair = (text) => (/^\d+-\d+$/.test(text) ? text : "");
    this.list.set({ filter: filter in this.list.filters ? filter : "all", cell: pair(cell), far: pair(far),
      sort: sort in SORTS ? sort : "", search }, false);
    const entry = this.data.trajectories.find((each) => String(each.episode) === state.episode);
    if (!entry && this.list.shown.length && !this.list.shown.includes(this.list.picked)) this.list.picked = this.list.shown[0];
    if (entry) this.list.picked = entry;
    this.list.pick(this.list.picked);
    if (entry && "reward" in state) this.choose(state.reward === "none" ? null : Number(state.reward) - 1);
    if (entry && Number.isInteger(Number(state.step)) && "step" in state) this.goTo(Number(state.step));
    this.compare(state.with || "");
    const [from, to] = pair(state.zoom || "").split("-").map(Number);
    if (entry && to > from && to <= entry.steps) this.timeline.look(from, Math.max(to - from, Math.min(FEWEST_STEPS, entry.steps)));
    this.overview.mark(this.list.state);
  }

  changed() {
    this.overview.mark(this.list.state);
    this.address.save();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select, input[type=search]")) return;
    const onButton = event.target.closest("button, [role=button], input[type=checkbox]");
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => this.goTo(this.count - far),
      ArrowRight: () => this.goTo(this.count + far),
      Home: () => this.goTo(0),
      End: () => this.goTo(this.entry.steps),
      " ": () => this.play(!this.timer),
      ",": () => this.nextReward(-1),
      ".": () => this.nextReward(1),
      Escape: () => this.choose(null),
      "[": () => this.list.move(-1),
      "]": () => this.list.move(1),
      h: () => byId("heat").click(),
      "+": () => this.timeline.zoom(0.5),
      "-": () => this.timeline.zoom(2),
      "0": () => this.timeline.zoom(Infinity),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || (event.key === " " && onButton)) return;
    event.preventDefault();
    action();
  }

  // A trajectory, at the reward at some step if its attention is there, else at one that tells most.
  async show(entry, step) {
    this.play(false);
    this.entry = entry;
    this.image = null;
    byId("name").textContent = `Episode ${entry.episode.toLocaleString("en")}`;
    const wrong = entry.wrong.length ? `, ${entry.wrong.length} mispredicted` : ", every reward predicted";
    byId("outcome").textContent = `return ${brief(entry.return)} in ${plural(entry.steps, "step")}, ${ENDS[entry.ended]}${wrong}`;
    byId("scrub").max = entry.steps;
    byId("stage-figure").hidden = !entry.scene && !entry.frames;
    byId("map-figure").hidden = !entry.map;
    byId("values").hidden = !entry.values;
    byId("watch").classList.toggle("numbers", Boolean(entry.values));
    byId("heat-choice").hidden = !entry.places;
    const best = entry.attention.filter((row) => row.kind === "right");
    const first = [...best, ...entry.attention].find((row) => entry.rewardAt.get(row.step) > 0) || best[0] || entry.attention[0];
    this.row = entry.rowAt.get(step) || first || null;
    this.draw();
    this.goTo(step !== undefined ? step + 1 : this.row ? this.row.step + 1 : 0);
    this.earned();
    if (entry.frames) {
      const image = new Image();
      image.src = entry.frames.sheet;
      await image.decode();
      if (this.entry !== entry) return;
      this.image = image;
      this.picture();
    }
  }

  draw() {
    this.timeline.show(this.entry, this.row, this.other(), this.data.potential);
  }

  // The method that is compared, and its credit for the chosen reward.
  other() {
    const number = this.data.beside.indexOf(this.compared);
    if (number < 0) return null;
    const at = this.row ? this.entry.attention.indexOf(this.row) : -1;
    const known = (this.data.about_beside || [])[number] || {};
    return { name: this.compared, known, isCredit: !known.doubt, row: at < 0 ? null : this.entry.beside[number][at] };
  }

  compare(name) {
    this.compared = this.data.beside.includes(name) ? name : "";
    byId("with").value = this.compared;
    this.draw();
    this.goTo(this.count);
    this.earned();
    this.address?.save();
  }

  goTo(count) {
    this.count = clamp(count, 0, this.entry.steps);
    byId("scrub").value = this.count;
    byId("scrub").setAttribute("aria-valuetext", `after step ${this.count} of ${this.entry.steps}`);
    this.timeline.moveTo(this.count);
    this.picture();
    this.facts();
    this.address?.save();
  }

  play(on) {
    window.clearInterval(this.timer);
    this.timer = null;
    if (on) {
      if (this.count >= this.entry.steps) this.goTo(0);
      this.timer = window.setInterval(() => {
        this.goTo(this.count + 1);
        if (this.count >= this.entry.steps) this.play(false);
      }, 1000 / Number(byId("speed").value));
    }
    byId("play").textContent = on ? "❚❚" : "▶";
    byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
  }

  choose(step) {
    this.row = step === null ? null : this.entry.rowAt.get(step) || null;
    this.address?.save();
    const focused = document.activeElement && document.activeElement.closest(".mark");
    this.draw();
    if (this.row) this.goTo(this.row.step + 1);
    else this.goTo(this.count);
    this.earned();
    if (focused) this.timeline.svg.querySelector(`[data-reward="${Number(focused.dataset.reward)}"]`)?.focus();
  }

  nextReward(direction) {
    const steps = this.entry.attention.map((row) => row.step);
    if (!steps.length) return;
    const here = this.row ? this.row.step : this.count - 1;
    const next = direction > 0 ? steps.find((step) => step > here) : steps.findLast((step) => step < here);
    this.choose(next === undefined ? (direction > 0 ? steps[steps.length - 1] : steps[0]) : next);
  }

  picture() {
    const { entry, count } = this;
    const heat = byId("heat").checked ? heatOver(entry, this.row) : null;
    const other = this.other();
    const two = Boolean(other && entry.places);
    byId("other-figure").hidden = !two;
    for (const [id, words] of [["stage-name", two ? this.data.method || "this model" : ""], ["map-name", two ? this.data.method || "this model" : ""],
      ["other-name", two ? other.name : ""]]) byId(id).textContent = words;
    const place = (canvas, heat) => {
      if (entry.map) drawRooms(canvas, entry.map, entry.places, count, heat);
      else if (entry.scene) drawTriggers(canvas, entry.scene, count, heat, two ? 300 : 360);
      else drawFrame(canvas, entry.frames, this.image, count, heat, two ? 300 : 400);
    };
    if (entry.scene || (entry.frames && !entry.map)) place(byId("stage"), heat);
    if (entry.map && entry.frames) drawFrame(byId("stage"), entry.frames, this.image, count, null, 285);
    if (entry.map) place(byId("map"), heat);
    if (two) place(byId("other-stage"), heat && (other.row ? heatOver(entry, other.row) : () => {}));
    if (entry.values) showValues(byId("values"), entry.values, count);
  }

  facts() {
    const { entry } = this;
    const step = this.count - 1;
    const box = byId("facts");
    if (step < 0) {
      box.replaceChildren(el("h3", {}, "Start"), el("p", { class: "nothing" }, "No step has been taken."));
      return;
    }
    const reward = entry.rewardAt.get(step) || 0;
    const { names, signs } = this.data.classes;
    const chances = names.map((name, i) => [name, { "1": "gain", "0": "nothing", "-1": "loss" }[signs[i]], entry.chances[i][step] / 255]);
    const bars = chances.reverse().map(([name, kind, chance]) => {
      const bar = el("b");
      bar.style.width = `${100 * chance}%`;
      return el("div", { class: `chance ${kind}` }, el("span", {}, name), el("i", {}, bar), el("em", {}, percent(chance)));
    });
    const action = entry.actions[step];
    const rows = [
      ["Action", this.data.actions && this.data.actions[action] !== undefined ? this.data.actions[action] : String(action)],
      ["Reward", el("span", { class: reward > 0 ? "gain" : reward < 0 ? "loss" : "nothing" }, brief(reward))],
      ["Predicted", el("span", { class: entry.wrongAt.has(step) ? "wrong" : "" }, names[entry.predicted[step]] + (entry.wrongAt.has(step) ? " ✕" : " ✓"))],
      ["", el("div", {}, bars)],
    ];
    if (this.row) {
      const at = this.row.to.indexOf(step);
      if (step <= this.row.step) rows.push([this.data.doubt || this.row.kind !== "right" ? "Looked at" : "Earned", el("span", { class: "credit" }, at < 0 ? "0 %" : percent(this.row.shares[at]))]);
    }
    const other = this.other();
    if (other?.row && step <= this.row.step) {
      const at = other.row.to.indexOf(step);
      rows.push([`${other.name}`, el("span", { class: "credit" }, at < 0 ? "0 %" : percent(other.row.shares[at]))]);
    }
    if (entry.potential) {
      const after = step + 1 < entry.steps ? entry.potential[step + 1] : (entry.shaping[step] + entry.potential[step]) / this.data.discount;
      rows.push(["Potential", `${brief(entry.potential[step])} → ${brief(after)}`]);
      rows.push(["Shaped", brief(reward + entry.shaping[step])]);
    }
    for (const name of entry.truthAt.get(step) || []) rows.push(["True event", el("span", { class: "truth" }, `◆ ${name}`)]);
    box.replaceChildren(el("h3", {}, `Step ${this.count} of ${entry.steps}`),
      el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  }

  earned() {
    const { entry, row } = this;
    const box = byId("earned");
    if (!row) {
      const none = entry.attention.length ? `Choose a reward to see which steps ${this.data.doubt ? "the model looked at" : "earned it"}.` : "No reward, and none was predicted.";
      box.replaceChildren(el("p", { class: "nothing" }, none), leftOut(entry));
      return;
    }
    const value = entry.rewardAt.get(row.step);
    const what = {
      right: `Reward ${brief(value || 0)} at step ${row.step + 1}: ${this.data.doubt ? "looked at" : "earned by"}`,
      inferred: `Reward ${brief(value || 0)} at step ${row.step + 1}: predicted where nothing else is found, so this is no credit. Looked at:`,
      decided: `Reward ${brief(value || 0)} at step ${row.step + 1}: the present decides it, so this is no credit. Looked at:`,
      missed: `Reward ${brief(value || 0)} at step ${row.step + 1} was not predicted, so this is no credit. Looked at:`,
      "false alarm": `A reward was predicted at step ${row.step + 1}, but none came. Looked at:`,
    }[row.kind];
    box.replaceChildren(el("p", { class: ["right", "inferred", "decided"].includes(row.kind) ? null : "wrong" }, what), ...this.earners(row, "earner"),
      leftOut(entry), ...this.otherEarned());
  }

  // The steps with the largest shares, to go to.
  earners(row, name) {
    const { truthAt } = this.entry;
    const order = row.to.map((step, i) => [step, row.shares[i]]).sort((a, b) => b[1] - a[1]).slice(0, 8);
    const rest = Math.max(0, 1 - order.reduce((sum, [, share]) => sum + share, 0));
    const items = order.map(([step, share]) => el("li", {}, el("button", { type: "button", class: truthAt.has(step) ? "true" : null,
      title: (truthAt.get(step) || []).join(", ") || null, [`data-${name}`]: step, on: { click: () => this.goTo(step + 1) } },
      `step ${step + 1}`, el("span", { class: "credit" }, percent(share)))));
    return [el("ol", {}, items), el("p", { class: "nothing" }, rest > 0.0005 ? `other steps ${percent(rest)}` : "")];
  }

  otherEarned() {
    const other = this.other();
    if (!other) return [];
    const words = other.row ? (other.isCredit ? "earned by" : "looked at") : "no credit for this reward";
    return [el("p", { class: "other" }, `${other.name}: ${words}`), ...(other.row ? this.earners(other.row, "other-earner") : []),
      other.known.doubt ? el("p", { class: "wrong" }, other.known.doubt) : "",
      el("p", { class: "nothing" }, standing(other.known).join(" · "))];
  }
}

readData().then((data) => {
  document.querySelector("main").hidden = false;
  document.querySelector("footer").hidden = false;
  new Explorer(data);
  document.documentElement.dataset.ready = "yes";
}).catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = `The page cannot be shown: ${error.message}`;
  throw error;
});
