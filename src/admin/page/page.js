"use strict";
// Names and reasons come from whoever configures or answers: they are only ever set as text.
const STATES = ["healthy", "degraded", "unhealthy", "unknown"];
const ORDER = { unhealthy: 0, degraded: 1, unknown: 2, healthy: 3 };
const MAPS = 40, ROWS = 100, EVENTS = 100;
const by = (id) => document.getElementById(id);
const clusters = new Map();
let events = [], lastEvent = 0, selected = null, rowsDue = false, eventsDue = false, queued = false;

function el(tag, cls, ...inside) {
  const made = document.createElement(tag);
  if (cls) made.className = cls;
  made.append(...inside);
  return made;
}
const stateWord = (state) => el("span", "state " + (STATES.includes(state) ? state : "unknown"), state);
const place = (of) => [of.region, of.zone, of.sub_zone].join("/").replace(/\/+$/, "");
function ago(time) {
  const s = Math.max(0, Math.round((Date.now() - Date.parse(time)) / 1000));
  if (s < 120) return s + " s ago";
  if (s < 7200) return Math.round(s / 60) + " min ago";
  return s < 172800 ? Math.round(s / 3600) + " h ago" : Math.round(s / 86400) + " d ago";
}
function moment(time) {
  const made = el("time", "", ago(time));
  made.dateTime = time;
  made.title = time;
  return made;
}
const hex = (bytes) => bytes.replace(/../g, "$& ").trim();
function why(reason) {
  if (!reason) return "";
  return reason.bytes === undefined ? reason.text : reason.text + ": " + (hex(reason.bytes) || "nothing");
}

// Who cannot be asked now is asked again later; the line at the top tells of it.
const ask = (path) => fetch(path).catch(() => ({ ok: false }));

// Which hosts are to be seen.
const form = by("filter");
function filter() {
  return { cluster: form.cluster.value, locality: form.locality.value, state: form.state.value };
}
function wanted(host, f) {
  return (!f.state || host.state === f.state) && (!f.locality || host.place.includes(f.locality));
}
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", () => {
  const f = filter(), query = new URLSearchParams();
  for (const name in f) if (f[name]) query.set(name, f[name]);
  history.replaceState(null, "", "?" + query);
  for (const cluster of clusters.values()) cluster.whole = true;
  soon();
});

// What comes.
function reset() {
  for (const cluster of clusters.values()) forget(cluster);
  clusters.clear();
  by("clusters").tBodies[0].replaceChildren();
}
function forget(cluster) {
  cluster.row.remove();
  if (cluster.map) cluster.map.remove();
}
function known(key) {
  let cluster = clusters.get(key);
  if (!cluster) {
    cluster = { key, name: key, hosts: new Map(), counts: {}, dirty: new Set(), whole: true, shown: [], row: el("tr") };
    for (const state of STATES) cluster.counts[state] = 0;
    clusters.set(key, cluster);
    const body = by("clusters").tBodies[0];
    const after = [...clusters.values()].filter((c) => c !== cluster && c.key > key).sort((a, b) => (a.key < b.key ? -1 : 1))[0];
    body.insertBefore(cluster.row, after ? after.row : null);
  }
  return cluster;
}
function takeHosts(data) {
  const cluster = known(data.cluster);
  for (const item of data.list) {
    const before = cluster.hosts.get(item.address);
    const host = before || { address: item.address, cluster };
    if (before) cluster.counts[before.state]--;
    const shape = host.state + host.place;
    Object.assign(host, { state: item.state, since: item.since, reason: item.reason, place: place(item.locality),
      priority: item.priority, weight: item.weight });
    if (cluster.counts[host.state] === undefined) cluster.counts[host.state] = 0;
    cluster.counts[host.state]++;
    if (!before) {
      cluster.hosts.set(item.address, host);
      cluster.whole = true;
    } else if (shape !== host.state + host.place) {
      cluster.dirty.add(host);
      const f = filter();
      if (f.state || f.locality) cluster.whole = true;
    }
  }
  cluster.counted = false;
  soon();
}
function takeGone(data) {
  const cluster = known(data.cluster);
  for (const address of data.list) {
    const host = cluster.hosts.get(address);
    if (!host) continue;
    cluster.counts[host.state]--;
    cluster.hosts.delete(address);
  }
  cluster.whole = true;
  cluster.counted = false;
  soon();
}
function soon() {
  if (!queued) {
    queued = true;
    requestAnimationFrame(draw);
  }
  rowsDue = true;
}

