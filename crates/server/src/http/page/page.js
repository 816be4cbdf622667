// A conversation with streaming, and the engine's numbers as plots. What a model says is written as text nodes alone.
"use strict";

const find = (id) => document.getElementById(id);
const base = location.pathname.replace(/\/$/, "");
let messages = [];
let running = null;

function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- Markdown, the part of it that models write. A link is shown with its address and leads nowhere by itself.

const INLINE = /(`+)([^`]+?)\1|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]*)\]\(([^)\s]*)\)/;

function inline(text, parent) {
  for (let found = INLINE.exec(text); found; found = INLINE.exec(text)) {
    parent.append(text.slice(0, found.index));
    if (found[2] !== undefined) parent.append(element("code", "", found[2]));
    else if (found[3] !== undefined) parent.append(element("strong", "", found[3]));
    else if (found[4] !== undefined) parent.append(element("em", "", found[4]));
    else parent.append(link(found[5], found[6]));
    text = text.slice(found.index + found[0].length);
  }
  parent.append(text);
}

function link(text, address) {
  if (!/^https?:\/\//.test(address)) return document.createTextNode(`${text} (${address})`);
  const made = element("a", "", text || address);
  made.href = address;
  made.title = address;
  made.rel = "noopener noreferrer nofollow";
  made.target = "_blank";
  return made;
}

function markdown(text, parent) {
  parent.replaceChildren();
  const lines = text.split("\n");
  let block = null;
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    const fence = /^\s*```/.test(line);
    const item = /^\s*(?:[-*+]|(\d+)[.)])\s+(.*)/.exec(line);
    const heading = /^#{1,6}\s+(.*)/.exec(line);
    const quote = /^>\s?(.*)/.exec(line);
    if (fence) {
      const code = [];
      while (++at < lines.length && !/^\s*```/.test(lines[at])) code.push(lines[at]);
      const box = element("pre");
      box.tabIndex = 0;
      box.append(element("code", "", code.join("\n")));
      parent.append(box);
      block = null;
    } else if (heading) {
      inline(heading[1], parent.appendChild(element("h3")));
      block = null;
    } else if (item) {
      const kind = item[1] === undefined ? "UL" : "OL";
      if (block?.tagName !== kind) {
        block = parent.appendChild(element(kind));
        if (kind === "OL") block.start = Number(item[1]);
      }
      inline(item[2], block.appendChild(element("li")));
    } else if (quote) {
      if (block?.tagName !== "BLOCKQUOTE") block = parent.appendChild(element("blockquote"));
      inline(`${quote[1]}\n`, block);
    } else if (line.trim() === "") {
      block = null;
    } else {
      if (block?.tagName !== "P") block = parent.appendChild(element("p"));
      else block.append(element("br"));
      inline(line, block);
    }
  }
}

// ---- The conversation

function settings() {
  const number = (id) => (find(id).value === "" ? undefined : Number(find(id).value));
  const tools = find("tools").value.trim();
  const body = {
    model: find("model").value,
    stream: true,
    stream_options: { include_usage: true },
    timings: true,
    temperature: number("temperature"),
    top_p: number("top_p"),
    max_tokens: number("max_tokens"),
    seed: number("seed"),
  };
  if (tools !== "" && tools !== "[]") body.tools = JSON.parse(tools);
  return body;
}

function headers() {
  const key = find("key").value;
  return { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
}

function box(role) {
  const made = element("article", `said ${role}`);
  made.setAttribute("aria-label", role === "user" ? "You" : "Model");
  find("log").append(made);
  return made;
}

function status(text, isBad) {
  find("status").textContent = text;
  find("status").className = isBad ? "bad" : "";
}

// What has come of an answer, and how it is shown.
class Answer {
  constructor() {
    this.message = { role: "assistant", content: "" };
    this.box = box("assistant");
    this.text = element("div");
    this.box.append(this.text);
    this.isDue = false;
  }

  take(delta) {
    if (delta.reasoning_content) {
      if (!this.thoughts) {
        this.thoughts = element("details");
        this.thoughts.append(element("summary", "", "Reasoning"), document.createTextNode(""));
        this.box.prepend(this.thoughts);
      }
      this.thoughts.lastChild.data += delta.reasoning_content;
      this.message.reasoning_content = this.thoughts.lastChild.data;
    }
    if (delta.content) this.message.content += delta.content;
    for (const piece of delta.tool_calls ?? []) this.takeCall(piece);
    this.show();
  }

  takeCall(piece) {
    this.message.tool_calls ??= [];
    this.calls ??= [];
    if (!this.message.tool_calls[piece.index]) {
      const made = { id: piece.id, type: "function", function: { name: piece.function.name, arguments: "" } };
      this.message.tool_calls[piece.index] = made;
      this.calls[piece.index] = element("div", "call");
      this.box.append(this.calls[piece.index]);
    }
    const call = this.message.tool_calls[piece.index].function;
    call.arguments += piece.function.arguments ?? "";
    this.calls[piece.index].textContent = `${call.name}(${call.arguments})`;
  }

  // At most once a frame, however fast tokens come.
  show() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      const log = find("log");
      const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
      markdown(this.message.content, this.text);
      if (atEnd) log.scrollTop = log.scrollHeight;
    });
  }

  // A field for each call's result; the last one sends them.
  askForResults() {
    const form = element("form");
    const fields = this.message.tool_calls.map((call) => {
      const label = element("label", "", `Result of ${call.function.name} `);
      const field = element("input");
      label.append(field);
      form.append(label);
      return { call, field };
    });
    form.append(element("button", "", "Send results"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (running) return;
      form.remove();
      for (const { call, field } of fields) {
        messages.push({ role: "tool", tool_call_id: call.id, content: field.value });
      }
      answer();
    });
    this.box.append(form);
  }
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      if (!block.startsWith("data: ") || block === "data: [DONE]") continue;
      yield JSON.parse(block.slice(6));
    }
  }
}

