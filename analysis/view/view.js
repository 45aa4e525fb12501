"use strict";
// Whatever a run holds is untrusted: it reaches the page through textContent alone.
const ROW = 46, CHUNK = 150;
const $ = (id) => document.getElementById(id);
const WORDS = ["author", "text", "observation", "finish_reason", "parse_status"], FIRST = 32, HALVES = 0x800;
let run, E, U, served, shown = [], current = -1, beside = -1, needle = "", asTrained = false;

function make(tag, className, text, more) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(more || {})) node.setAttribute(name, value);
  return node;
}
const count = (n) => n.toLocaleString("en");
const tail = (name) => name.split("/").slice(-2).join("/");
const address = (episode, t) => {
  const named = { e: E.episode_id[episode], ...(t && { t }), ...(needle && { q: $("search").value }) };
  return "#" + new URLSearchParams(named);
};
const outcome = (e) => (E.R[e] === null ? "none" : E.R[e] >= run.success_at ? "won" : "lost");

async function read() {
  const packed = atob($("data").textContent.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  run = await new Response(stream).json();
  E = run.episodes; U = run.turns || {}; served = !run.turns;
  run.plain = []; run.loaded = new Set();
  const children = new Map();
  E.parent.forEach((parent, e) => {
    if (parent >= 0) children.has(parent) ? children.get(parent).push(e) : children.set(parent, [e]);
  });
  run.children = children;
  const kinds = [...new Set(E.kind)];
  $("kind").append(new Option("all", ""), ...kinds.map((kind) => new Option(kind, kind)));
  for (const id of ["search", "kind", "outcome", "trained"]) $(id).addEventListener("input", later);
  $("list").addEventListener("scroll", drawList);
  window.addEventListener("resize", drawList);
  window.addEventListener("hashchange", follow);
  document.addEventListener("keydown", key);
  await filter();
  await follow();
}

// A text by its place: each of its characters is a word.
function words(at) {
  return run.plain[at] ??= run.words.length ? Array.from(run.texts[at], (sign) => {
    const code = sign.codePointAt(0);
    return run.words[code - FIRST - (code > 0xdfff ? HALVES : 0)];
  }).join("") : run.texts[at];
}

// The turns of an episode and of those that it goes on from; the page has them, or its server.
async function load(e) {
  for (; served && e >= 0; e = E.parent[e]) {
    if (run.loaded.has(e)) continue;
    const found = await ask(`turns?e=${e}`), base = run.texts.length;
    found.texts.forEach((text, at) => { run.plain[base + at] = text; });
    run.texts.length += found.texts.length;
    for (const [name, column] of Object.entries(found.turns)) {
      U[name] ??= [];
      column.forEach((value, at) => { U[name][run.first_turn[e] + at] = WORDS.includes(name) ? base + value : value; });
    }
    run.loaded.add(e);
  }
}
async function ask(what) {
  const answer = await fetch(what).catch(() => ({ statusText: "no answer" }));
  if (!answer.ok) throw Error(`${answer.statusText}: start fewsteps view again`);
  return answer.json();
}

// Episodes with a text in a turn, its observation or the prompt.
async function find(text) {
  const holds = run.texts.map((_, at) => words(at).toLowerCase().includes(text));
  const found = new Set(served ? await ask(`find?${new URLSearchParams({ q: text })}`) : []);
  for (let e = 0; e < E.kind.length; e++)
    if (E.episode_id[e].toLowerCase().includes(text) || holds[E.prompt[e]] ||
        (!served && has(e, (i) => holds[U.text[i]] || holds[U.observation[i]]))) found.add(e);
  return found;
}
function has(e, test) {
  for (let i = run.first_turn[e]; i < run.first_turn[e + 1]; i++) if (test(i)) return true;
  return false;
}

// The list: only the rows in view exist.
let waiting = 0, searches = 0;
function later() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => { await filter(); if (current >= 0) draw(); }, 120);
}