// What is drawn.
let colors = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of [...STATES, "mark", "line", "dim", "text"]) colors[name] = style.getPropertyValue("--" + name).trim();
}
function cell(context, state, x, y, size) {
  context.clearRect(x, y, size, size);
  const side = size - (size > 6 ? 2 : 1);
  if (state === "unknown") {
    context.strokeStyle = colors.unknown;
    context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    return;
  }
  context.fillStyle = colors[state] || colors.unknown;
  context.fillRect(x, y, side, side);
  if (size < 6 || state === "healthy") return;
  // Told apart without colours too: a cross, or a lower half.
  context.strokeStyle = context.fillStyle = colors.mark;
  if (state === "unhealthy") {
    const at = side / 4;
    context.beginPath();
    context.moveTo(x + at, y + at);
    context.lineTo(x + side - at, y + side - at);
    context.moveTo(x + side - at, y + at);
    context.lineTo(x + at, y + side - at);
    context.stroke();
  } else {
    context.beginPath();
    context.moveTo(x + side, y);
    context.lineTo(x + side, y + side);
    context.lineTo(x, y + side);
    context.fill();
  }
}
function drawMap(cluster, f) {
  if (!cluster.map) {
    cluster.canvas = el("canvas");
    cluster.title = el("h3", "name");
    cluster.map = el("div", "map", cluster.title, cluster.canvas);
    cluster.canvas.setAttribute("role", "img");
    cluster.canvas.addEventListener("mousemove", (event) => point(cluster, event));
    cluster.canvas.addEventListener("mouseleave", () => { by("tip").hidden = true; });
    cluster.canvas.addEventListener("click", (event) => {
      const host = under(cluster, event);
      if (host) select(host);
    });
    const after = [...by("cells").children].find((map) => map.dataset.key > cluster.key);
    cluster.map.dataset.key = cluster.key;
    by("cells").insertBefore(cluster.map, after || null);
    cluster.whole = true;
  }
  const context = cluster.canvas.getContext("2d");
  if (cluster.whole) {
    cluster.shown = [...cluster.hosts.values()].filter((host) => wanted(host, f));
    cluster.shown.forEach((host, at) => { host.at = at; });
    const width = by("cells").clientWidth, count = cluster.shown.length, scale = devicePixelRatio || 1;
    cluster.size = count <= 300 ? 18 : count <= 3000 ? 13 : count <= 40000 ? 9 : 5;
    cluster.columns = Math.max(1, Math.floor(width / cluster.size));
    const height = Math.max(1, Math.ceil(count / cluster.columns)) * cluster.size;
    cluster.canvas.width = width * scale;
    cluster.canvas.height = height * scale;
    cluster.canvas.style.width = width + "px";
    cluster.canvas.style.height = height + "px";
    context.scale(scale, scale);
    cluster.title.textContent = cluster.name;
    cluster.map.hidden = count === 0;
  }
  for (const host of cluster.whole ? cluster.shown : cluster.dirty) {
    if (cluster.shown[host.at] !== host) continue;
    cell(context, host.state, (host.at % cluster.columns) * cluster.size, Math.floor(host.at / cluster.columns) * cluster.size, cluster.size);
  }
  cluster.whole = false;
  cluster.dirty.clear();
  const say = STATES.filter((state) => cluster.counts[state]).map((state) => cluster.counts[state] + " " + state);
  cluster.canvas.setAttribute("aria-label", cluster.name + ": " + say.join(", "));
}
function bar(cluster) {
  const make = (tag, of) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in of) made.setAttribute(name, of[name]);
    return made;
  };
  const whole = make("svg", { class: "bar", viewBox: "0 0 160 8", "aria-hidden": "true" });
  let x = 0;
  for (const state of STATES) {
    const width = (160 * cluster.counts[state]) / (cluster.hosts.size || 1);
    if (width) whole.append(make("rect", { class: "fill-" + state, x, y: 0, width: Math.max(width, 1.5), height: 8 }));
    x += width;
  }
  return whole;
}
function drawCounts(cluster) {
  const link = el("button", "link name", cluster.name);
  link.type = "button";
  link.addEventListener("click", () => {
    form.cluster.value = form.cluster.value === cluster.name ? "" : cluster.name;
    form.dispatchEvent(new Event("input"));
  });
  const cells = [el("td", "", link), el("td", "n", String(cluster.hosts.size))];
  for (const state of STATES) {
    const count = cluster.counts[state];
    cells.push(el("td", "n" + (count && state !== "healthy" ? " " + state : ""), String(count)));
  }
  cells.push(el("td", "", bar(cluster)), el("td", "dim", cluster.initialized === false ? "first checks run" : ""));
  cluster.row.replaceChildren(...cells);
  cluster.counted = true;
}
function draw() {
  queued = false;
  const f = filter();
  let maps = 0, left = 0;
  by("maps").hidden = clusters.size === 0;
  for (const cluster of clusters.values()) {
    const shown = !f.cluster || cluster.name.includes(f.cluster);
    if (!cluster.counted) drawCounts(cluster);
    cluster.row.hidden = !shown;
    if (shown && maps < MAPS) {
      maps++;
      if (cluster.whole || cluster.dirty.size || !cluster.map) drawMap(cluster, f);
      else cluster.map.hidden = cluster.shown.length === 0;
    } else {
      left += shown ? 1 : 0;
      if (cluster.map) cluster.map.hidden = true;
    }
  }
  by("fewer").hidden = left === 0;
  by("fewer").textContent = left + " more clusters: choose by name";
}
function drawRows() {
  rowsDue = false;
  const f = filter(), found = STATES.map(() => []);
  let count = 0;
  for (const cluster of clusters.values()) {
    if (f.cluster && !cluster.name.includes(f.cluster)) continue;
    for (const host of cluster.hosts.values()) {
      if (!wanted(host, f)) continue;
      count++;
      const list = found[ORDER[host.state] ?? 2];
      if (list.length < ROWS) list.push(host);
    }
  }
  const rows = found.flat().slice(0, ROWS).map((host) => {
    const link = el("button", "link a name", host.address);
    link.type = "button";
    link.addEventListener("click", () => select(host));
    return el("tr", "", el("td", "", stateWord(host.state)), el("td", "name", host.cluster.name), el("td", "", link),
      el("td", "name", host.place), el("td", "n", String(host.priority)), el("td", "n", String(host.weight)),
      el("td", "", moment(host.since)), el("td", "why name", why(host.reason)));
  });
  by("hosts").tBodies[0].replaceChildren(...rows);
  by("count").textContent = count + (count === 1 ? " host" : " hosts");
  by("more").textContent = count > rows.length ? count - rows.length + " more, which the cells above show" : "";
}

