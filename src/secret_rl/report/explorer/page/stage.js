// The picture of the present step: a maze drawn from numbers, a frame out of a sheet, a map from above, or values.

const MAZE = { floor: "#18181c", line: "#2c2c32", wall: "#707078", agent: "#ffd60a", switch: "#dc2626", prize: "#ff80c0" };
const ROOMS = { wall: "#34343c", floor: "#b0b0a8", line: "#a0a098", agent: "#ff60d0", goal: "#ffd60a" };
const KEY_COLOURS = { red: "#dc2626", green: "#16a34a", blue: "#2563eb", white: "#ffffff", black: "#18181b" };

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.aspectRatio = `${width} / ${height}`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

const there = (gone, count) => gone < 0 || count < gone;

function drawTriggers(canvas, scene, count, heat, most) {
  const side = scene.size + 2;
  const pixels = Math.max(6, Math.floor(roomFor(most) / side));
  const c = sized(canvas, side * pixels, side * pixels);
  c.fillStyle = MAZE.wall;
  c.fillRect(0, 0, side * pixels, side * pixels);
  c.fillStyle = MAZE.floor;
  c.fillRect(pixels, pixels, scene.size * pixels, scene.size * pixels);
  c.strokeStyle = MAZE.line;
  for (let i = 1; i < scene.size; i++) {
    const at = (i + 1) * pixels + 0.5;
    line(c, at, pixels, at, pixels * (side - 1));
    line(c, pixels, at, pixels * (side - 1), at);
  }
  if (heat) heat(c, side * pixels, side * pixels);
  const corner = (cell) => [((cell % scene.size) + 1) * pixels, (Math.floor(cell / scene.size) + 1) * pixels];
  const gap = Math.max(1, pixels / 8);
  const square = (cell, style) => {
    const [x, y] = corner(cell);
    c.fillStyle = style;
    c.fillRect(x + gap, y + gap, pixels - 2 * gap, pixels - 2 * gap);
    return [x + pixels / 2, y + pixels / 2];
  };
  for (const [cell, gone] of scene.triggers) {
    if (there(gone, count)) {
      const [x, y] = square(cell, MAZE.switch);
      c.fillStyle = "#ffffff";
      disc(c, x, y, pixels * 0.1);
    } else {
      const [x, y] = corner(cell);
      c.strokeStyle = MAZE.switch;
      c.setLineDash([3, 3]);
      c.strokeRect(x + gap, y + gap, pixels - 2 * gap, pixels - 2 * gap);
      c.setLineDash([]);
    }
  }
  for (const [cell, gone] of scene.prizes) {
    if (!there(gone, count)) continue;
    const [x, y] = square(cell, MAZE.prize);
    c.fillStyle = "#5b1037";
    c.fill(new Path2D(SHAPES.diamond(x, y, pixels * 0.17)));
  }
  square(scene.agent[count], MAZE.agent);
  const left = scene.triggers.filter(([, gone]) => there(gone, count)).length;
  canvas.setAttribute(
    "aria-label",
    `Maze of ${scene.size} by ${scene.size} cells: agent in row ${Math.floor(scene.agent[count] / scene.size) + 1}, ` +
      `column ${(scene.agent[count] % scene.size) + 1}; ${plural(left, "switch").replace("switchs", "switches")} left`,
  );
}

function drawFrame(canvas, frames, image, count, heat, most) {
  const [width, height] = frames.size;
  const grown = Math.min(roomFor(most) / width, 330 / height);
  const factor = grown > 6 ? Math.floor(grown) : grown; // whole pixels, where they can be seen
  const [w, h] = [Math.round(width * factor), Math.round(height * factor)];
  const c = sized(canvas, w, h);
  const at = frames.at[count];
  c.imageSmoothingEnabled = factor < 3;
  if (image) {
    const left = (at % frames.columns) * frames.pitch[0];
    c.drawImage(image, left, Math.floor(at / frames.columns) * frames.pitch[1], width, height, 0, 0, w, h);
  }
  if (heat) heat(c, w, h);
  canvas.setAttribute("aria-label", `Frame after step ${count}`);
}