async function filter() {
  const text = $("search").value.trim().toLowerCase(), mine = ++searches;
  const kind = $("kind").value, wanted = $("outcome").value, trained = $("trained").checked;
  const hits = text && await find(text);
  if (mine !== searches) return;
  needle = text;
  shown = [];
  for (let e = 0; e < E.kind.length; e++) {
    if (kind && E.kind[e] !== kind) continue;
    if (wanted && outcome(e) !== wanted) continue;
    if (trained && !E.targets[e]) continue;
    if (hits && !hits.has(e)) continue;
    shown.push(e);
  }
  $("count").textContent = `${count(shown.length)} of ${count(E.kind.length)} episodes`;
  $("list").scrollTop = 0;
  drawList();
}

function drawList() {
  const list = $("list"), first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
  const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW) + 10);
  const space = make("div");
  space.style.height = `${shown.length * ROW}px`;
  for (let at = first; at < last; at++) {
    const e = shown[at], row = make("a", "", undefined, { href: address(e) });
    row.style.top = `${at * ROW}px`;
    if (e === current) row.setAttribute("aria-current", "true");
    const facts = [label(e), E.R[e] === null ? E.status[e] : `R ${E.R[e]}`, `${E.length[e]} turns`];
    if (E.switch_turn[e] > 1) facts.push(`switch ${E.switch_turn[e]}`);
    row.append(make("span", "", tail(E.task_id[e])), make("span", "faint", facts.join(" · ")));
    space.append(row);
  }
  list.replaceChildren(space);
}
const label = (e) => (E.kind[e] === "handback" ? `hand-back after ${E.K[e]}` : E.kind[e]);

// One episode.
async function follow() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("q") && asked.get("q") !== $("search").value) { $("search").value = asked.get("q"); await filter(); }
  const e = asked.has("e") ? E.episode_id.indexOf(asked.get("e")) : shown.length ? shown[0] : 0;
  if (e < 0) {
    $("main").replaceChildren(make("p", "warn", `This run has no episode ${asked.get("e")}.`));
    return;
  }
  if (e !== current) {
    current = e;
    beside = E.kind[e] === "handback" && E.parent[e] >= 0 ? E.parent[e] : -1;
    asTrained = false;
    scrollList();
    await draw();
    if (e !== current) return;
  }
  const t = asked.get("t"), goal = t && document.querySelector(`[data-e="${e}"][data-t="${Number(t)}"]`);
  document.querySelectorAll(".here").forEach((node) => node.classList.remove("here"));
  if (goal?.closest("details")) goal.closest("details").open = true;
  if (goal) { goal.classList.add("here"); goal.scrollIntoView({ block: "center" }); } else $("main").scrollTop = 0;
}

function scrollList() {
  const at = shown.indexOf(current), list = $("list");
  if (at >= 0 && (at * ROW < list.scrollTop || (at + 1) * ROW > list.scrollTop + list.clientHeight))
    list.scrollTop = Math.max(0, at * ROW - list.clientHeight / 2);
  drawList();
}

function step(by) {
  const at = shown.indexOf(current), next = at < 0 ? shown[0] : shown[at + by];
  if (next !== undefined) location.hash = address(next);
}
function key(event) {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "/") { event.preventDefault(); $("search").focus(); }
}

// Turns of an episode with those of its parents before its own: [[episode, index], …].
function turnsOf(e) {
  const own = [];
  for (let i = run.first_turn[e]; i < run.first_turn[e + 1]; i++) own.push([e, i]);
  const parent = E.parent[e];
  if (parent < 0) return own;
  const begins = own.length ? U.t[own[0][1]] : E.length[e] + 1;
  return [...turnsOf(parent).filter(([, i]) => U.t[i] < begins), ...own];
}

function promptOf(e) {
  while (E.parent[e] >= 0 && !words(E.prompt[e])) e = E.parent[e];
  try { return JSON.parse(words(E.prompt[e]) || "[]"); } catch { return []; }
}

async function draw() {
  const e = current, main = $("main");
  await load(e);
  if (e !== current) return;
  const all = turnsOf(e);
  main.replaceChildren(make("h2", "", E.task_id[e]), bar(e), facts(e, all));
  if (E.error[e]) main.append(make("p", "warn", `Error: ${E.error[e]}`));
  main.append(verdicts(e), family(e));
  if (asTrained) { main.append(trained(run.rendered[e])); return; }
  const asked = make("details");
  asked.append(make("summary", "", "Before the first turn"));
  for (const message of promptOf(e)) {
    asked.append(make("div", "task", String(message.role)), text("seen", String(message.content)));
  }
  main.append(asked);
  if (beside >= 0) sideBySide(main, e, beside); else inChunks(main, all, (one) => [turn(one, e)]);
}