// Which host is under the mouse.
function under(cluster, event) {
  const box = cluster.canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / cluster.size), row = Math.floor((event.clientY - box.top) / cluster.size);
  return column < cluster.columns ? cluster.shown[row * cluster.columns + column] : undefined;
}
function point(cluster, event) {
  const tip = by("tip"), host = under(cluster, event);
  tip.hidden = !host;
  if (!host) return;
  tip.textContent = [host.address, host.place, host.state + " since " + ago(host.since).replace(" ago", ""), why(host.reason)].filter(Boolean).join(" \u00b7 ");
  tip.style.left = Math.min(event.clientX + 14, innerWidth - 440) + "px";
  tip.style.top = event.clientY + 16 + "px";
}

// One host.
async function select(host) {
  selected = { cluster: host.cluster.key, address: host.address };
  await tell();
  by("detail").scrollIntoView({ block: "nearest" });
}
async function tell() {
  const asked = selected;
  if (!asked) return;
  const query = new URLSearchParams(asked);
  const answer = await ask("hosts?" + String(query).replace(/\+/g, "%20"));
  const found = answer.ok ? (await answer.json()).hosts[0] : undefined;
  if (asked === selected) drawDetail(asked, found);
}
function pairs(...of) {
  return el("dl", "", ...of.filter((pair) => pair[1] !== undefined && pair[1] !== "").flatMap(([name, value]) => [el("dt", "", name), el("dd", "name", value)]));
}
function drawDetail(asked, host) {
  const panel = by("detail"), close = el("button", "", "Close");
  close.type = "button";
  close.addEventListener("click", () => {
    selected = null;
    panel.hidden = true;
  });
  panel.hidden = false;
  if (!host) {
    panel.replaceChildren(close, el("h2", "", "Host"), el("p", "name", asked.address + " is gone"));
    return;
  }
  const parts = [close, el("h2", "", "Host"),
    pairs(["host", el("b", "a name", host.address)], ["cluster", host.cluster], ["state", stateWord(host.state)], ["since", moment(host.since)], ["flags", host.flags.join(" ")], ["why", why(host.reason)],
      ["locality", place(host.locality)], ["name", host.hostname], ["checked at", host.check_address],
      ["told by EDS", host.eds_health_status === "HEALTHY" ? undefined : host.eds_health_status], ["checks", host.check_disabled ? "disabled" : undefined])];
  const facts = parts.slice(2);
  for (const check of host.checks || []) {
    const next = check.state === "waiting" ? "in " + (check.due_in_ms / 1000).toFixed(1) + " s" : check.state === "queued" ? "as soon as there is room" : "runs";
    facts.push(pairs(["check", check.check || "without a name"],
      ["so far", check.failed ? check.successes + " of " + check.healthy_threshold + " successes that bring it back" : check.failures + " of " + check.unhealthy_threshold + " failures that eject it"],
      ["next attempt", next + ", by " + check.interval + " of " + check.interval_ms / 1000 + " s: " + check.why],
      ["round trip", check.round_trip_ms === undefined ? undefined : check.round_trip_ms + " ms"],
      ["last", check.last ? (check.last.passed ? "passed" : "failed" + (check.last.reason ? ": " + why(check.last.reason) : "")) : "none"]));
  }
  parts.length = 2;
  parts.push(el("div", "two", ...facts));
  const canvas = el("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "round trips of the last attempts and changes of state");
  const attempts = (host.attempts || []).slice(0, 12).map((attempt) => el("tr", "", el("td", "", moment(attempt.at)),
    el("td", attempt.passed ? "healthy" : "unhealthy", attempt.text), el("td", "name", attempt.check),
    el("td", "n", attempt.took_ms === undefined ? "" : attempt.took_ms + " ms")));
  const of = events.filter((event) => event.address === host.address && event.cluster === host.cluster);
  if (host.attempts && host.attempts.length) parts.push(canvas, el("table", "", el("tbody", "", ...attempts)));
  panel.replaceChildren(...parts);
  if (canvas.isConnected) timeline(canvas, host.attempts, of);
}
function timeline(canvas, attempts, changes) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = 110, low = height - 18;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const times = attempts.map((attempt) => Date.parse(attempt.at)), end = Math.max(...times), begin = Math.min(...times);
  const most = Math.max(1, ...attempts.map((attempt) => attempt.took_ms || 0));
  const x = (time) => 56 + (end > begin ? (time - begin) / (end - begin) : 1) * (width - 62);
  context.font = "11px system-ui, sans-serif";
  for (const change of changes) {
    const at = Date.parse(change.timestamp);
    if (at < begin || change.transition !== "changed") continue;
    context.strokeStyle = change.event === "eject_unhealthy" ? colors.unhealthy : colors.healthy;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x(at), 0);
    context.lineTo(x(at), low);
    context.stroke();
    context.setLineDash([]);
  }
  attempts.forEach((attempt, at) => {
    const left = x(times[at]), top = low - ((attempt.took_ms || 0) / most) * (low - 16);
    context.strokeStyle = context.fillStyle = attempt.passed ? colors.healthy : colors.unhealthy;
    context.beginPath();
    context.moveTo(left, low);
    context.lineTo(left, top);
    context.stroke();
    context.beginPath();
    if (attempt.passed) {
      context.arc(left, top, 2.5, 0, 7);
      context.fill();
    } else {
      context.moveTo(left - 3, top - 3);
      context.lineTo(left + 3, top + 3);
      context.moveTo(left + 3, top - 3);
      context.lineTo(left - 3, top + 3);
      context.stroke();
    }
  });
  context.fillStyle = colors.dim;
  context.fillText(most.toFixed(most < 10 ? 2 : 0) + " ms", 2, 12);
  context.fillText("0", 2, low);
  context.fillText(ago(new Date(begin)), 56, height - 4);
  context.fillRect(56, low, width - 58, 0.5);
  context.textAlign = "right";
  context.fillText(ago(new Date(end)), width - 2, height - 4);
}