async function answer() {
  let body;
  try {
    body = settings();
  } catch (error) {
    return status(`The tools are no JSON: ${error.message}`, true);
  }
  const system = find("system").value;
  body.messages = [...(system ? [{ role: "system", content: system }] : []), ...messages];
  running = new AbortController();
  find("send").disabled = true;
  find("stop").disabled = false;
  status("Waiting");
  let shown = null;
  try {
    const options = { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal };
    const response = await fetch(`${base}/v1/chat/completions`, options);
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      shown ??= new Answer();
      const choice = event.choices[0];
      if (choice) shown.take(choice.delta);
      if (choice?.finish_reason) shown.reason = choice.finish_reason;
      if (event.usage) shown.facts = facts(event);
      status("Answering");
    }
    status(shown?.facts ?? "");
  } catch (error) {
    if (error.name === "AbortError") status("Stopped");
    else status(error.message, true);
  }
  if (shown) messages.push(shown.message);
  if (shown?.reason === "tool_calls") shown.askForResults();
  running = null;
  find("send").disabled = false;
  find("stop").disabled = true;
}

function facts({ usage, timings }) {
  const known = usage.prompt_tokens_details.cached_tokens;
  const rate = timings ? (1000 * (usage.completion_tokens - 1)) / timings.decode_ms : NaN;
  const speed = Number.isFinite(rate) ? `, ${rate.toFixed(1)} tokens/s` : "";
  return `${usage.prompt_tokens} tokens of prompt (${known} known), ${usage.completion_tokens} of answer${speed}`;
}

// ---- The engine

const POINTS = 120;
const PERIOD = 1000;
const rate = (name) => (now, before, seconds) => [(sum(now, name) - sum(before, name)) / seconds];
// Pages of a kind: those of running sequences, and those that the prefix cache alone holds.
const pages = (kind) => ({
  title: `Pages, ${kind}`,
  unit: " %",
  parts: ["running", "cached"],
  most: 100,
  isShown: (now) => sum(now, "gannet_pages", { kind }) > 0,
  of: (now) => {
    const all = Math.max(sum(now, "gannet_pages", { kind }), 1);
    return ["running", "cached"].map((held) => (100 * sum(now, "gannet_pages", { kind, held })) / all);
  },
});
// The parts of a step's time.
const PHASES = ["run", "sample", "schedule", "assemble", "commit"];
const PLOTS = [
  {
    title: "Sequences",
    parts: ["running", "waiting"],
    of: (now) => ["vllm:num_requests_running", "vllm:num_requests_waiting"].map((name) => sum(now, name)),
  },
  { title: "Tokens of answers", unit: "/s", of: rate("vllm:inter_token_latency_seconds_count") },
  {
    title: "Prefix hits",
    unit: " %",
    most: 100,
    of: (now, before) => [100 * ratio(now, before, "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")],
  },
  pages("full"),
  pages("window"),
  pages("open"),
  {
    title: "Time of a step",
    least: 0.1,
    unit: " ms",
    parts: PHASES,
    isSum: true,
    of: (now, before) =>
      PHASES.map((phase) => 1000 * ratio(now, before, "gannet_step_seconds_total", "gannet_steps_total", { phase })),
  },
  {
    title: "Rows of a step",
    of: (now, before) => [ratio(now, before, "gannet_step_rows_total", "gannet_steps_total")],
  },
  { title: "Steps", unit: "/s", of: rate("gannet_steps_total") },
  { title: "Wait of a new request", unit: " s", least: 0.1, of: (now) => [sum(now, "gannet_queue_wait_seconds")] },
];
let last = null;

// Samples as names, labels and numbers.
function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const found = /^([^#{\s]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return samples;
}

// The sum over models of the samples that have these labels.
function sum(samples, name, labels = {}) {
  const fits = (sample) => sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value);
  return samples.reduce((total, sample) => total + (fits(sample) ? sample.value : 0), 0);
}

function ratio(now, before, above, below, labels) {
  const difference = sum(now, below) - sum(before, below);
  return difference > 0 ? (sum(now, above, labels) - sum(before, above, labels)) / difference : 0;
}

// The least of 1, 2, 5, 10 and so on that a number doesn't exceed: where a plot ends.
function above(number) {
  const power = 10 ** Math.floor(Math.log10(number));
  return power * [1, 2, 5, 10].find((step) => step * power >= number);
}