// Long episodes are drawn piece by piece, so that the page never waits.
function inChunks(into, items, nodes) {
  const e = current;
  (function more(from) {
    if (e !== current) return;
    for (const item of items.slice(from, from + CHUNK)) into.append(...nodes(item));
    if (from + CHUNK < items.length) requestAnimationFrame(() => more(from + CHUNK));
  })(0);
}

function bar(e) {
  const made = make("div", "bar"), at = shown.indexOf(e);
  for (const [name, by] of [["← previous (k)", -1], ["next (j) →", 1]]) {
    const other = at < 0 ? undefined : shown[at + by];
    if (other !== undefined) made.append(make("a", "", name, { href: address(other) }));
  }
  made.append(make("a", "", "link to this episode", { href: address(e) }));
  if (run.rendered[e]) {
    const button = make("button", "", "as it is trained on", { "aria-pressed": String(asTrained) });
    button.onclick = () => { asTrained = !asTrained; draw(); };
    made.append(button);
  }
  return made;
}

function facts(e, all) {
  const list = make("dl"), own = all.filter(([of]) => of === e).map(([, i]) => i);
  const sum = (column, who) => own.reduce((n, i) => n + (who(i) ? column[i] || 0 : 0), 0);
  const teacher = (i) => words(U.author[i]) === "teacher";
  const priced = own.some((i) => U.money[i] !== null);
  const rows = {
    kind: label(e), "reward R": E.R[e] === null ? "none" : E.R[e], ended: E.status[e],
    turns: own.length === E.length[e] ? E.length[e] : `${E.length[e]}, of which ${own.length} own`,
    "switch turn t'": E.switch_turn[e] || "none", K: E.K[e] || "none",
    "teacher tokens": count(sum(U.output_tokens, teacher)),
    "trained on": `${count(own.filter((i) => U.target[i]).length)} turns`,
    "student tokens": count(sum(U.output_tokens, (i) => !teacher(i))),
    cost: priced ? sum(U.money, () => true).toPrecision(3) : "not priced",
    policy: E.policy[e], teacher: E.teacher[e] || "none",
  };
  for (const [name, value] of Object.entries(rows)) {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", String(value)));
    list.append(pair);
  }
  return list;
}

function verdicts(e) {
  const made = make("details"), words = (told) => Object.entries(told)
    .map(([name, value]) => `${name}: ${value === null ? "unknown" : value ? "yes" : "no"}`).join(", ");
  const lines = [];
  for (const p of run.proposals[e] || []) {
    const drawn = p.t_prime ? `t' = ${p.t_prime} (probability ${p.probability.toPrecision(3)})` : "no switch drawn";
    const psi = words(p.psi);
    lines.push(`Proposal ${p.proposal}: ${drawn}, ${p.outcome}.${psi ? ` Prefix filters Ψ: ${psi}.` : ""}`);
  }
  if (Object.keys(E.phi[e]).length) lines.push(`Continuation filters Φ: ${words(E.phi[e])}.`);
  made.append(make("summary", "", lines.length ? "Verdicts of the filters" : "No filter looked at this episode"));
  lines.forEach((line) => made.append(make("p", "", line)));
  made.open = lines.length > 0 && lines.length < 4;
  return made;
}

function family(e) {
  const made = make("div", "bar"), relatives = [];
  if (E.parent[e] >= 0) relatives.push(["from", E.parent[e]]);
  for (const child of run.children.get(e) || []) relatives.push(["", child]);
  if (E.kind[e] === "handback" && E.parent[e] >= 0)
    for (const other of run.children.get(E.parent[e])) relatives.push(["", other]);
  for (const [word, other] of relatives) {
    const ended = E.R[other] === null ? E.status[other] : `R ${E.R[other]}`;
    const link = make("a", "", `${word} ${label(other)}: ${ended}`.trim(), { href: address(other) });
    if (other === e) link.setAttribute("aria-current", "true");
    made.append(link);
  }
  return made;
}