// Events.
function takeEvents(list) {
  for (const event of list) {
    if (event.id <= lastEvent) continue;
    lastEvent = event.id;
    events.unshift(event);
    if (selected && event.address === selected.address) setTimeout(tell, 50);
  }
  events.length = Math.min(events.length, EVENTS);
  eventsDue = true;
}
function drawEvents() {
  eventsDue = false;
  const rows = events.slice(0, 30).map((event) => {
    const bad = event.event === "eject_unhealthy" || event.event === "failure", good = event.event === "add_healthy" || event.event === "success";
    return el("tr", "", el("td", "", moment(event.timestamp)), el("td", bad ? "unhealthy" : good ? "healthy" : "degraded", event.event.replace(/_/g, " ")),
      el("td", "name", event.cluster), el("td", "a name", event.address), el("td", "why name", why(event.reason)));
  });
  by("events").tBodies[0].replaceChildren(...rows);
}

// Management servers.
async function planes() {
  const answer = await ask("control_planes");
  if (!answer.ok) return;
  const rows = (await answer.json()).control_planes.map((plane) => {
    const about = [el("span", "name", plane.server), " ", el("span", "dim", plane.service + ", " + plane.mode)];
    const nack = plane.last_nack, told = [plane.last_answer ? el("span", "", "last answer ", moment(plane.last_answer)) : el("span", "dim", "no answer yet")];
    if (nack) told.push(el("div", "unhealthy", "refused ", moment(nack.at), " ", nack.type_url.split("/").pop(), " ", el("pre", "name", nack.details)));
    const failure = plane.last_failure;
    if (failure && (!plane.open || !plane.last_answer || plane.last_answer < failure.at)) told.push(el("div", "unhealthy", "failed ", moment(failure.at), " ", el("pre", "name", failure.reason)));
    return el("tr", "", el("td", "", ...about), el("td", plane.open ? "healthy" : "unhealthy", plane.open ? "open" : "closed", " since ", plane.since ? moment(plane.since) : "ever"), el("td", "why", ...told));
  });
  by("planes").tBodies[0].replaceChildren(...(rows.length ? rows : [el("tr", "", el("td", "dim", "none is configured"))]));
}