const shown = (number) => (number >= 30 || Number.isInteger(number) ? String(Math.round(number)) : number.toFixed(1));

// What a plot's newest point says: one number, or one for each part.
function said({ unit = "", parts, isSum }, values) {
  if (!parts || isSum) return shown(values.reduce((total, value) => total + value, 0)) + unit;
  return parts.map((part, place) => `${shown(values[place])}${unit} ${part}`).join(", ");
}

function figure({ title, parts = [""] }) {
  const made = element("figure");
  made.setAttribute("aria-label", title);
  const caption = element("figcaption");
  const value = element("output", "", "–");
  // Ten numbers that change every second are not to be read out.
  value.setAttribute("aria-live", "off");
  caption.append(element("span", "", title), value);
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${POINTS - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title} over two minutes`);
  const grid = svg.appendChild(document.createElementNS(space, "path"));
  grid.setAttribute("class", "lines");
  grid.setAttribute("d", [0, 50, 100].map((y) => `M0,${y}H${POINTS - 1}`).join(""));
  const paths = parts.map((_, place) => {
    const path = document.createElementNS(space, "path");
    path.setAttribute("class", `part-${place}`);
    svg.prepend(path);
    return path;
  });
  // What the lines stand for: the largest value, half of it, nothing.
  const scale = element("div", "scale");
  const marks = ["", "", "0"].map((text) => scale.appendChild(element("span", "", text)));
  const times = element("div", "times");
  times.append(element("span", "", "2 minutes ago"), element("span", "", "now"));
  for (const axis of [scale, times]) axis.setAttribute("aria-hidden", "true");
  const frame = element("div", "plot");
  frame.append(scale, svg, times);
  made.append(caption, frame);
  if (parts.length > 1) {
    const legend = element("p", "legend");
    parts.forEach((part, place) => legend.append(element("span", `part-${place}`, part)));
    made.append(legend);
  }
  find("plots").append(made);
  return { made, svg, paths, value, marks };
}

// Parts lie on one another: each is drawn up to the sum of those before it and itself, the largest behind.
function plot(kind) {
  const { made, svg, paths, value, marks } = figure(kind);
  const { unit = "" } = kind;
  const points = [];
  return (now, before, seconds) => {
    made.hidden = kind.isShown !== undefined && !kind.isShown(now);
    const values = kind.of(now, before, seconds);
    points.push(values.map((_, place) => values.slice(0, place + 1).reduce((total, part) => total + part, 0)));
    if (points.length > POINTS) points.shift();
    const most = kind.most ?? above(Math.max(...points.map((sums) => sums.at(-1)), kind.least ?? 1));
    [most, most / 2].forEach((number, place) => (marks[place].textContent = `${Number(number.toPrecision(2))}${unit}`));
    const first = POINTS - points.length;
    paths.forEach((path, part) => {
      const at = points.map((sums, place) => `${first + place},${(100 - (100 * Math.min(sums[part], most)) / most).toFixed(2)}`);
      path.setAttribute("d", `M${first},100L${at.join("L")}L${POINTS - 1},100Z`);
    });
    value.textContent = said(kind, values);
    svg.setAttribute("aria-label", `${kind.title} over two minutes, from 0 to ${marks[0].textContent}, now ${value.textContent}`);
  };
}

async function watch(draws) {
  try {
    const response = await fetch(`${base}/metrics`);
    const now = { at: performance.now(), samples: parse(await response.text()) };
    if (last) {
      const seconds = (now.at - last.at) / 1000;
      for (const draw of draws) draw(now.samples, last.samples, seconds);
    }
    last = now;
    find("engine-status").textContent = "";
  } catch (error) {
    find("engine-status").textContent = `The server doesn't answer: ${error.message}`;
  }
  setTimeout(() => watch(draws), PERIOD);
}

// ---- The page

async function listModels() {
  try {
    const response = await fetch(`${base}/v1/models`, { headers: headers() });
    const body = await response.json();
    if (!response.ok) return status(body.error.message, true);
    find("model").replaceChildren(...body.data.map((model) => new Option(model.id, model.id)));
    status("");
  } catch (error) {
    status(`The server doesn't answer: ${error.message}`, true);
  }
}

function choose(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    const isChosen = other === tab;
    other.setAttribute("aria-selected", String(isChosen));
    other.tabIndex = isChosen ? 0 : -1;
    find(other.getAttribute("aria-controls")).hidden = !isChosen;
  }
  tab.focus();
}

function start() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose(tabs[(place + step + tabs.length) % tabs.length]);
    });
  });
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const said = find("prompt").value.trim();
    if (running || said === "") return;
    messages.push({ role: "user", content: said });
    box("user").textContent = said;
    find("prompt").value = "";
    answer();
  });
  find("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    find("form").requestSubmit();
  });
  find("stop").addEventListener("click", () => running?.abort());
  find("clear").addEventListener("click", () => {
    running?.abort();
    messages = [];
    find("log").replaceChildren();
    status("");
  });
  find("key").addEventListener("change", listModels);
  watch(PLOTS.map(plot));
  listModels();
}

start();
