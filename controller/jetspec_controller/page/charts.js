// The five charts, drawn with Plotly from the API's own shapes.
const CONFIG = { displayModeBar: false, responsive: true };

function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { ink: read("--ink"), line: read("--line"), budget: read("--budget"), load: read("--load") };
}

function layout(colours, x, y, more = {}) {
  const axis = { gridcolor: colours.line, zeroline: false, automargin: true };
  return {
    margin: { l: 48, r: 48, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colours.ink, size: 13 },
    hovermode: "closest",
    legend: { orientation: "h", y: 1.15, x: 0 },
    xaxis: { ...axis, ...x },
    yaxis: { ...axis, rangemode: "tozero", ...y },
    ...more,
  };
}

const budgetAxis = { title: { text: "budget" }, type: "category" };

export function drawTime(node, points) {
  const colours = theme();
  const at = points.map((point) => new Date(point.at * 1000));
  const most = Math.max(1, ...points.map((point) => point.batch ?? 0));
  const second = {
    yaxis2: { title: { text: "requests" }, overlaying: "y", side: "right", range: [0, 1.25 * most], tickmode: "auto", nticks: 5, showgrid: false, automargin: true },
  };
  const time = { tickformat: "%H:%M:%S", nticks: Math.max(2, Math.floor(node.clientWidth / 130)), tickangle: 0 };
  const series = [
    { name: "budget", mode: "lines", x: at, y: points.map((point) => point.budget), line: { color: colours.budget, width: 3, shape: "hv" } },
    { name: "running", mode: "lines", x: at, y: points.map((point) => point.batch), yaxis: "y2", line: { color: colours.load, width: 2, dash: "dot" } },
  ];
  Plotly.react(node, series, layout(colours, time, { title: { text: "budget" } }, second), CONFIG);
}

export function drawSpeed(node, detail) {
  const colours = theme();
  const speed = detail.speed;
  const now = detail.summary.budget;
  const bars = {
    type: "bar",
    x: speed.map((point) => String(point.budget)),
    y: speed.map((point) => point.tokens_per_second),
    text: speed.map((point) => `batch ${point.mean_batch.toFixed(1)}`),
    textangle: 0,
    customdata: speed.map((point) => [point.tau.toFixed(2), point.rounds]),
    hovertemplate: "budget %{x}: %{y:.0f} tokens/s<br>%{text}, τ %{customdata[0]}, %{customdata[1]} rounds<extra></extra>",
    marker: { color: speed.map((point) => (point.budget === now ? colours.budget : colours.line)), line: { color: colours.budget, width: 1 } },
  };
  Plotly.react(node, [bars], layout(colours, budgetAxis, { title: { text: "tokens/s" } }, { showlegend: false }), CONFIG);
}

function chosenPoint(candidates, decision, value, colours) {
  const point = candidates.find((candidate) => candidate.budget === decision.budget);
  return {
    name: "decided",
    mode: "markers",
    x: point ? [String(point.budget)] : [],
    y: point ? [value(point)] : [],
    marker: { size: 13, symbol: "diamond", color: colours.load },
  };
}

function drawCandidates(node, detail, name, unit, value) {
  const colours = theme();
  const decision = detail.decision;
  const candidates = decision ? decision.explanation.candidates : [];
  const curve = {
    name,
    mode: "lines+markers",
    x: candidates.map((candidate) => String(candidate.budget)),
    y: candidates.map(value),
    line: { color: colours.budget, width: 2 },
    marker: { size: 9, symbol: candidates.map((candidate) => (candidate.extrapolated ? "circle-open" : "circle")) },
    text: candidates.map((candidate) => (candidate.extrapolated ? "extrapolated" : "measured")),
    hovertemplate: `budget %{x}: %{y:.3g} ${unit}<br>%{text}<extra></extra>`,
  };
  const series = decision ? [curve, chosenPoint(candidates, decision, value, colours)] : [curve];
  Plotly.react(node, series, layout(colours, budgetAxis, { title: { text: unit } }), CONFIG);
}

export function drawModel(node, detail) {
  drawCandidates(node, detail, "predicted", "ms per token", (candidate) => 1e3 * candidate.token_s);
}

export function drawTau(node, detail) {
  drawCandidates(node, detail, "τ (open: extrapolated)", "tokens per round", (candidate) => candidate.tau);
}

export function drawCost(node, detail) {
  const colours = theme();
  const decision = detail.decision;
  const why = decision ? decision.explanation : null;
  const curve = why && why.cost ? why.cost.points : [];
  const candidates = why ? why.candidates : [];
  const series = [
    {
      name: "measured",
      mode: "lines+markers",
      x: curve.map((point) => point.rows),
      y: curve.map((point) => 1e3 * point.seconds),
      line: { color: colours.budget, width: 2 },
    },
    {
      name: "candidates",
      mode: "markers",
      x: candidates.map((candidate) => candidate.batch * candidate.budget),
      y: candidates.map((candidate) => 1e3 * candidate.round_s),
      text: candidates.map((candidate) => `budget ${candidate.budget}`),
      hovertemplate: "%{text}: %{y:.2f} ms at %{x:.0f} rows<extra></extra>",
      marker: {
        size: candidates.map((candidate) => (candidate.budget === decision.budget ? 13 : 7)),
        symbol: candidates.map((candidate) => (candidate.budget === decision.budget ? "diamond" : "circle-open")),
        color: colours.load,
        opacity: 1,
      },
    },
  ];
  const rows = { title: { text: "rows (batch × budget)" }, type: "log" };
  Plotly.react(node, series, layout(colours, rows, { title: { text: "ms per round" }, type: "log" }), CONFIG);
}