// The server.
async function server() {
  const answer = await ask("server_info");
  if (!answer.ok) return;
  const state = (await answer.json()).state, badge = by("state");
  badge.textContent = state;
  badge.className = "badge " + (state === "LIVE" ? "healthy" : state === "DRAINING" ? "degraded" : "unknown");
}

// Streams. The browser opens them again when they end. A tab that nobody sees has none: a browser has but a few
// connections for all tabs together.
const live = by("live"), parse = (take) => (event) => take(JSON.parse(event.data));
let streams = [];
async function lastEvents() {
  const answer = await ask("events?last=" + EVENTS);
  if (!answer.ok) return;
  const list = (await answer.json()).events, newest = list.length ? list[list.length - 1].id : 0;
  if (newest < lastEvent) {
    // The process is another one.
    lastEvent = 0;
    events = [];
  }
  takeEvents(list);
}
function follow() {
  const hosts = new EventSource("hosts?watch");
  hosts.addEventListener("open", () => {
    reset();
    live.textContent = "live";
  });
  hosts.addEventListener("error", () => { live.textContent = "not connected: what is shown may be old"; });
  hosts.addEventListener("hosts", parse(takeHosts));
  hosts.addEventListener("gone", parse(takeGone));
  hosts.addEventListener("cluster", parse((data) => {
    const cluster = known(data.key);
    Object.assign(cluster, { name: data.cluster, initialized: data.initialized, counted: false });
    soon();
  }));
  hosts.addEventListener("cluster_gone", parse((data) => {
    const cluster = clusters.get(data.cluster);
    if (cluster) forget(cluster);
    clusters.delete(data.cluster);
    soon();
  }));
  hosts.addEventListener("all", () => {
    document.documentElement.dataset.all = "told";
    soon();
  });
  const log = new EventSource("events");
  log.addEventListener("open", lastEvents);
  log.addEventListener("missed", lastEvents);
  log.addEventListener("event", parse((event) => takeEvents([event])));
  streams = [hosts, log];
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && streams.length === 0) follow();
  if (document.hidden) {
    for (const stream of streams) stream.close();
    streams = [];
    live.textContent = "paused";
  }
});
readColors();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColors();
  for (const cluster of clusters.values()) cluster.whole = true;
  soon();
});
let width = innerWidth;
addEventListener("resize", () => {
  if (width === innerWidth) return;
  width = innerWidth;
  for (const cluster of clusters.values()) cluster.whole = true;
  soon();
});
document.addEventListener("submit", (event) => {
  if (event.target.dataset.ask && !confirm(event.target.dataset.ask)) event.preventDefault();
});
form.querySelector("button").hidden = true;
follow();
planes();
setInterval(() => {
  if (rowsDue) drawRows();
  if (eventsDue) drawEvents();
}, 250);
setInterval(() => {
  tell();
  for (const time of document.querySelectorAll("time")) time.textContent = time.id === "up" ? ago(time.dateTime).replace(" ago", "") : ago(time.dateTime);
}, 2000);
setInterval(() => {
  planes();
  server();
}, 5000);
