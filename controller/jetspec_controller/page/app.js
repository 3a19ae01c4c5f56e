// Asks the controller once an interval and shows one server. No request leaves this origin.
import { drawCost, drawModel, drawSpeed, drawTau, drawTime } from "./charts.js";

const POINTS = 600;
const ROWS = 40;
const $ = (id) => document.getElementById(id);
const number = (value, digits = 0) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const plain = (word) => word.replaceAll("_", " ");

let fleet = { targets: [], interval_s: 2, paused: false };
let points = [];
let shown = null;

async function ask(path, options) {
  const response = await fetch(path, options);
  if (response.status === 204) return null;
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail || body.title);
  return body;
}

function chosen() {
  const asked = decodeURIComponent(location.hash.slice(1));
  const ids = fleet.targets.map((target) => target.id);
  return ids.includes(asked) ? asked : ids[0];
}

function fillTargets() {
  const select = $("target");
  const ids = fleet.targets.map((target) => target.id);
  const present = [...select.options].map((option) => option.value);
  if (ids.join("\n") !== present.join("\n")) {
    select.replaceChildren(...ids.map((id) => new Option(id, id)));
  }
  if (document.activeElement !== select) select.value = chosen();
}

function showStatus() {
  const up = fleet.targets.filter((target) => target.ready).length;
  const paused = fleet.paused ? " · paused: nothing is applied" : "";
  const status = $("status");
  status.textContent = `${up} of ${fleet.targets.length} servers readable${paused}`;
  status.classList.toggle("bad", up < fleet.targets.length || fleet.paused);
}

function showNow(detail) {
  const { summary, decision } = detail;
  $("now-budget").textContent = number(summary.budget);
  $("now-running").textContent = number(summary.running_requests, 1);
  $("now-waiting").textContent = number(summary.waiting_requests, 1);
  $("now-tps").textContent = number(summary.tokens_per_second);
  $("now-mode").textContent = summary.pin ? `pinned to ${summary.pin.budget}` : plain(summary.mode || "–");
  if (!decision) return;
  const why = decision.explanation;
  $("now-rate").textContent = number(why.arrival_rate, 2);
  $("now-expected").textContent = number(why.batch_expected, 1);
  const parts = [`Decided ${decision.budget ?? "nothing"}: ${plain(decision.reason)}`];
  if (why.kv_ceiling !== null) parts.push(`KV cache has room for budget ${why.kv_ceiling}`);
  if (why.clamps.length) parts.push(`limited by ${why.clamps.map(plain).join(", ")}`);
  if (why.overwrites) parts.push(`changed by somebody else ${why.overwrites} times recently`);
  for (const fault of detail.faults) parts.push(`${plain(fault.signal)} ${plain(fault.fault)} ${fault.detail}`.trim());
  $("why").textContent = parts.join(" · ");
}

function showDecisions() {
  const rows = points.slice(-ROWS).reverse().map((point) => {
    const row = document.createElement("tr");
    row.classList.toggle("sent", point.result !== null);
    const cells = [
      new Date(point.at * 1000).toLocaleTimeString(),
      number(point.budget),
      plain(point.reason),
      number(point.batch, 1),
      point.gain === null ? "–" : `${(100 * point.gain).toFixed(1)} %`,
      point.result === null ? "" : plain(point.result),
    ];
    for (const text of cells) row.insertCell().textContent = text;
    return row;
  });
  $("decisions").replaceChildren(...rows);
}

function showTiers(detail) {
  const tiers = detail.read_back ? detail.read_back.tiers : [];
  const select = $("pin-budget");
  if ([...select.options].map((option) => Number(option.value)).join() !== tiers.join()) {
    select.replaceChildren(...tiers.map((tier) => new Option(tier, tier)));
  }
}

async function refresh() {
  fleet = await ask("v1/targets");
  fillTargets();
  showStatus();
  const id = chosen();
  if (id === undefined) return;
  if (id !== shown) {
    shown = id;
    points = [];
  }
  const since = points.length ? points.at(-1).at : 0;
  const name = encodeURIComponent(id);
  const [detail, fresh] = await Promise.all([
    ask(`v1/targets/${name}`),
    ask(`v1/decisions?target=${name}&since=${since}&limit=${POINTS}`),
  ]);
  points = points.concat(fresh.decisions.reverse()).slice(-POINTS);
  showNow(detail);
  showTiers(detail);
  showDecisions();
  drawTime($("chart-time"), points);
  drawSpeed($("chart-speed"), detail);
  drawModel($("chart-model"), detail);
  drawTau($("chart-tau"), detail);
  drawCost($("chart-cost"), detail);
}

async function turn() {
  try {
    await refresh();
  } catch (error) {
    $("status").textContent = `The controller cannot be read: ${error.message}`;
    $("status").classList.add("bad");
  }
  document.body.dataset.turns = String(Number(document.body.dataset.turns ?? 0) + 1);
  setTimeout(turn, 1000 * fleet.interval_s);
}

async function write(method, path, body, done) {
  const headers = { Authorization: `Bearer ${$("token").value}`, "Content-Type": "application/json" };
  try {
    await ask(path, { method, headers, body: body && JSON.stringify(body) });
    $("answer").textContent = done;
    await refresh();
  } catch (error) {
    $("answer").textContent = error.message;
  }
}

$("target").addEventListener("change", (event) => {
  location.hash = encodeURIComponent(event.target.value);
  refresh().catch(() => {});
});
$("token").addEventListener("input", (event) => {
  $("writes").disabled = event.target.value === "";
});
$("control").addEventListener("submit", (event) => {
  event.preventDefault();
  const budget = Number($("pin-budget").value);
  const wanted = { budget, ttl_s: 60 * Number($("pin-minutes").value), reason: $("pin-reason").value };
  write("PUT", `v1/targets/${encodeURIComponent(shown)}/pin`, wanted, `Pinned to ${budget}.`);
});
$("unpin").addEventListener("click", () => {
  write("DELETE", `v1/targets/${encodeURIComponent(shown)}/pin`, null, "The pin is removed.");
});
$("pause").addEventListener("click", () => {
  const path = fleet.paused ? "v1/resume" : "v1/pause";
  write("POST", path, null, fleet.paused ? "Resumed." : "Paused: decisions are not applied.");
});
setInterval(() => {
  $("pause").textContent = fleet.paused ? "Resume all servers" : "Pause all servers";
}, 500);

turn();