function turn([of, i], e) {
  const who = words(U.author[i]), t = U.t[i], target = of === e && U.target[i];
  const made = make("article", `turn ${who}${target ? " target" : ""}`, undefined, { "data-e": e, "data-t": t });
  const head = make("header");
  head.append(make("a", "", `turn ${t}`, { href: address(e, t) }), " ", make("b", "", who));
  const said = [`${count(U.output_tokens[i])} tokens`];
  if (U.reasoning_tokens[i]) said.push(`${count(U.reasoning_tokens[i])} of them reasoning`);
  if (U.prompt_tokens[i] !== null) said.push(`prompt ${count(U.prompt_tokens[i])}` +
    (U.cached_tokens[i] ? `, ${count(U.cached_tokens[i])} cached` : ""));
  if (U.money[i] !== null) said.push(`cost ${U.money[i].toPrecision(3)}`);
  if (U.attempts[i] > 1) said.push(`${U.attempts[i]} attempts`);
  if (target) said.push("trained on");
  for (const word of [words(U.finish_reason[i]), words(U.parse_status[i])])
    if (!["stop", "ok", ""].includes(word)) said.push(word);
  if (of !== e) said.push(`of the ${E.kind[of]}`);
  head.append(` · ${said.join(" · ")}`);
  made.append(head, text("said", words(U.text[i])));
  if (words(U.observation[i])) made.append(text("seen", words(U.observation[i])));
  if (of !== e || t !== E.switch_turn[e] || E.kind[e] === "handback") return made;
  const both = make("div");
  both.append(make("div", "switch", `Switch: the teacher plays from turn ${t}`), made);
  return both;
}

// A hand-back beside the continuation that it left: what they share, then turn by turn.
function sideBySide(main, e, other) {
  const mine = new Map(turnsOf(e).map((one) => [U.t[one[1]], one]));
  const theirs = new Map(turnsOf(other).map((one) => [U.t[one[1]], one]));
  const ts = [...new Set([...mine.keys(), ...theirs.keys()])].sort((a, b) => a - b);
  const shared = ts.filter((t) => mine.has(t) && theirs.has(t) && mine.get(t)[1] === theirs.get(t)[1]);
  const last = shared.length ? shared[shared.length - 1] : 0;
  const before = make("details");
  before.append(make("summary", "", `The ${shared.length} turns of both`), ...shared.map((t) => turn(mine.get(t), e)));
  main.append(before);
  main.append(make("div", "switch", `Hand-back: the student plays from turn ${last + 1}, after ${E.K[e]} of the teacher's`));
  const grid = make("div", "beside");
  for (const [name, of] of [["the teacher's continuation", other], ["the student after the hand-back", e]])
    grid.append(make("h3", "", `${name}: ${E.R[of] === null ? E.status[of] : `R ${E.R[of]}`}`));
  main.append(grid);
  inChunks(grid, ts.filter((t) => t > last), (t) => [[theirs, other], [mine, e]].map(([turns, of]) => {
    const cell = make("div", "cell");
    if (turns.has(t)) cell.append(turn(turns.get(t), of));
    return cell;
  }));
}

function trained(trace) {
  const made = make("section");
  trace.rows.forEach((row, at) => {
    made.append(make("p", "", `Row ${at + 1} of ${trace.rows.length}: ${row.targets} targets of ${row.ids} ids`));
    const pre = make("pre");
    for (const piece of row.pieces)
      pre.append(make("span", piece.author + (piece.target ? " target" : ""), piece.text, { title: `${piece.author}, ${piece.ids} ids` }));
    made.append(pre);
  });
  for (const [message, reason] of trace.dropped)
    made.append(make("p", "dropped", `Message ${message} is no target: ${reason}`));
  return made;
}

// A text with what was searched for marked.
function text(className, value) {
  const made = make("div", className), lower = value.toLowerCase();
  if (!needle || lower.length !== value.length) { made.textContent = value; return made; }
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    made.append(value.slice(from, at), make("mark", "", value.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  made.append(value.slice(from));
  return made;
}

function failed(error) {
  $("main").replaceChildren(make("p", "warn", `The episodes of this page cannot be read: ${error}`));
}
window.addEventListener("unhandledrejection", (event) => failed(event.reason));
read().catch(failed);