function drawRooms(canvas, map, places, count, heat) {
  const pixels = Math.max(6, Math.floor(roomFor(285) / map.width));
  const [w, h] = [map.width * pixels, map.height * pixels];
  const c = sized(canvas, w, h);
  c.fillStyle = ROOMS.wall;
  c.fillRect(0, 0, w, h);
  c.fillStyle = ROOMS.floor;
  for (const [x, y, wide, high] of map.rooms) c.fillRect(x * pixels, y * pixels, wide * pixels, high * pixels);
  for (const [x, y] of map.doors) c.fillRect(x * pixels, y * pixels, pixels, pixels);
  if (heat) heat(c, w, h);
  for (const [x, y, name, gone, upright] of map.doors) {
    if (!there(gone, count)) continue;
    c.fillStyle = KEY_COLOURS[name] || "#888888";
    const thin = pixels / 3;
    if (upright) c.fillRect(x * pixels + thin, y * pixels, thin, pixels);
    else c.fillRect(x * pixels, y * pixels + thin, pixels, thin);
  }
  c.strokeStyle = "#55555c";
  for (const [x, y, name, gone] of map.keys) {
    if (!there(gone, count)) continue;
    c.fillStyle = KEY_COLOURS[name] || "#888888";
    disc(c, (x + 0.5) * pixels, (y + 0.5) * pixels, pixels * 0.26);
    c.stroke();
  }
  c.fillStyle = ROOMS.goal;
  c.fill(new Path2D(SHAPES.diamond((map.goal[0] + 0.5) * pixels, (map.goal[1] + 0.5) * pixels, pixels * 0.36)));
  const spot = (i) => [(places.x[i] / 1000) * w, (places.y[i] / 1000) * h];
  c.strokeStyle = "#783c8c";
  c.beginPath();
  for (let i = Math.max(0, count - 40); i <= count; i++) c.lineTo(...spot(i));
  c.stroke();
  c.fillStyle = ROOMS.agent;
  disc(c, ...spot(count), pixels * 0.22);
  c.strokeStyle = "#ffffff";
  c.stroke();
  canvas.setAttribute("aria-label", `Map from above after step ${count}`);
}

// Adds attention to the cells where the agent was after each step: of one reward, or of all of a trajectory.
function addHeat(cells, entry, row) {
  const [columns, rows] = entry.places.cells;
  for (const [step, share] of shares(entry, row)) {
    const column = clamp(Math.floor((entry.places.x[step + 1] / 1000) * columns), 0, columns - 1);
    const line = clamp(Math.floor((entry.places.y[step + 1] / 1000) * rows), 0, rows - 1);
    const cell = line * columns + column;
    cells.set(cell, (cells.get(cell) || 0) + share);
  }
}

function paintHeat(c, cells, columns, rows, width, height) {
  const most = Math.max(...cells.values(), 1e-9);
  const [w, h] = [width / columns, height / rows];
  for (const [cell, share] of cells) {
    c.fillStyle = `rgba(86, 180, 233, ${0.08 + 0.82 * (share / most)})`;
    c.fillRect((cell % columns) * w + 0.5, Math.floor(cell / columns) * h + 0.5, w - 1, h - 1);
  }
  return [w, h, most];
}

function heatOver(entry, row) {
  if (!entry.places) return null;
  const [columns, rows] = entry.places.cells;
  const cells = new Map();
  addHeat(cells, entry, row);
  return (c, width, height) => {
    const [w, h, most] = paintHeat(c, cells, columns, rows, width, height);
    if (w < 22) return;
    for (const [cell, share] of cells) {
      if (share < 0.01) continue;
      c.fillStyle = share / most > 0.45 ? "#08202f" : "#d8eefb";
      c.font = `600 ${Math.min(11, w / 2.6)}px system-ui, sans-serif`;
      c.fillText((100 * share).toFixed(0), (cell % columns) * w + 2, Math.floor(cell / columns) * h + Math.min(11, h / 2.6));
    }
  };
}

function showValues(box, values, count) {
  const rows = values.names.map((name, i) => {
    const [low, high] = [Math.min(...values.rows[i]), Math.max(...values.rows[i])];
    const y = (value) => (high > low ? 20 - (18 * (value - low)) / (high - low) : 11);
    const points = values.rows[i].map((value, t) => `${(100 * t) / (values.rows[i].length - 1)},${y(value)}`);
    const at = (100 * count) / (values.rows[i].length - 1);
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, brief(values.rows[i][count])),
      el("td", {}, svg("svg", { viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("polyline", { class: "trace", points: points.join(" "), "vector-effect": "non-scaling-stroke" }),
        svg("line", { x1: at, x2: at, y1: 0, y2: 22, stroke: "currentColor", "vector-effect": "non-scaling-stroke" }))));
  });
  const rest = values.left_out ? el("p", { class: "nothing" }, `and ${plural(values.left_out, "number")} more`) : null;
  box.replaceChildren(el("table", { "aria-label": "Observation" }, el("tbody", {}, rows)), rest || "");
}

function roomFor(most) {
  return Math.min(most, byId("watch").clientWidth);
}
function line(c, x1, y1, x2, y2) {
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x2, y2);
  c.stroke();
}
function disc(c, x, y, radius) {
  c.beginPath();
  c.arc(x, y, radius, 0, 2 * Math.PI);
  c.fill();
}
